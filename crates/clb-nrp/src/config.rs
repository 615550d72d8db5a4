//! Where things are, and what they are called in full.

use clb_arm::{Error, ErrorKind, InvalidResourceId, ResourceId, Result};

/// The version of the network API that the models follow; the one that the recorded traffic speaks.
pub const DEFAULT_API_VERSION: &str = "2025-05-01";

/// What the ServiceGateway that the cluster's provisioning makes is called.
pub const DEFAULT_SERVICE_GATEWAY: &str = "servicegateway";

/// ARM's limit for the name of a network resource, in characters.
const MAX_NAME_LENGTH: usize = 80;

const NAMESPACE: &str = "Microsoft.Network";

/// Where the cluster's network resources are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NrpConfig {
    subscription: String,
    resource_group: String,
    location: String,
    virtual_network: ResourceId,
    service_gateway: String,
    api_version: String,
}

/// Why a configuration cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A part cannot stand in a resource id.
    #[error("{what}: {source}")]
    Part {
        /// Which part.
        what: &'static str,
        /// Why.
        source: InvalidResourceId,
    },
    /// The virtual network's id is of something else.
    #[error("{id} is not the id of a virtual network")]
    NotAVirtualNetwork {
        /// The id.
        id: ResourceId,
    },
    /// There is no location.
    #[error("the location is empty")]
    NoLocation,
    /// ServiceGateway names match `^[a-zA-Z0-9-]*$`.
    #[error("{name:?} is not the name of a ServiceGateway: it may hold letters, digits and hyphens")]
    ServiceGateway {
        /// The name.
        name: String,
    },
}

impl NrpConfig {
    /// Resources in `resource_group`, created in `location` (a region such as `eastus2`), for pods in
    /// `virtual_network`, which may be in another resource group and subscription.
    ///
    /// # Errors
    /// [`ConfigError`] names the part that cannot be.
    pub fn new(
        subscription: &str,
        resource_group: &str,
        location: &str,
        virtual_network: ResourceId,
    ) -> std::result::Result<Self, ConfigError> {
        for (what, subscription, resource_group) in
            [("subscription", subscription, "x"), ("resource group", "x", resource_group)]
        {
            ResourceId::new(subscription, resource_group, NAMESPACE, "x", "x")
                .map_err(|source| ConfigError::Part { what, source })?;
        }
        if !virtual_network.resource_type().eq_ignore_ascii_case("Microsoft.Network/virtualNetworks") {
            return Err(ConfigError::NotAVirtualNetwork { id: virtual_network });
        }
        if location.trim().is_empty() {
            return Err(ConfigError::NoLocation);
        }
        Ok(Self {
            subscription: subscription.to_owned(),
            resource_group: resource_group.to_owned(),
            location: location.to_owned(),
            virtual_network,
            service_gateway: DEFAULT_SERVICE_GATEWAY.to_owned(),
            api_version: DEFAULT_API_VERSION.to_owned(),
        })
    }

    /// With a ServiceGateway of another name than [`DEFAULT_SERVICE_GATEWAY`].
    ///
    /// # Errors
    /// [`ConfigError::ServiceGateway`] when the name cannot be one.
    pub fn with_service_gateway(mut self, name: &str) -> std::result::Result<Self, ConfigError> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || c == '-';
        if name.is_empty() || !name.chars().all(allowed) {
            return Err(ConfigError::ServiceGateway { name: name.to_owned() });
        }
        name.clone_into(&mut self.service_gateway);
        Ok(self)
    }

    /// With another version of the API than [`DEFAULT_API_VERSION`].
    #[must_use]
    pub fn with_api_version(mut self, api_version: impl Into<String>) -> Self {
        self.api_version = api_version.into();
        self
    }

    /// The region that resources are created in.
    #[must_use]
    pub fn location(&self) -> &str {
        &self.location
    }

    /// The virtual network that the pods are in.
    #[must_use]
    pub fn virtual_network(&self) -> &ResourceId {
        &self.virtual_network
    }

    /// The ServiceGateway's name.
    #[must_use]
    pub fn service_gateway(&self) -> &str {
        &self.service_gateway
    }

    /// The version of the network API.
    #[must_use]
    pub fn api_version(&self) -> &str {
        &self.api_version
    }

    /// The id of the public IP called `name`.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] when that cannot be a name.
    pub fn public_ip_id(&self, name: &str) -> Result<ResourceId> {
        self.id("publicIPAddresses", name)
    }

    /// The id of the load balancer called `name`.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] when that cannot be a name.
    pub fn load_balancer_id(&self, name: &str) -> Result<ResourceId> {
        self.id("loadBalancers", name)
    }

    /// The id of the NAT gateway called `name`.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] when that cannot be a name.
    pub fn nat_gateway_id(&self, name: &str) -> Result<ResourceId> {
        self.id("natGateways", name)
    }

    /// The id of the ServiceGateway.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] when its name cannot be one; that was checked when it was given.
    pub fn service_gateway_id(&self) -> Result<ResourceId> {
        self.named_service_gateway_id(&self.service_gateway)
    }

    /// The id of the ServiceGateway called `name`.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] when that cannot be a name.
    pub fn named_service_gateway_id(&self, name: &str) -> Result<ResourceId> {
        self.id("serviceGateways", name)
    }

    /// The id of a backend pool of a load balancer.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] when one of the names cannot be one.
    pub fn backend_pool_id(&self, load_balancer: &str, pool: &str) -> Result<ResourceId> {
        self.load_balancer_id(load_balancer)?
            .child("backendAddressPools", checked(pool)?)
            .map_err(|error| invalid(&error))
    }

    /// The id of a frontend of a load balancer.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] when one of the names cannot be one.
    pub fn frontend_id(&self, load_balancer: &str, frontend: &str) -> Result<ResourceId> {
        self.load_balancer_id(load_balancer)?
            .child("frontendIPConfigurations", checked(frontend)?)
            .map_err(|error| invalid(&error))
    }

    /// The path of the ServiceGateway.
    pub(crate) fn service_gateway_path(&self) -> String {
        self.collection("serviceGateways") + "/" + &self.service_gateway
    }

    /// The path of all resources of a kind.
    pub(crate) fn collection(&self, kind: &str) -> String {
        let Self { subscription, resource_group, .. } = self;
        format!("/subscriptions/{subscription}/resourceGroups/{resource_group}/providers/{NAMESPACE}/{kind}")
    }

    /// The path of all resources of a kind in the whole subscription.
    pub(crate) fn subscription_collection(&self, kind: &str) -> String {
        format!("/subscriptions/{}/providers/{NAMESPACE}/{kind}", self.subscription)
    }

    fn id(&self, kind: &str, name: &str) -> Result<ResourceId> {
        ResourceId::new(&self.subscription, &self.resource_group, NAMESPACE, kind, checked(name)?)
            .map_err(|error| invalid(&error))
    }
}

