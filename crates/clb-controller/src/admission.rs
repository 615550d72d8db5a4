//! Which Services get a load balancer, and what it looks like.
//!
//! A Service that wants one is checked rule by rule, in a fixed order; the first rule it breaks is the one its user is
//! told. A Service that passes becomes a [`LoadBalancerSpec`], so nothing downstream asks again whether a port is
//! valid.

use std::collections::BTreeSet;
use std::num::NonZeroU16;

use clb_difftracker::{
    FrontendPort, IdleTimeout, Intent, IpFamily, LoadBalancerSpec, Protocol, Rejection, Rule, SpecError,
};
use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// The annotation that asks for a load balancer inside the virtual network.
pub const INTERNAL_ANNOTATION: &str = "service.beta.kubernetes.io/azure-load-balancer-internal";

/// The annotation that sets the idle timeout, in whole minutes.
pub const IDLE_TIMEOUT_ANNOTATION: &str = "service.beta.kubernetes.io/azure-load-balancer-tcp-idle-timeout";

/// The annotations that restrict who may connect, besides `spec.loadBalancerSourceRanges`: the one that was this field
/// before it existed and still stands in for it, and those of the Azure cloud provider.
pub const SOURCE_ANNOTATIONS: [&str; 4] = [
    "service.beta.kubernetes.io/load-balancer-source-ranges",
    "service.beta.kubernetes.io/azure-allowed-ip-ranges",
    "service.beta.kubernetes.io/azure-allowed-service-tags",
    "service.beta.kubernetes.io/azure-deny-all-except-load-balancer-source-ranges",
];

/// What the annotations begin with that Azure's other load balancer controllers read.
const AZURE_ANNOTATIONS: &str = "service.beta.kubernetes.io/azure-";

/// The `spec.loadBalancerClass` that is ours by default.
pub const LOAD_BALANCER_CLASS: &str = "azure.com/container-load-balancer";

/// Which Services are ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdmissionPolicy {
    /// Whether Services are ours that name no class. Default: they are. Only one controller of a cluster may say so.
    pub without_class: bool,
    /// The `spec.loadBalancerClass`es that are ours. Default: [`LOAD_BALANCER_CLASS`].
    pub classes: BTreeSet<String>,
}

impl Default for AdmissionPolicy {
    fn default() -> Self {
        Self { without_class: true, classes: BTreeSet::from([LOAD_BALANCER_CLASS.to_owned()]) }
    }
}

/// Which number a named target port stands for: what the EndpointSlices of its Service say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NamedPort {
    /// All agree on this one.
    Number(NonZeroU16),
    /// None says.
    Unknown,
    /// They do not agree.
    Several(BTreeSet<NonZeroU16>),
}

/// What became of a Service at the gate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admission {
    /// What it asks for, or why it does not get that.
    pub intent: Intent,
    /// What it asks for besides and is not given, in the order of names. Empty unless it wants a load balancer of ours.
    pub ignored: Vec<IgnoredAnnotation>,
}

/// An annotation that other Azure load balancer controllers obey and this one does not.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error)]
#[error(
    "the annotation {name} has no effect on this kind of load balancer; remove it to silence this warning"
)]
pub struct IgnoredAnnotation {
    /// The annotation's name.
    pub name: String,
}

impl IgnoredAnnotation {
    /// The reason of the event that tells the user.
    pub const EVENT_REASON: &str = "IgnoredAnnotation";
}

impl AdmissionPolicy {
    /// What `service` asks of us, where nothing is known of the numbers that named target ports stand for.
    ///
    /// One that is being deleted, is of another type or has a class that is not ours asks for nothing.
    #[must_use]
    pub fn admit(&self, service: &Service) -> Admission {
        self.admit_with(service, &|_, _| NamedPort::Unknown)
    }

