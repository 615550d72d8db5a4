//! Several replicas of the whole controller on one cluster and one Azure: who leads, what becomes of what is under way when that
//! changes, and that no two ever write at the same time. See [`processes`](processes::processes) for what is checked in every test.

mod network;
mod processes;
mod property;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use clb_sim::azure::OperationShape;
use clb_sim::fault::{FaultPlan, How, What, When};
use serde_json::json;

use self::network::{Call, Link, Sort};
use self::processes::{LEASE_DURATION, LONGEST_RETRY, Processes, RENEW_DEADLINE, TURN, processes};
use crate::world::{Held, SECOND};

/// What requests, answers and the wait for a turn add to what is measured.
const SLACK: Duration = Duration::from_millis(300);
/// How long a new leader may take to read Azure and to do what there is to do.
const CATCH_UP: Duration = Duration::from_secs(10);

impl Processes<'_> {
    /// What a process sent to Azure from a mark on, in order.
    fn azure_calls_of(&self, name: &str, since: usize) -> Vec<Call> {
        self.calls_of(name, since).into_iter().filter(|call| call.is_azure).collect()
    }

    fn calls_of(&self, name: &str, since: usize) -> Vec<Call> {
        self.network.calls().split_off(since).into_iter().filter(|call| call.process == name).collect()
    }

    fn writes_of(&self, name: &str, since: usize) -> Vec<String> {
        let writes = self.calls_of(name, since).into_iter().filter(|call| call.sort == Sort::Write);
        writes.map(|call| call.what).collect()
    }

    /// How often each resource was put.
    fn puts(&self) -> BTreeMap<String, usize> {
        let mut puts = BTreeMap::new();
        for call in self.network.calls().into_iter().filter(|call| call.is("PUT", "/Microsoft.Network/")) {
            *puts.entry(call.what).or_default() += 1;
        }
        puts
    }

    /// The next operation on such a resource lasts for so many polls, of a second each.
    fn next_put_is(&self, path: &str, shape: OperationShape) {
        let plan = FaultPlan::new(0).with(When::Nth(1), What::verb("PUT").path(path), How::Operation(shape));
        self.world.azure.set_faults(plan);
    }

    /// A Service with one endpoint, on the first node. Returns its UID.
    fn service(&self, name: &str, address: &str) -> String {
        self.world.slice(name, name, &[(address, "n1")]);
        self.world.service(name, json!({}))
    }

    fn takes_over(&mut self, name: &str) -> Duration {
        self.run_until(60 * SECOND, |all| all.at(name).status().term.is_some())
    }

    fn is_synced(&mut self, name: &str) -> Duration {
        self.run_until(60 * SECOND, |all| all.at(name).status().is_synced)
    }

    /// Makes this one lead by killing the other one; it finds all as it should be and has nothing to write.
    fn leads_again_and_has_nothing_to_do(&mut self, name: &str, other: &str) {
        let since = self.network.mark();
        self.kill(other);
        self.takes_over(name);
        self.settle();
        assert_eq!(self.at(name).status().term, Some(2));
        assert_eq!(self.at(name).status().troubles(), Vec::<String>::new());
        assert_eq!(self.writes_of(name, since), Vec::<String>::new());
        assert_eq!(readings(&self.azure_calls_of(name, since)), 1);
    }
}

/// How often Azure was read, by what reads list and nothing else does.
fn readings(calls: &[Call]) -> usize {
    calls.iter().filter(|call| call.what.to_ascii_lowercase().ends_with("/publicipaddresses")).count()
}

fn once(paths: &BTreeMap<String, usize>) -> bool {
    paths.values().all(|times| *times == 1)
}

/// What these Services with one address each on the first node come to.
fn held(services: &[(String, String)]) -> Held {
    let endpoints: Vec<_> = services.iter().map(|(_, address)| [(address.as_str(), "192.168.0.1")]).collect();
    let services: Vec<_> =
        services.iter().zip(&endpoints).map(|((uid, _), endpoints)| (uid.as_str(), &endpoints[..])).collect();
    Held::inbound(&services)
}

#[test]
fn a_create_that_outlives_its_leader_is_read_back_and_not_made_again() {
    processes(1, |all| {
        all.start_leader("a");
        all.start("b");
        all.start("c");
        all.next_put_is("*/publicIPAddresses/*", OperationShape::Polled(60));
        let uid = all.service("web", "10.0.0.1");
        all.run(4 * SECOND);
        assert_eq!(all.puts().len(), 1, "the public IP is still being made");
        let since = all.network.mark();
        all.kill("a");
        let leads = |all: &Processes<'_>, name| all.at(name).status().term.is_some();
        let took = all.run_until(60 * SECOND, |all| leads(all, "b") || leads(all, "c"));
        assert!(took <= LEASE_DURATION + LONGEST_RETRY + SLACK, "{took:?}");
        let leader = if leads(all, "b") { "b" } else { "c" };
        let took = all.is_synced(leader);
        assert!(took <= CATCH_UP, "{took:?}");
        all.settle();
        assert_eq!(all.held(), held(&[(uid, "10.0.0.1".to_owned())]));
        assert!(once(&all.puts()), "{:?}", all.puts());
        assert_eq!(readings(&all.azure_calls_of(leader, since)), 1);
        let terms = ["b", "c"].map(|name| all.at(name).status().term);
        assert!(terms == [Some(1), None] || terms == [None, Some(1)], "{terms:?}");
    });
}

