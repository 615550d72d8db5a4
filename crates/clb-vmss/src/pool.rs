//! What a change of pools does to one resource. Pure, but for reading and writing it.

use std::collections::BTreeSet;

use crate::membership::Skip;
use crate::models::{
    BackendPoolRef, InterfaceConfigurations, InterfaceProperties, IpConfiguration, IpVersion,
    NetworkInterface, ProvisioningState, ScaleSet, VirtualMachine,
};
use crate::{CallContext, ProviderId, ResourceId, Result, ScaleSetKey, VmssApi};

/// How the cloud provider's convention names the internal one of a pair of load balancers. An interface can be in pools of
/// both.
const INTERNAL: &str = "-internal";

pub(crate) enum PoolChange {
    Join { pool: ResourceId, family: IpVersion },
    Leave { pools: BTreeSet<ResourceId> },
}

/// What a change means for a resource.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// It is as wanted.
    Nothing,
    /// It was changed, and is to be written.
    Write,
    Skip(Skip),
}

/// Which resource.
pub(crate) enum Target {
    ScaleSet(ScaleSetKey),
    Instance(ProviderId),
    Interface(ResourceId),
}

/// A resource as it was read.
pub(crate) enum Resource {
    ScaleSet(Box<ScaleSet>),
    Instance(Box<VirtualMachine>),
    Interface(Box<NetworkInterface>),
}

impl Target {
    pub(crate) async fn read(&self, api: &dyn VmssApi, call: &CallContext) -> Result<Option<Resource>> {
        Ok(match self {
            Self::ScaleSet(set) => api.get_scale_set(call, set).await?.map(Box::new).map(Resource::ScaleSet),
            Self::Instance(id) => api.get_machine(call, id).await?.map(Box::new).map(Resource::Instance),
            Self::Interface(id) => api.get_interface(call, id).await?.map(Box::new).map(Resource::Interface),
        })
    }

    pub(crate) async fn write(
        &self,
        api: &dyn VmssApi,
        call: &CallContext,
        resource: &Resource,
    ) -> Result<()> {
        match (self, resource) {
            (Self::ScaleSet(set), Resource::ScaleSet(body)) => {
                api.put_scale_set(call, set, body).await.map(drop)
            }
            (Self::Instance(id), Resource::Instance(body)) => api.put_machine(call, id, body).await.map(drop),
            (Self::Interface(id), Resource::Interface(body)) => {
                api.put_interface(call, id, body).await.map(drop)
            }
            // A target reads its own kind only.
            (Self::ScaleSet(_) | Self::Instance(_) | Self::Interface(_), _) => Ok(()),
        }
    }
}

impl Resource {
    pub(crate) fn etag(&self) -> Option<&str> {
        match self {
            Self::ScaleSet(resource) => resource.etag.as_deref(),
            Self::Instance(resource) => resource.etag.as_deref(),
            Self::Interface(resource) => resource.etag.as_deref(),
        }
    }

    /// Makes the change, if it means something for this resource.
    pub(crate) fn plan(&mut self, change: &PoolChange) -> Plan {
        match self {
            Self::ScaleSet(set) => {
                let properties = &mut set.properties;
                if properties.provisioning_state == Some(ProvisioningState::Deleting) {
                    return Plan::Skip(Skip::Deleting);
                }
                let model = properties.virtual_machine_profile.as_mut();
                plan_configurations(model.map(|model| &mut model.network_profile), change)
            }
            Self::Instance(machine) if is_deleting(machine) => Plan::Skip(Skip::Deleting),
            Self::Instance(machine) => {
                plan_configurations(machine.properties.network_profile_configuration.as_mut(), change)
            }
            Self::Interface(interface) => {
                let properties = &mut interface.properties;
                if properties.provisioning_state == Some(ProvisioningState::Deleting) {
                    return Plan::Skip(Skip::Deleting);
                }
                match change {
                    PoolChange::Join { pool, family } => join(properties, pool, family),
                    PoolChange::Leave { pools } => leave([properties], pools),
                }
            }
        }
    }
}

