//! Resources as Azure describes them.
//!
//! Written: camelCase keys, and everything that was read and has no field here as it was, so that a change loses nothing
//! that somebody else has set. Read: missing and null parts, and values of enumerations that are not known yet.

mod network;
mod read;
mod resource;
mod scale_set;
mod virtual_machine;

pub use network::{
    BackendPoolRef, InterfaceConfiguration, InterfaceConfigurations, InterfaceProperties, IpConfiguration,
    IpConfigurationProperties, IpVersion, NetworkInterface,
};
pub use resource::{ProvisioningState, Resource, Sku, SubResource};
pub use scale_set::{
    OrchestrationMode, ScaleSet, ScaleSetOsProfile, ScaleSetProperties, VirtualMachineProfile,
};
pub use virtual_machine::{
    InstanceStatus, InstanceView, InterfaceRef, InterfaceRefProperties, MachineNetworkProfile,
    MachineOsProfile, VirtualMachine, VirtualMachineProperties,
};
