//! What Azure holds, read and told to the tracker.

use std::collections::BTreeMap;
use std::num::NonZeroU16;
use std::sync::Arc;

use clb_difftracker::{
    AddressUpdate, FrontendPort, GatewayContent, IdleTimeout, Ip, IpFamily, LoadBalancerSpec, NatGateway,
    Observation, ObservedLocation, ObservedResource, ObservedService, Owner, Protocol, PublicIp,
    Registration, ResourceContent, Rule, ServiceId,
};
use clb_nrp::models::{self, GatewayService, IpVersion, ServiceType, TransportProtocol};
use clb_nrp::{CallContext, NrpApi, NrpConfig, Result};

use crate::executor::{owner, public_ip_name, second_public_ip_name};

/// Reads Azure for a [`Driver`](crate::Driver).
#[derive(Clone)]
pub struct AzureReader {
    nrp: Arc<dyn NrpApi>,
    config: NrpConfig,
    cluster: String,
}

impl AzureReader {
    /// A reader for the cluster called `cluster`, the value of the owner tag.
    pub fn new(nrp: Arc<dyn NrpApi>, config: NrpConfig, cluster: impl Into<String>) -> Self {
        Self { nrp, config, cluster: cluster.into() }
    }

    /// Reads everything of ours that Azure may hold; see [`read_azure`].
    ///
    /// # Errors
    /// That of the first call that failed: a reading is whole, or none.
    pub async fn read(&self, call: &CallContext) -> Result<Vec<Observation>> {
        read_azure(&*self.nrp, &self.config, &self.cluster, call).await
    }
}

/// Reads what the ServiceGateway holds.
///
/// # Errors
/// That of the first call that failed: a reading is whole, or none.
pub async fn read_gateway(nrp: &dyn NrpApi, call: &CallContext) -> Result<GatewayContent> {
    let services = nrp.get_services(call).await?;
    let locations = nrp.get_address_locations(call).await?;
    Ok(GatewayContent {
        services: services.iter().filter_map(observed_service).collect(),
        locations: locations.iter().map(observed_location).collect(),
    })
}

/// Reads everything of ours that Azure may hold, as observations between a begin and an end. Hand [`Observation::Begin`] to
/// the tracker before this is called, and these when it has returned.
///
/// # Errors
/// That of the first call that failed: a reading is whole, or none.
pub async fn read_azure(
    nrp: &dyn NrpApi,
    config: &NrpConfig,
    cluster: &str,
    call: &CallContext,
) -> Result<Vec<Observation>> {
    let public_ips = nrp.list_public_ips(call).await?;
    let named = |it: &models::PublicIp| Some((it.name.as_deref()?.to_ascii_lowercase(), family(it)));
    let reader = Reader { config, cluster, families: public_ips.iter().filter_map(named).collect() };
    let load_balancers = nrp.list_load_balancers(call).await?;
    let nat_gateways = nrp.list_nat_gateways(call).await?;
    let GatewayContent { services, locations } = read_gateway(nrp, call).await?;
    let resources = public_ips
        .iter()
        .filter_map(|it| reader.public_ip(it))
        .chain(load_balancers.iter().filter_map(|it| reader.load_balancer(it)))
        .chain(nat_gateways.iter().filter_map(|it| reader.nat_gateway(it)));
    let mut observations: Vec<_> = resources.map(Observation::Resource).collect();
    observations.extend(services.into_iter().map(Observation::Service));
    observations.extend(locations.into_iter().map(Observation::Location));
    observations.push(Observation::Done);
    Ok(observations)
}

fn observed_service(service: &GatewayService) -> Option<ObservedService> {
    let properties = service.properties.clone().unwrap_or_default();
    let has_pool = properties.load_balancer_backend_pools.as_ref().is_some_and(|pools| !pools.is_empty());
    let registration = match (properties.service_type, has_pool) {
        (Some(ServiceType::Inbound), true) => Some(Registration::WithPool),
        (Some(ServiceType::Inbound), false) => Some(Registration::WithoutPool),
        (Some(ServiceType::Outbound), _) if properties.public_nat_gateway_id.value().is_some() => {
            Some(Registration::WithNatGateway)
        }
        (Some(ServiceType::Outbound), _) => Some(Registration::WithoutNatGateway),
        (Some(ServiceType::InboundOutbound | ServiceType::Other(_)) | None, _) => None,
    };
    // A name that cannot be one of ours is nobody we could mistake for us.
    let id = ServiceId::new(&service.name).ok()?;
    Some(ObservedService { id, registration, is_default: properties.is_default.unwrap_or_default() })
}

fn observed_location(location: &models::AddressLocation) -> ObservedLocation {
    let update = |address: &models::Address| AddressUpdate {
        address: Ip::from(address.address),
        services: address.services.iter().filter_map(|name| ServiceId::new(name).ok()).collect(),
    };
    ObservedLocation {
        location: Ip::from(location.location),
        addresses: location.addresses.iter().map(update).collect(),
    }
}

struct Reader<'a> {
    config: &'a NrpConfig,
    cluster: &'a str,
    /// Of the public IPs, by name.
    families: BTreeMap<String, IpFamily>,
}

