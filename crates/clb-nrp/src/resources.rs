//! What the real client offers beyond [`NrpApi`](crate::NrpApi): ServiceGateways themselves, single backend pools,
//! lists of a whole subscription, and lists as streams. A controller needs none of it; tools and provisioning do.

use std::collections::BTreeMap;

use clb_arm::{CallContext, Pages};
use futures::{Stream, TryStreamExt};
use serde::Serialize;

use crate::models::{
    AddressLocation, AddressLocationRow, BackendAddressPool, GatewayService, LoadBalancer, NatGateway,
    PublicIp, ServiceGateway,
};
use crate::{NrpClient, Result};

/// The body of a PATCH of tags.
#[derive(Serialize)]
struct Tags<'a> {
    tags: &'a BTreeMap<String, String>,
}

impl NrpClient {
    /// The ServiceGateway called `name`, or `None` if there is none: `GET …/serviceGateways/{name}`.
    ///
    /// # Errors
    /// As for [`NrpApi`](crate::NrpApi).
    pub async fn get_service_gateway(
        &self,
        call: &CallContext,
        name: &str,
    ) -> Result<Option<ServiceGateway>> {
        self.get(call, self.config().named_service_gateway_id(name)?).await
    }

    /// Creates or replaces the ServiceGateway called `name`: `PUT …/serviceGateways/{name}`, followed to its end. If it
    /// carries an ETag, only that version is replaced.
    ///
    /// # Errors
    /// As for [`NrpApi`](crate::NrpApi).
    pub async fn put_service_gateway(
        &self,
        call: &CallContext,
        name: &str,
        gateway: &ServiceGateway,
    ) -> Result<ServiceGateway> {
        self.put(call, self.config().named_service_gateway_id(name)?, gateway.etag.as_deref(), gateway).await
    }

    /// Replaces the tags of the ServiceGateway called `name`, and nothing else: `PATCH …/serviceGateways/{name}`.
    ///
    /// # Errors
    /// As for [`NrpApi`](crate::NrpApi); [`ErrorKind::NotFound`](crate::ErrorKind::NotFound) when there is none.
    pub async fn update_service_gateway_tags(
        &self,
        call: &CallContext,
        name: &str,
        tags: &BTreeMap<String, String>,
    ) -> Result<ServiceGateway> {
        self.patch(call, self.config().named_service_gateway_id(name)?, &Tags { tags }).await
    }

    /// Deletes the ServiceGateway called `name`; one that is not there is deleted: `DELETE …/serviceGateways/{name}`.
    ///
    /// # Errors
    /// As for [`NrpApi`](crate::NrpApi).
    pub async fn delete_service_gateway(&self, call: &CallContext, name: &str) -> Result<()> {
        self.remove(call, self.config().named_service_gateway_id(name)?).await
    }

    /// All ServiceGateways of the resource group: `GET …/serviceGateways`.
    ///
    /// # Errors
    /// As for [`NrpApi`](crate::NrpApi).
    pub async fn list_service_gateways(&self, call: &CallContext) -> Result<Vec<ServiceGateway>> {
        self.list(call, self.config().collection("serviceGateways")).await
    }

    /// All ServiceGateways of the subscription: `GET /subscriptions/{s}/providers/Microsoft.Network/serviceGateways`.
    ///
    /// # Errors
    /// As for [`NrpApi`](crate::NrpApi).
    pub async fn list_all_service_gateways(&self, call: &CallContext) -> Result<Vec<ServiceGateway>> {
        self.list(call, self.config().subscription_collection("serviceGateways")).await
    }

    /// All public IPs of the subscription: `GET /subscriptions/{s}/providers/Microsoft.Network/publicIPAddresses`.
    ///
    /// # Errors
    /// As for [`NrpApi`](crate::NrpApi).
    pub async fn list_all_public_ips(&self, call: &CallContext) -> Result<Vec<PublicIp>> {
        self.list(call, self.config().subscription_collection("publicIPAddresses")).await
    }

