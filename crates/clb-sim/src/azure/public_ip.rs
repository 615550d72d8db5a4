//! Public IPs.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::answer::{Refusal, text};
use super::json::fill_object;
use super::path::{Kind, Scope};
use super::resources::Resource;
use super::state::Azure;

/// What public IPs may be.
const SKUS: [&str; 3] = ["Basic", "Standard", "StandardV2"];

/// Settings of public IPs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PublicIpConfig {
    /// How long a new one is without its address, and `Updating`. Default: it takes no time.
    pub allocation: Duration,
    /// How many a subscription may have. `None`, the default, for any number.
    pub limit: Option<usize>,
}

impl Resource {
    /// Whether a public IP has all that it is to have.
    fn is_provisioned(&self) -> bool {
        self.property("provisioningState").is_some_and(|state| state == "Succeeded")
    }
}

impl Azure {
    /// Checks a public IP that is to be written, and completes it. A new one gets an address now or later, an existing one
    /// keeps its own; one that is Dynamic gets none, as nothing that is modelled can use it.
    pub(super) fn check_public_ip(
        &mut self,
        id: &str,
        body: &mut Map<String, Value>,
        properties: &mut Map<String, Value>,
        existing: Option<&Resource>,
    ) -> Result<(), Refusal> {
        fill_object(body, json!({"sku": {"name": SKUS[0]}}));
        let sku = body.get("sku").map(|sku| text(sku, "name")).unwrap_or_default();
        if !SKUS.contains(&sku) {
            return Err(Refusal::bad("InvalidSku", format!("the SKU of a public IP is {sku:?}")));
        }
        let by_sku = if sku == SKUS[0] {
            json!({"publicIPAllocationMethod": "Dynamic"})
        } else {
            json!({"ddosSettings": {"protectionMode": "VirtualNetworkInherited"}})
        };
        fill_object(properties, by_sku);
        fill_object(
            properties,
            json!({"publicIPAddressVersion": "IPv4", "idleTimeoutInMinutes": 4, "ipTags": []}),
        );
        let given = Value::Object(properties.clone());
        let is_static = text(&given, "publicIPAllocationMethod") == "Static";
        if !is_static && sku != SKUS[0] {
            let message = format!("a {sku} public IP must be Static");
            return Err(Refusal::bad("StandardSkuPublicIPAddressMustBeStatic", message));
        }
        let version = text(&given, "publicIPAddressVersion");
        if !["IPv4", "IPv6"].contains(&version) {
            return Err(Refusal::bad("InvalidParameter", format!("publicIPAddressVersion is {version:?}")));
        }
        let former = existing.and_then(|existing| existing.property("publicIPAddressVersion")?.as_str());
        if former.is_some_and(|former| former != version) {
            return Err(Refusal::bad(
                "PublicIPAddressVersionCannotBeChanged",
                "the version of a public IP is immutable",
            ));
        }
        if existing.is_none() {
            self.check_public_ip_limit(Scope::of(id).subscription)?;
        }
        let is_ipv6 = version == "IPv6";
        let held = existing.and_then(|existing| existing.property("ipAddress").cloned());
        let waits = existing.map_or(!self.config.public_ips.allocation.is_zero(), |it| !it.is_provisioned());
        properties.remove("ipAddress");
        if let Some(address) = held {
            properties.insert("ipAddress".to_owned(), address);
        } else if is_static && !waits {
            properties.insert("ipAddress".to_owned(), self.allocate(is_ipv6));
        }
        let state = if waits { "Updating" } else { "Succeeded" };
        properties.insert("provisioningState".to_owned(), json!(state));
        if waits && existing.is_none() {
            let due = self.now + self.config.public_ips.allocation;
            self.unprovisioned.insert((due, id.to_ascii_lowercase()));
        }
        Ok(())
    }

