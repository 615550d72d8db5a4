use clb_vmss::{Listing, Machine, NodeDiffer, NodeEvent, Power, ProviderId, ScaleSetKey};
use proptest::prelude::*;

fn set(group: &str) -> ScaleSetKey {
    ScaleSetKey {
        subscription: "s".parse().unwrap(),
        resource_group: group.parse().unwrap(),
        name: "pool".parse().unwrap(),
    }
}

fn machine(key: &ScaleSetKey, instance_id: u32, vm: u8, ip: u8, power: Power) -> Machine {
    let ScaleSetKey { subscription, resource_group, name } = key.clone();
    Machine {
        id: ProviderId::Uniform { subscription, resource_group, scale_set: name, instance_id },
        vm_id: vm.to_string(),
        ips: [[10, 0, 0, ip].into()].into(),
        power,
    }
}

fn listing(machines: &[(&str, &Machine)]) -> Listing {
    machines.iter().map(|&(node, machine)| (node.to_owned(), machine.clone())).collect()
}

#[test]
fn each_kind_of_change_is_told_once() {
    let (key, mut differ) = (set("rg"), NodeDiffer::new());
    let node = || "a".to_owned();
    let first = machine(&key, 0, 1, 1, Power::On);
    let moved = machine(&key, 0, 1, 2, Power::Off);
    let second = machine(&key, 1, 2, 3, Power::On);
    let reused = machine(&key, 1, 3, 3, Power::On);
    for (now, expected) in [
        (Some(&first), vec![NodeEvent::Added { node: node(), machine: first.clone() }]),
        (Some(&first), vec![]),
        (
            Some(&moved),
            vec![
                NodeEvent::IpsChanged { node: node(), ips: moved.ips.clone() },
                NodeEvent::PowerChanged { node: node(), power: Power::Off },
            ],
        ),
        (Some(&second), vec![NodeEvent::Replaced { node: node(), machine: second.clone() }]),
        (Some(&reused), vec![NodeEvent::Replaced { node: node(), machine: reused.clone() }]),
        (None, vec![NodeEvent::Removed { node: node() }]),
        (None, vec![]),
    ] {
        let now = now.map(|machine| listing(&[("a", machine)])).unwrap_or_default();
        assert_eq!(differ.handle_listing(&key, now), expected);
    }
}

#[test]
fn a_listing_that_says_nothing_about_power_changes_nothing_about_it() {
    let (key, mut differ) = (set("rg"), NodeDiffer::new());
    let on = listing(&[("a", &machine(&key, 0, 1, 1, Power::On))]);
    differ.handle_listing(&key, on.clone());
    let silent = listing(&[("a", &machine(&key, 0, 1, 1, Power::Unknown))]);
    assert_eq!(differ.handle_listing(&key, silent), []);
    assert_eq!(differ.nodes(&key), Some(&on));
}

#[test]
fn a_failing_set_keeps_its_nodes_and_the_other_of_its_name_goes_on() {
    let (failing, other, mut differ) = (set("one"), set("two"), NodeDiffer::new());
    let kept = listing(&[("a", &machine(&failing, 0, 1, 1, Power::On))]);
    differ.handle_listing(&failing, kept.clone());
    differ.handle_listing(&other, listing(&[("a", &machine(&other, 0, 2, 2, Power::On))]));
    assert_eq!(differ.handle_failure(&failing), [NodeEvent::Stale]);
    assert_eq!(differ.handle_failure(&failing), []);
    assert_eq!(differ.handle_gone(&other), [NodeEvent::Removed { node: "a".to_owned() }]);
    assert_eq!((differ.nodes(&failing), differ.nodes(&other)), (Some(&kept), None));
    assert_eq!(differ.handle_listing(&failing, kept), [NodeEvent::Fresh]);
}

#[test]
fn a_set_that_was_never_listed_is_not_an_empty_one() {
    let (key, mut differ) = (set("rg"), NodeDiffer::new());
    assert_eq!(differ.handle_failure(&key), [NodeEvent::Stale]);
    assert_eq!(differ.nodes(&key), None);
    assert_eq!(differ.handle_listing(&key, Listing::new()), [NodeEvent::Fresh]);
    assert_eq!(differ.nodes(&key), Some(&Listing::new()));
}

pub(crate) fn fold(nodes: &mut Listing, event: NodeEvent) {
    match event {
        NodeEvent::Added { node, machine } => assert_eq!(nodes.insert(node, machine), None),
        NodeEvent::Removed { node } => assert!(nodes.remove(&node).is_some()),
        NodeEvent::Replaced { node, machine } => assert!(nodes.insert(node, machine).is_some()),
        NodeEvent::IpsChanged { node, ips } => nodes.get_mut(&node).unwrap().ips = ips,
        NodeEvent::PowerChanged { node, power } => nodes.get_mut(&node).unwrap().power = power,
        NodeEvent::Stale | NodeEvent::Fresh => {}
    }
}

proptest! {
    /// Each step changes one node of one of two sets (or removes it), then that set is polled, or the poll fails.
    #[test]
    fn what_was_told_adds_up_to_the_truth_without_a_false_removal(
        steps in prop::collection::vec(
            (0_usize..2, 0_u8..4, any::<bool>(), 0_u32..3, 0_u8..3, 0_u8..3, any::<bool>(), any::<bool>()), 0..80)
    ) {
        let sets = [set("one"), set("two")];
        let mut truth: [Listing; 2] = Default::default();
        let mut told: [Listing; 2] = Default::default();
        let mut differ = NodeDiffer::new();
        for (at, node, there, id, vm, ip, on, fails) in steps {
            let node = format!("node{node}");
            if there {
                let power = if on { Power::On } else { Power::Off };
                truth[at].insert(node, machine(&sets[at], id, vm, ip, power));
            } else {
                truth[at].remove(&node);
            }
            let events = if fails {
                differ.handle_failure(&sets[at])
            } else {
                differ.handle_listing(&sets[at], truth[at].clone())
            };
            for event in events {
                if let NodeEvent::Removed { node } = &event {
                    prop_assert!(!fails && !truth[at].contains_key(node));
                }
                fold(&mut told[at], event);
            }
            if !fails {
                prop_assert_eq!(&told[at], &truth[at]);
            }
        }
        for (at, key) in sets.iter().enumerate() {
            for event in differ.handle_listing(key, truth[at].clone()) {
                fold(&mut told[at], event);
            }
        }
        prop_assert_eq!(told, truth);
    }
}
