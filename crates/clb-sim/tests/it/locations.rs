//! `updateAddressLocations`.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde_json::{Value, json};

use crate::support::*;

fn location(location: &str, action: &str, addresses: Value) -> Value {
    json!({"addressLocation": location, "addressUpdateAction": action, "addresses": addresses})
}

fn address(address: &str, services: Value) -> Value {
    json!({"address": address, "services": services})
}

/// `10.0.0.1` with two addresses, `10.0.0.2` with one.
fn world() -> World {
    let mut world = stocked();
    let first = json!([address("10.1.0.1", json!(["a"])), address("10.1.0.2", json!(["a", "b"]))]);
    let second = json!([address("10.1.0.3", json!(["b"]))]);
    let locations =
        json!([location("10.0.0.1", "FullUpdate", first), location("10.0.0.2", "PartialUpdate", second)]);
    world.ok(update_locations("PartialUpdate", locations));
    world
}

/// Every location as `location: address service…, address …`.
fn held(world: &World) -> Vec<String> {
    let line = |(location, addresses): (&IpAddr, &BTreeMap<IpAddr, BTreeSet<String>>)| {
        let address = |(address, services): (&IpAddr, &BTreeSet<String>)| {
            format!("{address} {}", services.iter().cloned().collect::<Vec<_>>().join(" "))
        };
        format!("{location}: {}", addresses.iter().map(address).collect::<Vec<_>>().join(", "))
    };
    world.0.locations().iter().map(line).collect()
}

#[test]
fn locations_are_read_as_they_were_written() {
    let mut world = world();
    assert_eq!(
        world.rows("addressLocations"),
        json!([
            {"addressLocation": "10.0.0.1", "addresses": [
                address("10.1.0.1", json!(["a"])), address("10.1.0.2", json!(["a", "b"]))
            ]},
            {"addressLocation": "10.0.0.2", "addresses": [address("10.1.0.3", json!(["b"]))]},
        ])
    );
}

#[test]
fn each_pair_of_actions_touches_what_it_should() {
    let new = json!([address("10.1.0.9", json!(["out"]))]);
    let (first, second) = ("10.0.0.1: 10.1.0.1 a, 10.1.0.2 a b", "10.0.0.2: 10.1.0.3 b");
    let (added, replaced) = ("10.0.0.1: 10.1.0.1 a, 10.1.0.2 a b, 10.1.0.9 out", "10.0.0.1: 10.1.0.9 out");
    for (top, entries, expected) in [
        ("PartialUpdate", json!([]), vec![first, second]),
        ("FullUpdate", json!([]), vec![]),
        ("PartialUpdate", json!([location("10.0.0.1", "PartialUpdate", new.clone())]), vec![added, second]),
        ("PartialUpdate", json!([location("10.0.0.1", "FullUpdate", new.clone())]), vec![replaced, second]),
        ("FullUpdate", json!([location("10.0.0.1", "FullUpdate", new.clone())]), vec![replaced]),
        // A location that a full update lists may still be changed in parts.
        ("FullUpdate", json!([location("10.0.0.1", "PartialUpdate", new)]), vec![added]),
    ] {
        let mut world = world();
        world.ok(update_locations(top, entries.clone()));
        assert_eq!(held(&world), expected, "{top} {entries}");
    }
}

#[test]
fn what_is_listed_empty_goes() {
    let (first, second) = ("10.0.0.1: 10.1.0.1 a, 10.1.0.2 a b", "10.0.0.2: 10.1.0.3 b");
    let none = json!([]);
    for (entry, expected) in [
        (location("10.0.0.1", "PartialUpdate", none.clone()), vec![second]),
        (location("10.0.0.1", "FullUpdate", none.clone()), vec![second]),
        (json!({"addressLocation": "10.0.0.1", "addressUpdateAction": "PartialUpdate"}), vec![second]),
        (
            location("10.0.0.1", "PartialUpdate", json!([address("10.1.0.2", none.clone())])),
            vec!["10.0.0.1: 10.1.0.1 a", second],
        ),
        (
            location("10.0.0.1", "PartialUpdate", json!([{"address": "10.1.0.2"}])),
            vec!["10.0.0.1: 10.1.0.1 a", second],
        ),
        // A location whose last address goes is gone.
        (location("10.0.0.2", "PartialUpdate", json!([address("10.1.0.3", none.clone())])), vec![first]),
        (location("10.0.0.2", "FullUpdate", json!([address("10.1.0.9", none.clone())])), vec![first]),
        // What was never there can be removed.
        (location("10.0.0.7", "PartialUpdate", none.clone()), vec![first, second]),
        (location("10.0.0.1", "PartialUpdate", json!([address("10.1.0.9", none)])), vec![first, second]),
    ] {
        let mut world = world();
        world.ok(update_locations("PartialUpdate", json!([entry])));
        assert_eq!(held(&world), expected, "{entry}");
    }
}

