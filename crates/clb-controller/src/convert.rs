//! Kubernetes objects as [`Change`]s: read once, here, so that nothing downstream parses text.
//!
//! Each kind has two conversions: `…_applied` for an object that a list or a watch says exists, and `…_gone` for one
//! that a watch says was deleted. An object without what identifies it is an error and touches nothing: skip it, say
//! so, go on. A part of an object that makes no sense is left out and reported as a [`Problem`], and the rest is used.

use std::net::IpAddr;
use std::num::NonZeroU16;

use clb_difftracker::{
    Change, Condition, EgressName, EgressNameError, Endpoint, EndpointSlice, Finalizers, IdError, Ip,
    IpFamily, Kind, Node, NodeName, ObjectKey, Pod, PodRef, Protocol, ResourceVersion, Service, ServiceId,
    ServiceRef, Uid,
};
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::discovery::v1 as discovery;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::admission::{Admission, AdmissionPolicy, IgnoredAnnotation};
use crate::objects::{POD_FINALIZER, SERVICE_FINALIZER, UPSTREAM_SERVICE_FINALIZER};

/// The label by which an EndpointSlice names its Service.
const SERVICE_NAME_LABEL: &str = "kubernetes.io/service-name";

/// The label by which a pod names its outbound service.
pub const EGRESS_LABEL: &str = "kubernetes.azure.com/service-egress-gateway";

/// An object, converted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Converted {
    /// What it means to the tracker.
    pub change: Change,
    /// What of it was left out, and why.
    pub problems: Vec<Problem>,
}

impl From<Change> for Converted {
    fn from(change: Change) -> Self {
        Self { change, problems: Vec::new() }
    }
}

/// A part of an object that was left out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// A Service asks for something that it does not get, and gets the rest.
    #[error(transparent)]
    IgnoredAnnotation(#[from] IgnoredAnnotation),
    /// An endpoint holds no address.
    #[error("endpoints[{index}].addresses is empty; the endpoint is skipped")]
    NoAddress {
        /// Which endpoint, from 0.
        index: usize,
    },
    /// An endpoint's address is not one.
    #[error(
        "endpoints[{index}].addresses[0] is {address:?}, which is not an IP address; the endpoint is skipped"
    )]
    BadAddress {
        /// Which endpoint, from 0.
        index: usize,
        /// The address.
        address: String,
    },
    /// An endpoint's address is not of the slice's family. An IPv4-mapped IPv6 address is an IPv4 address.
    #[error(
        "endpoints[{index}].addresses[0] is {address}, which is not an {expected} address; the endpoint is skipped"
    )]
    OtherFamily {
        /// Which endpoint, from 0.
        index: usize,
        /// The address.
        address: Ip,
        /// The family that the slice's `addressType` promises.
        expected: IpFamily,
    },
    /// A pod's egress label names nothing that it could leave through.
    #[error("metadata.labels[{EGRESS_LABEL:?}] is {value:?}: {error}; the pod does not leave through it")]
    BadEgress {
        /// The label's value.
        value: String,
        /// What is wrong with it.
        error: EgressNameError,
    },
    /// A pod's address is not one.
    #[error("status.podIPs[{index}] is {address:?}, which is not an IP address; it is skipped")]
    BadPodAddress {
        /// Which address, from 0.
        index: usize,
        /// The address.
        address: String,
    },
    /// A pod's address is of a family that its node has no address of.
    #[error(
        "the address {address} has no place: the node {node} has no {family} InternalIP; the address is skipped"
    )]
    NoLocation {
        /// The pod's address.
        address: Ip,
        /// The node.
        node: NodeName,
        /// The family.
        family: IpFamily,
    },
    /// An address in a Service's status is not one.
    #[error(
        "status.loadBalancer.ingress[{index}].ip is {address:?}, which is not an IP address; it is ignored"
    )]
    BadIngress {
        /// Which entry, from 0.
        index: usize,
        /// The address.
        address: String,
    },
    /// A Node's internal address is not one.
    #[error("status.addresses[{index}] is {address:?}, which is not an IP address; it is skipped")]
    BadNodeAddress {
        /// Which address, from 0.
        index: usize,
        /// The address.
        address: String,
    },
}

