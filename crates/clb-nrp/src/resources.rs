//! What the real client offers beyond [`NrpApi`](crate::NrpApi): ServiceGateways themselves, single backend pools, and
//! lists of a whole subscription. A controller needs none of it; tools and provisioning do.

use std::collections::BTreeMap;

use clb_arm::CallContext;
use serde::Serialize;

use crate::models::{BackendAddressPool, LoadBalancer, NatGateway, PublicIp, ServiceGateway};
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

    /// All ServiceGateways of the resource group.
    ///
    /// # Errors
    /// As for [`NrpApi`](crate::NrpApi).
    pub async fn list_service_gateways(&self, call: &CallContext) -> Result<Vec<ServiceGateway>> {
        self.list(call, self.config().collection("serviceGateways")).await
    }

    /// All ServiceGateways of the subscription.
    ///
    /// # Errors
    /// As for [`NrpApi`](crate::NrpApi).
    pub async fn list_all_service_gateways(&self, call: &CallContext) -> Result<Vec<ServiceGateway>> {
        self.list(call, self.config().subscription_collection("serviceGateways")).await
    }

    /// All public IPs of the subscription.
    ///
    /// # Errors
    /// As for [`NrpApi`](crate::NrpApi).
    pub async fn list_all_public_ips(&self, call: &CallContext) -> Result<Vec<PublicIp>> {
        self.list(call, self.config().subscription_collection("publicIPAddresses")).await
    }

    /// All load balancers of the subscription.
    ///
    /// # Errors
    /// As for [`NrpApi`](crate::NrpApi).
    pub async fn list_all_load_balancers(&self, call: &CallContext) -> Result<Vec<LoadBalancer>> {
        self.list(call, self.config().subscription_collection("loadBalancers")).await
    }

    /// All NAT gateways of the subscription.
    ///
    /// # Errors
    /// As for [`NrpApi`](crate::NrpApi).
    pub async fn list_all_nat_gateways(&self, call: &CallContext) -> Result<Vec<NatGateway>> {
        self.list(call, self.config().subscription_collection("natGateways")).await
    }

    /// The backend pool `pool` of a load balancer, or `None` if there is none.
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

    /// Creates or replaces the backend pool `pool` of a load balancer.
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

    /// Deletes the backend pool `pool` of a load balancer; one that is not there is deleted.
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

    /// All backend pools of a load balancer.
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
}
