//! Objects as tables, which `kubectl get` asks for. The columns and cells are those of the API server's own printers
//! (`pkg/printers/internalversion/printers.go` in Kubernetes), without their descriptions.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::kind::Kind;

/// How many ports and addresses of a slice are named.
const NAMED: usize = 3;

/// The columns after the name: each with its name, and whether only wide output shows it.
fn columns(kind: Kind) -> &'static [(&'static str, bool)] {
    match kind {
        Kind::Namespace => &[("Status", false), ("Age", false)],
        Kind::Node => &[
            ("Status", false),
            ("Roles", false),
            ("Age", false),
            ("Version", false),
            ("Internal-IP", true),
            ("External-IP", true),
            ("OS-Image", true),
            ("Kernel-Version", true),
            ("Container-Runtime", true),
        ],
        Kind::Pod => &[
            ("Ready", false),
            ("Status", false),
            ("Restarts", false),
            ("Age", false),
            ("IP", true),
            ("Node", true),
            ("Nominated Node", true),
            ("Readiness Gates", true),
        ],
        Kind::Service => &[
            ("Type", false),
            ("Cluster-IP", false),
            ("External-IP", false),
            ("Port(s)", false),
            ("Age", false),
            ("Selector", true),
        ],
        Kind::EndpointSlice => {
            &[("AddressType", false), ("Ports", false), ("Endpoints", false), ("Age", false)]
        }
        Kind::Event => &[
            ("Last Seen", false),
            ("Type", false),
            ("Reason", false),
            ("Object", false),
            ("Subobject", true),
            ("Source", true),
            ("Message", false),
            ("First Seen", true),
            ("Count", true),
            ("Name", true),
        ],
        Kind::Lease => &[("Holder", false), ("Age", false)],
    }
}

/// A table of these objects. `metadata` is that of the list, and `now` the time since 1970.
pub(super) fn table<'a>(
    kind: Kind,
    objects: impl IntoIterator<Item = &'a Value>,
    metadata: &Value,
    now: Duration,
) -> Value {
    let column = |name: &str, format: &str, is_wide: bool| {
        json!({"name": name, "type": "string", "format": format, "description": "",
        "priority": i32::from(is_wide)})
    };
    // Events have their name at the end.
    let first = (kind != Kind::Event).then(|| column("Name", "name", false));
    let rest = columns(kind).iter().map(|(name, is_wide)| column(name, "", *is_wide));
    let columns: Vec<Value> = first.into_iter().chain(rest).collect();
    let row = |object: &Value| {
        let name = (kind != Kind::Event).then(|| text(object, "/metadata/name").to_owned());
        let cells: Vec<String> = name.into_iter().chain(cells(kind, object, now)).collect();
        let object = json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]});
        json!({"cells": cells, "object": object})
    };
    let rows: Vec<Value> = objects.into_iter().map(row).collect();
    json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "columnDefinitions": columns, "rows": rows})
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn list<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    object.pointer(pointer).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// A text, or what stands for none.
fn or(text: &str, none: &str) -> String {
    if text.is_empty() { none.to_owned() } else { text.to_owned() }
}

