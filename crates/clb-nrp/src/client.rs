//! The real network resource provider.

use std::sync::Arc;

use async_trait::async_trait;
use clb_arm::http::StatusCode;
use clb_arm::{ArmClient, CallContext, Error, ErrorKind, Request, ResourceId, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::models::{
    AddressLocation, AddressLocationRow, GatewayService, LoadBalancer, NatGateway, PublicIp,
    UpdateAddressLocations, UpdateServices,
};
use crate::{NrpApi, NrpConfig};

/// [`NrpApi`] over Azure Resource Manager. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct NrpClient {
    arm: ArmClient,
    config: Arc<NrpConfig>,
}

impl NrpClient {
    /// A client of what `config` describes, over `arm`.
    #[must_use]
    pub fn new(arm: ArmClient, config: NrpConfig) -> Self {
        Self { arm, config: Arc::new(config) }
    }

    /// The client that the calls are made with, to make others or to
    /// [resume](ArmClient::resume) an operation.
    #[must_use]
    pub fn arm(&self) -> &ArmClient {
        &self.arm
    }

    /// What this client is a client of.
    #[must_use]
    pub fn config(&self) -> &NrpConfig {
        &self.config
    }

    fn request(&self, path: impl Into<String>, call: &CallContext) -> Request {
        Request::new(path, self.config.api_version(), call)
    }

    pub(crate) async fn get<T: DeserializeOwned>(
        &self,
        call: &CallContext,
        id: ResourceId,
    ) -> Result<Option<T>> {
        match self.arm.get(self.request(id.to_string(), call)).await {
            Ok(resource) => Ok(Some(resource)),
            Err(error) if error.status() == Some(StatusCode::NOT_FOUND) => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(crate) async fn put<T: Serialize + DeserializeOwned + Sync>(
        &self,
        call: &CallContext,
        id: ResourceId,
        etag: Option<&str>,
        resource: &T,
    ) -> Result<T> {
        let mut request = self.request(id.to_string(), call);
        if let Some(etag) = etag {
            request = request.if_match(etag)?;
        }
        self.arm.put(request, to_json(resource)?).await
    }

    pub(crate) async fn patch<B: Serialize + Sync, T: DeserializeOwned>(
        &self,
        call: &CallContext,
        id: ResourceId,
        body: &B,
    ) -> Result<T> {
        self.arm.patch(self.request(id.to_string(), call), to_json(body)?).await
    }

    pub(crate) async fn remove(&self, call: &CallContext, id: ResourceId) -> Result<()> {
        self.arm.delete(self.request(id.to_string(), call)).await
    }

    pub(crate) async fn list<T: DeserializeOwned>(&self, call: &CallContext, path: String) -> Result<Vec<T>> {
        self.arm.list(self.request(path, call)).await
    }

    /// A ServiceGateway action. What it answers on success says nothing.
    async fn action<T: Serialize + Sync>(&self, call: &CallContext, name: &str, body: &T) -> Result<()> {
        self.arm.post_action(self.gateway_request(call, name), to_json(body)?).await.map(drop)
    }

    /// A request to what is called `name` in the ServiceGateway.
    pub(crate) fn gateway_request(&self, call: &CallContext, name: &str) -> Request {
        self.request(format!("{}/{name}", self.config.service_gateway_path()), call)
    }
}

fn to_json<T: Serialize>(value: &T) -> Result<Vec<u8>> {
    serde_json::to_vec(value)
        .map_err(|error| Error::new(ErrorKind::Invalid, "the request cannot be written").with_source(error))
}

#[async_trait]
impl NrpApi for NrpClient {
    async fn get_public_ip(&self, call: &CallContext, name: &str) -> Result<Option<PublicIp>> {
        self.get(call, self.config.public_ip_id(name)?).await
    }

    async fn put_public_ip(&self, call: &CallContext, name: &str, public_ip: &PublicIp) -> Result<PublicIp> {
        self.put(call, self.config.public_ip_id(name)?, public_ip.etag.as_deref(), public_ip).await
    }

    async fn delete_public_ip(&self, call: &CallContext, name: &str) -> Result<()> {
        self.remove(call, self.config.public_ip_id(name)?).await
    }

    async fn list_public_ips(&self, call: &CallContext) -> Result<Vec<PublicIp>> {
        self.list(call, self.config.collection("publicIPAddresses")).await
    }

    async fn get_load_balancer(&self, call: &CallContext, name: &str) -> Result<Option<LoadBalancer>> {
        self.get(call, self.config.load_balancer_id(name)?).await
    }

    async fn put_load_balancer(
        &self,
        call: &CallContext,
        name: &str,
        load_balancer: &LoadBalancer,
    ) -> Result<LoadBalancer> {
        let etag = load_balancer.etag.as_deref();
        self.put(call, self.config.load_balancer_id(name)?, etag, load_balancer).await
    }

    async fn delete_load_balancer(&self, call: &CallContext, name: &str) -> Result<()> {
        self.remove(call, self.config.load_balancer_id(name)?).await
    }

    async fn list_load_balancers(&self, call: &CallContext) -> Result<Vec<LoadBalancer>> {
        self.list(call, self.config.collection("loadBalancers")).await
    }

    async fn get_nat_gateway(&self, call: &CallContext, name: &str) -> Result<Option<NatGateway>> {
        self.get(call, self.config.nat_gateway_id(name)?).await
    }

    async fn put_nat_gateway(
        &self,
        call: &CallContext,
        name: &str,
        nat_gateway: &NatGateway,
    ) -> Result<NatGateway> {
        let etag = nat_gateway.etag.as_deref();
        self.put(call, self.config.nat_gateway_id(name)?, etag, nat_gateway).await
    }

    async fn delete_nat_gateway(&self, call: &CallContext, name: &str) -> Result<()> {
        self.remove(call, self.config.nat_gateway_id(name)?).await
    }

    async fn list_nat_gateways(&self, call: &CallContext) -> Result<Vec<NatGateway>> {
        self.list(call, self.config.collection("natGateways")).await
    }

    async fn update_services(&self, call: &CallContext, update: &UpdateServices) -> Result<()> {
        self.action(call, "updateServices", update).await
    }

    async fn update_address_locations(
        &self,
        call: &CallContext,
        update: &UpdateAddressLocations,
    ) -> Result<()> {
        self.action(call, "updateAddressLocations", update).await
    }

    async fn get_services(&self, call: &CallContext) -> Result<Vec<GatewayService>> {
        self.arm.list(self.gateway_request(call, "services")).await
    }

    async fn get_address_locations(&self, call: &CallContext) -> Result<Vec<AddressLocation>> {
        self.arm.list(self.gateway_request(call, "addressLocations")).await.map(AddressLocationRow::locations)
    }
}
