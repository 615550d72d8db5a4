//! Load balancers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::open_enum::open_enum;
use super::read::{null_as_default, optional_bool, sparse};
use super::{ProvisioningState, Resource, Sku, SubResource};
use crate::{NrpConfig, Result};

/// A load balancer (`Microsoft.Network/loadBalancers`).
pub type LoadBalancer = Resource<LoadBalancerProperties>;

/// One port of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServicePort {
    /// The transport protocol.
    pub protocol: TransportProtocol,
    /// The port that clients connect to, 1–65534.
    pub frontend_port: u16,
    /// The port that pods listen on, 1–65535.
    pub backend_port: u16,
}

/// What the one frontend of a service's load balancer is called.
const FRONTEND: &str = "frontend";

impl LoadBalancer {
    /// The load balancer called `name` as a service behind a ServiceGateway needs it: one frontend with the public IP
    /// called `public_ip`, one pool of the load balancer's own name that NRP fills, one rule for each port, no probes.
    /// `idle_timeout` is in minutes, 4–30.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) when one of the names cannot be one.
    pub fn for_service(
        config: &NrpConfig,
        name: &str,
        public_ip: &str,
        tags: BTreeMap<String, String>,
        ports: &[ServicePort],
        idle_timeout: u16,
    ) -> Result<Self> {
        let frontend = SubResource::from(&config.frontend_id(name, FRONTEND)?);
        let pool = SubResource::from(&config.backend_pool_id(name, name)?);
        let rule = |port: &ServicePort| LoadBalancingRule {
            name: Some(format!("rule-{}-{}", port.protocol.as_str().to_lowercase(), port.frontend_port)),
            properties: LoadBalancingRuleProperties {
                protocol: Some(port.protocol.clone()),
                frontend_port: Some(port.frontend_port),
                backend_port: Some(port.backend_port),
                enable_floating_ip: Some(false),
                idle_timeout_in_minutes: Some(idle_timeout),
                enable_tcp_reset: (port.protocol == TransportProtocol::Tcp).then_some(true),
                frontend_ip_configuration: Some(frontend.clone()),
                backend_address_pool: Some(pool.clone()),
                other: Map::new(),
            },
            ..LoadBalancingRule::default()
        };
        let frontend_properties = FrontendIpProperties {
            public_ip_address: Some(SubResource::from(&config.public_ip_id(public_ip)?)),
            other: Map::new(),
        };
        Ok(Self {
            location: Some(config.location().to_owned()),
            tags,
            sku: Some(Sku::named("Service")),
            properties: LoadBalancerProperties {
                scope: Some("Public".to_owned()),
                frontend_ip_configurations: vec![FrontendIpConfiguration {
                    name: Some(FRONTEND.to_owned()),
                    properties: frontend_properties,
                    ..FrontendIpConfiguration::default()
                }],
                backend_address_pools: vec![BackendAddressPool {
                    name: Some(name.to_owned()),
                    ..BackendAddressPool::default()
                }],
                load_balancing_rules: ports.iter().map(rule).collect(),
                ..LoadBalancerProperties::default()
            },
            ..Self::default()
        })
    }
}

/// What is specific to load balancers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LoadBalancerProperties {
    /// `Public` behind a ServiceGateway.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// What clients connect to.
    #[serde(rename = "frontendIPConfigurations", deserialize_with = "sparse")]
    pub frontend_ip_configurations: Vec<FrontendIpConfiguration>,
    /// What traffic goes to.
    #[serde(deserialize_with = "sparse")]
    pub backend_address_pools: Vec<BackendAddressPool>,
    /// Which port leads where.
    #[serde(deserialize_with = "sparse")]
    pub load_balancing_rules: Vec<LoadBalancingRule>,
    /// How far the last change got; only read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provisioning_state: Option<ProvisioningState>,
    /// Everything else that was read, written back as it was.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// One frontend.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FrontendIpConfiguration {
    /// The name, unique among the frontends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The full id; only read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Where the address comes from.
    #[serde(deserialize_with = "null_as_default")]
    pub properties: FrontendIpProperties,
    /// Everything else that was read, written back as it was.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// Where a frontend's address comes from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FrontendIpProperties {
    /// The public IP.
    #[serde(rename = "publicIPAddress", skip_serializing_if = "Option::is_none")]
    pub public_ip_address: Option<SubResource>,
    /// Everything else that was read, written back as it was.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// One backend pool. Behind a ServiceGateway it is empty, and NRP fills it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BackendAddressPool {
    /// The name, unique among the pools.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The full id; only read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// What is in it, as it was read.
    #[serde(deserialize_with = "null_as_default")]
    pub properties: Map<String, Value>,
    /// Everything else that was read, written back as it was.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// One rule.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LoadBalancingRule {
    /// The name, unique among the rules.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The full id; only read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// What it does.
    #[serde(deserialize_with = "null_as_default")]
    pub properties: LoadBalancingRuleProperties,
    /// Everything else that was read, written back as it was.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// What a rule does.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LoadBalancingRuleProperties {
    /// The transport protocol.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<TransportProtocol>,
    /// The port that clients connect to, 1–65534.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frontend_port: Option<u16>,
    /// The port that pods listen on, 1–65535.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend_port: Option<u16>,
    /// Whether pods see the frontend's address as destination.
    #[serde(
        rename = "enableFloatingIP",
        deserialize_with = "optional_bool",
        skip_serializing_if = "Option::is_none"
    )]
    pub enable_floating_ip: Option<bool>,
    /// Minutes without traffic after which a flow is forgotten, 4–30.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_timeout_in_minutes: Option<u16>,
    /// Whether both ends of a forgotten TCP flow are told.
    #[serde(deserialize_with = "optional_bool", skip_serializing_if = "Option::is_none")]
    pub enable_tcp_reset: Option<bool>,
    /// The frontend.
    #[serde(rename = "frontendIPConfiguration", skip_serializing_if = "Option::is_none")]
    pub frontend_ip_configuration: Option<SubResource>,
    /// The backend pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend_address_pool: Option<SubResource>,
    /// Everything else that was read, written back as it was.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

