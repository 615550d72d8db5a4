//! Public IPs.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use super::open_enum::open_enum;
use super::{ProvisioningState, Resource, Sku, SubResource};

/// A public IP (`Microsoft.Network/publicIPAddresses`).
pub type PublicIp = Resource<PublicIpProperties>;

impl PublicIp {
    /// A new public IP as a service behind a ServiceGateway needs it: `StandardV2` and static.
    #[must_use]
    pub fn for_service(location: &str, version: IpVersion, tags: BTreeMap<String, String>) -> Self {
        Self {
            location: Some(location.to_owned()),
            tags,
            sku: Some(Sku::named("StandardV2")),
            properties: PublicIpProperties {
                public_ip_address_version: Some(version),
                public_ip_allocation_method: Some(AllocationMethod::Static),
                ..PublicIpProperties::default()
            },
            ..Self::default()
        }
    }
}

/// What is specific to public IPs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PublicIpProperties {
    /// The address, which Azure chooses, possibly only after provisioning.
    #[serde(deserialize_with = "address", skip_serializing_if = "Option::is_none")]
    pub ip_address: Option<IpAddr>,
    /// The IP family; IPv4 if absent.
    #[serde(rename = "publicIPAddressVersion", skip_serializing_if = "Option::is_none")]
    pub public_ip_address_version: Option<IpVersion>,
    /// How the address is chosen.
    #[serde(rename = "publicIPAllocationMethod", skip_serializing_if = "Option::is_none")]
    pub public_ip_allocation_method: Option<AllocationMethod>,
    /// How far the last change got; only read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provisioning_state: Option<ProvisioningState>,
    /// The frontend that uses the address; only read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ip_configuration: Option<SubResource>,
    /// Everything else that was read, written back as it was.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// An address; an empty text is none yet.
fn address<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<IpAddr>, D::Error> {
    match Option::<String>::deserialize(deserializer)?.as_deref().map(str::trim) {
        None | Some("") => Ok(None),
        Some(text) => text.parse().map(Some).map_err(serde::de::Error::custom),
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

open_enum! {
    /// How an address is chosen.
    AllocationMethod {
        /// Once, when the resource is created.
        Static = "Static",
        /// Whenever the resource comes into use.
        Dynamic = "Dynamic",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn a_service_gets_the_public_ip_that_azure_accepts() {
        let tags = BTreeMap::from([("clb-owner".to_owned(), "c".to_owned())]);
        assert_eq!(
            serde_json::to_value(PublicIp::for_service("eastus", IpVersion::V6, tags)).unwrap(),
            json!({
                "location": "eastus",
                "tags": {"clb-owner": "c"},
                "sku": {"name": "StandardV2"},
                "properties": {"publicIPAddressVersion": "IPv6", "publicIPAllocationMethod": "Static"}
            })
        );
    }

    #[test]
    fn what_is_not_known_survives_reading_and_writing() {
        let foreign = json!({
            "id": "/x", "name": "n", "etag": "W/\"1\"", "type": "Microsoft.Network/publicIPAddresses",
            "sku": {"name": "Standard", "tier": "Global"}, "zones": ["1", "2"], "location": "eastus",
            "tags": {"team": "a"},
            "properties": {
                "ipAddress": "40.121.142.104", "publicIPAddressVersion": "IPv4",
                "publicIPAllocationMethod": "Static", "provisioningState": "Succeeded", "ipTags": [],
                "idleTimeoutInMinutes": 4, "ipConfiguration": {"id": "/lb"},
                "ddosSettings": {"protectionMode": "VirtualNetworkInherited"}
            }
        });
        let read: PublicIp = serde_json::from_value(foreign.clone()).unwrap();
        assert_eq!(read.properties.ip_address, Some("40.121.142.104".parse().unwrap()));
        assert_eq!(serde_json::to_value(read).unwrap(), foreign);
    }

    #[test]
    fn missing_null_and_empty_parts_are_read_as_nothing() {
        for sparse in [
            "{}",
            r#"{"properties":null,"tags":null,"etag":null}"#,
            r#"{"properties":{"ipAddress":null}}"#,
            r#"{"properties":{"ipAddress":""}}"#,
        ] {
            assert_eq!(serde_json::from_str::<PublicIp>(sparse).unwrap(), PublicIp::default(), "{sparse}");
        }
    }

    #[test]
    fn known_values_are_read_in_any_casing_and_others_kept() {
        let values: Vec<IpVersion> = serde_json::from_str(r#"["ipv4","IPV6","IPv5"]"#).unwrap();
        assert_eq!(values, [IpVersion::V4, IpVersion::V6, IpVersion::Other("IPv5".into())]);
        assert_eq!(serde_json::to_string(&values).unwrap(), r#"["IPv4","IPv6","IPv5"]"#);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(
            etag in prop::option::of("\\PC{0,20}"),
            location in prop::option::of("[a-z0-9]{1,12}"),
            tags in prop::collection::btree_map("\\PC{1,10}", "\\PC{0,10}", 0..4),
            address in prop::option::of(any::<IpAddr>()),
            version in prop::option::of(prop_oneof![Just(IpVersion::V4), Just(IpVersion::V6)]),
            zone in prop::option::of("[1-3]"),
        ) {
            let mut written = PublicIp { etag, location, tags, ..PublicIp::default() };
            written.properties.ip_address = address;
            written.properties.public_ip_address_version = version;
            written.other.extend(zone.map(|zone| ("zones".to_owned(), json!([zone]))));
            let text = serde_json::to_string(&written).unwrap();
            prop_assert_eq!(serde_json::from_str::<PublicIp>(&text).unwrap(), written);
        }
    }
}
