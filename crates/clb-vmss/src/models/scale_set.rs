//! Scale sets.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::read::{null_as_default, open_enum};
use super::{InterfaceConfigurations, ProvisioningState, Resource};

/// A scale set (`Microsoft.Compute/virtualMachineScaleSets`).
pub type ScaleSet = Resource<ScaleSetProperties>;

impl ScaleSet {
    /// How its machines are kept. One that does not say is uniform: the first scale sets knew nothing else.
    #[must_use]
    pub fn orchestration(&self) -> OrchestrationMode {
        self.properties.orchestration_mode.clone().unwrap_or(OrchestrationMode::Uniform)
    }

    /// What the names of its instances begin with.
    #[must_use]
    pub fn computer_name_prefix(&self) -> Option<&str> {
        self.properties.virtual_machine_profile.as_ref()?.os_profile.computer_name_prefix.as_deref()
    }
}

/// What is specific to scale sets.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ScaleSetProperties {
    /// How its machines are kept; never changes.
    #[serde(rename = "orchestrationMode", default, skip_serializing_if = "Option::is_none")]
    pub orchestration_mode: Option<OrchestrationMode>,
    /// How far the last change got; only read.
    #[serde(rename = "provisioningState", default, skip_serializing_if = "Option::is_none")]
    pub provisioning_state: Option<ProvisioningState>,
    /// The model that new instances are made from. A flexible set may have none.
    #[serde(rename = "virtualMachineProfile", default, skip_serializing_if = "Option::is_none")]
    pub virtual_machine_profile: Option<VirtualMachineProfile>,
    /// Everything else that was read, written back as it was.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// The model that new instances are made from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct VirtualMachineProfile {
    /// What becomes of the operating system.
    #[serde(rename = "osProfile", default, deserialize_with = "null_as_default")]
    pub os_profile: ScaleSetOsProfile,
    /// The interfaces.
    #[serde(rename = "networkProfile", default, deserialize_with = "null_as_default")]
    pub network_profile: InterfaceConfigurations,
    /// Everything else that was read, written back as it was.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// What becomes of the operating system.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ScaleSetOsProfile {
    /// What the host names begin with.
    #[serde(rename = "computerNamePrefix", default, skip_serializing_if = "Option::is_none")]
    pub computer_name_prefix: Option<String>,
    /// Everything else that was read, written back as it was.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

open_enum! {
    /// How the machines of a scale set are kept.
    OrchestrationMode {
        /// As numbered instances, which are resources inside the scale set.
        Uniform = "Uniform",
        /// As virtual machines of their own, which name the scale set.
        Flexible = "Flexible",
    }
}
