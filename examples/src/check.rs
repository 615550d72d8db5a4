//! Compares what Azure holds, read back over HTTP, with what the recording should end in.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use clb_controller::admission::AdmissionPolicy;
use clb_difftracker::{EgressName, Intent};
use clb_nrp::{CallContext, NrpApi, Result};
use clb_sim::expected::{Expected, ExpectedService};
use clb_sim::recording::{Entry, FinalLists, Line, Watched};

/// What the gateway and the resource group hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Names of registered services.
    pub services: BTreeSet<String>,
    /// Location → address → names of services.
    pub locations: BTreeMap<IpAddr, BTreeMap<IpAddr, BTreeSet<String>>>,
    /// Names of public IPs.
    pub public_ips: BTreeSet<String>,
    /// Names of load balancers.
    pub load_balancers: BTreeSet<String>,
    /// Names of NAT gateways.
    pub nat_gateways: BTreeSet<String>,
}

impl Held {
    /// Reads it.
    ///
    /// # Errors
    /// The client's, when one of the lists cannot be read.
    pub async fn read(nrp: &dyn NrpApi) -> Result<Self> {
        let call = CallContext::random();
        let lower = |name: Option<String>| name.unwrap_or_default().to_ascii_lowercase();
        let mut held = Self::default();
        held.services
            .extend(nrp.get_services(&call).await?.into_iter().map(|it| it.name.to_ascii_lowercase()));
        held.public_ips.extend(nrp.list_public_ips(&call).await?.into_iter().map(|it| lower(it.name)));
        held.load_balancers
            .extend(nrp.list_load_balancers(&call).await?.into_iter().map(|it| lower(it.name)));
        held.nat_gateways.extend(nrp.list_nat_gateways(&call).await?.into_iter().map(|it| lower(it.name)));
        for location in nrp.get_address_locations(&call).await? {
            let addresses = held.locations.entry(location.location).or_default();
            for address in location.addresses {
                let services = address.services.iter().map(|name| name.to_ascii_lowercase());
                addresses.entry(address.address).or_default().extend(services);
            }
        }
        Ok(held)
    }

    fn backings(&self) -> BTreeSet<Backing> {
        let mut backings = BTreeSet::new();
        for (location, addresses) in &self.locations {
            for (address, services) in addresses {
                backings.extend(services.iter().map(|service| (*location, *address, service.clone())));
            }
        }
        backings
    }

    /// How many addresses there are, those at several locations counted at each.
    #[must_use]
    pub fn addresses(&self) -> usize {
        self.locations.values().map(BTreeMap::len).sum()
    }
}

/// The Services of a recording that are not given what they ask for at its end, by UID.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Admission {
    /// Never given anything.
    rejected: BTreeSet<String>,
    /// Admitted before: what they had goes on serving, if it was there by then. How much that is depends on the pace.
    kept: BTreeSet<String>,
}

impl Admission {
    /// Looks at every Service of a recording.
    #[must_use]
    pub fn of(lines: &[Line]) -> Self {
        let policy = AdmissionPolicy::default();
        let is = |service: &_, wanted: fn(&Intent) -> bool| wanted(&policy.admit(service).intent);
        let uid = |service: &k8s_openapi::api::core::v1::Service| {
            service.metadata.uid.clone().unwrap_or_default().to_ascii_lowercase()
        };
        let all = lines.iter().flat_map(|line| match &line.entry {
            Entry::Services(Watched::List(items)) => items.as_slice(),
            Entry::Services(Watched::Applied(service)) => std::slice::from_ref(service),
            Entry::Services(_) | Entry::EndpointSlices(_) | Entry::Nodes(_) | Entry::Pods(_) => &[],
        });
        let admitted: BTreeSet<String> = all
            .filter(|service| is(service, |intent| matches!(intent, Intent::LoadBalancer(_))))
            .map(uid)
            .collect();
        let last = FinalLists::of(lines).services;
        let rejected = last
            .iter()
            .filter(|service| is(service, |intent| matches!(intent, Intent::Rejected(_))))
            .map(uid);
        let (kept, rejected) = rejected.partition(|uid| admitted.contains(uid));
        Self { rejected, kept }
    }
}

/// Says where the two differ; nothing if they do not.
#[must_use]
pub fn mismatches(held: &Held, expected: &Expected, admission: &Admission) -> Vec<String> {
    let is_programmed = |(uid, service): &(String, &ExpectedService)| {
        !service.deleting && !admission.rejected.contains(uid) && !admission.kept.contains(uid)
    };
    let services = expected.load_balancer_services.iter();
    let wanted: BTreeMap<String, &ExpectedService> =
        services.map(|(uid, service)| (uid.to_ascii_lowercase(), service)).filter(is_programmed).collect();
    // What a label says that cannot name a NAT gateway is no egress.
    let egress: BTreeMap<&String, &BTreeMap<IpAddr, IpAddr>> =
        expected.egress.iter().filter(|(name, _)| EgressName::new(name).is_ok()).collect();
    let mut found = Vec::new();
    let inbound = |suffix: &str| wanted.keys().map(|uid| format!("{uid}{suffix}")).collect::<BTreeSet<_>>();
    let outbound =
        |suffix: &str| egress.keys().map(|name| format!("{name}{suffix}")).collect::<BTreeSet<_>>();
    let both = |suffix: &str| &inbound(suffix) | &outbound(suffix);
    // Where some pod has an IPv6 address there is a second public IP, and elsewhere there may be.
    let leaves_by_ipv6 = |name: &String| {
        let pods = egress.get(&name.trim_end_matches("-pip-v6").to_owned());
        pods.is_none_or(|pods| pods.keys().any(IpAddr::is_ipv6))
    };
    let second =
        outbound("-pip-v6").into_iter().filter(|name| leaves_by_ipv6(name) || held.public_ips.contains(name));
    for (what, suffix, wanted, held) in [
        ("service", "", both(""), &held.services),
        ("load balancer", "", inbound(""), &held.load_balancers),
        ("NAT gateway", "", outbound(""), &held.nat_gateways),
        ("public IP", "-pip", both("-pip").into_iter().chain(second).collect(), &held.public_ips),
    ] {
        let kept = |name: &&String| admission.kept.contains(name.strip_suffix(suffix).unwrap_or(name));
        found.extend(wanted.difference(held).map(|name| format!("{what} {name} is missing")));
        let extra = held.difference(&wanted).filter(|name| !kept(name));
        found.extend(extra.map(|name| format!("{what} {name} should not be there")));
    }
    let mut wanted = wanted_backings(&wanted);
    for (name, pods) in egress {
        wanted.extend(pods.iter().map(|(pod, host)| (*host, *pod, name.clone())));
    }
    let held: BTreeSet<Backing> =
        held.backings().into_iter().filter(|(.., service)| !admission.kept.contains(service)).collect();
    for (location, address, service) in wanted.difference(&held) {
        found.push(format!("{address} at {location} does not back {service}, and should"));
    }
    for (location, address, service) in held.difference(&wanted) {
        found.push(format!("{address} at {location} backs {service}, and should not"));
    }
    found
}

/// A location, an address at it, and a service that the address backs.
type Backing = (IpAddr, IpAddr, String);

fn wanted_backings(services: &BTreeMap<String, &ExpectedService>) -> BTreeSet<Backing> {
    let mut backings = BTreeSet::new();
    for (uid, service) in services {
        backings
            .extend(service.endpoints().iter().map(|(address, location)| (*location, *address, uid.clone())));
    }
    backings
}