/// `name`, if ARM allows a network resource to be called so: letters, digits, `-`, `_` and `.`, beginning with a
/// letter or digit, ending with one or an underscore.
fn checked(name: &str) -> Result<&str> {
    let inside = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let fine = name.len() <= MAX_NAME_LENGTH
        && name.chars().all(inside)
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
    if fine {
        Ok(name)
    } else {
        Err(Error::new(ErrorKind::Invalid, format!("{name:?} is not a resource name")))
    }
}

fn invalid(error: &InvalidResourceId) -> Error {
    Error::new(ErrorKind::Invalid, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const VNET: &str = "/subscriptions/n/resourceGroups/net/providers/Microsoft.Network/virtualNetworks/vnet";

    fn config() -> NrpConfig {
        NrpConfig::new("s", "rg", "eastus", VNET.parse().unwrap()).unwrap()
    }

    #[test]
    fn ids_are_built_in_full() {
        let base = "/subscriptions/s/resourceGroups/rg/providers/Microsoft.Network";
        let config = config();
        assert_eq!(
            config.public_ip_id("a-pip").unwrap().to_string(),
            format!("{base}/publicIPAddresses/a-pip")
        );
        assert_eq!(config.load_balancer_id("a").unwrap().to_string(), format!("{base}/loadBalancers/a"));
        assert_eq!(
            config.backend_pool_id("a", "b").unwrap().to_string(),
            format!("{base}/loadBalancers/a/backendAddressPools/b")
        );
        assert_eq!(
            config.frontend_id("a", "frontend").unwrap().to_string(),
            format!("{base}/loadBalancers/a/frontendIPConfigurations/frontend")
        );
        assert_eq!(config.service_gateway_path(), format!("{base}/serviceGateways/servicegateway"));
        assert_eq!(config.virtual_network().to_string(), VNET);
    }

    #[test]
    fn names_that_azure_refuses_are_invalid() {
        for name in ["", "a/b", "a b", ".a", "a.", "a-", "-a", "a?x=1", "..", "ä", &"a".repeat(81)] {
            for id in [
                config().public_ip_id(name),
                config().load_balancer_id(name),
                config().backend_pool_id("a", name),
                config().frontend_id(name, "a"),
            ] {
                assert_eq!(id.unwrap_err().kind(), ErrorKind::Invalid, "{name}");
            }
        }
        for name in ["a", "A_", "0a.b-c_d", &"a".repeat(80)] {
            assert!(config().public_ip_id(name).is_ok(), "{name}");
        }
    }

    #[test]
    fn a_configuration_that_cannot_be_is_refused() {
        let vnet = || VNET.parse::<ResourceId>().unwrap();
        let what = |result: std::result::Result<NrpConfig, ConfigError>| match result.unwrap_err() {
            ConfigError::Part { what, .. } => what,
            ConfigError::NotAVirtualNetwork { .. } => "network",
            ConfigError::NoLocation => "location",
            ConfigError::ServiceGateway { .. } => "gateway",
        };
        assert_eq!(what(NrpConfig::new("", "rg", "eastus", vnet())), "subscription");
        assert_eq!(what(NrpConfig::new("s", "r/g", "eastus", vnet())), "resource group");
        assert_eq!(what(NrpConfig::new("s", "rg", " ", vnet())), "location");
        let subnet = vnet().child("subnets", "a").unwrap();
        assert_eq!(what(NrpConfig::new("s", "rg", "eastus", subnet)), "network");
        assert_eq!(what(config().with_service_gateway("a_b")), "gateway");
        assert_eq!(config().with_service_gateway("Sgw-1").unwrap().service_gateway(), "Sgw-1");
    }
}
