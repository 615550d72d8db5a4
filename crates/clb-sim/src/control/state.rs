//! What there is, as JSON.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{Control, milliseconds};
use crate::azure::Azure;
use crate::kube::{Cluster, Kind};

pub(super) fn state(control: &Control) -> Value {
    let azure = control.azure.with_azure(|azure| of_azure(azure));
    let kubernetes = control.kube.with_cluster(|cluster| of_kubernetes(cluster));
    json!({
        "azure": azure, "kubernetes": kubernetes, "clock": clock(control), "calls": control.calls.number()
    })
}

pub(super) fn clock(control: &Control) -> Value {
    json!({
        "azureMilliseconds": milliseconds(control.azure.now()),
        "kubernetesMilliseconds": milliseconds(control.kube.elapsed()),
        "kubernetesSecondsSince1970": control.kube.now().as_secs()
    })
}

/// How many addresses name each service.
pub(super) fn addresses_by_service(azure: &Azure) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    for name in azure.locations().values().flat_map(BTreeMap::values).flatten() {
        *counts.entry(name.as_str()).or_default() += 1;
    }
    counts
}

fn of_azure(azure: &Azure) -> Value {
    let addresses = addresses_by_service(azure);
    let services = azure.services().iter().map(|(name, service)| {
        json!({
            "name": name, "serviceType": service.service_type, "isDefault": service.is_default,
            "backendPools": service.pools, "natGateway": service.nat_gateway,
            "addresses": addresses.get(name.as_str()).copied().unwrap_or(0)
        })
    });
    let frontends = azure.frontends();
    let frontends = frontends.iter().map(
        |frontend| json!({"address": frontend.address, "protocol": frontend.protocol, "port": frontend.port}),
    );
    let machines = azure.machines().map(|machine| {
        json!({
            "id": machine.id, "computerName": machine.computer_name, "power": machine.power.as_str(),
            "provisioningState": machine.provisioning_state, "addresses": machine.addresses
        })
    });
    json!({
        "services": services.collect::<Value>(),
        "locations": azure.locations(),
        "frontends": frontends.collect::<Value>(),
        "resources": azure.resource_ids().collect::<Value>(),
        "machines": machines.collect::<Value>()
    })
}

/// Kubernetes' own API tells the rest.
fn of_kubernetes(cluster: &Cluster) -> Value {
    let count = |kind| cluster.objects(kind).count();
    let services = cluster.objects(Kind::Service).map(|service| {
        json!({
            "namespace": service["metadata"]["namespace"], "name": service["metadata"]["name"],
            "uid": service["metadata"]["uid"], "type": service["spec"]["type"],
            "ingress": service["status"]["loadBalancer"]["ingress"].as_array().cloned().unwrap_or_default()
        })
    });
    json!({
        "version": cluster.version(), "services": services.collect::<Value>(), "nodes": count(Kind::Node),
        "pods": count(Kind::Pod), "endpointSlices": count(Kind::EndpointSlice)
    })
}
