//! Operations on single resources: public IPs and load balancers.

use std::collections::BTreeMap;
use std::sync::Arc;

use clb_difftracker::{
    Ip, IpFamily, LoadBalancerSpec, Outcome, Protocol, ResourceRequest, Rule, ServiceId, Success,
};
use clb_nrp::models::{IpVersion, LoadBalancer, PublicIp, ServicePort, TransportProtocol};
use clb_nrp::{CallContext, Error, ErrorKind, NrpApi, NrpConfig, Result};

use crate::outcome::outcome;

/// The tag that says which cluster a resource belongs to.
pub const OWNER_TAG: &str = "clb-owner";

/// Performs what the tracker wants done with one resource.
///
/// Every resource is read before it is written or deleted. One that exists without our [`OWNER_TAG`] belongs to somebody
/// else, whatever its name, and is left alone: the operation fails as forbidden and says so. Tags and whatever else others
/// have set on our resources survive.
#[derive(Clone)]
pub struct ResourceExecutor {
    nrp: Arc<dyn NrpApi>,
    config: NrpConfig,
    cluster: String,
}

impl ResourceExecutor {
    /// An executor for the cluster called `cluster`, the value of the owner tag: unique among the clusters whose resources
    /// share a resource group.
    pub fn new(nrp: Arc<dyn NrpApi>, config: NrpConfig, cluster: impl Into<String>) -> Self {
        Self { nrp, config, cluster: cluster.into() }
    }

    /// Performs one operation to its end.
    pub async fn execute(
        &self,
        call: &CallContext,
        service: &ServiceId,
        request: &ResourceRequest,
    ) -> Outcome {
        outcome(match request {
            ResourceRequest::PutPublicIp(family) => self.put_public_ip(call, service, *family).await,
            ResourceRequest::PutLoadBalancer(spec) => self.put_load_balancer(call, service, spec).await,
            ResourceRequest::DeleteLoadBalancer => self.delete_load_balancer(call, service).await,
            ResourceRequest::DeletePublicIp => self.delete_public_ip(call, service).await,
        })
    }

    async fn put_public_ip(
        &self,
        call: &CallContext,
        service: &ServiceId,
        family: IpFamily,
    ) -> Result<Success> {
        let name = public_ip_name(service);
        let version = match family {
            IpFamily::V4 => IpVersion::V4,
            IpFamily::V6 => IpVersion::V6,
        };
        let mut public_ip = PublicIp::for_service(self.config.location(), version, self.tags());
        if let Some(existing) = self.nrp.get_public_ip(call, &name).await? {
            self.check_owner(&name, &existing.tags)?;
            public_ip.etag = existing.etag;
            public_ip.tags = existing.tags;
            public_ip.other = existing.other;
            public_ip.properties.other = existing.properties.other;
        }
        let made = self.nrp.put_public_ip(call, &name, &public_ip).await?;
        match made.properties.ip_address {
            Some(address) => Ok(Success::PublicIp(Ip::from(address))),
            // It is there, so the outcome is not a plain failure; the repetition will find its address.
            None => Err(Error::new(ErrorKind::Unknown, format!("public IP {name} has no address yet"))),
        }
    }

    async fn put_load_balancer(
        &self,
        call: &CallContext,
        service: &ServiceId,
        spec: &LoadBalancerSpec,
    ) -> Result<Success> {
        let name = service.as_str();
        let ports: Vec<_> = spec.rules().iter().map(service_port).collect();
        let idle_timeout = u16::from(spec.idle_timeout().minutes());
        let public_ip = public_ip_name(service);
        let mut load_balancer =
            LoadBalancer::for_service(&self.config, name, &public_ip, self.tags(), &ports, idle_timeout)?;
        if let Some(existing) = self.nrp.get_load_balancer(call, name).await? {
            self.check_owner(name, &existing.tags)?;
            load_balancer.etag = existing.etag;
            load_balancer.tags = existing.tags;
            load_balancer.other = existing.other;
            load_balancer.properties.other = existing.properties.other;
        }
        self.nrp.put_load_balancer(call, name, &load_balancer).await?;
        Ok(Success::Done)
    }

    async fn delete_load_balancer(&self, call: &CallContext, service: &ServiceId) -> Result<Success> {
        let name = service.as_str();
        if let Some(existing) = self.nrp.get_load_balancer(call, name).await? {
            self.check_owner(name, &existing.tags)?;
            self.nrp.delete_load_balancer(call, name).await?;
        }
        Ok(Success::Done)
    }

    async fn delete_public_ip(&self, call: &CallContext, service: &ServiceId) -> Result<Success> {
        let name = public_ip_name(service);
        if let Some(existing) = self.nrp.get_public_ip(call, &name).await? {
            self.check_owner(&name, &existing.tags)?;
            self.nrp.delete_public_ip(call, &name).await?;
        }
        Ok(Success::Done)
    }

    fn tags(&self) -> BTreeMap<String, String> {
        BTreeMap::from([(OWNER_TAG.to_owned(), self.cluster.clone())])
    }

    fn check_owner(&self, name: &str, tags: &BTreeMap<String, String>) -> Result<()> {
        // Tag names compare without regard to case.
        let owner = tags.iter().find(|(tag, _)| tag.eq_ignore_ascii_case(OWNER_TAG)).map(|(_, owner)| owner);
        let Self { cluster, .. } = self;
        match owner {
            Some(owner) if owner == cluster => Ok(()),
            Some(owner) => Err(Error::new(
                ErrorKind::Forbidden,
                format!(
                    "{name} belongs to cluster {owner:?} (tag {OWNER_TAG}), and this is {cluster:?}; it is left alone"
                ),
            )),
            None => Err(Error::new(
                ErrorKind::Forbidden,
                format!(
                    "{name} exists without the tag {OWNER_TAG}: {cluster}; it is left alone. Delete it, or tag it if it is this cluster's"
                ),
            )),
        }
    }
}

fn public_ip_name(service: &ServiceId) -> String {
    format!("{service}-pip")
}

fn service_port(rule: &Rule) -> ServicePort {
    ServicePort {
        protocol: match rule.protocol {
            Protocol::Tcp => TransportProtocol::Tcp,
            Protocol::Udp => TransportProtocol::Udp,
        },
        frontend_port: rule.frontend_port.get(),
        backend_port: rule.backend_port.get(),
    }
}
