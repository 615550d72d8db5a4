//! What the tracker asks for, as bodies of requests. With the feature `difftracker`.
//!
//! The tracker (`clb_difftracker`) says what should be, in terms of its own: a service, its ports, a location with its
//! addresses. Here that becomes what the network resource provider takes, with names and ids as [`NrpConfig`] builds them.
//! Nothing here reads or sends: whoever executes an operation decides what a resource that exists already keeps.
//!
//! | the tracker's | becomes |
//! | --- | --- |
//! | [`ServiceUpdate`]s | [`update_services`], one `updateServices` |
//! | [`LocationUpdate`]s | [`update_address_locations`], one `updateAddressLocations` |
//! | `PutPublicIp`, `PutSecondPublicIp` | [`public_ip`] called [`public_ip_name`] or [`second_public_ip_name`] |
//! | `PutLoadBalancer` | [`load_balancer`] called as the service |
//! | `PutNatGateway` | [`nat_gateway`] called as the service |

use std::collections::{BTreeMap, HashMap};

use clb_difftracker::{
    AddressUpdate, AddressesUpdate, IpFamily, LoadBalancerSpec, LocationUpdate, Protocol, RegistrationUpdate,
    Rule, ServiceId, ServiceUpdate,
};
use foldhash::fast::FixedState;

use crate::models::{
    Address, AddressLocationUpdate, BackendPool, GatewayService, IpVersion, LoadBalancer, NatGateway,
    PublicIp, ServiceNames, ServicePort, ServiceRequest, TransportProtocol, UpdateAction,
    UpdateAddressLocations, UpdateServices,
};
use crate::{NrpConfig, Result};

/// The body of an `updateServices` that makes these updates and leaves every other service as it is.
///
/// # Errors
/// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) when a service is called what no load balancer or NAT gateway can be.
pub fn update_services(config: &NrpConfig, updates: &[ServiceUpdate]) -> Result<UpdateServices> {
    let service_requests = updates.iter().map(|update| service_request(config, update));
    Ok(UpdateServices {
        action: UpdateAction::PartialUpdate,
        service_requests: service_requests.collect::<Result<_>>()?,
    })
}

fn service_request(config: &NrpConfig, update: &ServiceUpdate) -> Result<ServiceRequest> {
    let name = update.service.as_str();
    Ok(match update.registration {
        RegistrationUpdate::RegisterInbound => {
            let pool = config.backend_pool_id(name, name)?;
            let pools = vec![BackendPool::new(&pool, config.virtual_network())];
            ServiceRequest::put(GatewayService::inbound(name, pools))
        }
        RegistrationUpdate::ClearPool => ServiceRequest::put(GatewayService::inbound(name, Vec::new())),
        RegistrationUpdate::RegisterOutbound => {
            let nat_gateway = config.nat_gateway_id(name)?;
            ServiceRequest::put(GatewayService::outbound(name, Some(&nat_gateway)))
        }
        RegistrationUpdate::ClearNatGateway => ServiceRequest::put(GatewayService::outbound(name, None)),
        RegistrationUpdate::Unregister => ServiceRequest::delete(name),
    })
}

/// The body of an `updateAddressLocations` that makes these updates and leaves everything else as it is.
#[must_use]
pub fn update_address_locations(updates: &[LocationUpdate]) -> UpdateAddressLocations {
    let mut names = Names::default();
    UpdateAddressLocations {
        action: UpdateAction::PartialUpdate,
        address_locations: updates.iter().map(|update| location_update(update, &mut names)).collect(),
    }
}

fn location_update(update: &LocationUpdate, names: &mut Names) -> AddressLocationUpdate {
    let mut addresses = |addresses: &[AddressUpdate]| {
        let address = |update: &AddressUpdate| Address {
            address: update.address.get(),
            services: names.of(&update.services),
        };
        addresses.iter().map(address).collect()
    };
    let (address_update_action, addresses) = match &update.addresses {
        AddressesUpdate::Replace(replaced) => (UpdateAction::FullUpdate, addresses(replaced)),
        AddressesUpdate::Merge(merged) => (UpdateAction::PartialUpdate, addresses(merged)),
        AddressesUpdate::Remove => (UpdateAction::PartialUpdate, Vec::new()),
    };
    AddressLocationUpdate { address_location: update.location.get(), address_update_action, addresses }
}

/// The lists of names that stand in a body, by where the tracker keeps them: it shares them between addresses, and so does
/// the body.
#[derive(Default)]
struct Names(HashMap<(usize, usize), ServiceNames, FixedState>);

impl Names {
    fn of(&mut self, services: &[ServiceId]) -> ServiceNames {
        let place = (services.as_ptr().addr(), services.len());
        self.0.entry(place).or_insert_with(|| services.iter().map(ServiceId::as_str).collect()).clone()
    }
}

