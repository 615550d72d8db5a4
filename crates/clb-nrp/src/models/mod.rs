//! What is sent and what comes back, one file per resource.
//!
//! Written: camelCase keys, real booleans, `[]` for an empty list, and `null` only where it means "clear this".
//! Read: missing and null parts, values of enumerations that are not known yet, and, for the ServiceGateway, the
//! PascalCase keys and textual booleans of its published examples.

mod gateway;
mod load_balancer;
mod nat_gateway;
mod open_enum;
mod public_ip;
mod read;
mod resource;
mod service_gateway;
mod service_names;

pub use gateway::{RouteTargetAddress, ServiceGateway, ServiceGatewayProperties};
pub use load_balancer::{
    BackendAddressPool, FrontendIpConfiguration, FrontendIpProperties, LoadBalancer, LoadBalancerProperties,
    LoadBalancingRule, LoadBalancingRuleProperties, ServicePort, TransportProtocol,
};
pub use nat_gateway::{NatGateway, NatGatewayProperties};
pub use public_ip::{AllocationMethod, IpVersion, PublicIp, PublicIpProperties};
pub use resource::{ProvisioningState, Resource, Sku, SubResource};
pub(crate) use service_gateway::AddressLocationRow;
pub use service_gateway::{
    Address, AddressLocation, AddressLocationUpdate, BackendPool, BackendPoolProperties, GatewayService,
    Patch, ServiceProperties, ServiceRequest, ServiceType, UpdateAction, UpdateAddressLocations,
    UpdateServices,
};
pub use service_names::ServiceNames;
