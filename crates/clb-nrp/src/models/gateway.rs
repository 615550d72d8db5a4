//! The ServiceGateway itself, as a resource.

use std::collections::BTreeMap;

use clb_arm::ResourceId;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{AllocationMethod, ProvisioningState, Resource, Sku, SubResource};
use crate::NrpConfig;

/// A ServiceGateway (`Microsoft.Network/serviceGateways`). What is registered in it is not a part of it here: see
/// [`GatewayService`](super::GatewayService) and [`AddressLocation`](super::AddressLocation).
pub type ServiceGateway = Resource<ServiceGatewayProperties>;

impl ServiceGateway {
    /// A new ServiceGateway for the pods of `config`'s virtual network, with `route_target` as the address that its traffic
    /// is routed to.
    #[must_use]
    pub fn for_cluster(
        config: &NrpConfig,
        route_target: RouteTargetAddress,
        tags: BTreeMap<String, String>,
    ) -> Self {
        Self {
            location: Some(config.location().to_owned()),
            tags,
            sku: Some(Sku { tier: Some("Regional".to_owned()), ..Sku::named("Standard") }),
            properties: ServiceGatewayProperties {
                virtual_network: Some(config.virtual_network().into()),
                route_target_address: Some(route_target),
                ..ServiceGatewayProperties::default()
            },
            ..Self::default()
        }
    }
}

/// What is specific to ServiceGateways.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceGatewayProperties {
    /// The virtual network that the pods are in.
    #[serde(alias = "VirtualNetwork", skip_serializing_if = "Option::is_none")]
    pub virtual_network: Option<SubResource>,
    /// The IPv4 address that traffic is routed to.
    #[serde(alias = "RouteTargetAddress", skip_serializing_if = "Option::is_none")]
    pub route_target_address: Option<RouteTargetAddress>,
    /// The IPv6 address that traffic is routed to.
    #[serde(alias = "RouteTargetAddressV6", skip_serializing_if = "Option::is_none")]
    pub route_target_address_v6: Option<RouteTargetAddress>,
    /// How far the last change got; only read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provisioning_state: Option<ProvisioningState>,
    /// Everything else that was read, written back as it was.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// An address inside a subnet that a ServiceGateway's traffic is routed to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RouteTargetAddress {
    /// The subnet that the address is in.
    #[serde(alias = "Subnet", skip_serializing_if = "Option::is_none")]
    pub subnet: Option<SubResource>,
    /// The address, as text; absent where Azure chooses it.
    #[serde(
        rename = "privateIPAddress",
        alias = "PrivateIPAddress",
        skip_serializing_if = "Option::is_none"
    )]
    pub private_ip_address: Option<String>,
    /// How the address is chosen.
    #[serde(
        rename = "privateIPAllocationMethod",
        alias = "PrivateIPAllocationMethod",
        skip_serializing_if = "Option::is_none"
    )]
    pub private_ip_allocation_method: Option<AllocationMethod>,
    /// Everything else that was read, written back as it was.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

impl RouteTargetAddress {
    /// An address that Azure chooses in `subnet`.
    #[must_use]
    pub fn dynamic(subnet: &ResourceId) -> Self {
        Self {
            subnet: Some(subnet.into()),
            private_ip_allocation_method: Some(AllocationMethod::Dynamic),
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const NETWORK: &str = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/virtualNetworks/v";

    #[test]
    fn a_cluster_gets_the_service_gateway_that_azure_accepts() {
        let network: ResourceId = NETWORK.parse().unwrap();
        let config = NrpConfig::new("s", "g", "eastus", network.clone()).unwrap();
        let target = RouteTargetAddress::dynamic(&network.child("subnets", "n").unwrap());
        assert_eq!(
            serde_json::to_value(ServiceGateway::for_cluster(&config, target, BTreeMap::new())).unwrap(),
            json!({
                "location": "eastus", "sku": {"name": "Standard", "tier": "Regional"},
                "properties": {
                    "virtualNetwork": {"id": NETWORK},
                    "routeTargetAddress": {
                        "subnet": {"id": format!("{NETWORK}/subnets/n")}, "privateIPAllocationMethod": "Dynamic"
                    }
                }
            })
        );
    }

    #[test]
    fn what_is_not_known_survives_reading_and_writing() {
        let read = json!({
            "id": "/g", "zones": ["1"], "tags": {"a": "b"},
            "properties": {
                "virtualNetwork": {"id": NETWORK}, "services": [],
                "routeTargetAddressV6": {"privateIPAddress": "fd00::4", "privateIPAllocationMethod": "Static", "x": 1},
                "provisioningState": "Succeeded"
            }
        });
        let gateway: ServiceGateway = serde_json::from_value(read.clone()).unwrap();
        assert_eq!(gateway.properties.provisioning_state, Some(ProvisioningState::Succeeded));
        assert_eq!(serde_json::to_value(gateway).unwrap(), read);
    }
}
