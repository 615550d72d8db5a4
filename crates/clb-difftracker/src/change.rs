//! Inputs: what the cluster did.

use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};

use crate::ids::{Ip, IpFamily, NodeName, ObjectKey, ServiceId};
use crate::load_balancer::LoadBalancerSpec;

/// Something in the cluster changed, or a list of it is being read again.
///
/// Objects are handed in whole: an `…Applied` replaces whatever the tracker knew of that object. Repeating a change
/// does nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A Service exists in this form.
    ServiceApplied(Service),
    /// No Service with this identity exists any more.
    ServiceGone(ServiceId),
    /// An EndpointSlice exists in this form.
    EndpointSliceApplied(EndpointSlice),
    /// No EndpointSlice of this name exists any more.
    EndpointSliceGone(ObjectKey),
    /// A Node exists in this form.
    NodeApplied(Node),
    /// No Node of this name exists any more.
    NodeGone(NodeName),
    /// A full list of one kind follows, as `…Applied` changes. What the list does not name by the time of
    /// [`Change::ResyncDone`] is gone. A second begin starts over.
    ResyncBegin(Kind),
    /// The list is complete. Without a begin before it, it does nothing.
    ResyncDone(Kind),
}

/// The kinds of objects that are watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Services.
    Service,
    /// EndpointSlices.
    EndpointSlice,
    /// Nodes.
    Node,
}

/// A Kubernetes Service, as far as load balancing is concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// Its identity on the Azure side: the UID.
    pub id: ServiceId,
    /// Its name in the cluster. Of two Services of one name the one applied last is the living one.
    pub key: ObjectKey,
    /// What it asks for.
    pub intent: Intent,
}

/// What a Service asks of us.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Intent {
    /// A load balancer like this.
    LoadBalancer(LoadBalancerSpec),
    /// A load balancer that we cannot or must not make. One that already serves goes on as it last was; otherwise
    /// nothing is made.
    Rejected(Rejection),
    /// None: another type of Service, someone else's class, or a Service that is being deleted.
    None,
}

/// Why a Service is not given the load balancer it asks for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Rejection {
    /// The reason of the event that tells the user, in UpperCamelCase, such as `UnsupportedDualStack`.
    pub reason: Cow<'static, str>,
    /// A sentence that names the offending field and the way out.
    pub message: String,
}

/// An EndpointSlice, as far as load balancing is concerned: the endpoints that should receive traffic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointSlice {
    /// Its name in the cluster.
    pub key: ObjectKey,
    /// The Service that it belongs to, known or not.
    pub service: ServiceRef,
    /// Its endpoints that should receive traffic.
    pub endpoints: Endpoints,
}

/// The endpoints of a slice: each address once, sorted.
///
/// Collected from an iterator. In Kubernetes one address can stand twice in a slice for a moment, an old endpoint and a new
/// one on different nodes; if both should receive traffic, the later one counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Endpoints(Vec<Endpoint>);

impl Endpoints {
    /// The endpoints, sorted by address.
    #[must_use]
    pub fn as_slice(&self) -> &[Endpoint] {
        &self.0
    }
}

impl FromIterator<Endpoint> for Endpoints {
    fn from_iter<I: IntoIterator<Item = Endpoint>>(endpoints: I) -> Self {
        let mut endpoints: Vec<_> = endpoints.into_iter().collect();
        endpoints.reverse();
        endpoints.sort_by_key(|endpoint| endpoint.address);
        endpoints.dedup_by_key(|endpoint| endpoint.address);
        Self(endpoints)
    }
}

/// How an EndpointSlice names its Service.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ServiceRef {
    /// By name, through the `kubernetes.io/service-name` label: whichever Service bears it now.
    Name(ObjectKey),
    /// By UID and namespace, through an owner reference.
    Uid {
        /// The namespace that both must be in.
        namespace: String,
        /// The Service's UID.
        id: ServiceId,
    },
}

/// One address that should receive a Service's traffic.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Endpoint {
    /// The pod's IP.
    pub address: Ip,
    /// The node it runs on, known or not.
    pub node: NodeName,
}

/// A Kubernetes Node, as far as load balancing is concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its name.
    pub name: NodeName,
    /// Where its pods' IPv4 addresses are: the first IPv4 `InternalIP` in the Node's own order.
    pub ipv4: Option<Ipv4Addr>,
    /// Where its pods' IPv6 addresses are: the first IPv6 `InternalIP` in the Node's own order.
    pub ipv6: Option<Ipv6Addr>,
}

impl Node {
    /// The location of this node's addresses of one family.
    #[must_use]
    pub fn location(&self, family: IpFamily) -> Option<Ip> {
        match family {
            IpFamily::V4 => self.ipv4.map(|ip| Ip::from(core::net::IpAddr::V4(ip))),
            IpFamily::V6 => self.ipv6.map(|ip| Ip::from(core::net::IpAddr::V6(ip))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::IpAddr;

    #[test]
    fn of_an_address_that_stands_twice_the_later_endpoint_counts() {
        let endpoint = |last, node| Endpoint {
            address: Ip::from(IpAddr::from([10, 0, 0, last])),
            node: NodeName::new(node),
        };
        let endpoints = Endpoints::from_iter([endpoint(2, "a"), endpoint(1, "a"), endpoint(2, "b")]);
        assert_eq!(endpoints.as_slice(), [endpoint(1, "a"), endpoint(2, "b")]);
    }
}
