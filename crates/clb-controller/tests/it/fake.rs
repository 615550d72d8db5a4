//! An NRP in memory that answers as slowly and as badly as a test wants, in virtual time.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use clb_controller::objects::{Condition, Event, ObjectRef, ObjectWriter};
use clb_difftracker::{
    ObjectKey, Outcome, PodRef, PodRequest, ResourceVersion, ServiceId, ServiceRequest, Success,
};
use clb_nrp::models::{
    AddressLocation, GatewayService, LoadBalancer, NatGateway, PublicIp, UpdateAddressLocations,
    UpdateServices,
};
use clb_nrp::{CallContext, Error, NrpApi, Result};
use tokio::time::{Instant, sleep};

/// What happens to a call instead of success.
pub(crate) enum Trouble {
    Fail(Error),
    Hang,
    Panic,
}

/// One call, as it began and ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) what: String,
    pub(crate) entries: usize,
    pub(crate) start: Duration,
    pub(crate) end: Option<Duration>,
}

pub(crate) struct Fake {
    started: Instant,
    delay: Duration,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    calls: Vec<Call>,
    troubles: BTreeMap<String, Vec<Trouble>>,
    public_ips: BTreeMap<String, PublicIp>,
    load_balancers: BTreeMap<String, LoadBalancer>,
    nat_gateways: BTreeMap<String, NatGateway>,
    locations: Vec<UpdateAddressLocations>,
    services: Vec<UpdateServices>,
    /// The next public IPs come without an address.
    addressless: usize,
}

impl Fake {
    pub(crate) fn new(delay: Duration) -> Self {
        Self { started: Instant::now(), delay, inner: Mutex::default() }
    }

    /// The next call of this kind, such as `PUT public IP`, meets trouble.
    pub(crate) fn trouble(&self, kind: &str, trouble: Trouble) {
        self.inner.lock().unwrap().troubles.entry(kind.to_owned()).or_default().push(trouble);
    }

    pub(crate) fn without_address(&self, times: usize) {
        self.inner.lock().unwrap().addressless = times;
    }

    pub(crate) fn add_public_ip(&self, name: &str, public_ip: PublicIp) {
        self.inner.lock().unwrap().public_ips.insert(name.to_owned(), public_ip);
    }

    pub(crate) fn add_load_balancer(&self, name: &str, load_balancer: LoadBalancer) {
        self.inner.lock().unwrap().load_balancers.insert(name.to_owned(), load_balancer);
    }

    pub(crate) fn public_ip(&self, name: &str) -> Option<PublicIp> {
        self.inner.lock().unwrap().public_ips.get(name).cloned()
    }

    pub(crate) fn load_balancer(&self, name: &str) -> Option<LoadBalancer> {
        self.inner.lock().unwrap().load_balancers.get(name).cloned()
    }

    pub(crate) fn add_nat_gateway(&self, name: &str, nat_gateway: NatGateway) {
        self.inner.lock().unwrap().nat_gateways.insert(name.to_owned(), nat_gateway);
    }

    pub(crate) fn nat_gateway(&self, name: &str) -> Option<NatGateway> {
        self.inner.lock().unwrap().nat_gateways.get(name).cloned()
    }

    pub(crate) fn calls(&self) -> Vec<Call> {
        self.inner.lock().unwrap().calls.clone()
    }

    /// Every call by what it was, in the order of beginning.
    pub(crate) fn sequence(&self) -> Vec<String> {
        self.calls().into_iter().map(|call| call.what).collect()
    }

    pub(crate) fn address_updates(&self) -> Vec<UpdateAddressLocations> {
        self.inner.lock().unwrap().locations.clone()
    }

    pub(crate) fn service_updates(&self) -> Vec<UpdateServices> {
        self.inner.lock().unwrap().services.clone()
    }

    async fn call<T>(
        &self,
        kind: &str,
        name: &str,
        entries: usize,
        act: impl FnOnce(&mut Inner) -> T,
    ) -> Result<T> {
        let what = format!("{kind} {name}").trim_end().to_owned();
        let (at, trouble) = {
            let mut inner = self.inner.lock().unwrap();
            inner.calls.push(Call { what, entries, start: self.started.elapsed(), end: None });
            (
                inner.calls.len() - 1,
                inner.troubles.get_mut(kind).filter(|it| !it.is_empty()).map(|it| it.remove(0)),
            )
        };
        sleep(self.delay).await;
        match trouble {
            Some(Trouble::Hang) => std::future::pending().await,
            Some(Trouble::Panic) => panic!("as the test wants it"),
            Some(Trouble::Fail(_)) | None => {}
        }
        let mut inner = self.inner.lock().unwrap();
        inner.calls[at].end = Some(self.started.elapsed());
        match trouble {
            Some(Trouble::Fail(error)) => Err(error),
            Some(Trouble::Hang | Trouble::Panic) | None => Ok(act(&mut inner)),
        }
    }
}