#[test]
fn a_burst_whose_leader_dies_in_it_is_carried_on_without_loss_or_repetition() {
    for dies_at in [1, 7, 12, 16] {
        processes(dies_at, |all| {
            all.start_leader("a");
            all.start("b");
            let mut services = Vec::new();
            let mut done = BTreeSet::new();
            for n in 0..20 {
                let address = format!("10.0.0.{}", n + 1);
                services.push((all.service(&format!("s{n}"), &address), address));
                all.run(3 * TURN);
                if n == dies_at {
                    done = all.puts().into_keys().collect();
                    all.kill("a");
                }
            }
            let since = all.network.mark();
            all.takes_over("b");
            let took = all.is_synced("b");
            assert!(took <= CATCH_UP, "{took:?}");
            all.settle();
            assert_eq!(all.held(), held(&services));
            let again: Vec<_> =
                all.writes_of("b", 0).into_iter().filter(|what| done.contains(what)).collect();
            assert_eq!(again, Vec::<String>::new(), "made again though it had been made");
            assert!(once(&all.puts()), "{:?}", all.puts());
            assert_eq!(readings(&all.azure_calls_of("b", since)), 1);
            for n in 0..20 {
                assert_eq!(all.world.ingress(&format!("s{n}")).len(), 1);
            }
        });
    }
}

#[test]
fn one_that_stood_still_beyond_its_lease_writes_nothing_when_it_goes_on() {
    for turns in [0, 1, 2, 3, 4, 5, 6, 8, 10, 13, 16, 20, 25, 30] {
        processes(u64::from(turns), |all| {
            all.start_leader("a");
            all.start("b");
            let mut services = Vec::new();
            for n in 0..6 {
                let address = format!("10.0.0.{}", n + 1);
                services.push((all.service(&format!("s{n}"), &address), address));
            }
            all.run(turns * TURN);
            let since = all.network.mark();
            all.at_mut("a").pause();
            all.takes_over("b");
            let address = "10.0.1.1".to_owned();
            services.push((all.service("late", &address), address));
            all.run(25 * SECOND);
            all.at_mut("a").go_on();
            all.run(15 * SECOND);
            assert_eq!(all.writes_of("a", since), Vec::<String>::new(), "after {turns} turns");
            assert_eq!((all.at("a").status().term, all.at("b").status().term), (None, Some(1)));
            all.settle();
            assert_eq!(all.held(), held(&services));
            // It knows of what it missed.
            all.leads_again_and_has_nothing_to_do("a", "b");
        });
    }
}

#[test]
fn one_that_stood_still_within_its_lease_goes_on_leading() {
    processes(3, |all| {
        all.start_leader("a");
        all.start("b");
        all.service("web", "10.0.0.1");
        all.run(6 * TURN);
        all.at_mut("a").pause();
        all.run(6 * SECOND);
        all.at_mut("a").go_on();
        all.settle();
        assert_eq!((all.at("a").status().term, all.at("b").status().term), (Some(1), None));
        assert_eq!(readings(&all.azure_calls_of("a", 0)), 1);
        assert!(once(&all.puts()), "{:?}", all.puts());
    });
}

#[test]
fn one_that_is_cut_off_from_kubernetes_stops_in_time_and_what_was_under_way_is_read_back() {
    for link in [Link::Refusing, Link::Silent] {
        processes(4, |all| {
            all.start_leader("a");
            all.start("b");
            all.next_put_is("*/loadBalancers/*", OperationShape::Stuck);
            let uid = all.service("web", "10.0.0.1");
            all.run(4 * SECOND);
            assert_eq!(all.puts().len(), 2, "the load balancer is still being made");
            all.at("a").link_kube(link);
            let stops = all.run_until(60 * SECOND, |all| all.at("a").status().term.is_none());
            assert!(stops <= RENEW_DEADLINE + SLACK, "{link:?}: {stops:?}");
            assert!(stops >= RENEW_DEADLINE - LONGEST_RETRY - SLACK, "{link:?}: {stops:?}");
            let since = all.network.mark();
            let took = all.takes_over("b");
            assert!(stops + took <= LEASE_DURATION + LONGEST_RETRY + SLACK, "{link:?}: {took:?}");
            assert!(took >= LEASE_DURATION - RENEW_DEADLINE, "{link:?}: {took:?}");
            let took = all.is_synced("b");
            assert!(took <= CATCH_UP, "{link:?}: {took:?}");
            let late = all.service("late", "10.0.1.1");
            all.run(10 * SECOND);
            let sent: Vec<_> = all.azure_calls_of("a", since).into_iter().map(|call| call.what).collect();
            assert_eq!(sent, Vec::<String>::new(), "{link:?}");
            all.at("a").link_kube(Link::Up);
            all.settle();
            assert_eq!(all.held(), held(&[(uid, "10.0.0.1".to_owned()), (late, "10.0.1.1".to_owned())]));
            assert!(once(&all.puts()), "{link:?}: {:?}", all.puts());
            assert_eq!((all.at("a").status().term, all.at("b").status().term), (None, Some(1)));
            all.run_until(60 * SECOND, |all| all.at("a").status().troubles().is_empty());
            all.leads_again_and_has_nothing_to_do("a", "b");
        });
    }
}

