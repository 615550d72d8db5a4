//! The command line.

use std::fmt;
use std::net::IpAddr;

use clap::{Parser, ValueEnum};
use clb_arm::Identity;

/// Looks into ServiceGateways and changes one address, in a simulated Azure or the real one.
#[derive(Debug, Parser)]
#[command(name = "nrp_client")]
pub(crate) struct Arguments {
    /// The subscription; without one, Azure is simulated
    #[arg(long, requires_all = ["resource_group", "region", "virtual_network"])]
    subscription: Option<String>,
    /// The resource group of the ServiceGateway
    #[arg(long, requires = "subscription")]
    resource_group: Option<String>,
    /// The region, such as eastus2
    #[arg(long, requires = "subscription")]
    region: Option<String>,
    /// The full id of the pods' virtual network
    #[arg(long, requires = "subscription")]
    virtual_network: Option<String>,
    /// Who to be in the real Azure
    #[arg(long, value_enum, default_value = "azure-cli")]
    identity: Who,
    /// The ServiceGateway's name
    #[arg(long, default_value = clb_nrp::DEFAULT_SERVICE_GATEWAY)]
    pub(crate) gateway: String,
    /// Let the address back the service, and no other: SERVICE=ADDRESS@NODE
    #[arg(long, value_name = "CHANGE", value_parser = add)]
    add: Option<Change>,
    /// Let the address back nothing: ADDRESS@NODE
    #[arg(long, value_name = "CHANGE", value_parser = remove, conflicts_with = "add")]
    remove: Option<Change>,
    /// Make the change without asking
    #[arg(long)]
    pub(crate) yes: bool,
}

/// Who to be.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Who {
    /// Whoever is signed in to the Azure CLI
    AzureCli,
    /// The pod's workload identity
    Workload,
    /// The machine's own identity
    SystemAssigned,
}

impl Who {
    pub(crate) fn identity(self) -> Identity {
        match self {
            Self::AzureCli => Identity::AzureCli,
            Self::Workload => Identity::Workload,
            Self::SystemAssigned => Identity::SystemAssigned,
        }
    }
}

/// A real resource group.
pub(crate) struct Target<'a> {
    pub(crate) subscription: &'a str,
    pub(crate) resource_group: &'a str,
    pub(crate) region: &'a str,
    pub(crate) virtual_network: &'a str,
    pub(crate) identity: Who,
}

/// A change of one address.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    Add { service: String, address: IpAddr, location: IpAddr },
    Remove { address: IpAddr, location: IpAddr },
}

impl Arguments {
    /// The real resource group, if one is named.
    pub(crate) fn target(&self) -> Option<Target<'_>> {
        Some(Target {
            subscription: self.subscription.as_deref()?,
            resource_group: self.resource_group.as_deref()?,
            region: self.region.as_deref()?,
            virtual_network: self.virtual_network.as_deref()?,
            identity: self.identity,
        })
    }

    /// The change, if one is wanted.
    pub(crate) fn change(&self) -> Option<Change> {
        self.add.clone().or_else(|| self.remove.clone())
    }
}

fn add(text: &str) -> Result<Change, String> {
    let (service, rest) = text.split_once('=').ok_or("it is SERVICE=ADDRESS@NODE")?;
    let (address, location) = place(rest)?;
    Ok(Change::Add { service: service.to_owned(), address, location })
}

fn remove(text: &str) -> Result<Change, String> {
    let (address, location) = place(text)?;
    Ok(Change::Remove { address, location })
}

fn place(text: &str) -> Result<(IpAddr, IpAddr), String> {
    let ip = |text: &str| text.parse::<IpAddr>().map_err(|_| format!("{text:?} is not an IP address"));
    let (address, location) = text.split_once('@').ok_or("the node is missing: ADDRESS@NODE")?;
    Ok((ip(address)?, ip(location)?))
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Add { service, address, location } => {
                write!(f, "{address} at {location} backs {service}, and nothing else")
            }
            Self::Remove { address, location } => write!(f, "{address} at {location} backs nothing"),
        }
    }
}
