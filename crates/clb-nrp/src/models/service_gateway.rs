//! ServiceGateways: which services there are, and which addresses at which locations back them.

use std::net::IpAddr;

use clb_arm::ResourceId;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::SubResource;
use super::open_enum::open_enum;
use super::read::{bool_or_false, null_as_default, optional_bool, optional_sparse, sparse};
use super::service_names::ServiceNames;

open_enum! {
    /// What becomes of what an update does not name.
    UpdateAction {
        /// It goes: afterwards there is what the update lists and nothing else.
        FullUpdate = "FullUpdate",
        /// It stays.
        PartialUpdate = "PartialUpdate",
    }
}

open_enum! {
    /// Which way a service's traffic goes.
    ServiceType {
        /// From clients to pods.
        Inbound = "Inbound",
        /// From pods outwards.
        Outbound = "Outbound",
        /// Both.
        InboundOutbound = "InboundOutbound",
    }
}

/// The body of `updateServices`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UpdateServices {
    /// Whether services that are not named stay.
    #[serde(alias = "Action")]
    pub action: UpdateAction,
    /// What becomes of each service.
    #[serde(alias = "ServiceRequests", default, deserialize_with = "sparse")]
    pub service_requests: Vec<ServiceRequest>,
}

/// What becomes of one service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceRequest {
    /// Whether the service is removed. Refused while an address still names it.
    #[serde(alias = "IsDelete", default, deserialize_with = "bool_or_false")]
    pub is_delete: bool,
    /// The service.
    #[serde(alias = "Service")]
    pub service: GatewayService,
}

impl ServiceRequest {
    /// Registers or changes `service`.
    #[must_use]
    pub fn put(service: GatewayService) -> Self {
        Self { is_delete: false, service }
    }

    /// Removes the service called `name`.
    #[must_use]
    pub fn delete(name: impl Into<String>) -> Self {
        Self { is_delete: true, service: GatewayService { name: name.into(), properties: None } }
    }
}

/// A service, registered or to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GatewayService {
    /// The name, compared without regard to case; inbound and outbound services share one namespace.
    #[serde(alias = "Name", default, deserialize_with = "null_as_default")]
    pub name: String,
    /// What the service is. A request to remove one has none.
    #[serde(alias = "Properties", default, skip_serializing_if = "Option::is_none")]
    pub properties: Option<ServiceProperties>,
}

impl GatewayService {
    /// An inbound service behind these pools; without any, its load balancer can be deleted.
    #[must_use]
    pub fn inbound(name: impl Into<String>, pools: Vec<BackendPool>) -> Self {
        let properties = ServiceProperties {
            service_type: Some(ServiceType::Inbound),
            load_balancer_backend_pools: Some(pools),
            ..ServiceProperties::default()
        };
        Self { name: name.into(), properties: Some(properties) }
    }

    /// An outbound service that leaves through this NAT gateway; without one (an explicit `null`), the NAT gateway that it
    /// left through can be deleted.
    #[must_use]
    pub fn outbound(name: impl Into<String>, nat_gateway: Option<&ResourceId>) -> Self {
        let properties = ServiceProperties {
            service_type: Some(ServiceType::Outbound),
            public_nat_gateway_id: nat_gateway.map_or(Patch::Clear, |id| Patch::Set(id.to_string())),
            ..ServiceProperties::default()
        };
        Self { name: name.into(), properties: Some(properties) }
    }
}

/// What a service is. In a request, what is absent stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceProperties {
    /// Which way its traffic goes.
    #[serde(alias = "ServiceType", default, skip_serializing_if = "Option::is_none")]
    pub service_type: Option<ServiceType>,
    /// Whether pods that name no outbound service leave through it.
    #[serde(
        alias = "IsDefault",
        default,
        deserialize_with = "optional_bool",
        skip_serializing_if = "Option::is_none"
    )]
    pub is_default: Option<bool>,
    /// The backend pools of an inbound service; an empty list in a request clears them.
    #[serde(
        alias = "LoadBalancerBackendPools",
        default,
        deserialize_with = "optional_sparse",
        skip_serializing_if = "Option::is_none"
    )]
    pub load_balancer_backend_pools: Option<Vec<BackendPool>>,
    /// The NAT gateway of an outbound service.
    #[serde(alias = "PublicNatGatewayId", default, skip_serializing_if = "Patch::is_keep")]
    pub public_nat_gateway_id: Patch<String>,
}

/// A field whose absence, `null` and value are three different things.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Patch<T> {
    /// Absent: in a request, it stays as it is.
    #[default]
    Keep,
    /// `null`: in a request, it is cleared.
    Clear,
    /// A value.
    Set(T),
}

impl<T> Patch<T> {
    /// The value, if there is one.
    #[must_use]
    pub fn value(&self) -> Option<&T> {
        match self {
            Self::Keep | Self::Clear => None,
            Self::Set(value) => Some(value),
        }
    }

