//! The tracker counts the bytes of a request without writing it; the body that is written keeps to what was counted.

use std::net::IpAddr;

use clb_controller::batch_updater::address_locations_body;
use clb_difftracker::{
    Action, Change, Config, DiffTracker, Endpoint, EndpointSlice, FrontendPort, GatewayRequest, IdleTimeout,
    Intent, Ip, IpFamily, LoadBalancerSpec, Node, NodeName, ObjectKey, Outcome, Protocol, Rule, Service,
    ServiceId, ServiceRef, Success, Timestamp,
};
use clb_nrp::models::UpdateAddressLocations;
use proptest::prelude::*;

const NOW: Timestamp = Timestamp::from_millis(0);
const NODES: u16 = 5;

fn changes(family: IpFamily, pods: &[(u16, u16)]) -> Vec<Change> {
    let ip = |first: u8, number: u16| match family {
        IpFamily::V4 => IpAddr::from([first, 200, number.to_be_bytes()[0], number.to_be_bytes()[1]]),
        IpFamily::V6 => IpAddr::from([0xfd00 + u16::from(first), 0, 0, 0x1234, 0, 0, 0, number]),
    };
    let rule = Rule {
        protocol: Protocol::Tcp,
        frontend_port: FrontendPort::new(80).unwrap(),
        backend_port: 80.try_into().unwrap(),
    };
    let spec = LoadBalancerSpec::new(family, IdleTimeout::default(), vec![rule]).unwrap();
    let id = ServiceId::new("5dec0346-d61c-41a2-97e8-53072ad7a0f2").unwrap();
    let service = ObjectKey::new("default", "service");
    let endpoint = |&(pod, node): &(u16, u16)| {
        Endpoint::ready(Ip::from(ip(10, pod)), NodeName::new(format!("node-{}", node % NODES)))
    };
    let slice = EndpointSlice {
        key: ObjectKey::new("default", "slice"),
        service: ServiceRef::Name(service.clone()),
        endpoints: pods.iter().map(endpoint).collect(),
    };
    let node = |number: u16| {
        let (ipv4, ipv6) = match ip(172, number) {
            IpAddr::V4(ip) => (Some(ip), None),
            IpAddr::V6(ip) => (None, Some(ip)),
        };
        Change::NodeApplied(Node { name: NodeName::new(format!("node-{number}")), ipv4, ipv6 })
    };
    let service = Change::ServiceApplied(Service::new(id, service, Intent::LoadBalancer(spec)));
    (0..NODES).map(node).chain([service, Change::EndpointSliceApplied(slice)]).collect()
}

/// The bodies that lead from nothing to these pods with this budget.
fn bodies(family: IpFamily, pods: &[(u16, u16)], max_bytes: usize) -> Vec<UpdateAddressLocations> {
    let mut tracker = DiffTracker::new(Config { max_bytes, ..Config::default() });
    for change in changes(family, pods) {
        tracker.handle_change(change, NOW);
    }
    let mut bodies = Vec::new();
    while let Some(operation) = tracker.poll_operation(NOW) {
        if let Action::Gateway(GatewayRequest::UpdateAddressLocations(updates)) = &operation.action {
            bodies.push(address_locations_body(updates));
        }
        tracker.handle_outcome(operation.id, succeeded(), NOW);
    }
    bodies
}

/// A public IP has an address; which one does not matter here.
fn succeeded() -> Outcome {
    Outcome::Succeeded(Success::PublicIp(Ip::from(IpAddr::from([20, 0, 0, 1]))))
}

proptest! {
    #[test]
    fn what_is_counted_exceeds_what_is_written_by_no_more_than_commas_and_the_shorter_action(
        family in prop_oneof![Just(IpFamily::V4), Just(IpFamily::V6)],
        pods in prop::collection::vec((any::<u16>(), any::<u16>()), 2..40),
    ) {
        let whole = bodies(family, &pods, usize::MAX / 2);
        prop_assert_eq!(whole.len(), 1);
        let locations = &whole[0].address_locations;
        let addresses: usize = locations.iter().map(|location| location.addresses.len()).sum();
        prop_assume!(addresses > 1);
        let written = serde_json::to_vec(&whole[0]).unwrap().len();
        // The least budget that one request fits into is what was counted for it.
        let (mut too_small, mut enough) = (0, written + 1_000_000);
        while enough - too_small > 1 {
            let middle = too_small.midpoint(enough);
            if bodies(family, &pods, middle).len() == 1 { enough = middle } else { too_small = middle }
        }
        let lists = 1 + locations.len() + addresses;
        let most = written + 4 * locations.len() + lists;
        prop_assert!((written..=most).contains(&enough), "counted {enough}, written {written}, at most {most}");
    }

    #[test]
    fn no_body_is_longer_than_its_budget_unless_one_address_alone_is(
        family in prop_oneof![Just(IpFamily::V4), Just(IpFamily::V6)],
        first in prop::collection::vec((any::<u16>(), any::<u16>()), 0..80),
        second in prop::collection::vec((any::<u16>(), any::<u16>()), 0..80),
        max_bytes in 100..4_000usize,
    ) {
        let mut tracker = DiffTracker::new(Config { max_bytes, ..Config::default() });
        for (is_change, pods) in [(false, first), (true, second)] {
            for change in changes(family, &pods) {
                tracker.handle_change(change, NOW);
            }
            let mut sizes = Vec::new();
            while let Some(operation) = tracker.poll_operation(NOW) {
                if let Action::Gateway(GatewayRequest::UpdateAddressLocations(updates)) = &operation.action {
                    let body = address_locations_body(updates);
                    let length = serde_json::to_vec(&body).unwrap().len();
                    // An address that moves is named at two locations, in one request.
                    let entries: usize = body.address_locations.iter().map(|it| it.addresses.len().max(1)).sum();
                    prop_assert!(length <= max_bytes || entries <= 2, "{length} bytes in {entries} entries");
                    sizes.push(length);
                }
                tracker.handle_outcome(operation.id, succeeded(), NOW);
            }
            // Nor is it split for nothing: of two neighbours, both do not fit into one. (What removes a location whole is
            // shorter than what was counted for its addresses.)
            let is_tight = |pair: &[usize]| pair[0] + pair[1] + 200 > max_bytes;
            prop_assert!(is_change || sizes.windows(2).all(is_tight), "{sizes:?}");
        }
        prop_assert!(tracker.is_synced());
    }
}
