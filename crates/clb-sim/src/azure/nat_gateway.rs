//! NAT gateways.

use serde_json::{Map, Value};

use super::answer::{Refusal, nullable, optional_list, text};
use super::path::Kind;
use super::resources::{Resource, sku};
use super::state::Azure;

/// Which public IPs it leaves from.
const PUBLIC_IPS: [(&str, &str); 2] = [("publicIpAddresses", "IPv4"), ("publicIpAddressesV6", "IPv6")];

impl Resource {
    /// Whether it is a NAT gateway with this public IP.
    pub(super) fn leaves_from(&self, public_ip: &str) -> bool {
        let lists = PUBLIC_IPS.into_iter().filter_map(|(list, _)| self.property(list)?.as_array());
        lists.flatten().any(|reference| text(reference, "id").eq_ignore_ascii_case(public_ip))
    }
}

impl Azure {
    pub(super) fn nat_gateways(&self) -> impl Iterator<Item = &Resource> {
        self.resources.iter().filter(|((kind, _), _)| *kind == Kind::NatGateway).map(|(_, resource)| resource)
    }

    /// Checks a NAT gateway that is to be written. A `serviceGateway` that is absent stays as it was, and `null` clears it.
    pub(super) fn check_nat_gateway(
        &self,
        id: &str,
        body: &Value,
        properties: &mut Map<String, Value>,
        existing: Option<&Resource>,
    ) -> Result<(), Refusal> {
        let sku = sku(body);
        if sku != "StandardV2" {
            return Err(Refusal::bad(
                "InvalidSku",
                format!("the SKU of a NAT gateway is {sku:?}; here only StandardV2 is modelled"),
            ));
        }
        let given = Value::Object(properties.clone());
        for (list, version) in PUBLIC_IPS {
            for reference in optional_list(&given, list)?.into_iter().flatten() {
                self.check_public_ip_of(id, text(reference, "id"), version)?;
            }
        }
        match nullable(&given, "serviceGateway") {
            None => {
                if let Some(former) = existing.and_then(|existing| existing.property("serviceGateway")) {
                    properties.insert("serviceGateway".to_owned(), former.clone());
                }
            }
            Some(Value::Null) => {
                properties.remove("serviceGateway");
            }
            Some(gateway) => {
                let name = text(gateway, "id").rsplit('/').next().unwrap_or_default();
                if !name.eq_ignore_ascii_case(&self.config.service_gateway) {
                    let message =
                        format!("Resource {} referenced by {id} was not found.", text(gateway, "id"));
                    return Err(Refusal::bad("InvalidResourceReference", message));
                }
            }
        }
        Ok(())
    }

    fn check_public_ip_of(&self, id: &str, public_ip: &str, version: &str) -> Result<(), Refusal> {
        let Some(resource) = self.resource(Kind::PublicIp, public_ip) else {
            let message = format!("Resource {public_ip} referenced by {id} was not found.");
            return Err(Refusal::bad("InvalidResourceReference", message));
        };
        let actual = resource.property("publicIPAddressVersion").and_then(Value::as_str).unwrap_or_default();
        if actual != version {
            let message =
                format!("{public_ip} is an {actual} address and {id} needs an {version} one there.");
            return Err(Refusal::bad("PublicIPAddressVersionMismatch", message));
        }
        let mut users = self.load_balancers().chain(self.nat_gateways());
        let is_other = |user: &&Resource| {
            !user.id().eq_ignore_ascii_case(id) && (user.uses(public_ip) || user.leaves_from(public_ip))
        };
        match users.find(is_other) {
            Some(user) => Err(Refusal::bad(
                "PublicIPAddressInUse",
                format!("{public_ip} is in use by {} and cannot be used by {id}.", user.id()),
            )),
            None => Ok(()),
        }
    }

    /// Refuses to delete a NAT gateway that a service or the ServiceGateway refers to.
    pub(super) fn check_nat_gateway_is_free(&self, nat_gateway: &Resource) -> Result<(), Refusal> {
        let id = nat_gateway.id();
        if self.gateway.leaves_through(id) || nat_gateway.property("serviceGateway").is_some() {
            let message =
                format!("NAT gateway {id} can not be deleted since it is in use by a service gateway.");
            return Err(Refusal::bad("InUseNatGatewayCannotBeDeleted", message));
        }
        Ok(())
    }
}
