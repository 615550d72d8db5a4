//! What the network resource provider can be asked.

use async_trait::async_trait;

use crate::models::{
    AddressLocation, GatewayService, LoadBalancer, NatGateway, PublicIp, UpdateAddressLocations,
    UpdateServices,
};
use crate::{CallContext, Result};

/// The calls on the network resource provider that this workspace needs, all in one resource group and on one
/// ServiceGateway. [`NrpClient`](crate::NrpClient) makes them real; tests and embedders may bring their own.
///
/// Every method performs one logical call to its end, long-running operation and pages included, and does not retry.
/// Errors are as in [`clb_arm`]: [`Error::kind`](crate::Error::kind) says what to do, and
/// [`Error::may_have_been_applied`](crate::Error::may_have_been_applied) whether a failed write is certain not to have
/// changed anything. A name that cannot be one is [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) and not sent.
#[async_trait]
pub trait NrpApi: Send + Sync {
    /// The public IP called `name`, or `None` if there is none.
    async fn get_public_ip(&self, call: &CallContext, name: &str) -> Result<Option<PublicIp>>;

    /// Creates or replaces the public IP called `name`. If it carries an ETag, only that version is replaced.
    async fn put_public_ip(&self, call: &CallContext, name: &str, public_ip: &PublicIp) -> Result<PublicIp>;

    /// Deletes the public IP called `name`; one that is not there is deleted.
    async fn delete_public_ip(&self, call: &CallContext, name: &str) -> Result<()>;

    /// All public IPs of the resource group.
    async fn list_public_ips(&self, call: &CallContext) -> Result<Vec<PublicIp>>;

    /// The load balancer called `name`, or `None` if there is none.
    async fn get_load_balancer(&self, call: &CallContext, name: &str) -> Result<Option<LoadBalancer>>;

    /// Creates or replaces the load balancer called `name`. If it carries an ETag, only that version is replaced.
    async fn put_load_balancer(
        &self,
        call: &CallContext,
        name: &str,
        load_balancer: &LoadBalancer,
    ) -> Result<LoadBalancer>;

    /// Deletes the load balancer called `name`; one that is not there is deleted.
    async fn delete_load_balancer(&self, call: &CallContext, name: &str) -> Result<()>;

    /// All load balancers of the resource group.
    async fn list_load_balancers(&self, call: &CallContext) -> Result<Vec<LoadBalancer>>;

    /// The NAT gateway called `name`, or `None` if there is none.
    async fn get_nat_gateway(&self, call: &CallContext, name: &str) -> Result<Option<NatGateway>>;

    /// Creates or replaces the NAT gateway called `name`. If it carries an ETag, only that version is replaced.
    async fn put_nat_gateway(
        &self,
        call: &CallContext,
        name: &str,
        nat_gateway: &NatGateway,
    ) -> Result<NatGateway>;

    /// Deletes the NAT gateway called `name`; one that is not there is deleted.
    async fn delete_nat_gateway(&self, call: &CallContext, name: &str) -> Result<()>;

    /// All NAT gateways of the resource group.
    async fn list_nat_gateways(&self, call: &CallContext) -> Result<Vec<NatGateway>>;

    /// Registers, changes and removes services in the ServiceGateway. An error rejects the whole request.
    async fn update_services(&self, call: &CallContext, update: &UpdateServices) -> Result<()>;

    /// Changes which addresses are where, and which services they back. An error rejects the whole request.
    async fn update_address_locations(
        &self,
        call: &CallContext,
        update: &UpdateAddressLocations,
    ) -> Result<()>;

    /// All services registered in the ServiceGateway, the cluster's own default one included.
    async fn get_services(&self, call: &CallContext) -> Result<Vec<GatewayService>>;

    /// All locations of the ServiceGateway with their addresses. What stands for nothing is left out: addresses
    /// without services, and locations without addresses.
    async fn get_address_locations(&self, call: &CallContext) -> Result<Vec<AddressLocation>>;
}
