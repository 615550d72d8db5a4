//! NAT gateways.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::read::sparse;
use super::service_gateway::Patch;
use super::{ProvisioningState, Resource, Sku, SubResource};
use crate::{NrpConfig, Result};

/// A NAT gateway (`Microsoft.Network/natGateways`).
pub type NatGateway = Resource<NatGatewayProperties>;

impl NatGateway {
    /// A NAT gateway as an outbound service behind a ServiceGateway needs it: `StandardV2`, in the ServiceGateway, with the
    /// public IP called `public_ip` and, if given, the IPv6 one called `public_ip_v6`.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) when one of the names cannot be one.
    pub fn for_service(
        config: &NrpConfig,
        public_ip: &str,
        public_ip_v6: Option<&str>,
        tags: BTreeMap<String, String>,
    ) -> Result<Self> {
        let reference = |name| config.public_ip_id(name).map(|id| SubResource::from(&id));
        Ok(Self {
            location: Some(config.location().to_owned()),
            tags,
            sku: Some(Sku::named("StandardV2")),
            properties: NatGatewayProperties {
                public_ip_addresses: vec![reference(public_ip)?],
                public_ip_addresses_v6: public_ip_v6.map(reference).transpose()?.into_iter().collect(),
                service_gateway: Patch::Set(SubResource::from(&config.service_gateway_id()?)),
                ..NatGatewayProperties::default()
            },
            ..Self::default()
        })
    }
}

/// What is specific to NAT gateways.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NatGatewayProperties {
    /// The IPv4 addresses that traffic leaves from.
    #[serde(deserialize_with = "sparse")]
    pub public_ip_addresses: Vec<SubResource>,
    /// The IPv6 addresses that traffic leaves from.
    #[serde(deserialize_with = "sparse")]
    pub public_ip_addresses_v6: Vec<SubResource>,
    /// The ServiceGateway that it serves. In a PUT, an absent one stays as it is and `null` takes it out.
    #[serde(skip_serializing_if = "Patch::is_keep")]
    pub service_gateway: Patch<SubResource>,
    /// How far the last change got; only read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provisioning_state: Option<ProvisioningState>,
    /// Everything else that was read, written back as it was.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn config() -> NrpConfig {
        let network =
            "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/virtualNetworks/v".parse();
        NrpConfig::new("s", "g", "eastus", network.unwrap()).unwrap()
    }

    #[test]
    fn an_outbound_service_gets_the_nat_gateway_that_azure_accepts() {
        let id = |kind: &str, name: &str| json!({"id": format!("/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/{kind}/{name}")});
        let tags = BTreeMap::from([("clb-owner".to_owned(), "c".to_owned())]);
        let gateway = NatGateway::for_service(&config(), "e-pip", Some("e-pip-v6"), tags).unwrap();
        assert_eq!(
            serde_json::to_value(gateway).unwrap(),
            json!({
                "location": "eastus", "tags": {"clb-owner": "c"}, "sku": {"name": "StandardV2"},
                "properties": {
                    "publicIpAddresses": [id("publicIPAddresses", "e-pip")],
                    "publicIpAddressesV6": [id("publicIPAddresses", "e-pip-v6")],
                    "serviceGateway": id("serviceGateways", "servicegateway")
                }
            })
        );
    }

    #[test]
    fn nw_12_taking_it_out_of_the_gateway_is_an_explicit_null_and_keeps_the_rest() {
        let read = json!({
            "id": "/n", "sku": {"name": "StandardV2"}, "zones": ["1"],
            "properties": {
                "publicIpAddresses": [{"id": "/p"}], "publicIpAddressesV6": null, "serviceGateway": {"id": "/g"},
                "idleTimeoutInMinutes": 10
            }
        });
        let mut gateway: NatGateway = serde_json::from_value(read).unwrap();
        gateway.properties.service_gateway = Patch::Clear;
        assert_eq!(
            serde_json::to_value(gateway).unwrap(),
            json!({
                "id": "/n", "sku": {"name": "StandardV2"}, "zones": ["1"],
                "properties": {
                    "publicIpAddresses": [{"id": "/p"}], "publicIpAddressesV6": [], "serviceGateway": null,
                    "idleTimeoutInMinutes": 10
                }
            })
        );
    }
}
