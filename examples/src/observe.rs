//! Sees every call on Azure.

use std::time::Duration;

use async_trait::async_trait;
use clb_nrp::models::{
    AddressLocation, GatewayService, LoadBalancer, NatGateway, PublicIp, UpdateAddressLocations,
    UpdateServices,
};
use clb_nrp::{CallContext, NrpApi, Result};
use tokio::time::Instant;

/// One call on Azure, long-running operation included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// `GET`, `PUT`, `DELETE` or `POST`.
    pub method: &'static str,
    /// What it was on.
    pub resource: String,
    /// What it named, for people; empty for a single resource.
    pub entries: String,
    /// What went wrong, if anything did.
    pub error: Option<String>,
    /// How long it took.
    pub duration: Duration,
}

/// Passes every call on, and tells `observer` of it when it has ended.
pub struct Observed<N, F> {
    inner: N,
    observer: F,
}

impl<N: NrpApi, F: Fn(Call) + Send + Sync> Observed<N, F> {
    /// Tells `observer` of every call on `inner`.
    pub fn new(inner: N, observer: F) -> Self {
        Self { inner, observer }
    }

    async fn observe<T>(
        &self,
        method: &'static str,
        resource: String,
        entries: String,
        call: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let start = Instant::now();
        let result = call.await;
        let error = result.as_ref().err().map(ToString::to_string);
        (self.observer)(Call { method, resource, entries, error, duration: start.elapsed() });
        result
    }
}

fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

#[async_trait]
impl<N: NrpApi, F: Fn(Call) + Send + Sync> NrpApi for Observed<N, F> {
    async fn get_public_ip(&self, call: &CallContext, name: &str) -> Result<Option<PublicIp>> {
        let resource = format!("public IP {name}");
        self.observe("GET", resource, String::new(), self.inner.get_public_ip(call, name)).await
    }

    async fn put_public_ip(&self, call: &CallContext, name: &str, body: &PublicIp) -> Result<PublicIp> {
        let resource = format!("public IP {name}");
        self.observe("PUT", resource, String::new(), self.inner.put_public_ip(call, name, body)).await
    }

    async fn delete_public_ip(&self, call: &CallContext, name: &str) -> Result<()> {
        let resource = format!("public IP {name}");
        self.observe("DELETE", resource, String::new(), self.inner.delete_public_ip(call, name)).await
    }

    async fn list_public_ips(&self, call: &CallContext) -> Result<Vec<PublicIp>> {
        self.observe("GET", "public IPs".to_owned(), String::new(), self.inner.list_public_ips(call)).await
    }

    async fn get_load_balancer(&self, call: &CallContext, name: &str) -> Result<Option<LoadBalancer>> {
        let resource = format!("load balancer {name}");
        self.observe("GET", resource, String::new(), self.inner.get_load_balancer(call, name)).await
    }

    async fn put_load_balancer(
        &self,
        call: &CallContext,
        name: &str,
        body: &LoadBalancer,
    ) -> Result<LoadBalancer> {
        let resource = format!("load balancer {name}");
        let entries = count(body.properties.load_balancing_rules.len(), "rule");
        self.observe("PUT", resource, entries, self.inner.put_load_balancer(call, name, body)).await
    }

    async fn delete_load_balancer(&self, call: &CallContext, name: &str) -> Result<()> {
        let resource = format!("load balancer {name}");
        self.observe("DELETE", resource, String::new(), self.inner.delete_load_balancer(call, name)).await
    }

    async fn list_load_balancers(&self, call: &CallContext) -> Result<Vec<LoadBalancer>> {
        let resource = "load balancers".to_owned();
        self.observe("GET", resource, String::new(), self.inner.list_load_balancers(call)).await
    }

    async fn get_nat_gateway(&self, call: &CallContext, name: &str) -> Result<Option<NatGateway>> {
        let resource = format!("NAT gateway {name}");
        self.observe("GET", resource, String::new(), self.inner.get_nat_gateway(call, name)).await
    }

    async fn put_nat_gateway(&self, call: &CallContext, name: &str, body: &NatGateway) -> Result<NatGateway> {
        let resource = format!("NAT gateway {name}");
        self.observe("PUT", resource, String::new(), self.inner.put_nat_gateway(call, name, body)).await
    }

    async fn delete_nat_gateway(&self, call: &CallContext, name: &str) -> Result<()> {
        let resource = format!("NAT gateway {name}");
        self.observe("DELETE", resource, String::new(), self.inner.delete_nat_gateway(call, name)).await
    }

    async fn list_nat_gateways(&self, call: &CallContext) -> Result<Vec<NatGateway>> {
        let resource = "NAT gateways".to_owned();
        self.observe("GET", resource, String::new(), self.inner.list_nat_gateways(call)).await
    }

    async fn update_services(&self, call: &CallContext, update: &UpdateServices) -> Result<()> {
        let entries = count(update.service_requests.len(), "service");
        let resource = "updateServices".to_owned();
        self.observe("POST", resource, entries, self.inner.update_services(call, update)).await
    }

    async fn update_address_locations(
        &self,
        call: &CallContext,
        update: &UpdateAddressLocations,
    ) -> Result<()> {
        let addresses: usize = update.address_locations.iter().map(|location| location.addresses.len()).sum();
        let locations = count(update.address_locations.len(), "location");
        let addresses = format!("{addresses} address{}", if addresses == 1 { "" } else { "es" });
        let resource = "updateAddressLocations".to_owned();
        let entries = format!("{locations}, {addresses}");
        self.observe("POST", resource, entries, self.inner.update_address_locations(call, update)).await
    }

    async fn get_services(&self, call: &CallContext) -> Result<Vec<GatewayService>> {
        self.observe("GET", "services".to_owned(), String::new(), self.inner.get_services(call)).await
    }

    async fn get_address_locations(&self, call: &CallContext) -> Result<Vec<AddressLocation>> {
        let resource = "addressLocations".to_owned();
        self.observe("GET", resource, String::new(), self.inner.get_address_locations(call)).await
    }
}
