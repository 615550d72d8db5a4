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
    /// A part of a ServiceGateway, or an action on it.
    Gateway { scope: Scope<'a>, name: &'a str, part: &'a str },
    /// A long-running operation, as `Azure-AsyncOperation` names it.
    Operation { id: &'a str },
    /// The same as `Location` names it.
    OperationResult { id: &'a str },
}

/// A subscription and a resource group. Any is accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Scope<'a> {
    pub(crate) subscription: &'a str,
    pub(crate) group: &'a str,
}

/// The kinds of resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    PublicIp,
    LoadBalancer,
    NatGateway,
    ServiceGateway,
}

impl Kind {
    /// As it stands in paths.
    pub(crate) fn segment(self) -> &'static str {
        match self {
            Self::PublicIp => "publicIPAddresses",
            Self::LoadBalancer => "loadBalancers",
            Self::NatGateway => "natGateways",
            Self::ServiceGateway => "serviceGateways",
        }
    }

    fn parse(segment: &str) -> Option<Self> {
        [Self::PublicIp, Self::LoadBalancer, Self::NatGateway, Self::ServiceGateway]
            .into_iter()
            .find(|kind| kind.segment().eq_ignore_ascii_case(segment))
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
    if is(2, "providers") && is(3, "Microsoft.Network") && is(4, "locations") {
        return match segments[5..] {
            [_, operations, id] if operations.eq_ignore_ascii_case("operations") => {
                Some(Target::Operation { id })
            }
            [_, results, id] if results.eq_ignore_ascii_case("operationResults") => {
                Some(Target::OperationResult { id })
            }
            [..] => None,
        };
    }
    if is(2, "providers") && is(3, "Microsoft.Network") {
        let [_, subscription, _, _, kind] = segments[..] else { return None };
        return Some(Target::Subscription { subscription, kind: Kind::parse(kind)? });
    }
    if !is(2, "resourceGroups") || !is(4, "providers") || !is(5, "Microsoft.Network") {
        return None;
    }
    let scope = Scope { subscription: segments[1], group: segments[3] };
    let kind = Kind::parse(segments.get(6)?)?;
    match segments[7..] {
        [] => Some(Target::Collection { scope, kind }),
        [name] => Some(Target::Resource { scope, kind, name }),
        [name, part] if kind == Kind::ServiceGateway => Some(Target::Gateway { scope, name, part }),
        [..] => None,
    }
}

impl Scope<'_> {
    /// The full id of a resource.
    pub(crate) fn id(self, kind: Kind, name: &str) -> String {
        let Self { subscription, group } = self;
        let kind = kind.segment();
        format!(
            "/subscriptions/{subscription}/resourceGroups/{group}/providers/Microsoft.Network/{kind}/{name}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_read_in_any_casing() {
        let scope = Scope { subscription: "S", group: "g" };
        let at = |rest: &str| format!("/SUBSCRIPTIONS/S/resourcegroups/g/providers/microsoft.network/{rest}");
        assert_eq!(
            parse(&at("loadbalancers/A")),
            Some(Target::Resource { scope, kind: Kind::LoadBalancer, name: "A" })
        );
        assert_eq!(parse(&at("publicIPAddresses")), Some(Target::Collection { scope, kind: Kind::PublicIp }));
        assert_eq!(
            parse(&at("serviceGateways/gw/updateServices")),
            Some(Target::Gateway { scope, name: "gw", part: "updateServices" })
        );
        assert_eq!(
            parse("/subscriptions/S/providers/Microsoft.Network/locations/l/operations/7"),
            Some(Target::Operation { id: "7" })
        );
        assert_eq!(
            parse("/subscriptions/S/providers/Microsoft.Network/locations/l/operationresults/7"),
            Some(Target::OperationResult { id: "7" })
        );
        assert_eq!(
            parse("/subscriptions/S/providers/Microsoft.Network/NATGateways"),
            Some(Target::Subscription { subscription: "S", kind: Kind::NatGateway })
        );
        for unknown in [
            "/subscriptions/S/providers/Microsoft.Network/locations".to_owned(),
            "/subscriptions/S/providers/Microsoft.Network/locations/l/operations/7/8".to_owned(),
            at("virtualNetworks/a"),
            at("loadBalancers/a/probes"),
            at("loadBalancers//a"),
            "/".to_owned(),
            at(""),
        ] {
            assert_eq!(parse(&unknown), None, "{unknown}");
        }
    }
}
