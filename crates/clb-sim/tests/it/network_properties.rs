//! Any sequence of writes leaves what a small model of public IPs, load balancers, NAT gateways, services and addresses
//! holds, which was written from the description of the wire: what names what must be there, and what is named stays.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use clb_sim::azure::Request;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

use crate::properties::{self, Fact, SERVICES};
use crate::support::*;

type Name = &'static str;

/// The last two are IPv6, unless somebody asks for something else.
const PUBLIC_IPS: [Name; 5] = ["p", "q", "r", "u", "v"];
const BALANCERS: [Name; 2] = ["l", "m"];
const POOLS: [Name; 2] = ["x", "y"];
const NAT_GATEWAYS: [Name; 2] = ["n", "o"];

/// What a write says of something that it may leave as it is.
#[derive(Clone, Debug)]
enum Said<T> {
    Nothing,
    Null,
    This(T),
}

#[derive(Clone, Debug)]
enum Step {
    PutPublicIp { name: Name, is_ipv6: bool },
    PutBalancer { name: Name, public_ip: Name, pools: BTreeSet<Name> },
    PutNatGateway { name: Name, lists: [Option<Vec<Name>>; 2], tie: Said<()> },
    Delete { kind: &'static str, name: Name },
    Services { is_full: bool, changes: Vec<(Name, Option<Change>)> },
    Locations { is_full: bool, entries: Vec<properties::Entry> },
}

#[derive(Clone, Debug)]
struct Change {
    has_type: bool,
    pools: Option<Vec<(Name, Name)>>,
    nat_gateway: Said<Name>,
}

fn said<T: Clone + std::fmt::Debug + 'static>(
    value: impl Strategy<Value = T> + 'static,
) -> BoxedStrategy<Said<T>> {
    prop_oneof![2 => Just(Said::Nothing), 1 => Just(Said::Null), 3 => value.prop_map(Said::This)].boxed()
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let public_ip = (0..PUBLIC_IPS.len(), prop::bool::weighted(0.05))
        .prop_map(|(at, other)| Step::PutPublicIp { name: PUBLIC_IPS[at], is_ipv6: (at > 2) != other });
    let pools = prop_oneof![
        3 => Just(POOLS.into_iter().collect()),
        1 => select(POOLS.to_vec()).prop_map(|pool| BTreeSet::from([pool]))
    ];
    let balancer = (select(BALANCERS.to_vec()), select(PUBLIC_IPS.to_vec()), pools)
        .prop_map(|(name, public_ip, pools)| Step::PutBalancer { name, public_ip, pools });
    let list = |own: &[Name], other: &[Name]| {
        option::of(vec(prop_oneof![9 => select(own.to_vec()), 1 => select(other.to_vec())], 0..3))
    };
    let lists = (list(&PUBLIC_IPS[..3], &PUBLIC_IPS[3..]), list(&PUBLIC_IPS[3..], &PUBLIC_IPS[..3]));
    let nat_gateway = (select(NAT_GATEWAYS.to_vec()), lists, said(Just(())))
        .prop_map(|(name, (v4, v6), tie)| Step::PutNatGateway { name, lists: [v4, v6], tie });
    let deletions = [
        ("publicIPAddresses", &PUBLIC_IPS[..]),
        ("loadBalancers", &BALANCERS[..]),
        ("natGateways", &NAT_GATEWAYS[..]),
    ];
    let deletions = deletions
        .into_iter()
        .flat_map(|(kind, names)| names.iter().map(move |name| Step::Delete { kind, name }));
    let delete = select(deletions.collect::<Vec<_>>());
    let pool = (select(BALANCERS.to_vec()), select(POOLS.to_vec()));
    let change =
        (prop::bool::weighted(0.9), option::of(vec(pool, 0..3)), said(select(NAT_GATEWAYS.to_vec())))
            .prop_map(|(has_type, pools, nat_gateway)| Change { has_type, pools, nat_gateway });
    let change = (select(SERVICES[..3].to_vec()), option::weighted(0.8, change));
    let services = (prop::bool::weighted(0.1), vec(change, 0..3))
        .prop_map(|(is_full, changes)| Step::Services { is_full, changes });
    let locations = (prop::bool::weighted(0.2), vec(properties::entries(), 0..3))
        .prop_map(|(is_full, entries)| Step::Locations { is_full, entries });
    vec(
        prop_oneof![4 => public_ip, 4 => balancer, 3 => nat_gateway, 4 => delete, 5 => services, 4 => locations],
        1..60,
    )
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Nat {
    public_ips: [Vec<Name>; 2],
    is_tied: bool,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Service {
    pools: Vec<(Name, Name)>,
    nat_gateway: Option<Name>,
}

#[derive(Clone, Debug, Default)]
struct Model {
    /// Whether each is IPv6.
    public_ips: BTreeMap<Name, bool>,
    balancers: BTreeMap<Name, (Name, BTreeSet<Name>)>,
    nat_gateways: BTreeMap<Name, Nat>,
    services: BTreeMap<String, Service>,
    facts: BTreeSet<Fact>,
}

impl Model {
    /// Who uses a public IP: the kind and name.
    fn users(&self, public_ip: Name) -> BTreeSet<(&'static str, Name)> {
        let balancers = self.balancers.iter().filter(|(_, (used, _))| *used == public_ip);
        let has = |nat: &Nat| nat.public_ips.iter().flatten().any(|used| *used == public_ip);
        let nat_gateways = self.nat_gateways.iter().filter(|(_, nat)| has(nat));
        let balancers = balancers.map(|(name, _)| ("balancer", *name));
        balancers.chain(nat_gateways.map(|(name, _)| ("nat", *name))).collect()
    }

    fn is_named(&self, balancer: Name, pool: Name) -> bool {
        self.services.values().any(|service| service.pools.contains(&(balancer, pool)))
    }

    /// What is left after a step; `None` if it is refused.
    fn after(&self, step: &Step) -> Option<Self> {
        let mut model = self.clone();
        match step {
            Step::PutPublicIp { name, is_ipv6 } => {
                if model.public_ips.insert(name, *is_ipv6).is_some_and(|former| former != *is_ipv6) {
                    return None;
                }
            }
            Step::PutBalancer { name, public_ip, pools } => {
                let is_free = self.users(public_ip).iter().all(|user| *user == ("balancer", *name));
                if !self.public_ips.contains_key(public_ip) || !is_free {
                    return None;
                }
                let former = model.balancers.insert(name, (public_ip, pools.clone()));
                let (_, former) = former.unwrap_or_default();
                if former.difference(pools).any(|pool| self.is_named(name, pool)) {
                    return None;
                }
            }
            Step::PutNatGateway { name, lists, tie } => {
                let nat = model.nat_gateways.entry(name).or_default();
                for (at, list) in lists.iter().enumerate() {
                    let Some(list) = list else { continue };
                    let is_fit = |public_ip: &Name| {
                        self.public_ips.get(public_ip) == Some(&(at == 1))
                            && self.users(public_ip).iter().all(|user| *user == ("nat", *name))
                    };
                    let distinct: BTreeSet<Name> = list.iter().copied().collect();
                    if distinct.len() != list.len() || !list.iter().all(is_fit) {
                        return None;
                    }
                    nat.public_ips[at].clone_from(list);
                }
                match tie {
                    Said::Nothing => {}
                    Said::Null => nat.is_tied = false,
                    Said::This(()) => nat.is_tied = true,
                }
            }
            Step::Delete { kind: "publicIPAddresses", name } => {
                model.public_ips.remove(name);
                if !self.users(name).is_empty() {
                    return None;
                }
            }
            Step::Delete { kind: "loadBalancers", name } => {
                model.balancers.remove(name);
                if POOLS.iter().any(|pool| self.is_named(name, pool)) {
                    return None;
                }
            }
            Step::Delete { name, .. } => {
                let gone = model.nat_gateways.remove(name);
                let names_it = |service: &Service| service.nat_gateway == Some(name);
                if gone.is_some_and(|gone| gone.is_tied) || self.services.values().any(names_it) {
                    return None;
                }
            }
            Step::Services { is_full, changes } => {
                if *is_full {
                    model.services.clear();
                }
                let distinct: BTreeSet<Name> = changes.iter().map(|(name, _)| *name).collect();
                if distinct.len() != changes.len() {
                    return None;
                }
                for (name, change) in changes {
                    let name = name.to_lowercase();
                    let Some(change) = change else {
                        model.services.remove(&name);
                        continue;
                    };
                    if !change.has_type && !model.services.contains_key(&name) {
                        return None;
                    }
                    let service = model.services.entry(name).or_default();
                    if let Some(pools) = &change.pools {
                        let has = |(balancer, pool): &(Name, Name)| {
                            self.balancers.get(balancer).is_some_and(|(_, pools)| pools.contains(pool))
                        };
                        if !pools.iter().all(has) {
                            return None;
                        }
                        service.pools.clone_from(pools);
                    }
                    match change.nat_gateway {
                        Said::Nothing => {}
                        Said::Null => service.nat_gateway = None,
                        Said::This(name) if self.nat_gateways.contains_key(name) => {
                            service.nat_gateway = Some(name);
                        }
                        Said::This(_) => return None,
                    }
                }
                if self.facts.iter().any(|(.., service)| !model.services.contains_key(service)) {
                    return None;
                }
            }
            Step::Locations { is_full, entries } => {
                let registered = self.services.keys().cloned().collect();
                let before = properties::Model { registered, facts: self.facts.clone() };
                let step = properties::Step::Update { is_full: *is_full, entries: entries.clone() };
                model.facts = before.after(&step)?.facts;
            }
        }
        Some(model)
    }

    /// All that can be read.
    fn state(&self) -> State {
        let pods = |balancer: Name, pool: Name| {
            let names_it = |service: &String| self.services[service].pools.contains(&(balancer, pool));
            let facts = self.facts.iter().filter(|(.., service)| names_it(service));
            facts.map(|(_, address, _)| *address).collect()
        };
        State {
            public_ips: self
                .public_ips
                .iter()
                .map(|(name, is_ipv6)| ((*name).to_owned(), *is_ipv6))
                .collect(),
            balancers: (self.balancers.iter())
                .map(|(name, (public_ip, pools))| {
                    let pools = pools.iter().map(|pool| ((*pool).to_owned(), pods(name, pool))).collect();
                    ((*name).to_owned(), (public_ip_path(public_ip), pools))
                })
                .collect(),
            nat_gateways: (self.nat_gateways.iter())
                .map(|(name, nat)| {
                    let ids = |list: &Vec<Name>| list.iter().map(|name| public_ip_path(name)).collect();
                    ((*name).to_owned(), ([ids(&nat.public_ips[0]), ids(&nat.public_ips[1])], nat.is_tied))
                })
                .collect(),
            services: (self.services.iter())
                .map(|(name, service)| {
                    let pools =
                        service.pools.iter().map(|(balancer, pool)| pool_path(balancer, pool)).collect();
                    (name.clone(), (pools, service.nat_gateway.map(nat_gateway_path)))
                })
                .collect(),
            facts: self.facts.clone(),
        }
    }
}

#[derive(Debug, PartialEq)]
struct State {
    public_ips: BTreeMap<String, bool>,
    /// The public IP, and of each pool its pods.
    balancers: BTreeMap<String, (String, BTreeMap<String, BTreeSet<IpAddr>>)>,
    /// The public IPs of both families, and whether it is tied to the ServiceGateway.
    nat_gateways: BTreeMap<String, ([Vec<String>; 2], bool)>,
    services: BTreeMap<String, (Vec<String>, Option<String>)>,
    facts: BTreeSet<Fact>,
}

fn pool_path(balancer: Name, pool: Name) -> String {
    format!("{}/backendAddressPools/{pool}", load_balancer_path(balancer))
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

fn observed(world: &mut World) -> State {
    let mut list = |kind: &str| -> BTreeMap<String, Value> {
        let items = world.ok(get(&format!("{NETWORK}/{kind}")))["value"].take();
        let items = items.as_array().unwrap().iter();
        items.map(|item| (text(&item["name"]), item["properties"].clone())).collect()
    };
    let public_ips = list("publicIPAddresses").into_iter();
    let (balancers, nat_gateways) = (list("loadBalancers").into_iter(), list("natGateways").into_iter());
    let address = |entry: &Value| text(&entry["properties"]["ipAddress"]).parse::<IpAddr>().unwrap();
    let pool = |pool: &Value| {
        let addresses = pool["properties"]["loadBalancerBackendAddresses"].as_array().unwrap();
        (text(&pool["name"]), addresses.iter().map(address).collect())
    };
    let ids = |list: Option<&Value>| {
        let list = list.and_then(Value::as_array).into_iter().flatten();
        list.map(|reference| text(&reference["id"])).collect::<Vec<_>>()
    };
    State {
        public_ips: public_ips
            .map(|(name, it)| {
                let version = text(&it["publicIPAddressVersion"]);
                let ip: IpAddr = text(&it["ipAddress"]).parse().unwrap();
                assert_eq!(ip.is_ipv6(), version == "IPv6");
                (name.strip_suffix("-pip").unwrap().to_owned(), ip.is_ipv6())
            })
            .collect(),
        balancers: balancers
            .map(|(name, it)| {
                let frontend = &it["frontendIPConfigurations"][0]["properties"];
                let pools = it["backendAddressPools"].as_array().unwrap().iter().map(pool).collect();
                (name, (text(&frontend["publicIPAddress"]["id"]), pools))
            })
            .collect(),
        nat_gateways: nat_gateways
            .map(|(name, it)| {
                let lists = [ids(it.get("publicIpAddresses")), ids(it.get("publicIpAddressesV6"))];
                (name, (lists, it.get("serviceGateway").is_some()))
            })
            .collect(),
        services: (world.0.services().iter())
            .map(|(name, service)| (name.clone(), (service.pools.clone(), service.nat_gateway.clone())))
            .collect(),
        facts: properties::facts(&world.0),
    }
}

fn request(step: &Step) -> Request {
    let action = |is_full: bool| if is_full { "FullUpdate" } else { "PartialUpdate" };
    match step {
        Step::PutPublicIp { name, is_ipv6 } => {
            put(&public_ip_path(name), public_ip(if *is_ipv6 { "IPv6" } else { "IPv4" }))
        }
        Step::PutBalancer { name, public_ip, pools } => {
            let mut body = load_balancer(name, &[]);
            let frontend = &mut body["properties"]["frontendIPConfigurations"][0]["properties"];
            frontend["publicIPAddress"]["id"] = json!(public_ip_path(public_ip));
            body["properties"]["backendAddressPools"] =
                pools.iter().map(|pool| json!({"name": pool})).collect();
            put(&load_balancer_path(name), body)
        }
        Step::PutNatGateway { name, lists, tie } => {
            let mut properties = json!({});
            for (key, list) in ["publicIpAddresses", "publicIpAddressesV6"].into_iter().zip(lists) {
                if let Some(list) = list {
                    properties[key] = list.iter().map(|name| json!({"id": public_ip_path(name)})).collect();
                }
            }
            match tie {
                Said::Nothing => {}
                Said::Null => properties["serviceGateway"] = Value::Null,
                Said::This(()) => properties["serviceGateway"] = json!({"id": service_gateway_path()}),
            }
            let body = json!({"location": "eastus", "sku": {"name": "StandardV2"}, "properties": properties});
            put(&nat_gateway_path(name), body)
        }
        Step::Delete { kind: "publicIPAddresses", name } => delete(&public_ip_path(name)),
        Step::Delete { kind, name } => delete(&format!("{NETWORK}/{kind}/{name}")),
        Step::Services { is_full, changes } => {
            let change = |(name, change): &(Name, Option<Change>)| {
                let Some(change) = change else {
                    return json!({"isDelete": true, "service": {"name": name}});
                };
                let mut properties = json!({});
                if change.has_type {
                    properties["serviceType"] = json!("InboundOutbound");
                }
                if let Some(pools) = &change.pools {
                    let pools = pools.iter().map(|(balancer, pool)| json!({"id": pool_path(balancer, pool)}));
                    properties["loadBalancerBackendPools"] = pools.collect();
                }
                match change.nat_gateway {
                    Said::Nothing => {}
                    Said::Null => properties["publicNatGatewayId"] = Value::Null,
                    Said::This(name) => properties["publicNatGatewayId"] = json!(nat_gateway_path(name)),
                }
                json!({"isDelete": false, "service": {"name": name, "properties": properties}})
            };
            update_services(action(*is_full), changes.iter().map(change).collect())
        }
        Step::Locations { is_full, entries } => {
            properties::request(&properties::Step::Update { is_full: *is_full, entries: entries.clone() })
        }
    }
}

proptest! {
    #[test]
    fn everything_that_is_named_is_there_and_stays(steps in steps()) {
        let mut world = World::empty();
        let mut model = Model::default();
        for step in steps {
            match model.after(&step) {
                Some(after) => {
                    world.ok(request(&step));
                    model = after;
                }
                None => prop_assert_eq!(world.refused(request(&step)).0, 400, "{:?}", step),
            }
            prop_assert_eq!(observed(&mut world), model.state(), "after {:?}", step);
        }
    }
}