#[async_trait]
impl NrpApi for Fake {
    async fn get_public_ip(&self, _: &CallContext, name: &str) -> Result<Option<PublicIp>> {
        self.call("GET public IP", name, 0, |inner| inner.public_ips.get(name).cloned()).await
    }

    async fn put_public_ip(&self, _: &CallContext, name: &str, body: &PublicIp) -> Result<PublicIp> {
        self.call("PUT public IP", name, 0, |inner| {
            let mut made = body.clone();
            if inner.addressless > 0 {
                inner.addressless -= 1;
            } else {
                made.properties.ip_address = Some([20, 0, 0, 1].into());
            }
            inner.public_ips.insert(name.to_owned(), made.clone());
            made
        })
        .await
    }

    async fn delete_public_ip(&self, _: &CallContext, name: &str) -> Result<()> {
        self.call("DELETE public IP", name, 0, |inner| drop(inner.public_ips.remove(name))).await
    }

    async fn list_public_ips(&self, _: &CallContext) -> Result<Vec<PublicIp>> {
        self.call("LIST public IPs", "", 0, |inner| inner.public_ips.values().cloned().collect()).await
    }

    async fn get_load_balancer(&self, _: &CallContext, name: &str) -> Result<Option<LoadBalancer>> {
        self.call("GET load balancer", name, 0, |inner| inner.load_balancers.get(name).cloned()).await
    }

    async fn put_load_balancer(
        &self,
        _: &CallContext,
        name: &str,
        body: &LoadBalancer,
    ) -> Result<LoadBalancer> {
        self.call("PUT load balancer", name, 0, |inner| {
            inner.load_balancers.insert(name.to_owned(), body.clone());
            body.clone()
        })
        .await
    }

    async fn delete_load_balancer(&self, _: &CallContext, name: &str) -> Result<()> {
        self.call("DELETE load balancer", name, 0, |inner| drop(inner.load_balancers.remove(name))).await
    }

    async fn list_load_balancers(&self, _: &CallContext) -> Result<Vec<LoadBalancer>> {
        self.call("LIST load balancers", "", 0, |inner| inner.load_balancers.values().cloned().collect())
            .await
    }

    async fn get_nat_gateway(&self, _: &CallContext, name: &str) -> Result<Option<NatGateway>> {
        self.call("GET NAT gateway", name, 0, |inner| inner.nat_gateways.get(name).cloned()).await
    }

    async fn put_nat_gateway(&self, _: &CallContext, name: &str, body: &NatGateway) -> Result<NatGateway> {
        self.call("PUT NAT gateway", name, 0, |inner| {
            inner.nat_gateways.insert(name.to_owned(), body.clone());
            body.clone()
        })
        .await
    }

    async fn delete_nat_gateway(&self, _: &CallContext, name: &str) -> Result<()> {
        self.call("DELETE NAT gateway", name, 0, |inner| drop(inner.nat_gateways.remove(name))).await
    }

    async fn list_nat_gateways(&self, _: &CallContext) -> Result<Vec<NatGateway>> {
        self.call("LIST NAT gateways", "", 0, |inner| inner.nat_gateways.values().cloned().collect()).await
    }

    async fn update_services(&self, _: &CallContext, update: &UpdateServices) -> Result<()> {
        let entries = update.service_requests.len();
        self.call("updateServices", "", entries, |inner| inner.services.push(update.clone())).await
    }

    async fn update_address_locations(&self, _: &CallContext, update: &UpdateAddressLocations) -> Result<()> {
        let entries = update.address_locations.iter().map(|location| location.addresses.len()).sum();
        self.call("updateAddressLocations", "", entries, |inner| inner.locations.push(update.clone())).await
    }

    async fn get_services(&self, _: &CallContext) -> Result<Vec<GatewayService>> {
        self.call("GET services", "", 0, |_| Vec::new()).await
    }

    async fn get_address_locations(&self, _: &CallContext) -> Result<Vec<AddressLocation>> {
        self.call("GET addressLocations", "", 0, |_| Vec::new()).await
    }
}

/// An API server that does what it is asked, and counts.
#[derive(Default)]
pub(crate) struct Objects(Mutex<Vec<String>>);

impl Objects {
    pub(crate) fn writes(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    fn written(&self, what: String) -> Outcome {
        let mut writes = self.0.lock().unwrap();
        writes.push(what);
        Outcome::Succeeded(Success::Written(ResourceVersion::new(writes.len() as u64)))
    }
}

#[async_trait]
impl ObjectWriter for Objects {
    async fn write_service(&self, service: &ServiceId, _: &ObjectKey, request: ServiceRequest) -> Outcome {
        self.written(format!("{service}: {request:?}"))
    }

    async fn write_pod(&self, pod: &PodRef, request: PodRequest) -> Outcome {
        self.written(format!("{pod}: {request:?}"))
    }

    async fn write_condition(&self, _: &ObjectRef, _: &Condition) -> Outcome {
        Outcome::Succeeded(Success::Done)
    }

    async fn write_event(&self, _: &Event) -> Outcome {
        Outcome::Succeeded(Success::Done)
    }
}