    /// The same, where `named` tells which number a named target port stands for, by the name of the Service's port (empty for
    /// one without) and its protocol: just as EndpointSlices name it.
    #[must_use]
    pub fn admit_with(&self, service: &Service, named: &dyn Fn(&str, Protocol) -> NamedPort) -> Admission {
        let Some(spec) = self.wanted(service) else {
            return Admission { intent: Intent::None, ignored: Vec::new() };
        };
        let intent = match load_balancer(service, spec, named) {
            Ok(load_balancer) => Intent::LoadBalancer(load_balancer),
            Err(reason) => Intent::Rejected(reason.into()),
        };
        Admission { intent, ignored: ignored_annotations(service) }
    }

    /// The spec of a Service that wants a load balancer of ours.
    fn wanted<'a>(&self, service: &'a Service) -> Option<&'a ServiceSpec> {
        let spec = service.spec.as_ref()?;
        let wanted = spec.type_.as_deref() == Some("LoadBalancer")
            && match &spec.load_balancer_class {
                None => self.without_class,
                Some(class) => self.classes.contains(class),
            }
            && service.metadata.deletion_timestamp.is_none();
        wanted.then_some(spec)
    }
}

fn ignored_annotations(service: &Service) -> Vec<IgnoredAnnotation> {
    let names = service.metadata.annotations.iter().flat_map(|annotations| annotations.keys());
    names
        .filter(|name| name.starts_with(AZURE_ANNOTATIONS))
        .filter(|name| ![INTERNAL_ANNOTATION, IDLE_TIMEOUT_ANNOTATION].contains(&name.as_str()))
        .map(|name| IgnoredAnnotation { name: name.clone() })
        .collect()
}

/// The rules, in order.
fn load_balancer(
    service: &Service,
    spec: &ServiceSpec,
    named: &dyn Fn(&str, Protocol) -> NamedPort,
) -> Result<LoadBalancerSpec, RejectionReason> {
    let annotation = |name| service.metadata.annotations.as_ref()?.get(name).map(String::as_str);

    // Other controllers do not trim, and make a stray space a public load balancer.
    if annotation(INTERNAL_ANNOTATION).is_some_and(|value| value.trim().eq_ignore_ascii_case("true")) {
        return Err(RejectionReason::Internal);
    }
    if let Some(affinity) = spec.session_affinity.as_deref().filter(|&value| !matches!(value, "" | "None")) {
        return Err(RejectionReason::SessionAffinity { value: affinity.to_owned() });
    }
    if let Some(ip) = spec.load_balancer_ip.as_deref().filter(|ip| !ip.is_empty()) {
        return Err(RejectionReason::LoadBalancerIp { value: ip.to_owned() });
    }
    let ports = spec.ports.as_deref().unwrap_or_default();
    if ports.is_empty() {
        return Err(RejectionReason::NoPorts);
    }
    let family = ip_family(spec.ip_families.as_deref().unwrap_or_default())?;
    let idle_timeout =
        annotation(IDLE_TIMEOUT_ANNOTATION).map_or(Ok(IdleTimeout::default()), idle_timeout)?;
    let rules = rules(ports, named)?;
    // `LoadBalancerSpec` checks this too, but counts first: of a Service that has both faults, its user is told this one.
    let mut backends = BTreeSet::new();
    if let Some(rule) = rules.iter().find(|rule| !backends.insert((rule.protocol, rule.backend_port))) {
        return Err(RejectionReason::BackendPortCollision {
            protocol: rule.protocol,
            port: rule.backend_port,
        });
    }
    let load_balancer = LoadBalancerSpec::new(family, idle_timeout, rules)?;
    // Obeying the rest and not this would open to everyone what was meant for a few.
    if spec.load_balancer_source_ranges.as_ref().is_some_and(|ranges| !ranges.is_empty()) {
        return Err(RejectionReason::SourceRanges { field: "spec.loadBalancerSourceRanges" });
    }
    let restricts = |value: &str| !value.trim().is_empty() && !value.trim().eq_ignore_ascii_case("false");
    if let Some(field) = SOURCE_ANNOTATIONS.into_iter().find(|name| annotation(name).is_some_and(restricts)) {
        return Err(RejectionReason::SourceRanges { field });
    }
    Ok(load_balancer)
}

