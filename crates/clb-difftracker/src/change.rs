//! Inputs: what the cluster did.

use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};

use crate::ids::{EgressName, Ip, IpFamily, NodeName, ObjectKey, ResourceVersion, ServiceId, Uid};
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
    /// A pod exists in this form.
    PodApplied(Pod),
    /// This pod does not exist any more, or is none of those that are watched for their egress label. It contributes
    /// nothing; a finalizer that it may still have is removed in time.
    PodGone(PodRef),
    /// A Node exists in this form.
    NodeApplied(Node),
    /// No Node of this name exists any more.
    NodeGone(NodeName),
    /// This object is there, in a form that cannot be read: what is known of it stays, and a list that is being read has
    /// named it.
    Unreadable(ObjectName),
    /// A full list of one kind follows, as `…Applied` changes. What the list does not name by the time of
    /// [`Change::ResyncDone`] is gone. A second begin starts over.
    ResyncBegin(Kind),
    /// The list is complete. Without a begin before it, it does nothing.
    ResyncDone(Kind),
}

/// What an object is known by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObjectName {
    /// A Service.
    Service(ServiceId),
    /// An EndpointSlice.
    EndpointSlice(ObjectKey),
    /// A pod.
    Pod(PodRef),
    /// A Node.
    Node(NodeName),
}

/// The kinds of objects that are watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Services.
    Service,
    /// EndpointSlices.
    EndpointSlice,
    /// Pods with an egress label or with our finalizer.
    Pod,
    /// Nodes.
    Node,
}

impl core::fmt::Display for Kind {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        core::fmt::Debug::fmt(self, f)
    }
}

/// A Kubernetes Service, as far as load balancing is concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// Its identity on the Azure side: the UID.
    pub id: ServiceId,
    /// Its name in the cluster. Of two Services of one name the one applied last is the living one.
    pub key: ObjectKey,
    /// Its version: a form older than one already seen, or written, is ignored.
    pub version: ResourceVersion,
    /// What it asks for.
    pub intent: Intent,
    /// Which of our finalizers it has.
    pub finalizers: Finalizers,
    /// The IPs in `status.loadBalancer.ingress`.
    pub ingress: Vec<Ip>,
}

impl Service {
    /// A Service of which nothing of ours is in Kubernetes yet, in a version that is not known.
    #[must_use]
    pub fn new(id: ServiceId, key: ObjectKey, intent: Intent) -> Self {
        let (version, finalizers) = (ResourceVersion::default(), Finalizers::None);
        Self { id, key, version, intent, finalizers, ingress: Vec::new() }
    }
}

/// Which of our finalizers a Service has: our own, and the upstream one that always goes with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Finalizers {
    /// Not our own. The upstream one alone is another controller's.
    #[default]
    None,
    /// Our own without the upstream one.
    Partial,
    /// Both.
    Complete,
}

/// A pod that leaves through a NAT gateway of its own, or did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// Which pod it is.
    pub pod: PodRef,
    /// Its version: a form older than one already seen, or written, is ignored.
    pub version: ResourceVersion,
    /// The outbound service that its label names, if the label is usable.
    pub egress: Option<EgressName>,
    /// Whether it uses that service, which is wanted as long as some pod does: not before it has an address, nor when it is
    /// being deleted or its containers have ended for good.
    pub is_live: bool,
    /// Its addresses, all families, on its node. Those of a pod that does not use its service count only in that its
    /// finalizer waits for them.
    pub endpoints: Endpoints,
    /// Whether it has our finalizer.
    pub has_finalizer: bool,
}

/// One pod: others of its name, before and after it, have another UID.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct PodRef {
    /// Its UID.
    pub uid: Uid,
    /// Its name.
    pub key: ObjectKey,
}

impl core::fmt::Display for PodRef {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        core::fmt::Display::fmt(&self.key, f)
    }
}

/// What says that an address is on a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Source {
    /// An EndpointSlice, for its Service.
    EndpointSlice(ObjectKey),
    /// A pod, for its outbound service.
    Pod(PodRef),
}

impl Source {
    /// Its name in the cluster.
    #[must_use]
    pub fn key(&self) -> &ObjectKey {
        match self {
            Self::EndpointSlice(key) => key,
            Self::Pod(pod) => &pod.key,
        }
    }
}

impl core::fmt::Display for Source {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::EndpointSlice(key) => write!(f, "slice {key}"),
            Self::Pod(pod) => write!(f, "pod {pod}"),
        }
    }
}

/// What a Service asks of us.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
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
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Rejection {
    /// The reason of the event that tells the user, in UpperCamelCase, such as `UnsupportedDualStack`.
    pub reason: Cow<'static, str>,
    /// A sentence that names the offending field and the way out.
    pub message: String,
}

/// An EndpointSlice, as far as load balancing is concerned: the endpoints that may receive traffic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointSlice {
    /// Its name in the cluster.
    pub key: ObjectKey,
    /// The Service that it belongs to, known or not.
    pub service: ServiceRef,
    /// Its endpoints that are ready, and those that count while there is none.
    pub endpoints: Endpoints,
}

/// The endpoints of a slice or of a pod: each address once, sorted.
///
/// Collected from an iterator. In Kubernetes one address can stand twice in a slice for a moment, an old endpoint and a new
/// one on different nodes; a ready one counts, and of equals the later one.
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
        endpoints.sort_by_key(|endpoint| (endpoint.address, endpoint.condition));
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

/// One address that may receive a Service's traffic, or that a pod leaves from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Endpoint {
    /// The pod's IP.
    pub address: Ip,
    /// The node it runs on, known or not.
    pub node: NodeName,
    /// Whether it is ready.
    pub condition: Condition,
}

impl Endpoint {
    /// An endpoint that should receive traffic.
    #[must_use]
    pub fn ready(address: Ip, node: NodeName) -> Self {
        Self { address, node, condition: Condition::Ready }
    }
}

/// Whether an endpoint should receive traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Condition {
    /// It should. A readiness that is not stated is one, as the API documents.
    #[default]
    Ready,
    /// It terminates and still serves: it should as long as its Service has no ready endpoint at all, which is what
    /// kube-proxy does too (KEP-1669).
    Terminating,
    /// It was ready when its node went out of reach, and would perhaps answer: it should, too, as long as its Service has no
    /// ready endpoint at all, so that a node controller that sees no node any more does not empty every pool.
    Unreachable,
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
            condition: Condition::Ready,
        };
        let endpoints = Endpoints::from_iter([endpoint(2, "a"), endpoint(1, "a"), endpoint(2, "b")]);
        assert_eq!(endpoints.as_slice(), [endpoint(1, "a"), endpoint(2, "b")]);
        let leaving = Endpoint { condition: Condition::Terminating, ..endpoint(1, "b") };
        let endpoints = Endpoints::from_iter([endpoint(1, "a"), leaving]);
        assert_eq!(endpoints.as_slice(), [endpoint(1, "a")]);
    }
}
