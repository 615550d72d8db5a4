//! NAT gateways, by which pods leave.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::answer::{Refusal, nullable, optional_list, text};
use super::json::fill;
use super::path::{Kind, Scope};
use super::resources::{Resource, sku, unique_id};
use super::state::Azure;

/// The cluster's own outbound service and its NAT gateway, which nobody may remove.
pub(super) const DEFAULT_NAT_GATEWAY: &str = "default-natgw";
/// What a NAT gateway may be, and behind a ServiceGateway must be.
const SKUS: [&str; 2] = ["Standard", SKU];
pub(super) const SKU: &str = "StandardV2";
/// The lists of public IPs, each with the version that they have.
const PUBLIC_IPS: [(&str, &str); 2] = [("publicIpAddresses", "IPv4"), ("publicIpAddressesV6", "IPv6")];
/// The fields that stay as they were where a PUT does not have them.
const KEPT: [&str; 3] = [PUBLIC_IPS[0].0, PUBLIC_IPS[1].0, "serviceGateway"];

impl Resource {
    /// The ids of the public IPs of a NAT gateway, of one version or the other.
    pub(super) fn nat_public_ips(&self, is_ipv6: bool) -> impl Iterator<Item = &str> {
        let (list, _) = PUBLIC_IPS[usize::from(is_ipv6)];
        let ids = self.property(list).and_then(Value::as_array).into_iter().flatten();
        ids.map(|reference| text(reference, "id"))
    }

    /// Whether a NAT gateway has this public IP.
    fn has_public_ip(&self, id: &str) -> bool {
        [false, true]
            .into_iter()
            .flat_map(|version| self.nat_public_ips(version))
            .any(|held| held.eq_ignore_ascii_case(id))
    }

    /// The id of the ServiceGateway that a NAT gateway serves.
    pub(super) fn service_gateway(&self) -> Option<&str> {
        Some(text(self.property("serviceGateway")?, "id"))
    }
}

impl Azure {
    pub(super) fn nat_gateways(&self) -> impl Iterator<Item = &Resource> {
        self.resources.iter().filter(|((kind, _), _)| *kind == Kind::NatGateway).map(|(_, resource)| resource)
    }

    /// The NAT gateway that has this public IP.
    pub(super) fn nat_gateway_with(&self, public_ip: &str) -> Option<&Resource> {
        self.nat_gateways().find(|nat_gateway| nat_gateway.has_public_ip(public_ip))
    }

    /// Checks a NAT gateway that is to be written. What it does not say about public IPs and the ServiceGateway stays as it
    /// was; `null` clears the ServiceGateway.
    pub(super) fn check_nat_gateway(
        &self,
        id: &str,
        body: &Value,
        properties: &mut Map<String, Value>,
        existing: Option<&Resource>,
    ) -> Result<(), Refusal> {
        let sku = sku(body);
        if !SKUS.contains(&sku) {
            return Err(Refusal::bad("InvalidSku", format!("the SKU of {id} is {sku:?}")));
        }
        let mut given = Value::Object(std::mem::take(properties));
        for name in KEPT {
            let former = existing.and_then(|existing| existing.property(name));
            if let (None, Some(former)) = (nullable(&given, name), former) {
                given[name] = former.clone();
            }
        }
        for (list, version) in PUBLIC_IPS {
            self.check_public_ips(id, sku, optional_list(&given, list)?.unwrap_or_default(), version)?;
        }
        match nullable(&given, "serviceGateway") {
            None | Some(Value::Null) => {}
            Some(_) if sku != SKU => {
                let message = format!("the SKU of {id} is {sku:?}; behind a service gateway it is {SKU:?}");
                return Err(Refusal::bad("InvalidSku", message));
            }
            Some(reference) => self.check_tie(id, text(reference, "id"))?,
        }
        fill(&mut given, json!({"idleTimeoutInMinutes": 4, "type": "Public"}));
        if let Value::Object(given) = given {
            *properties = given;
        }
        properties.retain(|name, value| !(name.eq_ignore_ascii_case("serviceGateway") && value.is_null()));
        Ok(())
    }