fn cells(kind: Kind, object: &Value, now: Duration) -> Vec<String> {
    let text = |pointer: &str| text(object, pointer);
    let age = || since(text("/metadata/creationTimestamp"), now);
    match kind {
        Kind::Namespace => vec![text("/status/phase").to_owned(), age()],
        Kind::Lease => vec![text("/spec/holderIdentity").to_owned(), age()],
        Kind::Node => {
            let info = |field: &str| text(&format!("/status/nodeInfo/{field}"));
            let address = |kind: &str| {
                let mut addresses = list(object, "/status/addresses").iter();
                let found = addresses.find(|address| address["type"] == kind);
                or(found.and_then(|address| address["address"].as_str()).unwrap_or_default(), "<none>")
            };
            let unknown = |field| or(info(field), "<unknown>");
            vec![
                node_status(object),
                roles(object),
                age(),
                info("kubeletVersion").to_owned(),
                address("InternalIP"),
                address("ExternalIP"),
                unknown("osImage"),
                unknown("kernelVersion"),
                unknown("containerRuntimeVersion"),
            ]
        }
        Kind::Pod => {
            let statuses = list(object, "/status/containerStatuses");
            let restarts: u64 = statuses.iter().filter_map(|status| status["restartCount"].as_u64()).sum();
            let none = |pointer| or(text(pointer), "<none>");
            vec![
                ready(object),
                pod_status(object),
                restarts.to_string(),
                age(),
                none("/status/podIP"),
                none("/spec/nodeName"),
                none("/status/nominatedNodeName"),
                none(""),
            ]
        }
        Kind::Service => vec![
            text("/spec/type").to_owned(),
            or(text("/spec/clusterIP"), "<none>"),
            external_ips(object),
            service_ports(object),
            age(),
            selector(object),
        ],
        Kind::EndpointSlice => {
            let port = |port: &Value| port["port"].as_u64().map_or("*".to_owned(), |port| port.to_string());
            let ports: Vec<String> = list(object, "/ports").iter().map(port).collect();
            let addresses =
                list(object, "/endpoints").iter().flat_map(|endpoint| list(endpoint, "/addresses"));
            let addresses: Vec<String> = addresses.filter_map(Value::as_str).map(str::to_owned).collect();
            vec![text("/addressType").to_owned(), some(&ports), some(&addresses), age()]
        }
        Kind::Event => event(object, now),
    }
}

/// Whether a node is ready, and takes pods.
fn node_status(node: &Value) -> String {
    let ready = list(node, "/status/conditions").iter().find(|condition| condition["type"] == "Ready");
    let status = match ready {
        Some(condition) if condition["status"] == "True" => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    };
    let suffix = if node["spec"]["unschedulable"] == true { ",SchedulingDisabled" } else { "" };
    format!("{status}{suffix}")
}

fn roles(node: &Value) -> String {
    let labels = node.pointer("/metadata/labels").and_then(Value::as_object);
    let names = labels.into_iter().flatten().map(|(name, _)| name.as_str());
    let roles: Vec<&str> = names.filter_map(|name| name.strip_prefix("node-role.kubernetes.io/")).collect();
    or(&roles.join(","), "<none>")
}

/// How many containers of a pod are ready. A pod whose containers nobody reports on is as ready as it says.
fn ready(pod: &Value) -> String {
    let all = list(pod, "/spec/containers").len();
    let statuses = list(pod, "/status/containerStatuses");
    let is_ready = |condition: &Value| condition["type"] == "Ready" && condition["status"] == "True";
    let ready = if statuses.is_empty() && list(pod, "/status/conditions").iter().any(is_ready) {
        all
    } else {
        statuses.iter().filter(|status| status["ready"] == true).count()
    };
    format!("{ready}/{all}")
}

fn pod_status(pod: &Value) -> String {
    if pod.pointer("/metadata/deletionTimestamp").is_some() {
        return "Terminating".to_owned();
    }
    let waiting =
        list(pod, "/status/containerStatuses").iter().map(|status| text(status, "/state/waiting/reason"));
    let reason = waiting.chain([text(pod, "/status/reason")]).find(|reason| !reason.is_empty());
    reason.unwrap_or(text(pod, "/status/phase")).to_owned()
}

fn external_ips(service: &Value) -> String {
    let kind = text(service, "/spec/type");
    if kind == "ExternalName" {
        return text(service, "/spec/externalName").to_owned();
    }
    let ingress = list(service, "/status/loadBalancer/ingress").iter();
    let balanced = ingress.map(|ingress| or(text(ingress, "/ip"), text(ingress, "/hostname")));
    let own = list(service, "/spec/externalIPs").iter().filter_map(Value::as_str).map(str::to_owned);
    let ips: Vec<String> = balanced.filter(|_| kind == "LoadBalancer").chain(own).collect();
    or(&ips.join(","), if kind == "LoadBalancer" { "<pending>" } else { "<none>" })
}

