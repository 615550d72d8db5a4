//! Names of Azure resources.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

/// The id of a resource in a resource group:
/// `/subscriptions/{s}/resourceGroups/{g}/providers/{namespace}/{type}/{name}`, then any number of `/{type}/{name}`.
///
/// Azure compares ids without regard to case and hands them back in other casings than they were given, so equality,
/// order and hash ignore ASCII case. Formatting keeps the casing of the names and writes the keywords as above.
#[derive(Clone, Debug)]
pub struct ResourceId {
    subscription: String,
    resource_group: String,
    namespace: String,
    /// Type and name, outermost first; never empty.
    types: Vec<(String, String)>,
}

impl ResourceId {
    /// The top-level resource `name` of type `namespace`/`kind`.
    ///
    /// # Errors
    /// [`InvalidResourceId`] when one of the parts cannot stand in an id.
    pub fn new(
        subscription: &str,
        resource_group: &str,
        namespace: &str,
        kind: &str,
        name: &str,
    ) -> Result<Self, InvalidResourceId> {
        Ok(Self {
            subscription: segment(subscription)?,
            resource_group: segment(resource_group)?,
            namespace: segment(namespace)?,
            types: vec![(segment(kind)?, segment(name)?)],
        })
    }

    /// The resource `name` of type `kind` inside this one.
    ///
    /// # Errors
    /// [`InvalidResourceId`] when one of the parts cannot stand in an id.
    pub fn child(&self, kind: &str, name: &str) -> Result<Self, InvalidResourceId> {
        let mut child = self.clone();
        child.types.push((segment(kind)?, segment(name)?));
        Ok(child)
    }

    /// The resource that this one is inside of, unless it is a top-level one.
    #[must_use]
    pub fn parent(&self) -> Option<Self> {
        let (_, rest) = self.types.split_last().filter(|(_, rest)| !rest.is_empty())?;
        Some(Self { types: rest.to_vec(), ..self.clone() })
    }

    /// The subscription's id.
    #[must_use]
    pub fn subscription(&self) -> &str {
        &self.subscription
    }

    /// The resource group's name.
    #[must_use]
    pub fn resource_group(&self) -> &str {
        &self.resource_group
    }

    /// The full type, such as `Microsoft.Network/loadBalancers/backendAddressPools`.
    #[must_use]
    pub fn resource_type(&self) -> String {
        let kinds = self.types.iter().map(|(kind, _)| kind.as_str());
        std::iter::once(self.namespace.as_str()).chain(kinds).collect::<Vec<_>>().join("/")
    }

    /// The name of the innermost resource.
    #[must_use]
    pub fn name(&self) -> &str {
        self.types.last().map_or("", |(_, name)| name)
    }

    fn segments(&self) -> impl Iterator<Item = &str> {
        [self.subscription.as_str(), &self.resource_group, &self.namespace]
            .into_iter()
            .chain(self.types.iter().flat_map(|(kind, name)| [kind.as_str(), name.as_str()]))
    }

    fn lowered(&self) -> impl Iterator<Item = u8> {
        // A separator that cannot stand in a segment keeps `a/bc` apart from `ab/c`.
        self.segments().flat_map(|s| s.bytes().map(|b| b.to_ascii_lowercase()).chain(std::iter::once(b'/')))
    }
}

impl fmt::Display for ResourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { subscription, resource_group, namespace, types } = self;
        write!(f, "/subscriptions/{subscription}/resourceGroups/{resource_group}/providers/{namespace}")?;
        types.iter().try_for_each(|(kind, name)| write!(f, "/{kind}/{name}"))
    }
}

impl FromStr for ResourceId {
    type Err = InvalidResourceId;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let malformed = || InvalidResourceId { text: text.to_owned() };
        let parts: Vec<&str> = text.strip_prefix('/').ok_or_else(malformed)?.split('/').collect();
        let [subscriptions, subscription, groups, group, providers, namespace, types @ ..] = parts.as_slice()
        else {
            return Err(malformed());
        };
        let keywords =
            [(subscriptions, "subscriptions"), (groups, "resourceGroups"), (providers, "providers")];
        let (pairs, rest) = types.as_chunks::<2>();
        if keywords.iter().any(|(found, keyword)| !found.eq_ignore_ascii_case(keyword))
            || pairs.is_empty()
            || !rest.is_empty()
        {
            return Err(malformed());
        }
        Ok(Self {
            subscription: segment(subscription)?,
            resource_group: segment(group)?,
            namespace: segment(namespace)?,
            types: pairs
                .iter()
                .map(|[kind, name]| Ok((segment(kind)?, segment(name)?)))
                .collect::<Result<_, InvalidResourceId>>()?,
        })
    }
}