fn plan_configurations(configurations: Option<&mut InterfaceConfigurations>, change: &PoolChange) -> Plan {
    let Some(configurations) = configurations.map(|it| &mut it.configurations).filter(|it| !it.is_empty())
    else {
        return Plan::Skip(Skip::NoInterface);
    };
    match change {
        PoolChange::Join { pool, family } => {
            let primary = configurations.iter().position(|one| one.properties.primary == Some(true));
            match configurations.get_mut(primary.unwrap_or(0)) {
                Some(primary) => join(&mut primary.properties, pool, family),
                None => Plan::Skip(Skip::NoInterface),
            }
        }
        PoolChange::Leave { pools } => leave(configurations.iter_mut().map(|one| &mut one.properties), pools),
    }
}

fn join(interface: &mut InterfaceProperties, pool: &ResourceId, family: &IpVersion) -> Plan {
    let ips = &interface.ip_configurations;
    let of_family = |ip: &&IpConfiguration| ip.properties.family() == *family;
    let first = ips.iter().filter(of_family).find(|ip| ip.properties.primary == Some(true));
    let Some(name) = first.or_else(|| ips.iter().find(of_family)).map(|ip| ip.name.clone()) else {
        return Plan::Skip(Skip::NoAddress(family.clone()));
    };
    let pools = ips.iter().flat_map(|ip| ip.properties.backend_pools.iter().flatten());
    let pools: Vec<ResourceId> = pools.filter_map(BackendPoolRef::resource_id).collect();
    let ip = interface.ip_configurations.iter_mut().find(|ip| ip.name == name && of_family(&&**ip));
    let Some(ip) = ip else { return Plan::Skip(Skip::NoAddress(family.clone())) };
    let into = ip.properties.backend_pools.get_or_insert_default();
    if into.iter().any(|it| it.resource_id().as_ref() == Some(pool)) {
        return Plan::Nothing;
    }
    if let Some(other) = pools.iter().find(|other| pair(other) != pair(pool)) {
        return Plan::Skip(Skip::OtherLoadBalancer(other.parent().unwrap_or_else(|| other.clone())));
    }
    into.push(BackendPoolRef::from(pool));
    Plan::Write
}

/// What a pool's load balancer and the other of its pair have in common.
fn pair(pool: &ResourceId) -> String {
    let id = pool.parent().as_ref().unwrap_or(pool).to_string().to_ascii_lowercase();
    id.strip_suffix(INTERNAL).map(str::to_owned).unwrap_or(id)
}

fn leave<'a>(
    interfaces: impl IntoIterator<Item = &'a mut InterfaceProperties>,
    left: &BTreeSet<ResourceId>,
) -> Plan {
    let ips = interfaces.into_iter().flat_map(|interface| &mut interface.ip_configurations);
    let mut plan = Plan::Nothing;
    for pools in ips.filter_map(|ip| ip.properties.backend_pools.as_mut()) {
        let before = pools.len();
        pools.retain(|pool| pool.resource_id().is_none_or(|id| !left.contains(&id)));
        if pools.len() < before {
            plan = Plan::Write;
        }
    }
    plan
}

pub(crate) fn is_deleting(machine: &VirtualMachine) -> bool {
    machine.properties.provisioning_state == Some(ProvisioningState::Deleting)
}

/// The interfaces that a machine names.
pub(crate) fn interfaces(machine: &VirtualMachine) -> Vec<ResourceId> {
    let references = machine.properties.network_profile.interfaces.iter();
    references.filter_map(|reference| reference.id.as_deref()?.parse().ok()).collect()
}

/// The one of them that is primary, or the first.
pub(crate) fn primary_interface(machine: &VirtualMachine) -> Option<ResourceId> {
    let references = &machine.properties.network_profile.interfaces;
    let is_primary = |properties: &crate::models::InterfaceRefProperties| properties.primary == Some(true);
    let primary = references.iter().find(|one| one.properties.as_ref().is_some_and(is_primary));
    primary.or(references.first())?.id.as_deref()?.parse().ok()
}