/// The one family that a Service may have. A server that knows only IPv4 names none.
fn ip_family(families: &[String]) -> Result<IpFamily, RejectionReason> {
    match families {
        [] => Ok(IpFamily::V4),
        [family] => match family.as_str() {
            "IPv4" => Ok(IpFamily::V4),
            "IPv6" => Ok(IpFamily::V6),
            _ => Err(RejectionReason::IpFamily { value: family.clone() }),
        },
        families => Err(RejectionReason::DualStack { value: families.join(", ") }),
    }
}

fn idle_timeout(text: &str) -> Result<IdleTimeout, RejectionReason> {
    let minutes = text.trim().parse().ok().and_then(IdleTimeout::from_minutes);
    minutes.ok_or_else(|| RejectionReason::IdleTimeout { value: text.to_owned() })
}

/// One pass over all ports for each rule, so that what its user is told does not depend on the order of the ports.
fn rules(
    ports: &[ServicePort],
    named: &dyn Fn(&str, Protocol) -> NamedPort,
) -> Result<Vec<Rule>, RejectionReason> {
    let numbered = || ports.iter().enumerate();
    let backends = numbered().map(|port| backend_port(port, named)).collect::<Result<Vec<_>, _>>()?;
    let protocols = numbered().map(protocol).collect::<Result<Vec<_>, _>>()?;
    let frontends = numbered().map(frontend_port).collect::<Result<Vec<_>, _>>()?;
    let rules = backends.into_iter().zip(protocols).zip(frontends);
    Ok(rules
        .map(|((backend_port, protocol), frontend_port)| Rule { protocol, frontend_port, backend_port })
        .collect())
}

/// Whether some target port of a Service is a name, which only its EndpointSlices translate.
pub(crate) fn has_named_port(service: &Service) -> bool {
    let ports = service.spec.as_ref().and_then(|spec| spec.ports.as_deref()).unwrap_or_default();
    let is_name = |port: &IntOrString| matches!(port, IntOrString::String(name) if !name.is_empty());
    ports.iter().any(|port| port.target_port.as_ref().is_some_and(is_name))
}

/// The port on the pods: `targetPort`, and `port` where that is absent, 0 or empty (the API's own default).
fn backend_port(
    (index, port): (usize, &ServicePort),
    named: &dyn Fn(&str, Protocol) -> NamedPort,
) -> Result<NonZeroU16, RejectionReason> {
    match &port.target_port {
        None | Some(IntOrString::Int(0)) => port_number(port.port, index, "port"),
        Some(IntOrString::String(name)) if name.is_empty() => port_number(port.port, index, "port"),
        Some(IntOrString::Int(number)) => port_number(*number, index, "targetPort"),
        Some(IntOrString::String(name)) => {
            // Of a protocol that is none of ours the user is told first.
            let protocol = protocol((index, port))?;
            match named(port.name.as_deref().unwrap_or_default(), protocol) {
                NamedPort::Number(number) => Ok(number),
                NamedPort::Unknown => {
                    Err(RejectionReason::UnresolvedTargetPort { index, value: name.clone() })
                }
                NamedPort::Several(numbers) => {
                    Err(RejectionReason::NamedTargetPort { index, value: name.clone(), numbers })
                }
            }
        }
    }
}

fn protocol((index, port): (usize, &ServicePort)) -> Result<Protocol, RejectionReason> {
    let name = port.protocol.as_deref().unwrap_or_default();
    if name.is_empty() || name.eq_ignore_ascii_case("TCP") {
        Ok(Protocol::Tcp)
    } else if name.eq_ignore_ascii_case("UDP") {
        Ok(Protocol::Udp)
    } else {
        Err(RejectionReason::Protocol { index, value: name.to_owned() })
    }
}

