//! Compares what Azure holds, read back over HTTP, with what the recording should end in.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use clb_controller::admission::AdmissionPolicy;
use clb_difftracker::{EgressName, Intent};
use clb_nrp::{CallContext, NrpApi, Result};
use clb_sim::expected::{self, Expected, Verdict, Wanted};
use clb_sim::recording::Line;
use k8s_openapi::api::core::v1::Service;

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

    /// How many addresses there are, those at several locations counted at each.
    #[must_use]
    pub fn addresses(&self) -> usize {
        self.locations.values().map(BTreeMap::len).sum()
    }
}

impl From<&Held> for expected::Held {
    fn from(held: &Held) -> Self {
        let mut backings = BTreeSet::new();
        for (location, addresses) in &held.locations {
            for (address, services) in addresses {
                backings.extend(services.iter().map(|service| (*location, *address, service.clone())));
            }
        }
        Self {
            services: held.services.clone(),
            load_balancers: held.load_balancers.clone(),
            nat_gateways: held.nat_gateways.clone(),
            public_ips: held.public_ips.clone(),
            backings,
        }
    }
}

/// Says where what is held is not what a recording of these lines should end in; nothing if it is.
#[must_use]
pub fn mismatches(held: &Held, expected: &Expected, lines: &[Line]) -> Vec<String> {
    let policy = AdmissionPolicy::default();
    let verdict = |service: &Service| match policy.admit(service).intent {
        Intent::LoadBalancer(_) => Verdict::Admitted,
        Intent::Rejected(_) => Verdict::Rejected,
        Intent::None => Verdict::Ignored,
    };
    // What a label says that cannot name a NAT gateway is no egress.
    let names_egress = |name: &str| EgressName::new(name).is_ok();
    Wanted::of(expected, lines, verdict, names_egress).mismatches(&held.into())
}
