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
/// Every method performs one logical call to its end: [long-running operation](clb_arm::lro) and pages included, and
/// [repeated](clb_arm::retry) only if the client was given a policy for that. `…` in its URL is
/// `/subscriptions/{s}/resourceGroups/{g}/providers/Microsoft.Network`; the `api-version` is
/// [`NrpConfig::api_version`](crate::NrpConfig::api_version).
///
/// Errors are as in [`clb_arm`]: [`Error::kind`](crate::Error::kind) says what to do, and
/// [`Error::may_have_been_applied`](crate::Error::may_have_been_applied) whether a failed write is certain not to have
/// changed anything. A name that cannot be one is [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) and not sent. What is special
/// to a method is said there.
///
/// # Changing what somebody else may change too
/// What was read carries its ETag, and a PUT that carries one replaces only that version. If somebody was faster, the error is
/// of kind [`ErrorKind::PreconditionFailed`](crate::ErrorKind::PreconditionFailed) and names the resource
/// ([`Error::resource_id`](crate::Error::resource_id)); nothing was changed, so read, change and write again:
///
/// ```
/// use clb_nrp::{CallContext, ErrorKind, NrpApi, Result};
///
/// /// Adds a tag, and loses nobody's change.
/// async fn tag(nrp: &dyn NrpApi, name: &str, tag: &str, value: &str) -> Result<()> {
///     let call = CallContext::random();
///     while let Some(mut public_ip) = nrp.get_public_ip(&call, name).await? {
///         public_ip.tags.insert(tag.to_owned(), value.to_owned());
///         match nrp.put_public_ip(&call, name, &public_ip).await {
///             Err(error) if error.kind() == ErrorKind::PreconditionFailed => {}
///             other => return other.map(drop),
///         }
///     }
///     Ok(())
/// }
/// ```
#[async_trait]
pub trait NrpApi: Send + Sync {
    /// The public IP called `name`, or `None` if there is none: `GET …/publicIPAddresses/{name}`.
    async fn get_public_ip(&self, call: &CallContext, name: &str) -> Result<Option<PublicIp>>;

    /// Creates or replaces the public IP called `name`: `PUT …/publicIPAddresses/{name}`, followed to its end. If it carries an ETag, only
    /// that version is replaced. Gives what it has become.
    ///
    /// A used-up quota is [`ErrorKind::Quota`](crate::ErrorKind::Quota). The address may come only after provisioning.
    async fn put_public_ip(&self, call: &CallContext, name: &str, public_ip: &PublicIp) -> Result<PublicIp>;

    /// Deletes the public IP called `name`: `DELETE …/publicIPAddresses/{name}`, followed to its end. One that is not there is deleted; one
    /// that a frontend or NAT gateway uses is [`ErrorKind::Conflict`](crate::ErrorKind::Conflict).
    async fn delete_public_ip(&self, call: &CallContext, name: &str) -> Result<()>;

    /// All public IPs of the resource group: `GET …/publicIPAddresses`.
    async fn list_public_ips(&self, call: &CallContext) -> Result<Vec<PublicIp>>;

    /// The load balancer called `name`, or `None` if there is none: `GET …/loadBalancers/{name}`.
    async fn get_load_balancer(&self, call: &CallContext, name: &str) -> Result<Option<LoadBalancer>>;

    /// Creates or replaces the load balancer called `name`: `PUT …/loadBalancers/{name}`, followed to its end. If it carries an ETag, only
    /// that version is replaced. Gives what it has become.
    ///
    /// Two rules of one protocol with the same backend port are [`ErrorKind::Invalid`](crate::ErrorKind::Invalid); a public IP
    /// that is not there is [`ErrorKind::NotFound`](crate::ErrorKind::NotFound).
    async fn put_load_balancer(
        &self,
        call: &CallContext,
        name: &str,
        load_balancer: &LoadBalancer,
    ) -> Result<LoadBalancer>;

    /// Deletes the load balancer called `name`: `DELETE …/loadBalancers/{name}`, followed to its end. One that is not there is deleted; one
    /// that a registered service refers to is [`ErrorKind::Conflict`](crate::ErrorKind::Conflict).
    async fn delete_load_balancer(&self, call: &CallContext, name: &str) -> Result<()>;

    /// All load balancers of the resource group: `GET …/loadBalancers`.
    async fn list_load_balancers(&self, call: &CallContext) -> Result<Vec<LoadBalancer>>;

    /// The NAT gateway called `name`, or `None` if there is none: `GET …/natGateways/{name}`.
    async fn get_nat_gateway(&self, call: &CallContext, name: &str) -> Result<Option<NatGateway>>;

    /// Creates or replaces the NAT gateway called `name`: `PUT …/natGateways/{name}`, followed to its end. If it carries an ETag, only
    /// that version is replaced. Gives what it has become.
    ///
    /// A public IP or ServiceGateway that is not there is [`ErrorKind::NotFound`](crate::ErrorKind::NotFound). What
    /// [`Patch::Keep`](crate::models::Patch::Keep)s its ServiceGateway stays in it.
    async fn put_nat_gateway(
        &self,
        call: &CallContext,
        name: &str,
        nat_gateway: &NatGateway,
    ) -> Result<NatGateway>;

    /// Deletes the NAT gateway called `name`: `DELETE …/natGateways/{name}`, followed to its end. One that is not there is deleted; one
    /// that a registered service leaves through is [`ErrorKind::Conflict`](crate::ErrorKind::Conflict).
    async fn delete_nat_gateway(&self, call: &CallContext, name: &str) -> Result<()>;

    /// All NAT gateways of the resource group: `GET …/natGateways`.
    async fn list_nat_gateways(&self, call: &CallContext) -> Result<Vec<NatGateway>>;

    /// Registers, changes and removes services in the ServiceGateway: `POST …/serviceGateways/{gateway}/updateServices`. An
    /// error rejects the whole request.
    ///
    /// Removing a service that an address still backs is [`ErrorKind::Conflict`](crate::ErrorKind::Conflict); a pool or NAT
    /// gateway that is not there is [`ErrorKind::NotFound`](crate::ErrorKind::NotFound).
    async fn update_services(&self, call: &CallContext, update: &UpdateServices) -> Result<()>;

    /// Changes which addresses are where, and which services they back:
    /// `POST …/serviceGateways/{gateway}/updateAddressLocations`. An error rejects the whole request.
    ///
    /// A location that is named twice, an address of another IP family than its location and a service that is not registered
    /// are [`ErrorKind::Invalid`](crate::ErrorKind::Invalid): the same request can never succeed.
    async fn update_address_locations(
        &self,
        call: &CallContext,
        update: &UpdateAddressLocations,
    ) -> Result<()>;

    /// All services registered in the ServiceGateway, the cluster's own default one included:
    /// `GET …/serviceGateways/{gateway}/services`.
    async fn get_services(&self, call: &CallContext) -> Result<Vec<GatewayService>>;

    /// All locations of the ServiceGateway with their addresses: `GET …/serviceGateways/{gateway}/addressLocations`. What stands
    /// for nothing is left out: addresses without services, and locations without addresses.
    async fn get_address_locations(&self, call: &CallContext) -> Result<Vec<AddressLocation>>;
}