    pub(crate) fn is_keep(&self) -> bool {
        matches!(self, Self::Keep)
    }
}

impl<T: Serialize> Serialize for Patch<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.value().serialize(serializer)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Patch<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Option::deserialize(deserializer)?.map_or(Self::Clear, Self::Set))
    }
}

/// A backend pool that a service's addresses go into.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BackendPool {
    /// The full id.
    #[serde(alias = "Id", default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The name.
    #[serde(alias = "Name", default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Where its addresses are.
    #[serde(alias = "Properties", default, deserialize_with = "null_as_default")]
    pub properties: BackendPoolProperties,
}

/// Where the addresses of a pool are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BackendPoolProperties {
    /// The virtual network.
    #[serde(alias = "VirtualNetwork", default, skip_serializing_if = "Option::is_none")]
    pub virtual_network: Option<SubResource>,
}

impl BackendPool {
    /// The pool `id`, with addresses in `virtual_network`.
    #[must_use]
    pub fn new(id: &ResourceId, virtual_network: &ResourceId) -> Self {
        Self {
            id: Some(id.to_string()),
            name: Some(id.name().to_owned()),
            properties: BackendPoolProperties { virtual_network: Some(virtual_network.into()) },
        }
    }

    /// The id, parsed, if there is one that can be.
    #[must_use]
    pub fn resource_id(&self) -> Option<ResourceId> {
        self.id.as_deref()?.parse().ok()
    }
}

/// The body of `updateAddressLocations`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UpdateAddressLocations {
    /// Whether locations that are not named stay.
    #[serde(alias = "Action")]
    pub action: UpdateAction,
    /// What becomes of each location. Each may be named once.
    #[serde(alias = "AddressLocations", default, deserialize_with = "sparse")]
    pub address_locations: Vec<AddressLocationUpdate>,
}

/// What becomes of one location.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AddressLocationUpdate {
    /// The node's IP.
    #[serde(alias = "AddressLocation")]
    pub address_location: IpAddr,
    /// Whether addresses that are not named stay.
    #[serde(alias = "AddressUpdateAction")]
    pub address_update_action: UpdateAction,
    /// The addresses, of the location's family. In a partial update, none removes the location.
    #[serde(alias = "Addresses", default, deserialize_with = "sparse")]
    pub addresses: Vec<Address>,
}

/// One address and what it backs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    /// The pod's IP.
    #[serde(alias = "Address")]
    pub address: IpAddr,
    /// The names of the services, all of them registered. In a partial update, none removes the address. Addresses that back
    /// the same services can share the list.
    #[serde(alias = "Services", default)]
    pub services: ServiceNames,
}

/// A location as the ServiceGateway holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressLocation {
    /// The node's IP.
    pub location: IpAddr,
    /// The addresses there; at least one, each with at least one service.
    pub addresses: Vec<Address>,
}

/// An entry of the list of locations: a location, or (in one published example) a list of them.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AddressLocationRow {
    #[serde(alias = "AddressLocation", default, deserialize_with = "null_as_default")]
    address_location: String,
    #[serde(alias = "Addresses", default, deserialize_with = "sparse")]
    addresses: Vec<AddressRow>,
    #[serde(alias = "AddressLocations", default, deserialize_with = "sparse")]
    address_locations: Vec<AddressLocationRow>,
}

#[derive(Debug, Deserialize)]
struct AddressRow {
    #[serde(alias = "Address", default, deserialize_with = "null_as_default")]
    address: String,
    #[serde(alias = "Services", default, deserialize_with = "sparse")]
    services: Vec<String>,
}

impl AddressLocationRow {
    /// The locations in a list that hold something.
    pub(crate) fn locations(rows: Vec<Self>) -> Vec<AddressLocation> {
        rows.into_iter().flat_map(Self::into_locations).collect()
    }

    pub(super) fn into_locations(self) -> Vec<AddressLocation> {
        let addresses: Vec<_> = self.addresses.into_iter().filter_map(AddressRow::into_address).collect();
        let own = if addresses.is_empty() { None } else { parse_ip(&self.address_location) };
        let own = own.map(|location| AddressLocation { location, addresses });
        let nested = self.address_locations.into_iter().flat_map(Self::into_locations);
        own.into_iter().chain(nested).collect()
    }
}

impl AddressRow {
    fn into_address(self) -> Option<Address> {
        if self.services.is_empty() {
            return None;
        }
        Some(Address { address: parse_ip(&self.address)?, services: self.services.into_iter().collect() })
    }
}

/// The address that `text` is. One that is none is left out: no request of ours could name it, and it must not make
/// the rest of the list unreadable.
fn parse_ip(text: &str) -> Option<IpAddr> {
    let ip = text.trim().parse().ok();
    if ip.is_none() {
        tracing::warn!(text, "the ServiceGateway holds an address that is none");
    }
    ip
}

#[cfg(test)]
mod tests;
