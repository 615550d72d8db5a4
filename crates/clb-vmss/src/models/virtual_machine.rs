//! Machines: instances of uniform scale sets, and virtual machines of their own.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::read::{is_default, null_as_default, sparse};
use super::{InterfaceConfigurations, ProvisioningState, Resource, SubResource};
use crate::{Power, ProviderId};

/// An instance of a uniform scale set (`…/virtualMachineScaleSets/{set}/virtualMachines/{n}`) or a virtual machine of its
/// own (`Microsoft.Compute/virtualMachines`), which may be of a flexible scale set.
pub type VirtualMachine = Resource<VirtualMachineProperties>;

impl VirtualMachine {
    /// Which machine it is, by its id.
    #[must_use]
    pub fn provider_id(&self) -> Option<ProviderId> {
        ProviderId::from_resource_id(self.id.as_deref()?)
    }

    /// Whether it runs, as far as its instance view says. What is on its way from off to on is not known until it is there.
    #[must_use]
    pub fn power(&self) -> Power {
        const PREFIX: &str = "PowerState/";
        let statuses = self.properties.instance_view.iter().flat_map(|view| &view.statuses);
        let state = statuses.filter_map(|status| status.code.as_deref()).find_map(|code| {
            let (prefix, state) = code.split_at_checked(PREFIX.len())?;
            prefix.eq_ignore_ascii_case(PREFIX).then(|| state.to_ascii_lowercase())
        });
        match state.as_deref() {
            Some("running") => Power::On,
            Some("stopping" | "stopped" | "deallocating" | "deallocated") => Power::Off,
            Some(_) | None => Power::Unknown,
        }
    }
}

/// What is specific to machines.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct VirtualMachineProperties {
    /// Azure's unique id of the machine, which a new machine of the same number does not have.
    #[serde(rename = "vmId", default, skip_serializing_if = "Option::is_none")]
    pub vm_id: Option<String>,
    /// How far the last change got; only read.
    #[serde(rename = "provisioningState", default, skip_serializing_if = "Option::is_none")]
    pub provisioning_state: Option<ProvisioningState>,
    /// Whether it is as its scale set's model is now; only read, and of uniform instances only.
    #[serde(rename = "latestModelApplied", default, skip_serializing_if = "Option::is_none")]
    pub latest_model_applied: Option<bool>,
    /// The operating system's settings.
    #[serde(
        rename = "osProfile",
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "is_default"
    )]
    pub os_profile: MachineOsProfile,
    /// The interfaces that it has.
    #[serde(
        rename = "networkProfile",
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "is_default"
    )]
    pub network_profile: MachineNetworkProfile,
    /// The interfaces that it asks for, of uniform instances only. This is where a pool is joined.
    #[serde(rename = "networkProfileConfiguration", default, skip_serializing_if = "Option::is_none")]
    pub network_profile_configuration: Option<InterfaceConfigurations>,
    /// What it is doing, if that was asked for; only read.
    #[serde(rename = "instanceView", default, skip_serializing_if = "Option::is_none")]
    pub instance_view: Option<InstanceView>,
    /// The flexible scale set that it is of.
    #[serde(rename = "virtualMachineScaleSet", default, skip_serializing_if = "Option::is_none")]
    pub scale_set: Option<SubResource>,
    /// Everything else that was read, written back as it was.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// The operating system's settings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MachineOsProfile {
    /// The host name, which is the Kubernetes Node's name in lower case.
    #[serde(rename = "computerName", default, skip_serializing_if = "Option::is_none")]
    pub computer_name: Option<String>,
    /// Everything else that was read, written back as it was.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// The interfaces that a machine has.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MachineNetworkProfile {
    /// One each.
    #[serde(
        rename = "networkInterfaces",
        default,
        deserialize_with = "sparse",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub interfaces: Vec<InterfaceRef>,
    /// Everything else that was read, written back as it was.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// A reference to an interface.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct InterfaceRef {
    /// The interface's id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// What it is to the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub properties: Option<InterfaceRefProperties>,
    /// Everything else that was read, written back as it was.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// What an interface is to its machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct InterfaceRefProperties {
    /// Whether it is the first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub primary: Option<bool>,
    /// Everything else that was read, written back as it was.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// What a machine is doing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct InstanceView {
    /// One each for provisioning and power.
    #[serde(default, deserialize_with = "sparse")]
    pub statuses: Vec<InstanceStatus>,
    /// Everything else that was read, written back as it was.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// One thing that a machine is doing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct InstanceStatus {
    /// Such as `PowerState/running`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Everything else that was read, written back as it was.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}
