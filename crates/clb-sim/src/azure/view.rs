//! What traffic would do now, read off the resources.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde_json::Value;

use super::answer::{field, text};
use super::gateway::Registration;
use super::load_balancer::frontend_ip;
use super::path::Kind;
use super::resources::Resource;
use super::state::Azure;

/// Where a connection to a frontend ends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ingress {
    /// The load balancer that has the frontend: its name, as it was first written.
    pub load_balancer: String,
    /// The port at which pods are asked.
    pub backend_port: u16,
    /// The pods that may answer, each with the location (its node) at which it stands; one that stands at several answers
    /// by the lowest.
    pub pods: BTreeMap<IpAddr, IpAddr>,
}

/// What can be connected to from outside.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Frontend {
    /// The public address.
    pub address: IpAddr,
    /// `tcp` or `udp`.
    pub protocol: String,
    /// The port.
    pub port: u16,
}

/// How a connection that a pod opens leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Egress {
    /// The outbound service, in lower case.
    pub service: String,
    /// The name of its NAT gateway, as it was first written.
    pub nat_gateway: String,
    /// The addresses that the other side may see, those of the pod's family, in the order of the NAT gateway. Without any
    /// nothing gets out.
    pub public_ips: Vec<IpAddr>,
}

impl Azure {
    /// Where a connection to `port` of the public `address` ends, `protocol` being `tcp` or `udp` in any casing; `None` if no
    /// load balancer has a rule for it. A rule whose pool no registered service names leads to no pod.
    #[must_use]
    pub fn ingress(&self, address: IpAddr, protocol: &str, port: u16) -> Option<Ingress> {
        self.load_balancers().find_map(|load_balancer| {
            let frontend = load_balancer
                .children("frontendIPConfigurations")
                .find(|frontend| self.address(frontend_ip(frontend)) == Some(address))?;
            let is_wanted = |rule: &&Value| {
                text(rule, "protocol").eq_ignore_ascii_case(protocol)
                    && field(rule, "frontendPort").and_then(Value::as_u64) == Some(u64::from(port))
                    && reference(rule, "frontendIPConfiguration").eq_ignore_ascii_case(text(frontend, "id"))
            };
            let rules = load_balancer.children("loadBalancingRules");
            let rule = rules.filter_map(|rule| field(rule, "properties")).find(is_wanted)?;
            let pool = reference(rule, "backendAddressPool");
            let backend_port = field(rule, "backendPort").and_then(Value::as_u64);
            Some(Ingress {
                load_balancer: name(load_balancer.id()).to_owned(),
                backend_port: backend_port.and_then(|port| u16::try_from(port).ok())?,
                pods: self.gateway.pods_of(pool),
            })
        })
    }

    /// Everything that can be connected to from outside: every rule of every load balancer, at the address of its frontend.
    #[must_use]
    pub fn frontends(&self) -> BTreeSet<Frontend> {
        let mut frontends = BTreeSet::new();
        for load_balancer in self.load_balancers() {
            let addresses: BTreeMap<String, IpAddr> = load_balancer
                .children("frontendIPConfigurations")
                .filter_map(|frontend| {
                    Some((text(frontend, "id").to_ascii_lowercase(), self.address(frontend_ip(frontend))?))
                })
                .collect();
            let rules = load_balancer.children("loadBalancingRules");
            frontends.extend(rules.filter_map(|rule| field(rule, "properties")).filter_map(|rule| {
                let frontend = reference(rule, "frontendIPConfiguration").to_ascii_lowercase();
                Some(Frontend {
                    address: *addresses.get(&frontend)?,
                    protocol: text(rule, "protocol").to_ascii_lowercase(),
                    port: field(rule, "frontendPort")?.as_u64()?.try_into().ok()?,
                })
            }));
        }
        frontends
    }

    /// The ids of all resources, as they were first written, of a kind at a time.
    pub fn resource_ids(&self) -> impl Iterator<Item = &str> {
        self.resources.values().map(Resource::id)
    }

    /// How connections leave that the pod with this address opens: by the NAT gateways of the outbound services that it
    /// names, more than one only if somebody made a mistake, or by that of the default service if it names none. A NAT
    /// gateway counts only while it and the ServiceGateway name each other. Empty if there is no way out.
    #[must_use]
    pub fn egress(&self, pod: IpAddr) -> Vec<Egress> {
        let pod = pod.to_canonical();
        let is_outbound = |service: &Registration| service.service_type != "Inbound";
        let named: BTreeMap<&String, &Registration> = self
            .locations()
            .values()
            .filter_map(|addresses| addresses.get(&pod))
            .flatten()
            .filter_map(|name| self.services().get_key_value(name))
            .filter(|(_, service)| is_outbound(service))
            .collect();
        let default = self.services().iter().filter(|(_, service)| service.is_default && named.is_empty());
        named
            .iter()
            .map(|(name, service)| (*name, *service))
            .chain(default)
            .filter_map(|(name, service)| self.way_out(name, service, pod))
            .collect()
    }

    fn way_out(&self, service: &str, registration: &Registration, pod: IpAddr) -> Option<Egress> {
        let nat_gateway = self.resource(Kind::NatGateway, registration.nat_gateway.as_deref()?)?;
        nat_gateway.service_gateway()?;
        Some(Egress {
            service: service.to_owned(),
            nat_gateway: name(nat_gateway.id()).to_owned(),
            public_ips: nat_gateway.nat_public_ips(pod.is_ipv6()).filter_map(|id| self.address(id)).collect(),
        })
    }

    /// The address of a public IP.
    fn address(&self, public_ip: &str) -> Option<IpAddr> {
        let address = self.resource(Kind::PublicIp, public_ip)?.property("ipAddress")?;
        address.as_str()?.parse().ok()
    }
}

fn reference<'a>(rule: &'a Value, name: &str) -> &'a str {
    field(rule, name).map(|reference| text(reference, "id")).unwrap_or_default()
}

fn name(id: &str) -> &str {
    id.rsplit('/').next().unwrap_or_default()
}