fn service_ports(service: &Value) -> String {
    let port = |port: &Value| match port["nodePort"].as_u64() {
        Some(node) if node > 0 => format!("{}:{node}/{}", port["port"], text(port, "/protocol")),
        Some(_) | None => format!("{}/{}", port["port"], text(port, "/protocol")),
    };
    let ports: Vec<String> = list(service, "/spec/ports").iter().map(port).collect();
    or(&ports.join(","), "<none>")
}

fn selector(service: &Value) -> String {
    let labels = service.pointer("/spec/selector").and_then(Value::as_object);
    let pair = |(key, value): (&String, &Value)| format!("{key}={}", value.as_str().unwrap_or_default());
    let pairs: Vec<String> = labels.into_iter().flatten().map(pair).collect();
    or(&pairs.join(","), "<none>")
}

/// The first few, and how many more there are.
fn some(all: &[String]) -> String {
    let named = all.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(",");
    match all.len() {
        0 => "<unset>".to_owned(),
        count if count > NAMED => format!("{named} + {} more...", count - NAMED),
        _ => named,
    }
}

fn event(event: &Value, now: Duration) -> Vec<String> {
    let text = |pointer: &str| text(event, pointer);
    let seen = |pointer: &str| {
        let seen = text(pointer);
        since(if seen.is_empty() { text("/eventTime") } else { seen }, now)
    };
    let source = [text("/source/component"), text("/source/host")];
    let source: Vec<&str> = source.into_iter().filter(|part| !part.is_empty()).collect();
    let source = or(&source.join(", "), text("/reportingComponent"));
    let count = event["count"].as_u64().unwrap_or_default().max(1).to_string();
    vec![
        seen("/lastTimestamp"),
        text("/type").to_owned(),
        text("/reason").to_owned(),
        format!("{}/{}", text("/involvedObject/kind").to_lowercase(), text("/involvedObject/name")),
        text("/involvedObject/fieldPath").to_owned(),
        source,
        text("/message").trim().to_owned(),
        seen("/firstTimestamp"),
        count,
        text("/metadata/name").to_owned(),
    ]
}

/// How long ago a time is.
fn since(time: &str, now: Duration) -> String {
    let Ok(time) = time.parse::<Timestamp>() else { return "<unknown>".to_owned() };
    let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    match u64::try_from(now.saturating_sub(time.as_second())) {
        Ok(seconds) => human(seconds),
        // A second ahead is what clocks may differ by.
        Err(_) if now.saturating_add(1) >= time.as_second() => "0s".to_owned(),
        Err(_) => "<invalid>".to_owned(),
    }
}

/// A duration as `HumanDuration` of Kubernetes' apimachinery words it.
fn human(seconds: u64) -> String {
    let (minutes, hours) = (seconds / 60, seconds / 3_600);
    let (days, years) = (hours / 24, hours / 24 / 365);
    let two = |large: u64, unit: &str, small: u64, small_unit: &str| {
        if small == 0 { format!("{large}{unit}") } else { format!("{large}{unit}{small}{small_unit}") }
    };
    match seconds {
        _ if seconds < 120 => format!("{seconds}s"),
        _ if minutes < 10 => two(minutes, "m", seconds % 60, "s"),
        _ if minutes < 180 => format!("{minutes}m"),
        _ if hours < 8 => two(hours, "h", minutes % 60, "m"),
        _ if hours < 48 => format!("{hours}h"),
        _ if hours < 192 => two(days, "d", hours % 24, "h"),
        _ if days < 2 * 365 => format!("{days}d"),
        _ if days < 8 * 365 => two(years, "y", days % 365, "d"),
        _ => format!("{years}y"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_as_exact_as_they_are_short() {
        let day = 86_400;
        let cases = [
            (119, "119s"),
            (120, "2m"),
            (121, "2m1s"),
            (600, "10m"),
            (3 * 3_600, "3h"),
            (3 * 3_600 + 60, "3h1m"),
            (9 * 3_600, "9h"),
            (2 * day + 3_600, "2d1h"),
            (9 * day, "9d"),
            (731 * day, "2y1d"),
            (9 * 365 * day, "9y"),
        ];
        for (seconds, expected) in cases {
            assert_eq!(human(seconds), expected);
        }
    }
}
