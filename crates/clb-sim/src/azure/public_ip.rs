//! Public IPs.

use std::net::{Ipv4Addr, Ipv6Addr};

use serde_json::{Map, Value, json};

use super::answer::{Refusal, text};
use super::resources::{Resource, sku};
use super::state::Azure;

impl Azure {
    /// Checks a public IP that is to be written, and gives it an address; an existing one keeps its own.
    pub(super) fn check_public_ip(
        &mut self,
        body: &Value,
        properties: &mut Map<String, Value>,
        existing: Option<&Resource>,
    ) -> Result<(), Refusal> {
        let sku = sku(body);
        if sku != "StandardV2" {
            return Err(Refusal::bad(
                "InvalidSku",
                format!("the SKU of a public IP is {sku:?}; here only StandardV2 is modelled"),
            ));
        }
        let given = Value::Object(properties.clone());
        if text(&given, "publicIPAllocationMethod") != "Static" {
            return Err(Refusal::bad(
                "StandardSkuPublicIPAddressMustBeStatic",
                "a StandardV2 public IP must be Static",
            ));
        }
        let version = match text(&given, "publicIPAddressVersion") {
            "" | "IPv4" => "IPv4",
            "IPv6" => "IPv6",
            other => {
                return Err(Refusal::bad("InvalidParameter", format!("publicIPAddressVersion is {other:?}")));
            }
        };
        let former = existing.and_then(|existing| existing.property("publicIPAddressVersion")?.as_str());
        if former.is_some_and(|former| former != version) {
            return Err(Refusal::bad(
                "PublicIPAddressVersionCannotBeChanged",
                "the version of a public IP is immutable",
            ));
        }
        let address = existing.and_then(|existing| existing.property("ipAddress").cloned());
        let address = address.unwrap_or_else(|| self.allocate(version == "IPv6"));
        properties.insert("publicIPAddressVersion".to_owned(), json!(version));
        properties.insert("ipAddress".to_owned(), address);
        Ok(())
    }

    /// An address that nobody else has, from ranges that are Azure's.
    pub(super) fn allocate(&mut self, is_ipv6: bool) -> Value {
        self.counter += 1;
        let [.., a, b, c, d] = self.counter.to_be_bytes();
        if is_ipv6 {
            let (high, low) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
            json!(Ipv6Addr::new(0x2603, 0x1030, 0, 0, 0, 0, high, low))
        } else {
            json!(Ipv4Addr::new(20, b, c, d))
        }
    }

    /// Refuses to delete a public IP that a frontend or a NAT gateway uses.
    pub(super) fn check_public_ip_is_free(&self, id: &str) -> Result<(), Refusal> {
        let load_balancer = self.load_balancers().find(|load_balancer| load_balancer.uses(id));
        let Some(user) = load_balancer.or_else(|| self.nat_gateway_with(id)) else { return Ok(()) };
        let user = user.id();
        let message =
            format!("Public IP address {id} can not be deleted since it is still allocated to {user}.");
        Err(Refusal::bad("PublicIPAddressCannotBeDeleted", message))
    }
}