fn frontend_port((index, port): (usize, &ServicePort)) -> Result<FrontendPort, RejectionReason> {
    let number = port_number(port.port, index, "port")?;
    FrontendPort::new(number.get()).ok_or(RejectionReason::FrontendPort { index, value: number })
}

fn port_number(value: i32, index: usize, field: &'static str) -> Result<NonZeroU16, RejectionReason> {
    let number = u16::try_from(value).ok().and_then(NonZeroU16::new);
    number.ok_or(RejectionReason::InvalidPort { index, field, value })
}

/// The reason of a rejection that is nobody's fault: pods are still to come.
pub(crate) const UNRESOLVED_TARGET_PORT: &str = "UnresolvedTargetPort";

fn join(numbers: &BTreeSet<NonZeroU16>) -> String {
    numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// Why a Service does not get the load balancer that it asks for. Shown, it is a sentence for the Service's owner.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RejectionReason {
    /// Only public load balancers exist.
    #[error(
        "the annotation {INTERNAL_ANNOTATION} asks for an internal load balancer, which is not supported; remove it \
         to get a public one"
    )]
    Internal,
    /// Flows are spread by their five-tuple only.
    #[error("spec.sessionAffinity is {value:?}, which is not supported; set it to None")]
    SessionAffinity {
        /// The affinity.
        value: String,
    },
    /// Every load balancer has a public IP of its own.
    #[error(
        "spec.loadBalancerIP asks for {value:?}, but the address cannot be chosen; remove the field and take the \
         address from status.loadBalancer"
    )]
    LoadBalancerIp {
        /// The address.
        value: String,
    },
    /// A Service without ports has nothing to balance. It is not *unwanted*, though: one that served before it lost
    /// its ports goes on serving as it was, which is why this is a rejection.
    #[error("spec.ports is empty, so there is nothing to balance; add a port")]
    NoPorts,
    /// A load balancer has one frontend of one family.
    #[error(
        "spec.ipFamilies is {value}, but a load balancer has one IP family; set spec.ipFamilyPolicy to SingleStack and \
         name one family, and make a second Service for the other"
    )]
    DualStack {
        /// The families, separated by commas.
        value: String,
    },
    /// There are two IP families.
    #[error("spec.ipFamilies is {value:?}, which is not supported; use IPv4 or IPv6")]
    IpFamily {
        /// The family.
        value: String,
    },
    /// Azure takes 4 to 30 minutes.
    #[error(
        "the annotation {IDLE_TIMEOUT_ANNOTATION} is {value:?}, which is not a whole number of minutes from 4 to 30; \
         correct or remove it"
    )]
    IdleTimeout {
        /// The annotation's value.
        value: String,
    },
    /// A rule leads to one port number, and no EndpointSlice says yet which one a name stands for. What serves goes on with the
    /// number that it had.
    #[error(
        "spec.ports[{index}].targetPort is the name {value:?}, and no pod of the Service says yet which number that is; \
         start a ready pod with a container port of that name, or use the number"
    )]
    UnresolvedTargetPort {
        /// Which port, from 0.
        index: usize,
        /// The name.
        value: String,
    },
    /// A rule leads to one port number, and a name stands for several in the pods. What serves goes on with the number that it
    /// had.
    #[error(
        "spec.ports[{index}].targetPort is the name {value:?}, which stands for several numbers in the Service's pods ({}); \
         give the container port one number in all of them, or use the number",
        join(numbers)
    )]
    NamedTargetPort {
        /// Which port, from 0.
        index: usize,
        /// The name.
        value: String,
        /// The numbers.
        numbers: BTreeSet<NonZeroU16>,
    },
    /// Azure balances TCP and UDP.
    #[error("spec.ports[{index}].protocol is {value:?}, which is not supported; use TCP or UDP")]
    Protocol {
        /// Which port, from 0.
        index: usize,
        /// The protocol.
        value: String,
    },
    /// Azure does not accept port 65535 on a frontend, only on a backend.
    #[error("spec.ports[{index}].port is {value}, on which Azure cannot listen; use 1 to {max}", max = u16::MAX - 1)]
    FrontendPort {
        /// Which port, from 0.
        index: usize,
        /// The port number.
        value: NonZeroU16,
    },
    /// It is no port number at all; a sound API server does not let this pass.
    #[error("spec.ports[{index}].{field} is {value}, which is not a port number; use 1 to {max}", max = u16::MAX)]
    InvalidPort {
        /// Which port, from 0.
        index: usize,
        /// `port` or `targetPort`.
        field: &'static str,
        /// The number.
        value: i32,
    },
    /// Azure answers `RulesUseSameBackendPortProtocolAndPool`.
    #[error(
        "spec.ports has two ports with protocol {protocol} and targetPort {port}, which one load balancer cannot have; \
         give them different target ports, or make a Service for each"
    )]
    BackendPortCollision {
        /// Their protocol.
        protocol: Protocol,
        /// Their target port.
        port: NonZeroU16,
    },
    /// Two ports listen on the same frontend; a sound API server does not let this pass.
    #[error("spec.ports has two ports with protocol {protocol} and port {}; remove one", port.get())]
    DuplicatePort {
        /// Their protocol.
        protocol: Protocol,
        /// Their port.
        port: FrontendPort,
    },
    /// A load balancer has a limited number of rules.
    #[error(
        "spec.ports has {count} ports, more than the {max} that a load balancer can have; make several Services of it",
        max = clb_difftracker::MAX_RULES
    )]
    TooManyPorts {
        /// How many there are.
        count: usize,
    },
    /// Sources cannot be restricted, and must not be open by mistake.
    #[error(
        "{field} restricts who may connect, which is not supported; remove it and restrict the sources with a \
         NetworkPolicy or a network security group"
    )]
    SourceRanges {
        /// The field or annotation.
        field: &'static str,
    },
}

