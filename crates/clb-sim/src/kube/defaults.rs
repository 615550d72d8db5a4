//! What the API server fills in.

use serde_json::{Value, json};

use super::cluster::Cluster;
use super::kind::Kind;

fn set_default(object: &mut Value, field: &str, value: Value) {
    if object[field].is_null() {
        object[field] = value;
    }
}

impl Cluster {
    /// Fills in what a new form of an object leaves open, after an old one.
    pub(super) fn set_defaults(&mut self, kind: Kind, new: &mut Value, old: Option<&Value>) {
        match kind {
            Kind::Service => self.service_defaults(new, old),
            Kind::Pod => {
                if old.is_none() {
                    new["metadata"]["generation"] = json!(1);
                }
                if new["status"].is_null() {
                    new["status"] = json!({"phase": "Pending"});
                }
            }
            Kind::Namespace => {
                let name = new["metadata"]["name"].clone();
                new["metadata"]["labels"]["kubernetes.io/metadata.name"] = name;
                // The namespace controller holds it until it is empty.
                set_default(new, "spec", json!({"finalizers": ["kubernetes"]}));
                if new["status"].is_null() {
                    new["status"] = json!({"phase": "Active"});
                }
            }
            Kind::Node => {
                set_default(new, "spec", json!({}));
                set_default(new, "status", json!({}));
            }
            Kind::EndpointSlice => {
                for port in new.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
                    set_default(port, "name", json!(""));
                    set_default(port, "protocol", json!("TCP"));
                }
                let changed = old
                    .is_some_and(|old| old["endpoints"] != new["endpoints"] || old["ports"] != new["ports"]);
                let held = old.and_then(|old| old["metadata"]["generation"].as_u64());
                let generation = held.map_or(1, |held| held + u64::from(changed));
                new["metadata"]["generation"] = json!(generation);
                set_default(new, "endpoints", json!([]));
            }
            Kind::Event => {
                set_default(new, "reportingComponent", json!(""));
                set_default(new, "reportingInstance", json!(""));
                if let Value::Object(event) = new {
                    event.entry("eventTime").or_insert(Value::Null);
                }
            }
            Kind::Lease => {}
        }
    }

    fn service_defaults(&mut self, new: &mut Value, old: Option<&Value>) {
        if !new["spec"].is_object() {
            new["spec"] = json!({});
        }
        let spec = &mut new["spec"];
        set_default(spec, "type", json!("ClusterIP"));
        set_default(spec, "sessionAffinity", json!("None"));
        let kind = spec["type"].as_str().unwrap_or_default().to_owned();
        let is_external_name = kind == "ExternalName";
        let has_node_ports = matches!(kind.as_str(), "LoadBalancer" | "NodePort");
        if !is_external_name {
            self.address_defaults(spec, old);
            set_default(spec, "internalTrafficPolicy", json!("Cluster"));
        }
        if has_node_ports {
            set_default(spec, "externalTrafficPolicy", json!("Cluster"));
        }
        if kind == "LoadBalancer" {
            set_default(spec, "allocateLoadBalancerNodePorts", json!(true));
        }
        let former: Vec<Value> =
            old.and_then(|old| old["spec"]["ports"].as_array()).cloned().unwrap_or_default();
        let allocates = has_node_ports && spec["allocateLoadBalancerNodePorts"] != false;
        for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
            set_default(port, "protocol", json!("TCP"));
            let number = port["port"].clone();
            set_default(port, "targetPort", number);
            if allocates && port["nodePort"].is_null() {
                let same = former
                    .iter()
                    .find(|held| held["port"] == port["port"] && held["protocol"] == port["protocol"]);
                port["nodePort"] = match same.map(|held| &held["nodePort"]) {
                    Some(held) if !held.is_null() => held.clone(),
                    Some(_) | None => {
                        self.counter += 1;
                        // Kubernetes' default range of node ports.
                        json!(30_000 + self.counter % 2_768)
                    }
                };
            }
        }
        if new["status"].is_null() {
            new["status"] = json!({});
        }
        if kind != "LoadBalancer" {
            // Whatever was balanced no longer is.
            new["status"]["loadBalancer"] = json!({});
        }
        set_default(&mut new["status"], "loadBalancer", json!({}));
        let ingress = new.pointer_mut("/status/loadBalancer/ingress").and_then(Value::as_array_mut);
        for ingress in ingress.into_iter().flatten().filter(|ingress| !ingress["ip"].is_null()) {
            set_default(ingress, "ipMode", json!("VIP"));
        }
    }

    /// The families and cluster IPs of a Service. Those that it has stay, unless it names others.
    fn address_defaults(&mut self, spec: &mut Value, old: Option<&Value>) {
        for field in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
            if spec[field].is_null()
                && let Some(held) = old.map(|old| &old["spec"][field]).filter(|held| !held.is_null())
            {
                spec[field] = held.clone();
            }
        }
        set_default(spec, "ipFamilyPolicy", json!("SingleStack"));
        let is_dual = spec["ipFamilyPolicy"] != "SingleStack";
        set_default(spec, "ipFamilies", if is_dual { json!(["IPv4", "IPv6"]) } else { json!(["IPv4"]) });
        if !spec["clusterIP"].is_null()
            && (spec["clusterIPs"].is_null() || spec["clusterIP"] != spec["clusterIPs"][0])
        {
            let first = spec["clusterIP"].clone();
            spec["clusterIPs"] = json!([first]);
        }
        if spec["clusterIPs"].is_null() {
            let families = spec["ipFamilies"].as_array().cloned().unwrap_or_default();
            let addresses: Vec<Value> = families
                .iter()
                .map(|family| {
                    self.counter += 1;
                    let [.., high, low] = self.counter.to_be_bytes();
                    if family == "IPv6" {
                        json!(format!("fd00:96::{:x}", u16::from_be_bytes([high, low])))
                    } else {
                        json!(format!("10.96.{high}.{low}"))
                    }
                })
                .collect();
            spec["clusterIP"] = addresses.first().cloned().unwrap_or_default();
            spec["clusterIPs"] = json!(addresses);
        }
    }
}