impl Problem {
    /// The reason of the event that tells the user, in UpperCamelCase. People filter by these: they never change.
    #[must_use]
    pub fn event_reason(&self) -> &'static str {
        match self {
            Self::IgnoredAnnotation(_) => IgnoredAnnotation::EVENT_REASON,
            Self::NoAddress { .. } | Self::BadAddress { .. } | Self::OtherFamily { .. } => "InvalidEndpoint",
            Self::BadEgress { error: EgressNameError::Reserved, .. } => "ServiceGatewayReservedEgressLabel",
            Self::BadEgress {
                error: EgressNameError::TooLong { .. } | EgressNameError::Malformed, ..
            } => "ServiceGatewayInvalidEgressLabel",
            Self::BadPodAddress { .. } => "ServiceGatewayInvalidPodIP",
            Self::NoLocation { .. } => "ServiceGatewayNoNodeLocation",
            Self::BadIngress { .. } => "InvalidStatus",
            Self::BadNodeAddress { .. } => "InvalidNodeAddress",
        }
    }
}

/// Why an object cannot be used at all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the {} {object} is skipped: {field} {fault}", kind_name(*.kind))]
pub struct ConvertError {
    /// The object's kind.
    pub kind: Kind,
    /// Its namespace and name, or its name where it has no namespace; `?` stands for what is missing.
    pub object: String,
    /// The field at fault.
    pub field: &'static str,
    /// What is wrong with the field.
    pub fault: Fault,
}

/// What is wrong with a field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// It is absent or empty.
    #[error("is missing")]
    Missing,
    /// It should be a Service's UID.
    #[error("is not usable as a UID: {0}")]
    BadUid(#[from] IdError),
    /// It should be `IPv4`, `IPv6` or `FQDN`.
    #[error("is {value:?}, not IPv4, IPv6 or FQDN")]
    UnknownAddressType {
        /// The address type.
        value: String,
    },
}

fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Service => "Service",
        Kind::EndpointSlice => "EndpointSlice",
        Kind::Pod => "Pod",
        Kind::Node => "Node",
    }
}

/// A Service that exists. What it asks of us is decided by `policy`; one that is being deleted still exists, and asks
/// for nothing.
///
/// # Errors
/// [`ConvertError`] without a name, a namespace or a usable UID.
pub fn service_applied(policy: &AdmissionPolicy, service: &core::Service) -> Result<Converted, ConvertError> {
    service_admitted(service, policy.admit(service))
}

/// The same, where what it asks for has been decided.
pub(crate) fn service_admitted(
    service: &core::Service,
    admission: Admission,
) -> Result<Converted, ConvertError> {
    let reader = Reader { kind: Kind::Service, metadata: &service.metadata };
    let (id, key) = (reader.service_id()?, reader.key()?);
    let mut problems: Vec<_> = admission.ignored.into_iter().map(Problem::from).collect();
    let has = |finalizer| has_finalizer(&service.metadata, finalizer);
    let finalizers = match (has(SERVICE_FINALIZER), has(UPSTREAM_SERVICE_FINALIZER)) {
        (false, _) => Finalizers::None,
        (true, false) => Finalizers::Partial,
        (true, true) => Finalizers::Complete,
    };
    let status = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    let entries = status.and_then(|status| status.ingress.as_deref()).unwrap_or_default();
    // Of a Service that is being deleted nobody reads the status, so nothing there has to be taken back.
    let entries = if service.metadata.deletion_timestamp.is_some() { &[] } else { entries };
    let mut ingress = Vec::new();
    for (index, address) in entries.iter().enumerate().filter_map(|(at, it)| Some((at, it.ip.as_deref()?))) {
        match parse_ip(address) {
            Some(ip) => ingress.push(ip),
            None => problems.push(Problem::BadIngress { index, address: address.to_owned() }),
        }
    }
    let (version, intent) = (reader.version(), admission.intent);
    let change = Change::ServiceApplied(Service { id, key, version, intent, finalizers, ingress });
    Ok(Converted { change, problems })
}

fn has_finalizer(metadata: &ObjectMeta, finalizer: &str) -> bool {
    metadata.finalizers.iter().flatten().any(|held| held == finalizer)
}

/// A Service that was deleted.
///
/// # Errors
/// [`ConvertError`] without a usable UID.
pub fn service_gone(service: &core::Service) -> Result<Change, ConvertError> {
    let reader = Reader { kind: Kind::Service, metadata: &service.metadata };
    Ok(Change::ServiceGone(reader.service_id()?))
}

