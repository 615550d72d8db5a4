//! What Azure should hold at the end of a recording, and where it holds something else.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use k8s_openapi::api::core::v1::Service;

use super::{Expected, ExpectedService};
use crate::recording::{Entry, FinalLists, Line, Watched};

/// A location, an address at it, and a service that the address backs.
pub type Backing = (IpAddr, IpAddr, String);

/// What a gateway and its resource group hold, all names in lower case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Names of registered services.
    pub services: BTreeSet<String>,
    /// Names of load balancers.
    pub load_balancers: BTreeSet<String>,
    /// Names of NAT gateways.
    pub nat_gateways: BTreeSet<String>,
    /// Names of public IPs.
    pub public_ips: BTreeSet<String>,
    /// Which addresses back which services.
    pub backings: BTreeSet<Backing>,
}

/// What becomes of a Service by the rules of whoever compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is given what it asks for.
    Admitted,
    /// It asks for what it is not given.
    Rejected,
    /// It asks for nothing.
    Ignored,
}

/// What Azure should hold at the end of a recording.
#[derive(Clone, Debug)]
pub struct Wanted<'a> {
    inbound: BTreeMap<String, &'a ExpectedService>,
    /// Rejected at the end, and admitted before: what they had goes on serving, if it was there by then. How much that is
    /// depends on the pace.
    kept: BTreeSet<String>,
    egress: BTreeMap<&'a str, &'a BTreeMap<IpAddr, IpAddr>>,
}

impl<'a> Wanted<'a> {
    /// What these lines should end in, by the rules of whoever compares: what becomes of a Service, and whether what a label
    /// says can name an outbound service.
    #[must_use]
    pub fn of(
        expected: &'a Expected,
        lines: &[Line],
        verdict: impl Fn(&Service) -> Verdict,
        names_egress: impl Fn(&str) -> bool,
    ) -> Self {
        let uids = |services: &[Service], wanted: Verdict| {
            let found = services.iter().filter(|service| verdict(service) == wanted);
            let uid = |service: &Service| service.metadata.uid.clone().unwrap_or_default();
            found.map(|service| uid(service).to_ascii_lowercase()).collect::<BTreeSet<String>>()
        };
        let told = lines.iter().map(|line| match &line.entry {
            Entry::Services(Watched::List(items)) => items.as_slice(),
            Entry::Services(Watched::Applied(service)) => std::slice::from_ref(service),
            Entry::Services(_) | Entry::EndpointSlices(_) | Entry::Nodes(_) | Entry::Pods(_) => &[],
        });
        let admitted: BTreeSet<String> =
            told.flat_map(|services| uids(services, Verdict::Admitted)).collect();
        let rejected = uids(&FinalLists::of(lines).services, Verdict::Rejected);
        let services = expected.load_balancer_services.iter();
        let inbound = services
            .map(|(uid, service)| (uid.to_ascii_lowercase(), service))
            .filter(|(uid, service)| !service.deleting && !rejected.contains(uid))
            .collect();
        let egress = expected.egress.iter().filter(|(name, _)| names_egress(name));
        let egress = egress.map(|(name, pods)| (name.as_str(), pods)).collect();
        Self { inbound, kept: &rejected & &admitted, egress }
    }

    /// The UIDs of the Services that are given what they ask for, in lower case.
    pub fn inbound(&self) -> impl Iterator<Item = &str> {
        self.inbound.keys().map(String::as_str)
    }

    /// Whether a Service with this UID, in lower case, may have what it was given before.
    #[must_use]
    pub fn may_keep(&self, uid: &str) -> bool {
        self.kept.contains(uid)
    }

    /// Says where Azure holds something else; nothing if it does not.
    #[must_use]
    pub fn mismatches(&self, held: &Held) -> Vec<String> {
        let inbound = |suffix: &str| named(self.inbound.keys(), suffix);
        let outbound = |suffix: &str| named(self.egress.keys(), suffix);
        let both = |suffix: &str| &inbound(suffix) | &outbound(suffix);
        // Where some pod has an IPv6 address there is a second public IP, and elsewhere there may be.
        let leaves_by_ipv6 = |name: &str| {
            let pods = self.egress.get(name.trim_end_matches("-pip-v6"));
            pods.is_none_or(|pods| pods.keys().any(IpAddr::is_ipv6))
        };
        let second = outbound("-pip-v6");
        let second = second.into_iter().filter(|name| leaves_by_ipv6(name) || held.public_ips.contains(name));
        let mut found = Vec::new();
        for (what, suffix, wanted, held) in [
            ("service", "", both(""), &held.services),
            ("load balancer", "", inbound(""), &held.load_balancers),
            ("NAT gateway", "", outbound(""), &held.nat_gateways),
            ("public IP", "-pip", both("-pip").into_iter().chain(second).collect(), &held.public_ips),
        ] {
            let kept = |name: &&String| self.kept.contains(name.strip_suffix(suffix).unwrap_or(name));
            found.extend(wanted.difference(held).map(|name| format!("{what} {name} is missing")));
            let extra = held.difference(&wanted).filter(|name| !kept(name));
            found.extend(extra.map(|name| format!("{what} {name} should not be there")));
        }
        let wanted = self.backings();
        let is_kept = |backing: &&Backing| self.kept.contains(&backing.2);
        for (location, address, service) in wanted.difference(&held.backings) {
            found.push(format!("{address} at {location} does not back {service}, and should"));
        }
        for (location, address, service) in held.backings.difference(&wanted).filter(|it| !is_kept(it)) {
            found.push(format!("{address} at {location} backs {service}, and should not"));
        }
        found
    }

