//! Network interfaces, and the configurations that scale sets and instances have of them.

use std::net::IpAddr;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use super::read::{is_default, null_as_default, open_enum, optional_sparse, sparse};
use super::{ProvisioningState, Resource, SubResource};

/// A network interface, of an instance (`…/virtualMachines/{n}/networkInterfaces/{nic}`) or of its own
/// (`Microsoft.Network/networkInterfaces`).
pub type NetworkInterface = Resource<InterfaceProperties>;

/// A reference to a backend pool of a load balancer.
pub type BackendPoolRef = SubResource;

/// What a network interface has. A scale set and an instance describe the interfaces that they want in the same shape.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct InterfaceProperties {
    /// Whether it is the machine's first interface. Absent if the machine has only one, or runs not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub primary: Option<bool>,
    /// Its addresses and what they belong to.
    #[serde(
        rename = "ipConfigurations",
        default,
        deserialize_with = "sparse",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub ip_configurations: Vec<IpConfiguration>,
    /// The machine that it is of; only read, and absent while it is of none.
    #[serde(rename = "virtualMachine", default, skip_serializing_if = "Option::is_none")]
    pub virtual_machine: Option<SubResource>,
    /// How far the last change got; only read.
    #[serde(rename = "provisioningState", default, skip_serializing_if = "Option::is_none")]
    pub provisioning_state: Option<ProvisioningState>,
    /// Everything else that was read, written back as it was.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// One address of an interface.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct IpConfiguration {
    /// Its name in the interface.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What it is.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "is_default")]
    pub properties: IpConfigurationProperties,
    /// Everything else that was read, written back as it was.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// What an ip-configuration is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct IpConfigurationProperties {
    /// Whether it is the interface's first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub primary: Option<bool>,
    /// The family; IPv4 if absent.
    #[serde(rename = "privateIPAddressVersion", default, skip_serializing_if = "Option::is_none")]
    pub version: Option<IpVersion>,
    /// The address; absent in the configuration of a scale set, and until Azure has chosen one.
    #[serde(
        rename = "privateIPAddress",
        default,
        deserialize_with = "address",
        skip_serializing_if = "Option::is_none"
    )]
    pub private_ip: Option<IpAddr>,
    /// The backend pools that it is in. An empty list takes it out of all; an absent one says nothing.
    #[serde(
        rename = "loadBalancerBackendAddressPools",
        default,
        deserialize_with = "optional_sparse",
        skip_serializing_if = "Option::is_none"
    )]
    pub backend_pools: Option<Vec<BackendPoolRef>>,
    /// Everything else that was read, written back as it was.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

impl IpConfigurationProperties {
    /// The family that it is of: as it says, or as its address does, or IPv4, which is what absence means.
    #[must_use]
    pub fn family(&self) -> IpVersion {
        match (&self.version, self.private_ip) {
            (Some(version), _) => version.clone(),
            (None, Some(IpAddr::V6(_))) => IpVersion::V6,
            (None, Some(IpAddr::V4(_)) | None) => IpVersion::V4,
        }
    }
}

/// The interfaces that a scale set's model or an instance asks for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct InterfaceConfigurations {
    /// One each.
    #[serde(
        rename = "networkInterfaceConfigurations",
        default,
        deserialize_with = "sparse",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub configurations: Vec<InterfaceConfiguration>,
    /// Everything else that was read, written back as it was.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// One interface that a scale set's model or an instance asks for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct InterfaceConfiguration {
    /// Its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What it should have.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "is_default")]
    pub properties: InterfaceProperties,
    /// Everything else that was read, written back as it was.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// An address; an empty text is none yet, and an IPv4 address in IPv6 clothing is an IPv4 address.
fn address<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<IpAddr>, D::Error> {
    match Option::<String>::deserialize(deserializer)?.as_deref().map(str::trim) {
        None | Some("") => Ok(None),
        Some(text) => {
            text.parse::<IpAddr>().map(|ip| Some(ip.to_canonical())).map_err(serde::de::Error::custom)
        }
    }
}

open_enum! {
    /// An IP family.
    IpVersion {
        /// IPv4.
        V4 = "IPv4",
        /// IPv6.
        V6 = "IPv6",
    }
}
