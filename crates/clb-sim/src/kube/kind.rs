//! The resources, and which of them a path names.

use serde_json::{Value, json};

/// A kind of object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// `v1` Namespace.
    Namespace,
    /// `v1` Node.
    Node,
    /// `v1` Pod.
    Pod,
    /// `v1` Service.
    Service,
    /// `discovery.k8s.io/v1` EndpointSlice.
    EndpointSlice,
    /// `v1` Event.
    Event,
    /// `coordination.k8s.io/v1` Lease.
    Lease,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Namespace,
        Self::Node,
        Self::Pod,
        Self::Service,
        Self::EndpointSlice,
        Self::Event,
        Self::Lease,
    ];

    /// The kind, as it stands in objects.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Namespace => "Namespace",
            Self::Node => "Node",
            Self::Pod => "Pod",
            Self::Service => "Service",
            Self::EndpointSlice => "EndpointSlice",
            Self::Event => "Event",
            Self::Lease => "Lease",
        }
    }

    /// The resource, as it stands in paths.
    #[must_use]
    pub fn resource(self) -> &'static str {
        match self {
            Self::Namespace => "namespaces",
            Self::Node => "nodes",
            Self::Pod => "pods",
            Self::Service => "services",
            Self::EndpointSlice => "endpointslices",
            Self::Event => "events",
            Self::Lease => "leases",
        }
    }

    /// The API group, empty for the core one. All versions are `v1`.
    #[must_use]
    pub fn group(self) -> &'static str {
        match self {
            Self::Namespace | Self::Node | Self::Pod | Self::Service | Self::Event => "",
            Self::EndpointSlice => "discovery.k8s.io",
            Self::Lease => "coordination.k8s.io",
        }
    }

    /// As `apiVersion` says it.
    #[must_use]
    pub fn api_version(self) -> String {
        if self.group().is_empty() { "v1".to_owned() } else { format!("{}/v1", self.group()) }
    }

    /// Whether its objects live in namespaces.
    #[must_use]
    pub fn is_namespaced(self) -> bool {
        match self {
            Self::Namespace | Self::Node => false,
            Self::Pod | Self::Service | Self::EndpointSlice | Self::Event | Self::Lease => true,
        }
    }

    /// Whether its status is a subresource.
    pub(super) fn has_status(self) -> bool {
        match self {
            Self::Namespace | Self::Node | Self::Pod | Self::Service => true,
            Self::EndpointSlice | Self::Event | Self::Lease => false,
        }
    }

    /// Whether a PUT creates what there is not: `AllowCreateOnUpdate` of the strategies in Kubernetes' `pkg/registry`.
    pub(super) fn is_created_by_put(self) -> bool {
        match self {
            Self::Service | Self::Event | Self::Lease => true,
            Self::Namespace | Self::Node | Self::Pod | Self::EndpointSlice => false,
        }
    }

    /// As refusals name the resource.
    pub(super) fn qualified(self) -> String {
        if self.group().is_empty() {
            self.resource().to_owned()
        } else {
            format!("{}.{}", self.resource(), self.group())
        }
    }

    fn short_names(self) -> &'static [&'static str] {
        match self {
            Self::Namespace => &["ns"],
            Self::Node => &["no"],
            Self::Pod => &["po"],
            Self::Service => &["svc"],
            Self::Event => &["ev"],
            Self::EndpointSlice | Self::Lease => &[],
        }
    }
}

/// What a path names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// A document that says what there is.
    Discovery(Value),
    /// All objects of a kind, of all namespaces or of one.
    Collection { kind: Kind, namespace: Option<String> },
    /// One object.
    Object { kind: Kind, namespace: String, name: String },
    /// Its status.
    Status { kind: Kind, namespace: String, name: String },
    /// The binding of a pod to its node.
    Binding { namespace: String, name: String },
}

