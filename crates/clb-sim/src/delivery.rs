//! What becomes of requests: where Azure sends them, and whether somebody is there.

use std::net::IpAddr;

use crate::Simulation;
use crate::kube::KubeSimulation;

/// A request that Azure sends to a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The address that it is sent to.
    pub pod_ip: IpAddr,
    /// Whether a pod serves there now, at the location that Azure has for it.
    pub served: bool,
}

/// Where a request to `port` of the public `address` may be sent now, `protocol` being `tcp` or `udp` in any casing, by
/// address: to each of the pods of [`Azure::ingress`](crate::azure::Azure::ingress), which serve or do not as
/// [`Cluster::serving`](crate::kube::Cluster::serving) says. Empty if there is no such frontend, or it leads to no pod.
#[must_use]
pub fn sends(
    azure: &Simulation,
    kube: &KubeSimulation,
    address: IpAddr,
    protocol: &str,
    port: u16,
) -> Vec<Delivery> {
    let ingress = azure.with_azure(|azure| azure.ingress(address, protocol, port)).unwrap_or_default();
    if ingress.pods.is_empty() {
        return Vec::new();
    }
    let serving = kube.with_cluster(|cluster| cluster.serving());
    let delivery = |(pod_ip, location): (IpAddr, IpAddr)| {
        let hosts = serving.get(&pod_ip);
        let served = hosts.is_some_and(|hosts| hosts.is_empty() || hosts.contains(&location));
        Delivery { pod_ip, served }
    };
    ingress.pods.into_iter().map(delivery).collect()
}

/// Whether a request may be lost that is sent like this: there is nobody to send it to, or somebody who does not serve.
#[must_use]
pub fn may_lose(deliveries: &[Delivery]) -> bool {
    deliveries.is_empty() || deliveries.iter().any(|delivery| !delivery.served)
}