    fn backings(&self) -> BTreeSet<Backing> {
        let inbound = self.inbound.iter().map(|(uid, service)| (uid.as_str(), service.endpoints()));
        let outbound = self.egress.iter().map(|(name, pods)| (*name, *pods));
        let mut backings = BTreeSet::new();
        for (service, addresses) in inbound.chain(outbound) {
            let backing = |(address, location): (&IpAddr, &IpAddr)| (*location, *address, service.to_owned());
            backings.extend(addresses.iter().map(backing));
        }
        backings
    }
}

fn named(names: impl Iterator<Item = impl std::fmt::Display>, suffix: &str) -> BTreeSet<String> {
    names.map(|name| format!("{name}{suffix}")).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    fn lines() -> Vec<Line> {
        let service = |uid: &str, class: Option<&str>| {
            let service = json!({"metadata": {"namespace": "n", "name": uid, "uid": uid},
                "spec": {"loadBalancerClass": class}});
            serde_json::from_value::<Service>(service).unwrap()
        };
        let told = [
            Watched::List(vec![service("A", None), service("B", None), service("C", Some("no"))]),
            Watched::Applied(service("B", Some("no"))),
        ];
        let line = |watched| Line { number: 1, at: Duration::ZERO, entry: Entry::Services(watched) };
        told.map(line).to_vec()
    }

    fn expected() -> Expected {
        let service = |deleting: bool| {
            json!({"namespace": "n", "name": "s", "deleting": deleting, "ipFamilies": ["IPv4"],
                "endpoints": {"10.0.0.1": "10.1.0.1"}})
        };
        let services =
            json!({"A": service(false), "B": service(false), "C": service(false), "D": service(true)});
        let egress = json!({"gw": {"fd00::1": "10.1.0.1"}, "-": {}});
        serde_json::from_value(json!({"loadBalancerServices": services, "egress": egress})).unwrap()
    }

    fn mismatches(held: &Held) -> Vec<String> {
        let verdict = |service: &Service| match service.spec.as_ref().unwrap().load_balancer_class {
            Some(_) => Verdict::Rejected,
            None => Verdict::Admitted,
        };
        let expected = expected();
        Wanted::of(&expected, &lines(), verdict, |name| name != "-").mismatches(held)
    }

    fn held() -> Held {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let backing = |address: &str, service: &str| {
            ("10.1.0.1".parse().unwrap(), address.parse().unwrap(), service.to_owned())
        };
        Held {
            services: names(&["a", "gw"]),
            load_balancers: names(&["a"]),
            nat_gateways: names(&["gw"]),
            public_ips: names(&["a-pip", "gw-pip", "gw-pip-v6"]),
            backings: [backing("10.0.0.1", "a"), backing("fd00::1", "gw")].into(),
        }
    }

    #[test]
    fn what_is_admitted_and_not_being_deleted_is_wanted_and_what_was_given_before_may_be_there() {
        assert_eq!(mismatches(&held()), [""; 0]);
        let mut kept = held();
        kept.services.insert("b".to_owned());
        kept.public_ips.insert("b-pip".to_owned());
        kept.backings.insert(("10.1.0.9".parse().unwrap(), "10.0.0.9".parse().unwrap(), "b".to_owned()));
        assert_eq!(mismatches(&kept), [""; 0]);
    }

    #[test]
    fn whatever_is_missing_or_should_not_be_there_is_told() {
        let mut held = held();
        held.services.insert("c".to_owned());
        held.load_balancers.clear();
        held.public_ips.remove("gw-pip-v6");
        let backing = held.backings.pop_last().unwrap();
        held.backings.insert((backing.0, backing.1, "a".to_owned()));
        assert_eq!(
            mismatches(&held),
            [
                "service c should not be there",
                "load balancer a is missing",
                "public IP gw-pip-v6 is missing",
                "fd00::1 at 10.1.0.1 does not back gw, and should",
                "fd00::1 at 10.1.0.1 backs a, and should not",
            ]
        );
    }
}
