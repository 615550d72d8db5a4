//! The page.

use std::collections::BTreeMap;
use std::net::IpAddr;

use maud::{DOCTYPE, Markup, html};
use serde_json::Value;

use super::Control;
use super::calls::HeardCall;
use super::state::addresses_by_service;
use crate::azure::Azure;
use crate::fault::Api;
use crate::kube::{Cluster, Kind};

/// How many rows a table has at most: more are no use to a reader, and a burden to a browser.
const ROWS: usize = 200;

pub(super) fn page(control: &Control) -> Markup {
    let azure = control.azure.with_azure(|azure| of_azure(azure));
    let kubernetes = control.kube.with_cluster(|cluster| of_kubernetes(cluster));
    let injected = control.azure.injected().len() + control.kube.injected().len();
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { "clb-sim" }
                link rel="stylesheet" href="page.css";
                script src="page.js" defer {}
            }
            body {
                header {
                    h1 { "clb-sim" }
                    @for part in ["state", "calls", "faults", "clock"] { a href=(part) { (part) } }
                }
                main {
                    (kubernetes)
                    (azure)
                    (faults(control, injected))
                    (calls(control))
                }
            }
        }
    }
}

/// A table with no more rows than are of use.
fn table<T>(title: &str, columns: &[&str], rows: &[T], row: impl Fn(&T) -> Markup) -> Markup {
    html! {
        h2 { (title) }
        @if rows.is_empty() {
            p.none { "none" }
        } @else {
            div.table { table {
                thead { tr { @for column in columns { th { (column) } } } }
                tbody { @for item in rows.iter().take(ROWS) { (row(item)) } }
            } }
            @if rows.len() > ROWS { p.none { "and " (rows.len() - ROWS) " more" } }
        }
    }
}

fn figures(figures: &[(&str, usize)]) -> Markup {
    html! { dl { @for (name, count) in figures { div { dt { (name) } dd { (count) } } } } }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn of_kubernetes(cluster: &Cluster) -> Markup {
    let count = |kind| cluster.objects(kind).count();
    let services: Vec<&Value> = cluster
        .objects(Kind::Service)
        .filter(|service| text(&service["spec"]["type"]) == "LoadBalancer")
        .collect();
    html! {
        (figures(&[
            ("nodes", count(Kind::Node)), ("pods", count(Kind::Pod)), ("Services", count(Kind::Service)),
            ("EndpointSlices", count(Kind::EndpointSlice))
        ]))
        (table("Kubernetes: Services of type LoadBalancer", &["Service", "UID", "ports", "ingress"], &services, |service| {
            let (metadata, ports) = (&service["metadata"], service["spec"]["ports"].as_array());
            let ingress = service["status"]["loadBalancer"]["ingress"].as_array();
            html! { tr {
                td { (text(&metadata["namespace"])) "/" (text(&metadata["name"])) }
                td { (text(&metadata["uid"])) }
                td { @for port in ports.into_iter().flatten() { (port["port"]) "/" (text(&port["protocol"])) " " } }
                td { @for point in ingress.into_iter().flatten() { (text(&point["ip"])) " " } }
            } }
        }))
    }
}

fn of_azure(azure: &Azure) -> Markup {
    let addresses = addresses_by_service(azure);
    let services: Vec<_> = azure.services().iter().collect();
    let frontends: Vec<_> = azure.frontends().into_iter().collect();
    let locations: Vec<(&IpAddr, &BTreeMap<IpAddr, _>)> = azure.locations().iter().collect();
    let machines: Vec<_> = azure.machines().collect();
    html! {
        (table("Azure: services of the ServiceGateway", &["name", "type", "addresses", "leads to"], &services, |(name, service)| html! {
            tr {
                td { (name) }
                td.short { (service.service_type) @if service.is_default { " (default)" } }
                td.number { (addresses.get(name.as_str()).copied().unwrap_or(0)) }
                td {
                    @for pool in &service.pools { "pool " (short(pool)) " " }
                    @if let Some(gateway) = &service.nat_gateway { "NAT gateway " (short(gateway)) }
                }
            }
        }))
        (table("Azure: frontends", &["address", "port", "load balancer", "pods that answer, on their nodes"], &frontends, |frontend| {
            let ingress = azure.ingress(frontend.address, &frontend.protocol, frontend.port).unwrap_or_default();
            html! { tr {
                td.short { (frontend.address) }
                td.short { (frontend.port) "/" (frontend.protocol) }
                td { (ingress.load_balancer) }
                td {
                    @for (pod, node) in ingress.pods.iter().take(8) { (pod) ":" (ingress.backend_port) " on " (node) "; " }
                    @if ingress.pods.len() > 8 { "and " (ingress.pods.len() - 8) " more" }
                    @if ingress.pods.is_empty() { span.none { "none" } }
                }
            } }
        }))
        (table("Azure: locations and their addresses", &["location", "addresses", "which, and the services they back"], &locations, |(location, addresses)| html! {
            tr {
                td.short { (location) }
                td.number { (addresses.len()) }
                td {
                    @for (address, services) in addresses.iter().take(8) {
                        (address) " → " (services.iter().map(String::as_str).collect::<Vec<_>>().join(", ")) "; "
                    }
                    @if addresses.len() > 8 { "and " (addresses.len() - 8) " more" }
                }
            }
        }))
        @if !machines.is_empty() {
            (table("Azure: machines", &["node", "power", "state", "addresses"], &machines, |machine| html! {
                tr {
                    td { (machine.computer_name) }
                    td.short { (machine.power.as_str()) }
                    td.short { (machine.provisioning_state) }
                    td { @for address in &machine.addresses { (address) " " } }
                }
            }))
        }
        (resources(azure))
    }
}

/// How many there are of each kind: what is left over shows here.
fn resources(azure: &Azure) -> Markup {
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    for id in azure.resource_ids() {
        *kinds.entry(id.rsplit('/').nth(1).unwrap_or_default()).or_default() += 1;
    }
    let kinds: Vec<(&str, usize)> = kinds.into_iter().collect();
    html! {
        h2 { "Azure: resources" }
        @if kinds.is_empty() { p.none { "none" } } @else { (figures(&kinds)) }
    }
}

fn faults(control: &Control, injected: usize) -> Markup {
    let plan = control.azure.faults();
    html! {
        (table(&format!("Faults: the plan ({injected} happened)"), &["when", "to what", "how"], &plan.faults, |fault| html! {
            tr {
                td { (json(&fault.when)) }
                td { (json(&fault.what)) }
                td { (json(&fault.how)) }
            }
        }))
    }
}

fn calls(control: &Control) -> Markup {
    let mut calls = control.calls.since(0);
    calls.reverse();
    let title = format!("Calls, the last first ({} so far)", control.calls.number());
    table(&title, &["time", "API", "call", "status", "path"], &calls, |call| {
        let HeardCall { at_milliseconds: at, status, .. } = call;
        let api = match call.api {
            Api::Azure => "Azure",
            Api::Kubernetes => "Kubernetes",
        };
        html! {
            tr.failed[!(200..300).contains(status)] {
                td.number { (format!("{}.{:03}", at / 1000, at % 1000)) }
                td.short { (api) }
                td.short { (call.verb) }
                td.status {
                    @if *status == 0 { "cut" } @else { (status) }
                    @if let Some(code) = &call.code { " " (code) }
                    @if let Some(fault) = &call.fault { span.fault { " " (json(fault)) } }
                }
                td { (call.path) }
            }
        }
    })
}

fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// The name at the end of an id.
fn short(id: &str) -> &str {
    id.rsplit('/').next().unwrap_or_default()
}