fn family(public_ip: &models::PublicIp) -> IpFamily {
    match public_ip.properties.public_ip_address_version {
        Some(IpVersion::V6) => IpFamily::V6,
        Some(IpVersion::V4 | IpVersion::Other(_)) | None => IpFamily::V4,
    }
}

/// What a rule would have been written from.
fn rule(found: &models::LoadBalancingRule, idle_timeout: u16) -> Option<Rule> {
    let properties = &found.properties;
    let (protocol, resets) = match properties.protocol.as_ref()? {
        TransportProtocol::Tcp => (Protocol::Tcp, true),
        TransportProtocol::Udp => (Protocol::Udp, false),
        TransportProtocol::All | TransportProtocol::Other(_) => return None,
    };
    let is_ours = properties.idle_timeout_in_minutes == Some(idle_timeout)
        && !properties.enable_floating_ip.unwrap_or_default()
        && properties.enable_tcp_reset.unwrap_or_default() == resets;
    let frontend_port = FrontendPort::new(properties.frontend_port?).filter(|_| is_ours)?;
    Some(Rule { protocol, frontend_port, backend_port: NonZeroU16::new(properties.backend_port?)? })
}

impl Reader<'_> {
    fn owner<P>(&self, resource: &models::Resource<P>) -> Owner {
        match owner(&resource.tags) {
            Some(owner) if owner == self.cluster => Owner::Us,
            Some(_) => Owner::Other,
            None => Owner::Nobody,
        }
    }

    fn public_ip(&self, public_ip: &models::PublicIp) -> Option<ObservedResource> {
        let name = public_ip.name.as_deref()?.to_ascii_lowercase();
        let owner = self.owner(public_ip);
        let content = PublicIp {
            family: family(public_ip),
            address: public_ip.properties.ip_address.map(Ip::from),
            tagged: owner == Owner::Us,
        };
        let (service, content) = match name.strip_suffix("-pip-v6") {
            Some(service) => (service, ResourceContent::SecondPublicIp(content)),
            None => (name.strip_suffix("-pip")?, ResourceContent::PublicIp(content)),
        };
        Some(ObservedResource { service: ServiceId::new(service).ok()?, owner, content })
    }

    fn load_balancer(&self, load_balancer: &models::LoadBalancer) -> Option<ObservedResource> {
        // Others' load balancers in the group, the cluster's own ones among them, are named otherwise.
        let service = ServiceId::new(load_balancer.name.as_deref()?).ok().filter(ServiceId::is_uuid)?;
        let content = ResourceContent::LoadBalancer(self.spec(&service, load_balancer));
        Some(ObservedResource { service, owner: self.owner(load_balancer), content })
    }

    /// What a load balancer would have been written from; `None` if it is not just what we write.
    fn spec(&self, service: &ServiceId, found: &models::LoadBalancer) -> Option<LoadBalancerSpec> {
        let properties = &found.properties;
        let (name, public_ip) = (service.as_str(), public_ip_name(service));
        let [frontend] = properties.frontend_ip_configurations.as_slice() else { return None };
        let [pool] = properties.backend_address_pools.as_slice() else { return None };
        let leads_from = frontend.properties.public_ip_address.as_ref()?.resource_id()?;
        let is_ours = found.sku.as_ref()?.name.as_deref() == Some("Service")
            && leads_from == self.config.public_ip_id(&public_ip).ok()?
            && pool.name.as_deref().is_some_and(|pool| pool.eq_ignore_ascii_case(name));
        let family = *self.families.get(&public_ip).filter(|_| is_ours)?;
        let idle_timeout = properties.load_balancing_rules.first()?.properties.idle_timeout_in_minutes?;
        let rules = properties.load_balancing_rules.iter();
        let rules = rules.map(|found| rule(found, idle_timeout)).collect::<Option<Vec<_>>>()?;
        let idle_timeout = u8::try_from(idle_timeout).ok().and_then(IdleTimeout::from_minutes)?;
        LoadBalancerSpec::new(family, idle_timeout, rules).ok()
    }

    fn nat_gateway(&self, nat_gateway: &models::NatGateway) -> Option<ObservedResource> {
        let service = ServiceId::new(nat_gateway.name.as_deref()?).ok()?;
        let properties = &nat_gateway.properties;
        let refers = |list: &[models::SubResource], name: &str| {
            let wanted = self.config.public_ip_id(name).ok();
            matches!(list, [only] if only.resource_id() == wanted)
        };
        let has_first = refers(&properties.public_ip_addresses, &public_ip_name(&service));
        let has_second = refers(&properties.public_ip_addresses_v6, &second_public_ip_name(&service));
        let is_ours = properties.service_gateway.value().map(models::SubResource::resource_id);
        let content = match is_ours {
            None => NatGateway::Detached,
            Some(id)
                if id == self.config.service_gateway_id().ok()
                    && has_first
                    && (has_second || properties.public_ip_addresses_v6.is_empty()) =>
            {
                NatGateway::Attached { ipv6: has_second }
            }
            Some(_) => NatGateway::Other,
        };
        let owner = self.owner(nat_gateway);
        Some(ObservedResource { service, owner, content: ResourceContent::NatGateway(content) })
    }
}