    /// All load balancers of the subscription: `GET /subscriptions/{s}/providers/Microsoft.Network/loadBalancers`.
    ///
    /// # Errors
    /// As for [`NrpApi`](crate::NrpApi).
    pub async fn list_all_load_balancers(&self, call: &CallContext) -> Result<Vec<LoadBalancer>> {
        self.list(call, self.config().subscription_collection("loadBalancers")).await
    }

    /// All NAT gateways of the subscription: `GET /subscriptions/{s}/providers/Microsoft.Network/natGateways`.
    ///
    /// # Errors
    /// As for [`NrpApi`](crate::NrpApi).
    pub async fn list_all_nat_gateways(&self, call: &CallContext) -> Result<Vec<NatGateway>> {
        self.list(call, self.config().subscription_collection("natGateways")).await
    }

    /// The backend pool `pool` of a load balancer, or `None` if there is none:
    /// `GET …/loadBalancers/{load_balancer}/backendAddressPools/{pool}`.
    ///
    /// # Errors
    /// As for [`NrpApi`](crate::NrpApi).
    pub async fn get_backend_pool(
        &self,
        call: &CallContext,
        load_balancer: &str,
        pool: &str,
    ) -> Result<Option<BackendAddressPool>> {
        self.get(call, self.config().backend_pool_id(load_balancer, pool)?).await
    }

    /// Creates or replaces the backend pool `pool` of a load balancer:
    /// `PUT …/loadBalancers/{load_balancer}/backendAddressPools/{pool}`, followed to its end.
    ///
    /// # Errors
    /// As for [`NrpApi`](crate::NrpApi).
    pub async fn put_backend_pool(
        &self,
        call: &CallContext,
        load_balancer: &str,
        pool: &str,
        body: &BackendAddressPool,
    ) -> Result<BackendAddressPool> {
        // A pool has no field for its version: it travels with what is not known, and counts all the same.
        let etag = body.other.get("etag").and_then(serde_json::Value::as_str);
        self.put(call, self.config().backend_pool_id(load_balancer, pool)?, etag, body).await
    }

    /// Deletes the backend pool `pool` of a load balancer; one that is not there is deleted:
    /// `DELETE …/loadBalancers/{load_balancer}/backendAddressPools/{pool}`, followed to its end.
    ///
    /// # Errors
    /// As for [`NrpApi`](crate::NrpApi).
    pub async fn delete_backend_pool(
        &self,
        call: &CallContext,
        load_balancer: &str,
        pool: &str,
    ) -> Result<()> {
        self.remove(call, self.config().backend_pool_id(load_balancer, pool)?).await
    }

    /// All backend pools of a load balancer: `GET …/loadBalancers/{load_balancer}/backendAddressPools`.
    ///
    /// # Errors
    /// As for [`NrpApi`](crate::NrpApi).
    pub async fn list_backend_pools(
        &self,
        call: &CallContext,
        load_balancer: &str,
    ) -> Result<Vec<BackendAddressPool>> {
        let load_balancer = self.config().load_balancer_id(load_balancer)?;
        self.list(call, format!("{load_balancer}/backendAddressPools")).await
    }

    /// The services of the ServiceGateway, as [`NrpApi::get_services`](crate::NrpApi::get_services), but page by page.
    ///
    /// The stream's errors are as for [`NrpApi`](crate::NrpApi), and end it.
    pub fn service_pages(&self, call: &CallContext) -> Pages<GatewayService> {
        self.arm().pages(self.gateway_request(call, "services"))
    }

    /// The locations of the ServiceGateway, as [`NrpApi::get_address_locations`](crate::NrpApi::get_address_locations), but page
    /// by page: a large cluster has a hundred thousand addresses, and whoever compares them needs no two copies.
    ///
    /// The stream's errors are as for [`NrpApi`](crate::NrpApi), and end it.
    pub fn address_location_pages(
        &self,
        call: &CallContext,
    ) -> impl Stream<Item = Result<Vec<AddressLocation>>> + Send + Unpin + 'static {
        let pages = self.arm().pages::<AddressLocationRow>(self.gateway_request(call, "addressLocations"));
        pages.map_ok(AddressLocationRow::locations)
    }
}
