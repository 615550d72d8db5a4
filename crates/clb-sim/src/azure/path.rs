//! Which resource a path names.

/// What a path names. Names keep their spelling; whoever compares them does so without regard to case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target<'a> {
    /// All resources of a kind in a subscription.
    Subscription { subscription: &'a str, kind: Kind },
    /// All resources of a kind in a group.
    Collection { scope: Scope<'a>, kind: Kind },
    /// One resource.
    Resource { scope: Scope<'a>, kind: Kind, name: &'a str },
    /// What is below a resource that has parts: children, what they have in turn, or an action.
    Below { scope: Scope<'a>, kind: Kind, name: &'a str, parts: Vec<&'a str> },
    /// A long-running operation, as `Azure-AsyncOperation` names it.
    Operation { provider: Provider, id: &'a str },
    /// The same as `Location` names it.
    OperationResult { provider: Provider, id: &'a str },
}

/// A subscription and a resource group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Scope<'a> {
    pub(crate) subscription: &'a str,
    pub(crate) group: &'a str,
}

/// The resource providers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Provider {
    Network,
    Compute,
}

impl Provider {
    /// As it stands in paths.
    pub(crate) fn namespace(self) -> &'static str {
        match self {
            Self::Network => "Microsoft.Network",
            Self::Compute => "Microsoft.Compute",
        }
    }

    fn parse(namespace: &str) -> Option<Self> {
        [Self::Network, Self::Compute]
            .into_iter()
            .find(|provider| provider.namespace().eq_ignore_ascii_case(namespace))
    }
}

/// The kinds of resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    PublicIp,
    LoadBalancer,
    NatGateway,
    ServiceGateway,
    NetworkInterface,
    ScaleSet,
    VirtualMachine,
}

impl Kind {
    const ALL: [Self; 7] = [
        Self::PublicIp,
        Self::LoadBalancer,
        Self::NatGateway,
        Self::ServiceGateway,
        Self::NetworkInterface,
        Self::ScaleSet,
        Self::VirtualMachine,
    ];

    /// As it stands in paths.
    pub(crate) fn segment(self) -> &'static str {
        match self {
            Self::PublicIp => "publicIPAddresses",
            Self::LoadBalancer => "loadBalancers",
            Self::NatGateway => "natGateways",
            Self::ServiceGateway => "serviceGateways",
            Self::NetworkInterface => "networkInterfaces",
            Self::ScaleSet => "virtualMachineScaleSets",
            Self::VirtualMachine => "virtualMachines",
        }
    }

    /// Whose it is.
    pub(crate) fn provider(self) -> Provider {
        match self {
            Self::PublicIp
            | Self::LoadBalancer
            | Self::NatGateway
            | Self::ServiceGateway
            | Self::NetworkInterface => Provider::Network,
            Self::ScaleSet | Self::VirtualMachine => Provider::Compute,
        }
    }

    /// Its full name, such as `Microsoft.Network/loadBalancers`.
    pub(crate) fn type_name(self) -> String {
        format!("{}/{}", self.provider().namespace(), self.segment())
    }

    /// Whether it has parts or actions.
    fn has_parts(self) -> bool {
        match self {
            Self::LoadBalancer | Self::ServiceGateway | Self::ScaleSet | Self::VirtualMachine => true,
            Self::PublicIp | Self::NatGateway | Self::NetworkInterface => false,
        }
    }

    fn parse(provider: Provider, segment: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.provider() == provider && kind.segment().eq_ignore_ascii_case(segment))
    }
}

/// Reads a path; `None` for one that is not modelled.
pub(crate) fn parse(path: &str) -> Option<Target<'_>> {
    let segments: Vec<&str> = path.trim_matches('/').split('/').collect();
    let is =
        |at: usize, word: &str| segments.get(at).is_some_and(|segment| segment.eq_ignore_ascii_case(word));
    if !is(0, "subscriptions") || segments.iter().any(|segment| segment.is_empty()) {
        return None;
    }
    let subscription = segments.get(1)?;
    if is(2, "providers") {
        let provider = Provider::parse(segments.get(3)?)?;
        return match segments[4..] {
            [locations, _, operations, id] if locations.eq_ignore_ascii_case("locations") => {
                if operations.eq_ignore_ascii_case("operations") {
                    Some(Target::Operation { provider, id })
                } else if operations.eq_ignore_ascii_case("operationResults") {
                    Some(Target::OperationResult { provider, id })
                } else {
                    None
                }
            }
            [kind] => Some(Target::Subscription { subscription, kind: Kind::parse(provider, kind)? }),
            [..] => None,
        };
    }
    if !is(2, "resourceGroups") || !is(4, "providers") {
        return None;
    }
    let scope = Scope { subscription, group: segments[3] };
    let kind = Kind::parse(Provider::parse(segments.get(5)?)?, segments.get(6)?)?;
    match &segments[7..] {
        [] => Some(Target::Collection { scope, kind }),
        [name] => Some(Target::Resource { scope, kind, name }),
        [name, parts @ ..] if kind.has_parts() => {
            Some(Target::Below { scope, kind, name, parts: parts.to_vec() })
        }
        [..] => None,
    }
}