/// What a service's public IP is called, an outbound service's IPv4 one included.
#[must_use]
pub fn public_ip_name(service: &ServiceId) -> String {
    format!("{service}-pip")
}

/// What an outbound service's IPv6 public IP is called.
#[must_use]
pub fn second_public_ip_name(service: &ServiceId) -> String {
    format!("{service}-pip-v6")
}

/// A new public IP of a service.
#[must_use]
pub fn public_ip(config: &NrpConfig, family: IpFamily, tags: BTreeMap<String, String>) -> PublicIp {
    let version = match family {
        IpFamily::V4 => IpVersion::V4,
        IpFamily::V6 => IpVersion::V6,
    };
    PublicIp::for_service(config.location(), version, tags)
}

/// The load balancer of an inbound service, with its public IP as the frontend.
///
/// # Errors
/// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) when the service is called what no load balancer can be.
pub fn load_balancer(
    config: &NrpConfig,
    service: &ServiceId,
    spec: &LoadBalancerSpec,
    tags: BTreeMap<String, String>,
) -> Result<LoadBalancer> {
    let ports: Vec<_> = spec.rules().iter().map(service_port).collect();
    let idle_timeout = u16::from(spec.idle_timeout().minutes());
    LoadBalancer::for_service(config, service.as_str(), &public_ip_name(service), tags, &ports, idle_timeout)
}

fn service_port(rule: &Rule) -> ServicePort {
    ServicePort {
        protocol: match rule.protocol {
            Protocol::Tcp => TransportProtocol::Tcp,
            Protocol::Udp => TransportProtocol::Udp,
        },
        frontend_port: rule.frontend_port.get(),
        backend_port: rule.backend_port.get(),
    }
}