    fn check_public_ips(
        &self,
        id: &str,
        sku: &str,
        references: &[Value],
        version: &str,
    ) -> Result<(), Refusal> {
        let mut seen = BTreeSet::new();
        for reference in references {
            let public_ip = text(reference, "id");
            self.check_public_ip_of(id, sku, public_ip)?;
            if !seen.insert(public_ip.to_ascii_lowercase()) {
                return Err(Refusal::malformed(format!("{id} names {public_ip} twice")));
            }
            let held = self.resource(Kind::PublicIp, public_ip);
            let held = held.and_then(|held| held.property("publicIPAddressVersion")?.as_str());
            let actual = held.unwrap_or_default();
            if actual != version {
                let message = format!("{public_ip} is {actual}, and stands in the {version} list of {id}");
                return Err(Refusal::bad("NatGatewayPublicIpVersionMismatch", message));
            }
            let user = self
                .load_balancers()
                .find(|other| other.uses(public_ip))
                .or_else(|| self.nat_gateway_with(public_ip))
                .filter(|other| !other.id().eq_ignore_ascii_case(id));
            if let Some(user) = user {
                let message = format!("{public_ip} is already used by {}", user.id());
                return Err(Refusal::bad("PublicIPAddressInUse", message));
            }
        }
        Ok(())
    }

    fn check_tie(&self, id: &str, service_gateway: &str) -> Result<(), Refusal> {
        if self.is_service_gateway(service_gateway) {
            return Ok(());
        }
        Err(Refusal::missing_reference(service_gateway, id))
    }

    /// Refuses to delete a NAT gateway that a registered service names, or that names the ServiceGateway.
    pub(super) fn check_nat_gateway_is_free(&self, nat_gateway: &Resource) -> Result<(), Refusal> {
        let id = nat_gateway.id();
        let user = if let Some(service) = self.gateway.service_with_nat_gateway(id) {
            format!("service {service}")
        } else if let Some(service_gateway) = nat_gateway.service_gateway() {
            service_gateway.to_owned()
        } else {
            return Ok(());
        };
        let message = format!("Nat gateway {id} can not be deleted since it is in use by {user}.");
        Err(Refusal::bad("InUseNatGatewayCannotBeDeleted", message))
    }

    /// What a cluster has before anybody asks for anything: a public IP, a NAT gateway and the default outbound service.
    pub(super) fn add_default_outbound(&mut self, scope: Scope<'_>) {
        let body = |properties: Value| {
            let fields = [
                ("location", json!("eastus")),
                ("sku", json!({"name": SKU, "tier": "Regional"})),
                ("properties", properties),
            ];
            fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect::<Map<_, _>>()
        };
        let address = self.allocate(false);
        let public_ip = scope.id(Kind::PublicIp, &format!("{DEFAULT_NAT_GATEWAY}-pip"));
        let properties = json!({
            "publicIPAllocationMethod": "Static", "publicIPAddressVersion": "IPv4", "ipAddress": address,
            "idleTimeoutInMinutes": 4, "ipTags": [], "provisioningState": "Succeeded",
            "ddosSettings": {"protectionMode": "VirtualNetworkInherited"}, "resourceGuid": unique_id(self.counter)
        });
        self.store(Kind::PublicIp, &public_ip, body(properties));
        let nat_gateway = scope.id(Kind::NatGateway, DEFAULT_NAT_GATEWAY);
        let service_gateway = scope.id(Kind::ServiceGateway, &self.config.service_gateway);
        let properties = json!({
            "publicIpAddresses": [{"id": public_ip}], "serviceGateway": {"id": service_gateway},
            "idleTimeoutInMinutes": 4, "type": "Public", "provisioningState": "Succeeded",
            "resourceGuid": unique_id(self.counter)
        });
        self.store(Kind::NatGateway, &nat_gateway, body(properties));
        self.gateway.add_default_outbound(DEFAULT_NAT_GATEWAY, nat_gateway);
    }
}
