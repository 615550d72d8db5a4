//! Kubernetes objects as [`Change`]s: read once, here, so that nothing downstream parses text.
//!
//! Each kind has two conversions: `…_applied` for an object that a list or a watch says exists, and `…_gone` for one
//! that a watch says was deleted. An object without what identifies it is an error and touches nothing: skip it, say
//! so, go on. A part of an object that makes no sense is left out and reported as a [`Problem`], and the rest is used.

use std::net::IpAddr;

use clb_difftracker::{
    Change, Endpoint, EndpointSlice, IdError, Ip, IpFamily, Kind, Node, NodeName, ObjectKey, Service,
    ServiceId, ServiceRef,
};
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::discovery::v1 as discovery;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::admission::{AdmissionPolicy, IgnoredAnnotation};

/// The label by which an EndpointSlice names its Service.
const SERVICE_NAME_LABEL: &str = "kubernetes.io/service-name";

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
    /// A Node's internal address is not one.
    #[error("status.addresses[{index}] is {address:?}, which is not an IP address; it is skipped")]
    BadNodeAddress {
        /// Which address, from 0.
        index: usize,
        /// The address.
        address: String,
    },
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
        Kind::Node => "Node",
    }
}

/// A Service that exists. What it asks of us is decided by `policy`; one that is being deleted still exists, and asks
/// for nothing.
///
/// # Errors
/// [`ConvertError`] without a name, a namespace or a usable UID.
pub fn service_applied(policy: &AdmissionPolicy, service: &core::Service) -> Result<Converted, ConvertError> {
    let reader = Reader { kind: Kind::Service, metadata: &service.metadata };
    let (id, key) = (reader.service_id()?, reader.key()?);
    let admission = policy.admit(service);
    Ok(Converted {
        change: Change::ServiceApplied(Service { id, key, intent: admission.intent }),
        problems: admission.ignored.into_iter().map(Problem::from).collect(),
    })
}

/// A Service that was deleted.
///
/// # Errors
/// [`ConvertError`] without a usable UID.
pub fn service_gone(service: &core::Service) -> Result<Change, ConvertError> {
    let reader = Reader { kind: Kind::Service, metadata: &service.metadata };
    Ok(Change::ServiceGone(reader.service_id()?))
}

/// An EndpointSlice that exists, with those of its endpoints that are ready and on a node. Readiness that is not
/// stated is readiness, as the API documents.
///
/// A slice that is nothing to us is gone: one that is being deleted, one of host names, one that belongs to no
/// Service. It may have been something before.
///
/// # Errors
/// [`ConvertError`] without a name or namespace, with an unknown address type, or with an owner whose UID is unusable.
pub fn endpoint_slice_applied(slice: &discovery::EndpointSlice) -> Result<Converted, ConvertError> {
    let reader = Reader { kind: Kind::EndpointSlice, metadata: &slice.metadata };
    let key = reader.key()?;
    if slice.metadata.deletion_timestamp.is_some() {
        return Ok(Change::EndpointSliceGone(key).into());
    }
    let family = match slice.address_type.as_str() {
        "IPv4" => IpFamily::V4,
        "IPv6" => IpFamily::V6,
        "FQDN" => return Ok(Change::EndpointSliceGone(key).into()),
        "" => return Err(reader.error("addressType", Fault::Missing)),
        other => {
            return Err(reader.error("addressType", Fault::UnknownAddressType { value: other.to_owned() }));
        }
    };
    let Some(service) = reader.owner(&key)? else {
        return Ok(Change::EndpointSliceGone(key).into());
    };
    let (mut endpoints, mut problems) = (Vec::new(), Vec::new());
    for (index, endpoint) in slice.endpoints.iter().enumerate() {
        let ready = endpoint.conditions.as_ref().and_then(|conditions| conditions.ready).unwrap_or(true);
        let node = endpoint.node_name.as_deref().filter(|name| !name.is_empty());
        // An address without a node has no location, so it cannot be reached this way. Hand-made slices often have such.
        let (true, Some(node)) = (ready, node) else { continue };
        match endpoint_address(index, endpoint, family) {
            Ok(address) => endpoints.push(Endpoint { address, node: NodeName::new(node) }),
            Err(problem) => problems.push(problem),
        }
    }
    Ok(Converted {
        change: Change::EndpointSliceApplied(EndpointSlice {
            key,
            service,
            endpoints: endpoints.into_iter().collect(),
        }),
        problems,
    })
}

/// An EndpointSlice that was deleted.
///
/// # Errors
/// [`ConvertError`] without a name or namespace.
pub fn endpoint_slice_gone(slice: &discovery::EndpointSlice) -> Result<Change, ConvertError> {
    let reader = Reader { kind: Kind::EndpointSlice, metadata: &slice.metadata };
    Ok(Change::EndpointSliceGone(reader.key()?))
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

fn parse_ip(text: &str) -> Option<Ip> {
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
            Kind::Service | Kind::EndpointSlice => format!("{}/{name}", or_unknown(&self.metadata.namespace)),
            Kind::Node => name,
        };
        ConvertError { kind: self.kind, object, field, fault }
    }
}