/// An EndpointSlice that exists, with those of its endpoints that are on a node and ready, or still serving while they
/// terminate. Readiness that is not stated is readiness, as the API documents.
///
/// A slice that is nothing to us is gone: one that is being deleted, one of host names, one that belongs to no
/// Service. It may have been something before.
///
/// # Errors
/// [`ConvertError`] without a name or namespace, with an unknown address type, or with an owner whose UID is unusable.
pub fn endpoint_slice_applied(slice: &discovery::EndpointSlice) -> Result<Converted, ConvertError> {
    let SliceForm { key, content, problems } = slice_form(slice)?;
    let Some(SliceContent { service, endpoints, .. }) = content else {
        return Ok(Converted { change: Change::EndpointSliceGone(key), problems });
    };
    let usable = |endpoint: EndpointForm| {
        let condition = match endpoint.state {
            EndpointState::Ready => Condition::Ready,
            EndpointState::Terminating => Condition::Terminating,
            EndpointState::NotReady { .. } => return None,
        };
        Some(Endpoint { address: endpoint.address, node: endpoint.node, condition })
    };
    let endpoints = endpoints.into_iter().filter_map(usable).collect();
    Ok(Converted {
        change: Change::EndpointSliceApplied(EndpointSlice { key, service, endpoints }),
        problems,
    })
}

/// All that is read of an EndpointSlice.
pub(crate) struct SliceForm {
    pub(crate) key: ObjectKey,
    /// `None` for a slice that is nothing to us.
    pub(crate) content: Option<SliceContent>,
    pub(crate) problems: Vec<Problem>,
}

/// What a slice says of the Service that it belongs to.
pub(crate) struct SliceContent {
    pub(crate) service: ServiceRef,
    /// The numbers of its ports, by the names and protocols of the Service's ports.
    pub(crate) ports: Vec<(Box<str>, Protocol, NonZeroU16)>,
    /// Those on a node.
    pub(crate) endpoints: Vec<EndpointForm>,
}

/// One endpoint on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EndpointForm {
    pub(crate) address: Ip,
    pub(crate) node: NodeName,
    pub(crate) state: EndpointState,
}

/// What its conditions say of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum EndpointState {
    Ready,
    Terminating,
    NotReady {
        /// The pod behind it, if it is one.
        pod: Option<Uid>,
    },
}

/// Reads an EndpointSlice.
pub(crate) fn slice_form(slice: &discovery::EndpointSlice) -> Result<SliceForm, ConvertError> {
    let reader = Reader { kind: Kind::EndpointSlice, metadata: &slice.metadata };
    let key = reader.key()?;
    let nothing = |key| Ok(SliceForm { key, content: None, problems: Vec::new() });
    if slice.metadata.deletion_timestamp.is_some() {
        return nothing(key);
    }
    let family = match slice.address_type.as_str() {
        "IPv4" => IpFamily::V4,
        "IPv6" => IpFamily::V6,
        "FQDN" => return nothing(key),
        "" => return Err(reader.error("addressType", Fault::Missing)),
        other => {
            return Err(reader.error("addressType", Fault::UnknownAddressType { value: other.to_owned() }));
        }
    };
    let Some(service) = reader.owner(&key)? else { return nothing(key) };
    let (mut endpoints, mut problems) = (Vec::new(), Vec::new());
    for (index, endpoint) in slice.endpoints.iter().enumerate() {
        // An address without a node has no location, so it cannot be reached this way. Hand-made slices often have such.
        let Some(node) = endpoint.node_name.as_deref().filter(|name| !name.is_empty()) else { continue };
        let state = endpoint_state(endpoint);
        match endpoint_address(index, endpoint, family) {
            Ok(address) => endpoints.push(EndpointForm { address, node: NodeName::new(node), state }),
            // Of an endpoint that gets no traffic anyway nothing need be said.
            Err(_) if matches!(state, EndpointState::NotReady { .. }) => {}
            Err(problem) => problems.push(problem),
        }
    }
    let ports = slice.ports.iter().flatten().filter_map(slice_port).collect();
    Ok(SliceForm { key, content: Some(SliceContent { service, ports, endpoints }), problems })
}

fn slice_port(port: &discovery::EndpointPort) -> Option<(Box<str>, Protocol, NonZeroU16)> {
    let protocol = match port.protocol.as_deref() {
        None | Some("" | "TCP") => Protocol::Tcp,
        Some("UDP") => Protocol::Udp,
        Some(_) => return None,
    };
    let number = NonZeroU16::new(u16::try_from(port.port?).ok()?)?;
    Some((port.name.as_deref().unwrap_or_default().into(), protocol, number))
}

/// An EndpointSlice that was deleted.
///
/// # Errors
/// [`ConvertError`] without a name or namespace.
pub fn endpoint_slice_gone(slice: &discovery::EndpointSlice) -> Result<Change, ConvertError> {
    let reader = Reader { kind: Kind::EndpointSlice, metadata: &slice.metadata };
    Ok(Change::EndpointSliceGone(reader.key()?))
}