/// Reads a path; `None` for one that is not modelled.
pub(super) fn parse(path: &str) -> Option<Target> {
    let segments: Vec<&str> = path.trim_matches('/').split('/').collect();
    let (group, rest) = match segments[..] {
        ["version"] => return Some(Target::Discovery(version())),
        ["api"] => return Some(Target::Discovery(json!({"kind": "APIVersions", "versions": ["v1"]}))),
        ["apis"] => return Some(Target::Discovery(groups())),
        ["openapi", "v3", ref rest @ ..] => return super::openapi::document(rest).map(Target::Discovery),
        ["api", "v1", ref rest @ ..] => ("", rest),
        ["apis", group, "v1", ref rest @ ..] => (group, rest),
        [..] => return None,
    };
    if !Kind::ALL.iter().any(|kind| kind.group() == group) {
        return None;
    }
    let kind = |resource: &str| {
        Kind::ALL.into_iter().find(|kind| kind.group() == group && kind.resource() == resource)
    };
    let owned = str::to_owned;
    match *rest {
        [] => Some(Target::Discovery(resources(group))),
        // What limits a namespace is asked for by whoever describes one. Nothing does.
        ["namespaces", _, "limitranges"] if group.is_empty() => Some(Target::Discovery(none("LimitRange"))),
        ["namespaces", _, "resourcequotas"] if group.is_empty() => {
            Some(Target::Discovery(none("ResourceQuota")))
        }
        // The path of a namespace itself looks like the start of a path within one.
        ["namespaces", namespace, resource, ref rest @ ..] if !(resource == "status" && rest.is_empty()) => {
            let kind = kind(resource).filter(|kind| kind.is_namespaced())?;
            let namespace = owned(namespace);
            match *rest {
                [] => Some(Target::Collection { kind, namespace: Some(namespace) }),
                [name] => Some(Target::Object { kind, namespace, name: owned(name) }),
                [name, "status"] if kind.has_status() => {
                    Some(Target::Status { kind, namespace, name: owned(name) })
                }
                [name, "binding"] if kind == Kind::Pod => {
                    Some(Target::Binding { namespace, name: owned(name) })
                }
                [..] => None,
            }
        }
        [resource] => Some(Target::Collection { kind: kind(resource)?, namespace: None }),
        [resource, name] => {
            let kind = kind(resource).filter(|kind| !kind.is_namespaced())?;
            Some(Target::Object { kind, namespace: String::new(), name: owned(name) })
        }
        [resource, name, "status"] => {
            let kind = kind(resource).filter(|kind| !kind.is_namespaced())?;
            Some(Target::Status { kind, namespace: String::new(), name: owned(name) })
        }
        [..] => None,
    }
}

/// Groups that every real server has.
const OTHER_GROUPS: [&str; 17] = [
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "apps",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "autoscaling",
    "batch",
    "certificates.k8s.io",
    "events.k8s.io",
    "flowcontrol.apiserver.k8s.io",
    "networking.k8s.io",
    "node.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "scheduling.k8s.io",
    "storage.k8s.io",
];
/// Resources of the core group that every real server has.
const OTHER_RESOURCES: [&str; 11] = [
    "bindings",
    "componentstatuses",
    "configmaps",
    "endpoints",
    "limitranges",
    "persistentvolumeclaims",
    "persistentvolumes",
    "podtemplates",
    "replicationcontrollers",
    "resourcequotas",
    "secrets",
];

/// Whether a path that is not modelled leads to something that a real server has.
pub(super) fn is_real(path: &str) -> bool {
    let segments: Vec<&str> = path.trim_matches('/').split('/').collect();
    let is_other = |resource: &str| OTHER_RESOURCES.contains(&resource) || resource == "serviceaccounts";
    let is_known =
        |resource: &str| is_other(resource) || Kind::ALL.iter().any(|kind| kind.resource() == resource);
    match segments[..] {
        ["api", "v1", "namespaces", _, resource, _, _, ..] | ["api", "v1", resource, _, _, ..]
            if is_known(resource) =>
        {
            true
        }
        ["api", "v1", "namespaces", _, resource, ..] | ["api", "v1", resource, ..] => is_other(resource),
        ["apis", group, _, _, ..] => OTHER_GROUPS.contains(&group),
        [..] => false,
    }
}

fn none(kind: &str) -> Value {
    json!({"kind": format!("{kind}List"), "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": []})
}

fn version() -> Value {
    json!({"major": "1", "minor": "33", "gitVersion": "v1.33.0+clb-sim", "gitCommit": "", "gitTreeState": "clean",
        "buildDate": "", "goVersion": "", "compiler": "", "platform": "linux/amd64"})
}

fn groups() -> Value {
    let group = |name: &str| {
        let version = json!({"groupVersion": format!("{name}/v1"), "version": "v1"});
        json!({"name": name, "versions": [version], "preferredVersion": version})
    };
    let groups = [Kind::Lease.group(), Kind::EndpointSlice.group()].map(group);
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

fn resources(group: &str) -> Value {
    let mut resources = Vec::new();
    for kind in Kind::ALL.into_iter().filter(|kind| kind.group() == group) {
        let (name, namespaced) = (kind.resource(), kind.is_namespaced());
        let mut verbs = vec!["create", "delete", "get", "list", "patch", "update", "watch"];
        if kind != Kind::Namespace {
            verbs.insert(2, "deletecollection");
        }
        resources
            .push(json!({"name": name, "singularName": kind.name().to_lowercase(), "namespaced": namespaced,
            "kind": kind.name(), "verbs": verbs, "shortNames": kind.short_names()}));
        if kind.has_status() {
            resources
                .push(json!({"name": format!("{name}/status"), "singularName": "", "namespaced": namespaced,
                "kind": kind.name(), "verbs": ["get", "patch", "update"]}));
        }
    }
    let version = if group.is_empty() { "v1".to_owned() } else { format!("{group}/v1") };
    json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": resources})
}