/// The NAT gateway of an outbound service, with its public IP, and its second one if traffic leaves by IPv6 too.
///
/// # Errors
/// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) when the service is called what no NAT gateway can be.
pub fn nat_gateway(
    config: &NrpConfig,
    service: &ServiceId,
    ipv6: bool,
    tags: BTreeMap<String, String>,
) -> Result<NatGateway> {
    let second = ipv6.then(|| second_public_ip_name(service));
    NatGateway::for_service(config, &public_ip_name(service), second.as_deref(), tags)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;
    use clb_difftracker::{FrontendPort, IdleTimeout, Ip};
    use serde_json::{Value, json};
    use std::num::NonZeroU16;
    use std::sync::Arc;

    const NETWORK: &str = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network";
    const UID: &str = "0a000000-0000-0000-0000-000000000001";

    fn config() -> NrpConfig {
        let network = format!("{NETWORK}/virtualNetworks/v").parse().unwrap();
        NrpConfig::new("s", "g", "eastus", network).unwrap()
    }

    fn id(text: &str) -> ServiceId {
        ServiceId::new(text).unwrap()
    }

    fn ip(text: &str) -> Ip {
        Ip::from(text.parse::<std::net::IpAddr>().unwrap())
    }

    fn json(value: impl serde::Serialize) -> Value {
        serde_json::to_value(value).unwrap()
    }

    #[test]
    fn each_registration_is_the_request_that_makes_it() {
        let request = |registration| {
            let updates = [ServiceUpdate { service: id(UID), registration }];
            let body = json(update_services(&config(), &updates).unwrap());
            assert_eq!(body["action"], "PartialUpdate");
            body["serviceRequests"][0].clone()
        };
        let put = |properties| json!({"isDelete": false, "service": {"name": UID, "properties": properties}});
        let pool = json!({
            "id": format!("{NETWORK}/loadBalancers/{UID}/backendAddressPools/{UID}"), "name": UID,
            "properties": {"virtualNetwork": {"id": format!("{NETWORK}/virtualNetworks/v")}}
        });
        assert_eq!(
            request(RegistrationUpdate::RegisterInbound),
            put(json!({"serviceType": "Inbound", "loadBalancerBackendPools": [pool]}))
        );
        assert_eq!(
            request(RegistrationUpdate::ClearPool),
            put(json!({"serviceType": "Inbound", "loadBalancerBackendPools": []}))
        );
        assert_eq!(
            request(RegistrationUpdate::RegisterOutbound),
            put(
                json!({"serviceType": "Outbound", "publicNatGatewayId": format!("{NETWORK}/natGateways/{UID}")})
            )
        );
        assert_eq!(
            request(RegistrationUpdate::ClearNatGateway),
            put(json!({"serviceType": "Outbound", "publicNatGatewayId": null}))
        );
        assert_eq!(
            request(RegistrationUpdate::Unregister),
            json!({"isDelete": true, "service": {"name": UID}})
        );
    }

    #[test]
    fn each_location_update_is_the_entry_that_makes_it_and_lists_of_names_are_shared() {
        let services: Arc<[ServiceId]> = [id("a"), id("b")].into();
        let address = |address: &str| AddressUpdate { address: ip(address), services: services.clone() };
        let gone = AddressUpdate { address: ip("10.1.0.7"), services: [].into() };
        let updates = [
            LocationUpdate {
                location: ip("10.0.0.1"),
                addresses: AddressesUpdate::Replace(vec![address("10.1.0.5")]),
            },
            LocationUpdate {
                location: ip("10.0.0.2"),
                addresses: AddressesUpdate::Merge(vec![address("10.1.0.6"), gone]),
            },
            LocationUpdate { location: ip("fd00::1"), addresses: AddressesUpdate::Remove },
        ];
        let body = update_address_locations(&updates);
        assert_eq!(
            json(&body),
            json!({"action": "PartialUpdate", "addressLocations": [
                {"addressLocation": "10.0.0.1", "addressUpdateAction": "FullUpdate", "addresses": [
                    {"address": "10.1.0.5", "services": ["a", "b"]}
                ]},
                {"addressLocation": "10.0.0.2", "addressUpdateAction": "PartialUpdate", "addresses": [
                    {"address": "10.1.0.6", "services": ["a", "b"]}, {"address": "10.1.0.7", "services": []}
                ]},
                {"addressLocation": "fd00::1", "addressUpdateAction": "PartialUpdate", "addresses": []}
            ]})
        );
        let [first, second, _] = body.address_locations.as_slice() else { panic!("{body:?}") };
        let place = |entry: &AddressLocationUpdate| entry.addresses[0].services.as_ptr();
        assert_eq!(place(first), place(second));
    }

    #[test]
    fn resources_are_called_and_made_as_the_service_needs_them() {
        let service = id(UID);
        let rule = |protocol, frontend, backend| Rule {
            protocol,
            frontend_port: FrontendPort::new(frontend).unwrap(),
            backend_port: NonZeroU16::new(backend).unwrap(),
        };
        let rules = vec![rule(Protocol::Tcp, 80, 8080), rule(Protocol::Udp, 53, 5353)];
        let spec = LoadBalancerSpec::new(IpFamily::V4, IdleTimeout::from_minutes(9).unwrap(), rules).unwrap();
        let balancer = json(load_balancer(&config(), &service, &spec, BTreeMap::new()).unwrap());
        let rules: Vec<_> = balancer["properties"]["loadBalancingRules"].as_array().unwrap().clone();
        let shown = |rule: &Value| {
            let of = |field: &str| rule["properties"][field].clone();
            (rule["name"].clone(), of("protocol"), of("backendPort"), of("idleTimeoutInMinutes"))
        };
        assert_eq!(
            rules.iter().map(shown).collect::<Vec<_>>(),
            [
                (json!("rule-tcp-80"), json!("Tcp"), json!(8080), json!(9)),
                (json!("rule-udp-53"), json!("Udp"), json!(5353), json!(9))
            ]
        );
        let frontend = &balancer["properties"]["frontendIPConfigurations"][0]["properties"];
        assert_eq!(frontend["publicIPAddress"]["id"], format!("{NETWORK}/publicIPAddresses/{UID}-pip"));

        let families = [IpFamily::V4, IpFamily::V6].map(|family| {
            let public_ip = public_ip(&config(), family, BTreeMap::new());
            public_ip.properties.public_ip_address_version
        });
        assert_eq!(families, [Some(IpVersion::V4), Some(IpVersion::V6)]);
    }

    #[test]
    fn a_nat_gateway_has_a_second_address_only_with_ipv6() {
        let second = |ipv6| {
            let gateway = nat_gateway(&config(), &id("egress"), ipv6, BTreeMap::new()).unwrap();
            json(gateway)["properties"]["publicIpAddressesV6"].clone()
        };
        assert_eq!(second(false), json!([]));
        assert_eq!(second(true), json!([{"id": format!("{NETWORK}/publicIPAddresses/egress-pip-v6")}]));
    }

    #[test]
    fn a_service_that_no_resource_can_be_called_after_is_invalid() {
        let service = id("-a");
        let updates =
            [ServiceUpdate { service: service.clone(), registration: RegistrationUpdate::RegisterInbound }];
        assert_eq!(update_services(&config(), &updates).unwrap_err().kind(), ErrorKind::Invalid);
        let gateway = nat_gateway(&config(), &service, false, BTreeMap::new());
        assert_eq!(gateway.unwrap_err().kind(), ErrorKind::Invalid);
    }
}