fn endpoint_state(endpoint: &discovery::Endpoint) -> EndpointState {
    let conditions = endpoint.conditions.clone().unwrap_or_default();
    if conditions.ready.unwrap_or(true) {
        return EndpointState::Ready;
    }
    match (conditions.serving.unwrap_or_default(), conditions.terminating.unwrap_or_default()) {
        (true, true) => EndpointState::Terminating,
        // What terminates and does not serve any more is nothing to wait for.
        (false, true) => EndpointState::NotReady { pod: None },
        (_, false) => {
            let pod = endpoint.target_ref.as_ref().filter(|target| target.kind.as_deref() == Some("Pod"));
            let uid = pod.and_then(|pod| pod.uid.as_deref()).filter(|uid| !uid.is_empty());
            EndpointState::NotReady { pod: uid.map(Uid::new) }
        }
    }
}

/// The first address: the API gives no meaning to the others.
fn endpoint_address(index: usize, endpoint: &discovery::Endpoint, expected: IpFamily) -> Result<Ip, Problem> {
    let text = endpoint.addresses.first().ok_or(Problem::NoAddress { index })?;
    let address = parse_ip(text).ok_or_else(|| Problem::BadAddress { index, address: text.clone() })?;
    if address.family() == expected {
        Ok(address)
    } else {
        Err(Problem::OtherFamily { index, address, expected })
    }
}

/// A pod that exists. It leaves through the outbound service that its label names, from when it has an address on a node
/// until it is being deleted or its containers have ended for good.
///
/// While the node is lost (`Unknown`), the pod keeps its outbound service, but nothing leaves from its addresses.
///
/// # Errors
/// [`ConvertError`] without a name, a namespace or a UID.
pub fn pod_applied(pod: &core::Pod) -> Result<Converted, ConvertError> {
    let reader = Reader { kind: Kind::Pod, metadata: &pod.metadata };
    let (pod_ref, mut problems) = (reader.pod_ref()?, Vec::new());
    let label = pod.metadata.labels.as_ref().and_then(|labels| labels.get(EGRESS_LABEL));
    let egress = match label.filter(|value| !value.is_empty()).map(|value| (value, EgressName::new(value))) {
        None => None,
        Some((_, Ok(name))) => Some(name),
        Some((value, Err(error))) => {
            problems.push(Problem::BadEgress { value: value.clone(), error });
            None
        }
    };
    let status = pod.status.as_ref();
    let phase = status.and_then(|status| status.phase.as_deref()).unwrap_or_default();
    let has_ended = matches!(phase, "Succeeded" | "Failed");
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).filter(|name| !name.is_empty());
    let node = node.map(NodeName::new);
    let ips = status.and_then(|status| status.pod_ips.as_deref()).unwrap_or_default();
    let mut endpoints = Vec::new();
    for (index, ip) in ips.iter().enumerate() {
        match (parse_ip(&ip.ip), &node) {
            (Some(address), Some(node)) => {
                endpoints.push(Endpoint { address, node: node.clone(), condition: Condition::Ready });
            }
            (Some(_), None) => {}
            (None, _) => problems.push(Problem::BadPodAddress { index, address: ip.ip.clone() }),
        }
    }
    let is_live = pod.metadata.deletion_timestamp.is_none() && !has_ended && !endpoints.is_empty();
    if phase == "Unknown" && is_live {
        endpoints.clear();
    }
    let change = Change::PodApplied(Pod {
        pod: pod_ref,
        version: reader.version(),
        egress,
        is_live,
        endpoints: endpoints.into_iter().collect(),
        has_finalizer: has_finalizer(&pod.metadata, POD_FINALIZER),
    });
    Ok(Converted { change, problems })
}

/// Which pod it is.
pub(crate) fn pod_ref(pod: &core::Pod) -> Result<PodRef, ConvertError> {
    Reader { kind: Kind::Pod, metadata: &pod.metadata }.pod_ref()
}

/// A pod that was deleted, or that a watch with a label selector does not see any more.
///
/// # Errors
/// [`ConvertError`] without a name, a namespace or a UID.
pub fn pod_gone(pod: &core::Pod) -> Result<Change, ConvertError> {
    let reader = Reader { kind: Kind::Pod, metadata: &pod.metadata };
    Ok(Change::PodGone(reader.pod_ref()?))
}

