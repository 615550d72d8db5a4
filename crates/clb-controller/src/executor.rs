//! Operations on single resources: public IPs, load balancers and NAT gateways.

use std::collections::BTreeMap;
use std::sync::Arc;

use clb_difftracker::{Ip, IpFamily, LoadBalancerSpec, Outcome, ResourceRequest, ServiceId, Success};
use clb_nrp::models::Patch;
pub(crate) use clb_nrp::tracker::{public_ip_name, second_public_ip_name};
use clb_nrp::{CallContext, Error, ErrorKind, NrpApi, NrpConfig, Result, tracker};

use crate::outcome::outcome;

/// The tag that says which cluster a resource belongs to.
pub const OWNER_TAG: &str = "clb-owner";

/// Performs what the tracker wants done with one resource.
///
/// Every resource is read before it is written or deleted. One that exists without our [`OWNER_TAG`] belongs to somebody
/// else, whatever its name, and is left alone: the operation fails as forbidden and says so. Where the tracker knows that
/// the ServiceGateway had the service registered, a resource without any owner is adopted: the write adds the tag. Tags and
/// whatever else others have set on our resources survive.
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

    /// Performs one operation to its end. With `adopt`, a resource without any owner is ours.
    pub async fn execute(
        &self,
        call: &CallContext,
        service: &ServiceId,
        adopt: bool,
        request: &ResourceRequest,
    ) -> Outcome {
        let name = service.as_str();
        outcome(match request {
            ResourceRequest::PutPublicIp(family) => {
                self.put_public_ip(call, &public_ip_name(service), adopt, *family).await
            }
            ResourceRequest::PutSecondPublicIp => {
                self.put_public_ip(call, &second_public_ip_name(service), adopt, IpFamily::V6).await
            }
            ResourceRequest::PutLoadBalancer(spec) => {
                self.put_load_balancer(call, service, adopt, spec).await
            }
            ResourceRequest::PutNatGateway { ipv6 } => {
                self.put_nat_gateway(call, service, adopt, *ipv6).await
            }
            ResourceRequest::DetachNatGateway => self.detach_nat_gateway(call, name, adopt).await,
            ResourceRequest::DeleteLoadBalancer => self.delete_load_balancer(call, name, adopt).await,
            ResourceRequest::DeleteNatGateway => self.delete_nat_gateway(call, name, adopt).await,
            ResourceRequest::DeletePublicIp => {
                self.delete_public_ip(call, &public_ip_name(service), adopt).await
            }
            ResourceRequest::DeleteSecondPublicIp => {
                self.delete_public_ip(call, &second_public_ip_name(service), adopt).await
            }
        })
    }

    async fn put_public_ip(
        &self,
        call: &CallContext,
        name: &str,
        adopt: bool,
        family: IpFamily,
    ) -> Result<Success> {
        let mut public_ip = tracker::public_ip(&self.config, family, self.tags());
        if let Some(existing) = self.nrp.get_public_ip(call, name).await? {
            public_ip.tags = self.claim(name, adopt, existing.tags)?;
            public_ip.etag = existing.etag;
            public_ip.other = existing.other;
            public_ip.properties.other = existing.properties.other;
        }
        let made = self.nrp.put_public_ip(call, name, &public_ip).await?;
        Ok(made.properties.ip_address.map_or(Success::Done, |address| Success::PublicIp(Ip::from(address))))
    }

    async fn put_load_balancer(
        &self,
        call: &CallContext,
        service: &ServiceId,
        adopt: bool,
        spec: &LoadBalancerSpec,
    ) -> Result<Success> {
        let name = service.as_str();
        let mut load_balancer = tracker::load_balancer(&self.config, service, spec, self.tags())?;
        if let Some(existing) = self.nrp.get_load_balancer(call, name).await? {
            load_balancer.tags = self.claim(name, adopt, existing.tags)?;
            load_balancer.etag = existing.etag;
            load_balancer.other = existing.other;
            load_balancer.properties.other = existing.properties.other;
        }
        self.nrp.put_load_balancer(call, name, &load_balancer).await?;
        Ok(Success::Done)
    }

    async fn put_nat_gateway(
        &self,
        call: &CallContext,
        service: &ServiceId,
        adopt: bool,
        ipv6: bool,
    ) -> Result<Success> {
        let name = service.as_str();
        let mut nat_gateway = tracker::nat_gateway(&self.config, service, ipv6, self.tags())?;
        if let Some(existing) = self.nrp.get_nat_gateway(call, name).await? {
            nat_gateway.tags = self.claim(name, adopt, existing.tags)?;
            nat_gateway.etag = existing.etag;
            nat_gateway.other = existing.other;
            nat_gateway.properties.other = existing.properties.other;
        }
        self.nrp.put_nat_gateway(call, name, &nat_gateway).await?;
        Ok(Success::Done)
    }

    /// Takes a NAT gateway out of the ServiceGateway, and changes nothing else about it.
    async fn detach_nat_gateway(&self, call: &CallContext, name: &str, adopt: bool) -> Result<Success> {
        if let Some(mut existing) = self.nrp.get_nat_gateway(call, name).await? {
            existing.tags = self.claim(name, adopt, existing.tags)?;
            existing.properties.service_gateway = Patch::Clear;
            self.nrp.put_nat_gateway(call, name, &existing).await?;
        }
        Ok(Success::Done)
    }

    async fn delete_load_balancer(&self, call: &CallContext, name: &str, adopt: bool) -> Result<Success> {
        if let Some(existing) = self.nrp.get_load_balancer(call, name).await? {
            self.claim(name, adopt, existing.tags)?;
            self.nrp.delete_load_balancer(call, name).await?;
        }
        Ok(Success::Done)
    }

    async fn delete_nat_gateway(&self, call: &CallContext, name: &str, adopt: bool) -> Result<Success> {
        if let Some(existing) = self.nrp.get_nat_gateway(call, name).await? {
            self.claim(name, adopt, existing.tags)?;
            self.nrp.delete_nat_gateway(call, name).await?;
        }
        Ok(Success::Done)
    }

    async fn delete_public_ip(&self, call: &CallContext, name: &str, adopt: bool) -> Result<Success> {
        if let Some(existing) = self.nrp.get_public_ip(call, name).await? {
            self.claim(name, adopt, existing.tags)?;
            self.nrp.delete_public_ip(call, name).await?;
        }
        Ok(Success::Done)
    }

    fn tags(&self) -> BTreeMap<String, String> {
        BTreeMap::from([(OWNER_TAG.to_owned(), self.cluster.clone())])
    }

    /// The tags of a resource that exists, with ours among them; an error if it is not ours.
    fn claim(
        &self,
        name: &str,
        adopt: bool,
        mut tags: BTreeMap<String, String>,
    ) -> Result<BTreeMap<String, String>> {
        let Self { cluster, .. } = self;
        match owner(&tags) {
            Some(owner) if owner == cluster => Ok(tags),
            Some(owner) => Err(Error::new(
                ErrorKind::Forbidden,
                format!(
                    "{name} belongs to cluster {owner:?} (tag {OWNER_TAG}), and this is {cluster:?}; it is left alone"
                ),
            )),
            None if adopt => {
                tags.extend(self.tags());
                Ok(tags)
            }
            None => Err(Error::new(
                ErrorKind::Forbidden,
                format!(
                    "{name} exists without the tag {OWNER_TAG}: {cluster}; it is left alone. Delete it, or tag it if it is this cluster's"
                ),
            )),
        }
    }
}

/// The cluster that a resource with these tags belongs to. Tag names compare without regard to case.
pub(crate) fn owner(tags: &BTreeMap<String, String>) -> Option<&String> {
    tags.iter().find(|(tag, _)| tag.eq_ignore_ascii_case(OWNER_TAG)).map(|(_, owner)| owner)
}
