//! The command line.

use std::time::Duration;

use clap::{Parser, ValueEnum};
use clb_arm::Identity;

/// Shows which Kubernetes node is which machine of a scale set, and what changes, in a simulated Azure or the real one.
#[derive(Debug, Parser)]
#[command(name = "vmss_nodes")]
pub(crate) struct Arguments {
    /// The subscription; without one, Azure is simulated, and a short story is played in it
    #[arg(long, requires = "resource_group")]
    subscription: Option<String>,
    /// The resource group of the scale sets, such as MC_group_cluster_region
    #[arg(long, requires = "subscription")]
    resource_group: Option<String>,
    /// Who to be in the real Azure
    #[arg(long, value_enum, default_value = "azure-cli")]
    identity: Who,
    /// How long to wait between two polls; 60 in the real Azure and 1 in the simulated one, if not given
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    interval: Option<u64>,
    /// Show the nodes once, and end
    #[arg(long)]
    pub(crate) once: bool,
    /// Let the simulated time pass at once
    #[arg(long, conflicts_with = "subscription")]
    pub(crate) no_wait: bool,
}

/// Who to be.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Who {
    /// Whoever is signed in to the Azure CLI
    AzureCli,
    /// The pod's workload identity
    Workload,
    /// The machine's own identity
    SystemAssigned,
}

/// A real resource group.
pub(crate) struct Target<'a> {
    pub(crate) subscription: &'a str,
    pub(crate) resource_group: &'a str,
    pub(crate) identity: Identity,
}

impl Arguments {
    /// The real resource group, if one is named.
    pub(crate) fn target(&self) -> Option<Target<'_>> {
        let identity = match self.identity {
            Who::AzureCli => Identity::AzureCli,
            Who::Workload => Identity::Workload,
            Who::SystemAssigned => Identity::SystemAssigned,
        };
        Some(Target {
            subscription: self.subscription.as_deref()?,
            resource_group: self.resource_group.as_deref()?,
            identity,
        })
    }

    pub(crate) fn interval(&self) -> Duration {
        Duration::from_secs(self.interval.unwrap_or(if self.subscription.is_some() { 60 } else { 1 }))
    }
}