/// A Node that exists, with the first usable `InternalIP` of each family in the Node's own order.
///
/// A Node that is being deleted still exists: until it is gone its pods run and answer.
///
/// # Errors
/// [`ConvertError`] without a name.
pub fn node_applied(node: &core::Node) -> Result<Converted, ConvertError> {
    let reader = Reader { kind: Kind::Node, metadata: &node.metadata };
    let (mut ipv4, mut ipv6, mut problems) = (None, None, Vec::new());
    let addresses = node.status.as_ref().and_then(|status| status.addresses.as_deref()).unwrap_or_default();
    for (index, address) in addresses.iter().enumerate().filter(|(_, address)| address.type_ == "InternalIP")
    {
        match parse_ip(&address.address).map(Ip::get) {
            Some(IpAddr::V4(ip)) => ipv4 = ipv4.or(Some(ip)),
            Some(IpAddr::V6(ip)) => ipv6 = ipv6.or(Some(ip)),
            None => problems.push(Problem::BadNodeAddress { index, address: address.address.clone() }),
        }
    }
    Ok(Converted { change: Change::NodeApplied(Node { name: reader.node_name()?, ipv4, ipv6 }), problems })
}

/// A Node that was deleted.
///
/// # Errors
/// [`ConvertError`] without a name.
pub fn node_gone(node: &core::Node) -> Result<Change, ConvertError> {
    let reader = Reader { kind: Kind::Node, metadata: &node.metadata };
    Ok(Change::NodeGone(reader.node_name()?))
}

pub(crate) fn parse_ip(text: &str) -> Option<Ip> {
    text.parse::<IpAddr>().ok().map(Ip::from)
}

/// Reads what identifies an object, and names the object when that fails.
struct Reader<'a> {
    kind: Kind,
    metadata: &'a ObjectMeta,
}

impl Reader<'_> {
    fn name(&self) -> Result<&str, ConvertError> {
        self.present("metadata.name", self.metadata.name.as_deref())
    }

    fn key(&self) -> Result<ObjectKey, ConvertError> {
        let namespace = self.present("metadata.namespace", self.metadata.namespace.as_deref())?;
        Ok(ObjectKey::new(namespace, self.name()?))
    }

    fn node_name(&self) -> Result<NodeName, ConvertError> {
        self.name().map(NodeName::new)
    }

    fn pod_ref(&self) -> Result<PodRef, ConvertError> {
        let uid = self.present("metadata.uid", self.metadata.uid.as_deref())?;
        Ok(PodRef { uid: Uid::new(uid), key: self.key()? })
    }

    /// The version; one that is not a number is not known.
    fn version(&self) -> ResourceVersion {
        let version = self.metadata.resource_version.as_deref().and_then(|version| version.parse().ok());
        version.map(ResourceVersion::new).unwrap_or_default()
    }

    fn service_id(&self) -> Result<ServiceId, ConvertError> {
        let field = "metadata.uid";
        let uid = self.present(field, self.metadata.uid.as_deref())?;
        ServiceId::new(uid).map_err(|error| self.error(field, error.into()))
    }

    /// The Service of the slice called `key`: what kube-proxy reads is the label, and mirrored and hand-made slices
    /// have nothing else, so the owner counts only where there is no label.
    fn owner(&self, key: &ObjectKey) -> Result<Option<ServiceRef>, ConvertError> {
        let label = self.metadata.labels.as_ref().and_then(|labels| labels.get(SERVICE_NAME_LABEL));
        if let Some(name) = label.filter(|name| !name.is_empty()) {
            return Ok(Some(ServiceRef::Name(ObjectKey::new(&key.namespace, name))));
        }
        let mut owners = self.metadata.owner_references.iter().flatten();
        let Some(owner) = owners.find(|owner| owner.kind == "Service" && owner.api_version == "v1") else {
            return Ok(None);
        };
        let field = "metadata.ownerReferences.uid";
        let id = ServiceId::new(&owner.uid).map_err(|error| self.error(field, error.into()))?;
        Ok(Some(ServiceRef::Uid { namespace: key.namespace.clone(), id }))
    }

    fn present<'t>(&self, field: &'static str, value: Option<&'t str>) -> Result<&'t str, ConvertError> {
        value.filter(|value| !value.is_empty()).ok_or_else(|| self.error(field, Fault::Missing))
    }

    fn error(&self, field: &'static str, fault: Fault) -> ConvertError {
        let or_unknown = |value: &Option<String>| match value.as_deref() {
            None | Some("") => "?".to_owned(),
            Some(value) => value.to_owned(),
        };
        let name = or_unknown(&self.metadata.name);
        let object = match self.kind {
            Kind::Service | Kind::EndpointSlice | Kind::Pod => {
                format!("{}/{name}", or_unknown(&self.metadata.namespace))
            }
            Kind::Node => name,
        };
        ConvertError { kind: self.kind, object, field, fault }
    }
}