open_enum! {
    /// A transport protocol that a rule carries.
    TransportProtocol {
        /// TCP.
        Tcp = "Tcp",
        /// UDP.
        Udp = "Udp",
        /// Every protocol and port.
        All = "All",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_service_gets_the_load_balancer_that_azure_accepts() {
        let vnet = "/subscriptions/s/resourceGroups/rg/providers/Microsoft.Network/virtualNetworks/v";
        let config = NrpConfig::new("s", "rg", "eastus", vnet.parse().unwrap()).unwrap();
        let port =
            |protocol, frontend_port, backend_port| ServicePort { protocol, frontend_port, backend_port };
        let ports = [port(TransportProtocol::Tcp, 80, 8080), port(TransportProtocol::Udp, 53, 5353)];
        let tags = BTreeMap::from([("clb-owner".to_owned(), "c".to_owned())]);
        let built = LoadBalancer::for_service(&config, "uid", "uid-pip", tags, &ports, 4).unwrap();
        let network = "/subscriptions/s/resourceGroups/rg/providers/Microsoft.Network";
        let frontend = format!("{network}/loadBalancers/uid/frontendIPConfigurations/frontend");
        let pool = format!("{network}/loadBalancers/uid/backendAddressPools/uid");
        assert_eq!(
            serde_json::to_value(&built).unwrap(),
            json!({
                "location": "eastus",
                "tags": {"clb-owner": "c"},
                "sku": {"name": "Service"},
                "properties": {
                    "scope": "Public",
                    "frontendIPConfigurations": [{
                        "name": "frontend",
                        "properties": {"publicIPAddress": {"id": format!("{network}/publicIPAddresses/uid-pip")}}
                    }],
                    "backendAddressPools": [{"name": "uid", "properties": {}}],
                    "loadBalancingRules": [
                        {"name": "rule-tcp-80", "properties": {
                            "protocol": "Tcp", "frontendPort": 80, "backendPort": 8080, "enableFloatingIP": false,
                            "idleTimeoutInMinutes": 4, "enableTcpReset": true,
                            "frontendIPConfiguration": {"id": frontend}, "backendAddressPool": {"id": pool}
                        }},
                        {"name": "rule-udp-53", "properties": {
                            "protocol": "Udp", "frontendPort": 53, "backendPort": 5353, "enableFloatingIP": false,
                            "idleTimeoutInMinutes": 4,
                            "frontendIPConfiguration": {"id": frontend}, "backendAddressPool": {"id": pool}
                        }}
                    ]
                }
            })
        );
        assert_eq!(
            serde_json::from_value::<LoadBalancer>(serde_json::to_value(&built).unwrap()).unwrap(),
            built
        );
    }

    #[test]
    fn what_is_not_known_survives_reading_and_writing() {
        let foreign = json!({
            "id": "/x", "name": "kubernetes", "etag": "W/\"1\"", "type": "Microsoft.Network/loadBalancers",
            "sku": {"name": "Standard", "tier": "Regional", "new": 1}, "zones": ["1"],
            "properties": {
                "resourceGuid": "g", "probes": [{"name": "p"}], "provisioningState": "Migrating",
                "frontendIPConfigurations": [{"name": "f", "zones": ["2"], "properties": {
                    "privateIPAllocationMethod": "Dynamic", "publicIPAddress": {"id": "/p"}
                }}],
                "backendAddressPools": [{"name": "b", "etag": "e", "properties": {"drainPeriodInSeconds": 1}}],
                "loadBalancingRules": [{"name": "r", "type": "t", "properties": {
                    "protocol": "Quic", "loadDistribution": "Default", "probe": {"id": "/probe"}
                }}]
            }
        });
        let read: LoadBalancer = serde_json::from_value(foreign.clone()).unwrap();
        assert_eq!(serde_json::to_value(read).unwrap(), foreign);
    }

    #[test]
    fn missing_and_null_parts_are_read_as_empty() {
        let sparse = json!({
            "tags": null, "sku": null, "properties": {
                "frontendIPConfigurations": null,
                "backendAddressPools": [null, {"properties": null}],
                "loadBalancingRules": [{"properties": {"enableFloatingIP": "True", "frontendPort": null}}]
            }
        });
        let read: LoadBalancer = serde_json::from_value(sparse).unwrap();
        let rule = LoadBalancingRuleProperties { enable_floating_ip: Some(true), ..Default::default() };
        let expected = LoadBalancerProperties {
            backend_address_pools: vec![BackendAddressPool::default()],
            load_balancing_rules: vec![LoadBalancingRule { properties: rule, ..Default::default() }],
            ..Default::default()
        };
        assert_eq!(read, LoadBalancer { properties: expected, ..Default::default() });
        assert_eq!(
            serde_json::from_str::<LoadBalancer>(r#"{"properties":null}"#).unwrap(),
            LoadBalancer::default()
        );
    }
}
