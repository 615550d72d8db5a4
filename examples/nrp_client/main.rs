//! The NRP client by hand: what ServiceGateways there are, what one of them holds, and one small change to it.
//!
//! `cargo run --example nrp_client` talks to a simulated Azure of its own. With `--subscription`, `--resource-group`,
//! `--region` and `--virtual-network` it talks to the real one, as `--identity` says. A change is shown first and made only
//! when that is confirmed:
//!
//! `cargo run --example nrp_client -- --add web=10.1.0.6@10.0.0.4`

mod arguments;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;
use clb_arm::{Anonymous, ArmClient, Cloud, Endpoint, HttpTransport, Limiter, ResourceId, RetryPolicy};
use clb_nrp::models::{
    Address, AddressLocation, AddressLocationUpdate, GatewayService, ServiceNames, ServiceRequest,
    UpdateAction, UpdateAddressLocations, UpdateServices,
};
use clb_nrp::{CallContext, NrpApi, NrpClient, NrpConfig};
use clb_sim::{Simulator, SimulatorConfig};

use arguments::{Arguments, Change, Target};

type Error = Box<dyn std::error::Error>;

#[tokio::main]
async fn main() -> ExitCode {
    let log = tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "off".into());
    tracing_subscriber::fmt().with_env_filter(log).with_writer(io::stderr).init();
    match run(&Arguments::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: &Arguments) -> Result<(), Error> {
    let simulator;
    let nrp = match arguments.target() {
        Some(target) => real(&target, &arguments.gateway)?,
        None => {
            simulator = Simulator::start(SimulatorConfig::default()).await?;
            println!("Azure is simulated at {}", simulator.endpoint());
            let nrp = simulated(&simulator)?;
            furnish(&nrp).await?;
            nrp
        }
    };
    show(&nrp).await?;
    let Some(change) = &arguments.change() else { return Ok(()) };
    println!("\nThe change:\n  {change}");
    if !arguments.yes && !confirmed()? {
        println!("Nothing was changed.");
        return Ok(());
    }
    let call = CallContext::random();
    println!("Sent as {}", call.client_request_id());
    nrp.update_address_locations(&call, &update(change)).await?;
    show(&nrp).await
}

/// The client of a real resource group.
fn real(target: &Target<'_>, gateway: &str) -> Result<NrpClient, Error> {
    let credential = target.identity.identity().in_cloud(&Cloud::Public);
    let arm = ArmClient::builder(Endpoint::new(&Cloud::Public)?, credential, HttpTransport::new()?)
        .retry_policy(RetryPolicy::default())
        .limiter(Limiter::new())
        .build();
    let network: ResourceId = target.virtual_network.parse()?;
    let config = NrpConfig::new(target.subscription, target.resource_group, target.region, network)?;
    Ok(NrpClient::new(arm, config.with_service_gateway(gateway)?))
}

/// The client of the simulated Azure.
fn simulated(simulator: &Simulator) -> Result<NrpClient, Error> {
    let cloud = Cloud::Custom { endpoint: simulator.endpoint(), audience: "https://simulator".to_owned() };
    let arm = ArmClient::builder(Endpoint::new(&cloud)?, Anonymous, HttpTransport::new()?).build();
    let network = "/subscriptions/s/resourceGroups/rg/providers/Microsoft.Network/virtualNetworks/vnet";
    Ok(NrpClient::new(arm, NrpConfig::new("s", "rg", "eastus2", network.parse()?)?))
}

/// Something to look at in an Azure that is new: a service with one address.
async fn furnish(nrp: &NrpClient) -> Result<(), Error> {
    let services = UpdateServices {
        action: UpdateAction::PartialUpdate,
        service_requests: vec![ServiceRequest::put(GatewayService::inbound("web", vec![]))],
    };
    nrp.update_services(&CallContext::random(), &services).await?;
    let first = Change::Add {
        service: "web".to_owned(),
        address: [10, 1, 0, 5].into(),
        location: [10, 0, 0, 4].into(),
    };
    Ok(nrp.update_address_locations(&CallContext::random(), &update(&first)).await?)
}

/// Prints what there is.
async fn show(nrp: &NrpClient) -> Result<(), Error> {
    println!("\nServiceGateways of the resource group:");
    for gateway in nrp.list_service_gateways(&CallContext::random()).await? {
        println!("  {}", gateway.name.unwrap_or_default());
    }
    println!("Services of {}:", nrp.config().service_gateway());
    for GatewayService { name, properties } in nrp.get_services(&CallContext::random()).await? {
        let direction = properties.and_then(|properties| properties.service_type);
        println!("  {name} ({})", direction.as_ref().map_or("unknown", |direction| direction.as_str()));
    }
    println!("Locations of {}:", nrp.config().service_gateway());
    for AddressLocation { location, addresses } in nrp.get_address_locations(&CallContext::random()).await? {
        println!("  {location}");
        for Address { address, services } in addresses {
            println!("    {address} → {}", services.join(", "));
        }
    }
    Ok(())
}

fn update(change: &Change) -> UpdateAddressLocations {
    let (location, address, services) = match change {
        Change::Add { service, address, location } => {
            (*location, *address, [service.as_str()].into_iter().collect())
        }
        Change::Remove { address, location } => (*location, *address, ServiceNames::default()),
    };
    UpdateAddressLocations {
        action: UpdateAction::PartialUpdate,
        address_locations: vec![AddressLocationUpdate {
            address_location: location,
            address_update_action: UpdateAction::PartialUpdate,
            addresses: vec![Address { address, services }],
        }],
    }
}

fn confirmed() -> io::Result<bool> {
    print!("Make it? [y/N] ");
    io::stdout().flush()?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