impl RejectionReason {
    /// The reason of the event that tells the user, in UpperCamelCase. People filter by these: they never change.
    #[must_use]
    pub fn event_reason(&self) -> &'static str {
        match self {
            Self::Internal => "UnsupportedInternalLoadBalancer",
            Self::SessionAffinity { .. } => "UnsupportedSessionAffinity",
            Self::LoadBalancerIp { .. } => "UnsupportedLoadBalancerIP",
            Self::NoPorts => "NoPorts",
            Self::DualStack { .. } => "UnsupportedDualStack",
            Self::IpFamily { .. } => "UnsupportedIPFamily",
            Self::IdleTimeout { .. } => "InvalidIdleTimeout",
            Self::UnresolvedTargetPort { .. } => UNRESOLVED_TARGET_PORT,
            Self::NamedTargetPort { .. } => "UnsupportedNamedTargetPort",
            Self::Protocol { .. } => "UnsupportedProtocol",
            Self::FrontendPort { .. } => "UnsupportedFrontendPort",
            Self::InvalidPort { .. } => "InvalidPort",
            Self::BackendPortCollision { .. } => "UnsupportedBackendPortCollision",
            Self::DuplicatePort { .. } => "DuplicatePort",
            Self::TooManyPorts { .. } => "TooManyPorts",
            Self::SourceRanges { .. } => "UnsupportedSourceRanges",
        }
    }
}

impl From<RejectionReason> for Rejection {
    fn from(reason: RejectionReason) -> Self {
        Self { reason: reason.event_reason().into(), message: reason.to_string() }
    }
}

impl From<SpecError> for RejectionReason {
    fn from(error: SpecError) -> Self {
        match error {
            SpecError::NoRules => Self::NoPorts,
            SpecError::TooManyRules { count } => Self::TooManyPorts { count },
            SpecError::DuplicateFrontend { protocol, port } => Self::DuplicatePort { protocol, port },
            SpecError::BackendPortCollision { protocol, port } => {
                Self::BackendPortCollision { protocol, port }
            }
        }
    }
}