impl PartialEq for ResourceId {
    fn eq(&self, other: &Self) -> bool {
        self.lowered().eq(other.lowered())
    }
}

impl Eq for ResourceId {}

impl PartialOrd for ResourceId {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ResourceId {
    fn cmp(&self, other: &Self) -> Ordering {
        self.lowered().cmp(other.lowered())
    }
}

impl Hash for ResourceId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.lowered().for_each(|byte| state.write_u8(byte));
    }
}

/// A text that is not a resource id, or not a part of one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a resource id or cannot stand in one")]
pub struct InvalidResourceId {
    text: String,
}

/// `text`, if it stays one segment of a path whatever becomes of it on the way: nothing that splits, ends or climbs
/// a path or would be decoded once more. (What a name may hold beyond that differs by type, and the server says.)
fn segment(text: &str) -> Result<String, InvalidResourceId> {
    let bad = |c: char| c.is_control() || c.is_whitespace() || matches!(c, '/' | '\\' | '?' | '#' | '%');
    if text.is_empty() || text == "." || text == ".." || text.contains(bad) {
        return Err(InvalidResourceId { text: text.to_owned() });
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    const POOL: &str = "/subscriptions/0/resourceGroups/Rg/providers/Microsoft.Network/loadBalancers/lb/backendAddressPools/Pool";

    #[test]
    fn the_parts_can_be_read_and_the_whole_is_formatted_back() {
        let id: ResourceId = POOL.parse().unwrap();
        assert_eq!(
            (id.subscription(), id.resource_group(), id.resource_type().as_str(), id.name()),
            ("0", "Rg", "Microsoft.Network/loadBalancers/backendAddressPools", "Pool")
        );
        assert_eq!(id.to_string(), POOL);
        let parent = id.parent().unwrap();
        assert_eq!(parent, ResourceId::new("0", "rg", "Microsoft.Network", "loadBalancers", "lb").unwrap());
        assert_eq!(parent.parent(), None);
        assert_eq!(parent.child("backendAddressPools", "pool").unwrap(), id);
    }

    #[test]
    fn casing_does_not_matter() {
        let ids = [POOL.to_owned(), POOL.to_lowercase(), POOL.replace("resourceGroups", "resourcegroups")];
        let ids: Vec<ResourceId> = ids.iter().map(|id| id.parse().unwrap()).collect();
        assert!(ids.iter().all(|id| *id == ids[0] && id.cmp(&ids[0]) == Ordering::Equal));
        assert_eq!(ids.into_iter().collect::<HashSet<_>>().len(), 1);
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            "/",
            "/subscriptions/0",
            "/subscriptions/0/resourceGroups/rg",
            "/subscriptions/0/resourceGroups/rg/providers/Microsoft.Network",
            "/subscriptions/0/resourceGroups/rg/providers/Microsoft.Network/loadBalancers",
            "/subscriptions/0/resourceGroups/rg/providers/Microsoft.Network/loadBalancers/",
            "/subscriptions/0/resourceGroups/rg/providers/Microsoft.Network/loadBalancers/a/b",
            "/subscriptions/0/resourceGroups/rg/providers/Microsoft.Network/loadBalancers/..",
            "/subscriptions/0/resourceGroups/r g/providers/Microsoft.Network/loadBalancers/a",
            "/subscriptions/0/resourceGroups/rg/providers/Microsoft.Network/loadBalancers/a?b",
            "/subscriptions/0/resourceGroups/rg/providers/Microsoft.Network/loadBalancers/a%2f",
            "subscriptions/0/resourceGroups/rg/providers/Microsoft.Network/loadBalancers/a",
            "/tenants/0/resourceGroups/rg/providers/Microsoft.Network/loadBalancers/a",
        ] {
            assert!(text.parse::<ResourceId>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_built_is_read_back(
            parts in prop::collection::vec("[A-Za-z0-9_.()-]{1,20}".prop_filter("dots", |s| s != "." && s != ".."), 7)
        ) {
            let [s, g, n, t1, a, t2, b] = parts.as_slice() else { unreachable!() };
            let id = ResourceId::new(s, g, n, t1, a).unwrap().child(t2, b).unwrap();
            let read: ResourceId = id.to_string().parse().unwrap();
            prop_assert_eq!(read.to_string(), id.to_string());
            prop_assert_eq!(id.to_string().to_uppercase().parse::<ResourceId>().unwrap(), id);
        }

        #[test]
        fn no_text_makes_parsing_panic(text in ".{0,80}") {
            let _ = text.parse::<ResourceId>();
        }
    }
}