#[test]
fn an_address_names_exactly_the_services_that_were_last_given_in_any_casing() {
    let mut world = world();
    let addresses = json!([address("10.1.0.2", json!(["OUT", "out"]))]);
    world.ok(update_locations("PartialUpdate", json!([location("10.0.0.1", "PartialUpdate", addresses)])));
    assert_eq!(held(&world), ["10.0.0.1: 10.1.0.1 a, 10.1.0.2 out", "10.0.0.2: 10.1.0.3 b"]);
}

#[test]
fn addresses_are_the_same_in_every_spelling() {
    let mut world = stocked();
    for (spelled, pod) in
        [("fd00:0:0::1", "FD00::00AA"), ("fd00::1", "fd00::aa"), ("::ffff:10.0.0.1", "10.1.0.1")]
    {
        let addresses = json!([address(pod, json!(["a"]))]);
        world.ok(update_locations("PartialUpdate", json!([location(spelled, "PartialUpdate", addresses)])));
    }
    assert_eq!(held(&world), ["10.0.0.1: 10.1.0.1 a", "fd00::1: fd00::aa a"]);
}

#[test]
fn what_an_update_of_locations_may_not_be_is_refused_whole() {
    let mut world = world();
    let one =
        |location: &str, address: Value| json!([self::location(location, "PartialUpdate", json!([address]))]);
    let v4 = || address("10.1.0.1", json!(["a"]));
    let v6 = || address("fd00::aa", json!(["a"]));
    let twice = json!([address("fd00::aa", json!(["a"])), address("fd00:0::aa", json!(["b"]))]);
    for (mut entries, code) in [
        (one("10.9.0.1", v4()), "DuplicateLocationsInRequest"),
        (
            json!([
                location("fd00::9", "PartialUpdate", json!([])),
                location("fd00:0:0::9", "FullUpdate", json!([]))
            ]),
            "DuplicateLocationsInRequest",
        ),
        (json!([location("fd00::1", "FullUpdate", twice)]), "DuplicateAddressesInRequest"),
        (one("10.0.0.1", v6()), "IPv4LocationCannotContainIPv6Addresses"),
        (one("fd00::1", v4()), "IPv6LocationCannotContainIPv4Addresses"),
        (one("10.0.0.1", address("10.1.0.1", json!(["a", "c"]))), "ServiceNotFoundInServiceGateway"),
        (one("10.0.0.1", address("10.1.0.1", json!([null]))), "ServiceNotFoundInServiceGateway"),
        (one("10.0.0", v4()), "InvalidAddress"),
        (one("", v4()), "InvalidAddress"),
        (one("10.0.0.1", address("10.1.0.0/24", json!(["a"]))), "InvalidAddress"),
        (one("10.0.0.1", Value::Null), "InvalidAddress"),
        (json!([null]), "InvalidAddress"),
        (json!([location("10.0.0.1", "Update", json!([]))]), "InvalidParameter"),
        (json!([{"addressLocation": "10.0.0.1", "addresses": []}]), "InvalidParameter"),
        (json!([location("10.0.0.1", "PartialUpdate", Value::Null)]), "InvalidRequestFormat"),
        (json!([location("10.0.0.1", "PartialUpdate", json!({}))]), "InvalidRequestFormat"),
        (one("10.0.0.1", address("10.1.0.1", Value::Null)), "InvalidRequestFormat"),
        (one("10.0.0.1", address("10.1.0.1", json!("a"))), "InvalidRequestFormat"),
    ] {
        let good = location("10.9.0.1", "PartialUpdate", json!([address("10.1.9.1", json!(["a"]))]));
        entries.as_array_mut().unwrap().insert(0, good);
        let refused = world.refused(update_locations("PartialUpdate", entries.clone()));
        assert_eq!(refused, bad(code), "{entries}");
    }
    for (action, entries, code) in [
        ("Update", json!([]), "InvalidParameter"),
        ("", json!([]), "InvalidParameter"),
        ("FullUpdate", Value::Null, "InvalidRequestFormat"),
        ("FullUpdate", json!("all"), "InvalidRequestFormat"),
    ] {
        assert_eq!(world.refused(update_locations(action, entries)), bad(code), "{action}");
    }
}

#[test]
fn an_address_at_two_locations_is_taken_and_can_be_found() {
    let mut world = world();
    assert_eq!(world.0.addresses_at_several_locations(), BTreeMap::new());
    let moved = json!([location("10.0.0.2", "PartialUpdate", json!([address("10.1.0.1", json!(["a"]))]))]);
    world.ok(update_locations("PartialUpdate", moved));
    let ip = |text: &str| text.parse::<IpAddr>().unwrap();
    let both = BTreeSet::from([ip("10.0.0.1"), ip("10.0.0.2")]);
    assert_eq!(world.0.addresses_at_several_locations(), BTreeMap::from([(ip("10.1.0.1"), both)]));
}
