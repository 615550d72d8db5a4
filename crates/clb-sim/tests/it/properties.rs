//! Any sequence of updates of locations leaves what a plain set of (location, address, service) would hold.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use clb_sim::azure::Azure;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

use crate::support::*;

pub(crate) type Fact = (IpAddr, IpAddr, String);

const V4_LOCATIONS: [&str; 3] = ["10.0.0.1", "10.0.0.2", "10.0.0.3"];
const V6_LOCATIONS: [&str; 3] = ["fd00::1", "FD00:0:0::1", "fd00::2"];
const V4_ADDRESSES: [&str; 3] = ["10.1.0.1", "10.1.0.2", "10.1.0.3"];
const V6_ADDRESSES: [&str; 3] = ["fd01::a", "fd01:0::A", "fd01::b"];
/// The first three are registered in the beginning.
pub(crate) const SERVICES: [&str; 4] = ["a", "B", "out", "unknown"];

#[derive(Clone, Debug)]
pub(crate) enum Step {
    Update { is_full: bool, entries: Vec<Entry> },
    Unregister(&'static str),
    Register(&'static str),
}

#[derive(Clone, Debug)]
pub(crate) struct Entry {
    location: &'static str,
    is_full: bool,
    addresses: Vec<(&'static str, Vec<&'static str>)>,
}

pub(crate) fn entries() -> impl Strategy<Value = Entry> {
    // The service that is not registered, and the other family, are rare: most updates should be taken.
    let services = vec(prop_oneof![20 => select(SERVICES[..3].to_vec()), 1 => Just(SERVICES[3])], 0..3);
    let addresses = |own: [&'static str; 3], other: [&'static str; 3]| {
        let address = prop_oneof![40 => select(own.to_vec()), 1 => select(other.to_vec())];
        vec((address, services.clone()), 0..4)
    };
    prop_oneof![
        (select(V4_LOCATIONS.to_vec()), any::<bool>(), addresses(V4_ADDRESSES, V6_ADDRESSES)),
        (select(V6_LOCATIONS.to_vec()), any::<bool>(), addresses(V6_ADDRESSES, V4_ADDRESSES)),
    ]
    .prop_map(|(location, is_full, addresses)| Entry { location, is_full, addresses })
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let update = (prop::bool::weighted(0.15), vec(entries(), 0..4))
        .prop_map(|(is_full, entries)| Step::Update { is_full, entries });
    let service = || select(SERVICES[..3].to_vec());
    vec(
        prop_oneof![8 => update, 1 => service().prop_map(Step::Unregister), 1 => service().prop_map(Step::Register)],
        1..30,
    )
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Model {
    pub(crate) registered: BTreeSet<String>,
    pub(crate) facts: BTreeSet<Fact>,
}

impl Model {
    /// What is left after a step; `None` if it is refused.
    pub(crate) fn after(&self, step: &Step) -> Option<Self> {
        let mut model = self.clone();
        match step {
            Step::Register(name) => drop(model.registered.insert(name.to_lowercase())),
            Step::Unregister(name) => {
                let name = name.to_lowercase();
                if model.facts.iter().any(|(.., service)| *service == name) {
                    return None;
                }
                model.registered.remove(&name);
            }
            Step::Update { is_full, entries } => {
                let ip = |text: &str| text.parse::<IpAddr>().unwrap();
                let listed: BTreeSet<IpAddr> = entries.iter().map(|entry| ip(entry.location)).collect();
                if listed.len() != entries.len() {
                    return None;
                }
                if *is_full {
                    model.facts.retain(|(location, ..)| listed.contains(location));
                }
                for entry in entries {
                    let location = ip(entry.location);
                    let named: BTreeSet<IpAddr> =
                        entry.addresses.iter().map(|(address, _)| ip(address)).collect();
                    if named.len() != entry.addresses.len() {
                        return None;
                    }
                    let all = entry.is_full || entry.addresses.is_empty();
                    model
                        .facts
                        .retain(|(at, address, _)| *at != location || !(all || named.contains(address)));
                    for (address, services) in &entry.addresses {
                        let address = ip(address);
                        if address.is_ipv4() != location.is_ipv4() {
                            return None;
                        }
                        for service in services {
                            let service = service.to_lowercase();
                            if !model.registered.contains(&service) {
                                return None;
                            }
                            model.facts.insert((location, address, service));
                        }
                    }
                }
            }
        }
        Some(model)
    }
}

pub(crate) fn request(step: &Step) -> clb_sim::azure::Request {
    let action = |is_full: bool| if is_full { "FullUpdate" } else { "PartialUpdate" };
    let service = |name: &str, is_delete: bool| {
        let service = json!({"name": name, "properties": {"serviceType": "Inbound"}});
        update_services("PartialUpdate", json!([{"isDelete": is_delete, "service": service}]))
    };
    match step {
        Step::Register(name) => service(name, false),
        Step::Unregister(name) => service(name, true),
        Step::Update { is_full, entries } => {
            let entry = |entry: &Entry| {
                let addresses = entry.addresses.iter();
                let addresses =
                    addresses.map(|(address, services)| json!({"address": address, "services": services}));
                json!({
                    "addressLocation": entry.location, "addressUpdateAction": action(entry.is_full),
                    "addresses": addresses.collect::<Vec<Value>>()
                })
            };
            update_locations(action(*is_full), entries.iter().map(entry).collect())
        }
    }
}

pub(crate) fn facts(azure: &Azure) -> BTreeSet<Fact> {
    let mut facts = BTreeSet::new();
    for (location, addresses) in azure.locations() {
        assert!(!addresses.is_empty(), "{location} holds nothing");
        for (address, services) in addresses {
            assert!(!services.is_empty(), "{address} at {location} backs nothing");
            facts.extend(services.iter().map(|service| (*location, *address, service.clone())));
        }
    }
    facts
}

fn several(facts: &BTreeSet<Fact>) -> BTreeMap<IpAddr, BTreeSet<IpAddr>> {
    let mut several: BTreeMap<IpAddr, BTreeSet<IpAddr>> = BTreeMap::new();
    for (location, address, _) in facts {
        several.entry(*address).or_default().insert(*location);
    }
    several.into_iter().filter(|(_, locations)| locations.len() > 1).collect()
}

proptest! {
    #[test]
    fn locations_hold_what_a_plain_set_of_facts_would(steps in steps()) {
        let mut world = World::empty();
        let mut model = Model::default();
        for step in SERVICES[..3].iter().map(|name| Step::Register(name)).chain(steps) {
            match model.after(&step) {
                Some(after) => {
                    world.ok(request(&step));
                    model = after;
                }
                None => prop_assert_eq!(world.refused(request(&step)).0, 400, "{:?}", step),
            }
            let registered = world.0.services().keys().cloned().collect();
            prop_assert_eq!(&Model { registered, facts: facts(&world.0) }, &model, "after {:?}", step);
            prop_assert_eq!(world.0.addresses_at_several_locations(), several(&model.facts));
        }
    }
}
