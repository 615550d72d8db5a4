//! A live table of nodes: which machine each is, whether it runs, and which addresses it has.
//!
//! `cargo run --example vmss_nodes` plays a short story in a simulated Azure of its own. With `--subscription` and
//! `--resource-group` it watches the real one, as `--identity` says, until it is interrupted, and changes nothing there.

mod arguments;
mod table;

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use clb_arm::{Anonymous, ArmClient, Cloud, Endpoint, HttpTransport, Limiter, RetryPolicy};
use clb_sim::{Simulator, SimulatorConfig, azure};
use clb_vmss::models::ScaleSet;
use clb_vmss::{
    CacheConfig, CallContext, Membership, MembershipConfig, NodePoller, ResourceGroupKey, ScaleSetKey,
    VmssApi, VmssCache, VmssClient,
};
use futures::StreamExt;
use serde_json::json;
use tokio::time::{sleep, timeout};

use arguments::{Arguments, Target};
use table::Table;

type Error = Box<dyn std::error::Error>;

#[tokio::main]
async fn main() -> ExitCode {
    let log = tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "off".into());
    tracing_subscriber::fmt().with_env_filter(log).with_writer(io::stderr).init();
    let arguments = Arguments::parse();
    let result = match arguments.target() {
        Some(target) => watch(&arguments, &target).await,
        None => play(&arguments).await,
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Shows a real resource group.
async fn watch(arguments: &Arguments, target: &Target<'_>) -> Result<(), Error> {
    let credential = target.identity.clone().in_cloud(&Cloud::Public);
    let arm = ArmClient::builder(Endpoint::new(&Cloud::Public)?, credential, HttpTransport::new()?)
        .retry_policy(RetryPolicy::default())
        .limiter(Limiter::new())
        .build();
    let group =
        ResourceGroupKey { subscription: target.subscription.parse()?, name: target.resource_group.parse()? };
    let cache = VmssCache::new(Arc::new(VmssClient::new(arm)), [group.clone()], CacheConfig::default());
    let list = cache.scale_sets(&CallContext::random(), &group, clb_vmss::Freshness::Now).await?;
    println!("{} scale sets in {}", list.value.len(), target.resource_group);
    let mut poller = NodePoller::new(Arc::new(cache), arguments.interval());
    let mut table = Table::default();
    loop {
        tokio::select! {
            told = round(&mut poller, &mut table) => show(&told, &table),
            interrupted = tokio::signal::ctrl_c() => return Ok(interrupted?),
        }
        if arguments.once {
            return Ok(());
        }
    }
}

/// Shows a simulated Azure, in which something happens.
async fn play(arguments: &Arguments) -> Result<(), Error> {
    let simulator = Simulator::start(SimulatorConfig::default()).await?;
    println!("Azure is simulated at {}", simulator.endpoint());
    let cloud = Cloud::Custom { endpoint: simulator.endpoint(), audience: "https://simulator".to_owned() };
    let arm = ArmClient::builder(Endpoint::new(&cloud)?, Anonymous, HttpTransport::new()?).build();
    let vmss: Arc<dyn VmssApi> = Arc::new(VmssClient::new(arm));
    let group = ResourceGroupKey { subscription: "s".parse()?, name: "rg".parse()? };
    let set = |name: &str| {
        ScaleSetKey::from_resource_id(&format!(
            "{group}/providers/Microsoft.Compute/virtualMachineScaleSets/{name}"
        ))
    };
    let (Some(uniform), Some(flexible)) = (set("aks-pool1-vmss"), set("aks-flex")) else {
        return Err("the names are not ones of scale sets".into());
    };
    furnish(&*vmss, &uniform, &flexible).await?;

    let cache = Arc::new(VmssCache::new(vmss, [group.clone()], CacheConfig::default()));
    let membership = Membership::new(Arc::clone(&cache), MembershipConfig::default());
    let mut poller = NodePoller::new(cache, arguments.interval());
    let mut table = Table::default();
    show(&round(&mut poller, &mut table).await, &table);
    if arguments.once {
        return Ok(());
    }
    let call = CallContext::random();
    let machine = uniform.instance(1);
    for step in ["The pool is scaled out.", "A machine is switched off.", "Another one is deleted."] {
        sleep(arguments.interval()).await;
        println!("\n{step}");
        match step {
            "The pool is scaled out." => membership.scale(&call, &uniform, 4).await?,
            "A machine is switched off." => {
                simulator.with_azure(|azure| azure.set_power(&machine.resource_id(), azure::Power::Stopped));
            }
            _ => drop(membership.delete(&call, &uniform, &[uniform.instance(0)].into()).await),
        }
        poller.poll_soon();
        show(&round(&mut poller, &mut table).await, &table);
    }
    Ok(())
}

/// Two scale sets, one of each kind, to look at in an Azure that is new.
async fn furnish(vmss: &dyn VmssApi, uniform: &ScaleSetKey, flexible: &ScaleSetKey) -> Result<(), Error> {
    for (key, mode, capacity) in [(uniform, "Uniform", 3), (flexible, "Flexible", 2)] {
        let ip = json!({"name": "ip", "properties": {"primary": true, "subnet": {"id": "/subnet"}}});
        let interface = json!({"name": "nic", "properties": {"primary": true, "ipConfigurations": [ip]}});
        let model: ScaleSet = serde_json::from_value(json!({
            "location": "eastus2", "sku": {"name": "Standard_D2s_v3", "capacity": capacity},
            "properties": {"orchestrationMode": mode, "virtualMachineProfile": {
                "osProfile": {"computerNamePrefix": key.name.as_str(), "adminUsername": "azure"},
                "networkProfile": {"networkInterfaceConfigurations": [interface]}}}
        }))?;
        vmss.put_scale_set(&CallContext::random(), key, &model).await?;
    }
    Ok(())
}

/// What the next round tells. A round that tells nothing is seen only from its end.
async fn round(poller: &mut NodePoller, table: &mut Table) -> Vec<String> {
    let (before, mut told) = (poller.rounds(), Vec::new());
    while poller.rounds() == before {
        if let Ok(Some((set, event))) = timeout(Duration::from_millis(50), poller.next()).await {
            told.push(table.apply(&set, event));
        }
    }
    told
}

/// Prints what changed and the table: over the last one on a terminal, else below it.
fn show(told: &[String], table: &Table) {
    if told.is_empty() {
        return;
    }
    if io::stdout().is_terminal() {
        print!("\x1b[2J\x1b[H");
    }
    println!("{table}");
    told.iter().for_each(|line| println!("  {line}"));
}