#[test]
fn one_that_is_cut_off_from_azure_leads_on_says_so_and_recovers_by_itself() {
    for link in [Link::Refusing, Link::Silent] {
        processes(5, |all| {
            all.start_leader("a");
            all.start("b");
            let mut services = vec![(all.service("before", "10.0.0.1"), "10.0.0.1".to_owned())];
            all.settle();
            all.at("a").link_azure(link);
            services.push((all.service("during", "10.0.0.2"), "10.0.0.2".to_owned()));
            all.run(30 * SECOND);
            let status = all.at("a").status();
            assert_eq!((status.term, status.is_synced), (Some(1), false), "{link:?}");
            all.run_until(1_800 * SECOND, |all| {
                let troubles = all.at("a").status().troubles();
                troubles.iter().any(|trouble| trouble.starts_with("Azure could not be read"))
            });
            services.push((all.service("late", "10.0.0.3"), "10.0.0.3".to_owned()));
            assert_eq!((all.at("a").status().term, all.at("b").status().term), (Some(1), None));
            all.at("a").link_azure(Link::Up);
            let took = all.is_synced("a");
            assert!(took <= 60 * SECOND, "{link:?}: {took:?}");
            all.settle();
            assert_eq!(all.held(), held(&services));
            all.run_until(60 * SECOND, |all| all.at("a").status().troubles().is_empty());
            assert_eq!((all.at("a").status().term, all.at("b").status().term), (Some(1), None));
        });
    }
}

#[test]
fn one_that_is_stopped_ends_its_calls_first_and_another_leads_within_a_retry_period() {
    processes(6, |all| {
        all.start_leader("a");
        all.start("b");
        all.next_put_is("*/publicIPAddresses/*", OperationShape::Polled(6));
        let uid = all.service("web", "10.0.0.1");
        all.run(2 * SECOND);
        let since = all.network.mark();
        let (given_up, took) = all.stop("a");
        assert_eq!(given_up, 0);
        assert!(took > SECOND && took < 20 * SECOND, "{took:?}");
        let calls = all.calls_of("a", since);
        assert!(calls.last().is_some_and(|call| call.sort == Sort::Claim), "{calls:?}");
        assert!(calls.iter().all(|call| call.status.is_some()), "{calls:?}");
        let took = all.takes_over("b");
        assert!(took <= LONGEST_RETRY + SLACK, "{took:?}");
        let took = all.is_synced("b");
        assert!(took <= CATCH_UP, "{took:?}");
        all.settle();
        assert_eq!(all.held(), held(&[(uid, "10.0.0.1".to_owned())]));
        assert!(once(&all.puts()), "{:?}", all.puts());
    });
}

#[test]
fn one_that_stands_by_only_reads_and_needs_few_calls_when_it_leads() {
    processes(7, |all| {
        all.start_leader("a");
        all.start("b");
        for n in 0..30 {
            all.service(&format!("s{n}"), &format!("10.0.0.{}", n + 1));
            all.run(2 * TURN);
        }
        all.world.node_addresses("n1", &["192.168.0.9"]);
        all.world.egress_pod("p", "gw", "n2", &["10.0.2.1"]);
        for n in 0..10 {
            all.world.delete(&format!("/api/v1/namespaces/default/services/s{n}"));
            all.run(2 * TURN);
        }
        all.settle();
        let calls = all.calls_of("b", 0);
        let other: Vec<_> = calls.iter().filter(|call| call.is_azure || call.sort != Sort::Read).collect();
        assert!(other.is_empty(), "{other:?}");
        assert_eq!((all.at("b").status().term, all.at("b").status().is_sending), (None, false));

        let since = all.network.mark();
        all.kill("a");
        all.world.slice("s20", "s20", &[("10.0.0.21", "n1"), ("10.0.3.1", "n2")]);
        all.takes_over("b");
        all.settle();
        let writes = all.writes_of("b", since);
        assert!(matches!(&writes[..], [write] if write.ends_with("/updateAddressLocations")), "{writes:?}");
        // The three kinds of resources, the services and the locations.
        let reads = all.azure_calls_of("b", since).into_iter().filter(|call| call.sort == Sort::Read);
        assert_eq!(reads.count(), 5);
    });
}