impl<'a> Target<'a> {
    /// Whose it is.
    pub(crate) fn provider(&self) -> Provider {
        match self {
            Self::Subscription { kind, .. }
            | Self::Collection { kind, .. }
            | Self::Resource { kind, .. }
            | Self::Below { kind, .. } => kind.provider(),
            Self::Operation { provider, .. } | Self::OperationResult { provider, .. } => *provider,
        }
    }

    /// The resource group that it is in.
    pub(crate) fn scope(&self) -> Option<Scope<'a>> {
        match self {
            Self::Collection { scope, .. } | Self::Resource { scope, .. } | Self::Below { scope, .. } => {
                Some(*scope)
            }
            Self::Subscription { .. } | Self::Operation { .. } | Self::OperationResult { .. } => None,
        }
    }
}

impl<'a> Scope<'a> {
    /// The full id of a resource.
    pub(crate) fn id(self, kind: Kind, name: &str) -> String {
        let Self { subscription, group } = self;
        format!("/subscriptions/{subscription}/resourceGroups/{group}/providers/{}/{name}", kind.type_name())
    }

    /// The group that the full id of a resource names.
    pub(crate) fn of(id: &'a str) -> Self {
        let mut segments = id.trim_start_matches('/').split('/').skip(1).step_by(2);
        Self { subscription: segments.next().unwrap_or_default(), group: segments.next().unwrap_or_default() }
    }
}

/// The last segment of an id.
pub(crate) fn last(id: &str) -> &str {
    id.rsplit('/').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_read_in_any_casing() {
        let scope = Scope { subscription: "S", group: "g" };
        let at = |rest: &str| format!("/SUBSCRIPTIONS/S/resourcegroups/g/providers/microsoft.{rest}");
        assert_eq!(
            parse(&at("network/loadbalancers/A")),
            Some(Target::Resource { scope, kind: Kind::LoadBalancer, name: "A" })
        );
        assert_eq!(
            parse(&at("network/publicIPAddresses")),
            Some(Target::Collection { scope, kind: Kind::PublicIp })
        );
        assert_eq!(
            parse(&at("network/serviceGateways/gw/updateServices")),
            Some(Target::Below {
                scope,
                kind: Kind::ServiceGateway,
                name: "gw",
                parts: vec!["updateServices"]
            })
        );
        assert_eq!(
            parse(&at("compute/VIRTUALMACHINESCALESETS/Set/virtualMachines/0/networkInterfaces")),
            Some(Target::Below {
                scope,
                kind: Kind::ScaleSet,
                name: "Set",
                parts: vec!["virtualMachines", "0", "networkInterfaces"]
            })
        );
        let in_subscription = |rest: &str| format!("/subscriptions/S/providers/Microsoft.{rest}");
        assert_eq!(
            parse(&in_subscription("Network/locations/l/operations/7")),
            Some(Target::Operation { provider: Provider::Network, id: "7" })
        );
        assert_eq!(
            parse(&in_subscription("Compute/locations/l/operations/7")),
            Some(Target::Operation { provider: Provider::Compute, id: "7" })
        );
        assert_eq!(
            parse(&in_subscription("Network/locations/l/operationresults/7")),
            Some(Target::OperationResult { provider: Provider::Network, id: "7" })
        );
        assert_eq!(
            parse(&in_subscription("Network/NATGateways")),
            Some(Target::Subscription { subscription: "S", kind: Kind::NatGateway })
        );
        for unknown in [
            in_subscription("Network/locations"),
            in_subscription("Network/locations/l/operations/7/8"),
            in_subscription("Network/virtualMachineScaleSets"),
            at("network/virtualNetworks/a"),
            at("network/virtualMachines/a"),
            at("compute/loadBalancers/a"),
            at("storage/loadBalancers/a"),
            at("network/natGateways/a/probes"),
            at("network/loadBalancers//a"),
            "/subscriptions".to_owned(),
            "/".to_owned(),
            at("network/"),
        ] {
            assert_eq!(parse(&unknown), None, "{unknown}");
        }
    }

    #[test]
    fn the_group_of_an_id_is_read_off_it() {
        let scope = Scope { subscription: "s", group: "g" };
        assert_eq!(Scope::of(&scope.id(Kind::ScaleSet, "a")), scope);
        assert_eq!(last(&scope.id(Kind::ScaleSet, "a")), "a");
    }
}
