//! What scale sets and resource groups are known by.

use std::fmt;

use clb_arm::{InvalidResourceId, ResourceId};

use crate::{ArmName, ProviderId};

const NAMESPACE: &str = "Microsoft.Compute";
const SCALE_SETS: &str = "virtualMachineScaleSets";

/// A resource group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceGroupKey {
    /// The subscription's id.
    pub subscription: ArmName,
    /// The resource group.
    pub name: ArmName,
}

impl fmt::Display for ResourceGroupKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/subscriptions/{}/resourceGroups/{}", self.subscription, self.name)
    }
}

/// A scale set. Two of one name in two resource groups are two.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ScaleSetKey {
    /// The subscription's id.
    pub subscription: ArmName,
    /// The resource group.
    pub resource_group: ArmName,
    /// The scale set.
    pub name: ArmName,
}

impl ScaleSetKey {
    /// The scale set that the resource id `id` names, if it names one.
    #[must_use]
    pub fn from_resource_id(id: &str) -> Option<Self> {
        let id: ResourceId = id.parse().ok()?;
        if !id.resource_type().eq_ignore_ascii_case("Microsoft.Compute/virtualMachineScaleSets") {
            return None;
        }
        Some(Self {
            subscription: id.subscription().parse().ok()?,
            resource_group: id.resource_group().parse().ok()?,
            name: id.name().parse().ok()?,
        })
    }

    /// The scale set that a uniform instance is in. `None` for a machine of its own, whose id does not say.
    #[must_use]
    pub fn of_instance(id: &ProviderId) -> Option<Self> {
        match id.clone() {
            ProviderId::Uniform { subscription, resource_group, scale_set, instance_id: _ } => {
                Some(Self { subscription, resource_group, name: scale_set })
            }
            ProviderId::VirtualMachine { .. } => None,
        }
    }

    /// The resource group that it is in.
    #[must_use]
    pub fn group(&self) -> ResourceGroupKey {
        ResourceGroupKey { subscription: self.subscription.clone(), name: self.resource_group.clone() }
    }

    /// The instance with the given number.
    #[must_use]
    pub fn instance(&self, instance_id: u32) -> ProviderId {
        let Self { subscription, resource_group, name } = self.clone();
        ProviderId::Uniform { subscription, resource_group, scale_set: name, instance_id }
    }

    /// Its resource id.
    ///
    /// # Errors
    /// [`InvalidResourceId`] for a name that cannot stand in one.
    pub fn resource_id(&self) -> Result<ResourceId, InvalidResourceId> {
        ResourceId::new(
            self.subscription.as_str(),
            self.resource_group.as_str(),
            NAMESPACE,
            SCALE_SETS,
            self.name.as_str(),
        )
    }
}

impl fmt::Display for ScaleSetKey {
    /// The resource id.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/providers/{NAMESPACE}/{SCALE_SETS}/{}", self.group(), self.name)
    }
}