    fn check_public_ip_limit(&self, subscription: &str) -> Result<(), Refusal> {
        let Some(limit) = self.config.public_ips.limit else { return Ok(()) };
        if self.below(Kind::PublicIp, &format!("/subscriptions/{subscription}/")).count() < limit {
            return Ok(());
        }
        let message = format!(
            "Cannot create more than {limit} public IP addresses for this subscription in this region."
        );
        Err(Refusal::bad("PublicIPCountLimitReached", message))
    }

    /// Until when a public IP is `Updating`.
    pub(super) fn provisioned_at(&self, public_ip: &str) -> Duration {
        let waits = self.unprovisioned.iter().find(|(_, id)| id.eq_ignore_ascii_case(public_ip));
        waits.map_or(self.now, |(due, _)| *due)
    }

    /// Gives the public IPs their addresses that have waited long enough.
    pub(super) fn provision_public_ips(&mut self) {
        while let Some((due, _)) = self.unprovisioned.first()
            && *due <= self.now
            && let Some((_, key)) = self.unprovisioned.pop_first()
        {
            let Some(resource) = self.resources.get(&(Kind::PublicIp, key)).cloned() else { continue };
            let version = resource.property("publicIPAddressVersion");
            let is_static = resource.property("publicIPAllocationMethod").is_some_and(|it| it == "Static");
            let address = is_static.then(|| self.allocate(version.is_some_and(|version| version == "IPv6")));
            let id = resource.id().to_owned();
            let mut body = resource.into_fields();
            if let Some(Value::Object(properties)) = body.get_mut("properties") {
                properties.insert("provisioningState".to_owned(), json!("Succeeded"));
                properties.extend(address.map(|address| ("ipAddress".to_owned(), address)));
            }
            self.store(Kind::PublicIp, &id, body);
        }
    }

    /// Checks a public IP that `user`, of this SKU, is to have.
    pub(super) fn check_public_ip_of(&self, user: &str, sku: &str, public_ip: &str) -> Result<(), Refusal> {
        let Some(resource) = self.resource(Kind::PublicIp, public_ip) else {
            return Err(Refusal::missing_reference(public_ip, user));
        };
        let actual = resource.sku();
        let wanted = if sku == "Standard" { "Standard" } else { "StandardV2" };
        if actual != wanted {
            let message = format!("{user} is {sku}, and may not have {public_ip}, which is {actual}");
            return Err(Refusal::bad("DifferentSkuLoadBalancersAndPublicIPAddressNotAllowed", message));
        }
        if !resource.is_provisioned() {
            let message = format!(
                "Cannot proceed with operation because resource {public_ip} used by resource {user} is not in \
                 Succeeded state. Resource is in Updating state and the last operation that updated/is updating the \
                 resource is PutPublicIpAddressOperation."
            );
            let retryable = Refusal::new(409, "RetryableError", "A retryable error occurred.");
            return Err(retryable.with_detail("ReferencedResourceNotProvisioned", message));
        }
        Ok(())
    }

    /// An address that nobody else has, from ranges that are Azure's. Odd factors reach every number of 24 bits once.
    pub(super) fn allocate(&mut self, is_ipv6: bool) -> Value {
        self.counter += 1;
        let [.., a, b, c] = self.counter.wrapping_mul(0x9E_3779).to_be_bytes();
        if is_ipv6 {
            json!(Ipv6Addr::new(0x2603, 0x1030, u16::from(a), u16::from(b), 0, 0, 0, u16::from(c)))
        } else {
            json!(Ipv4Addr::new(20, a, b, c))
        }
    }

    /// Refuses to delete a public IP that a frontend or a NAT gateway uses.
    pub(super) fn check_public_ip_is_free(&self, id: &str) -> Result<(), Refusal> {
        let load_balancer = self.load_balancers().find(|load_balancer| load_balancer.uses(id));
        let Some(user) = load_balancer.or_else(|| self.nat_gateway_with(id)) else { return Ok(()) };
        let user = user.id();
        let message = format!(
            "Public IP address {id} can not be deleted since it is still allocated to resource {user}."
        );
        Err(Refusal::bad("PublicIPAddressCannotBeDeleted", message))
    }
}
