//! Everything there is, and which request goes where.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::answer::{Method, Refusal, Request, Response, text};
use super::compute::{Compute, ComputeConfig};
use super::gateway::Gateway;
use super::load_balancer::{part_not_found, parts_of};
use super::operation::Operations;
use super::path::{Kind, Provider, Scope, Target, parse};
use super::public_ip::PublicIpConfig;
use super::resources::{Resource, parent_not_found};

/// Settings of an [`Azure`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AzureConfig {
    /// What the ServiceGateway is called; it exists from the start, in whichever group it is asked for.
    pub service_gateway: String,
    /// How many entries a page of a list has; at least 1. Default 200.
    pub page_size: usize,
    /// How writes of single resources are answered.
    pub completion: Completion,
    /// Where the cluster's own NAT gateway `default-natgw` and its public IP are from the start, registered as the default
    /// outbound service, which can never be removed. `None`, the default, for a ServiceGateway that is empty.
    pub default_outbound: Option<ResourceGroup>,
    /// The resource groups that there are; what is asked about others is refused with 404 `ResourceGroupNotFound`. `None`,
    /// the default, for any.
    pub resource_groups: Option<Vec<ResourceGroup>>,
    /// When public IPs get their addresses, and how many there may be.
    pub public_ips: PublicIpConfig,
    /// Scale sets and machines.
    pub compute: ComputeConfig,
    /// The time of day at the start, since 1970. Default 0: what is simulated does not depend on when.
    pub epoch: Duration,
}

/// A resource group of a subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceGroup {
    /// The subscription's id.
    pub subscription: String,
    /// The group's name.
    pub name: String,
}

impl Default for AzureConfig {
    fn default() -> Self {
        Self {
            service_gateway: "servicegateway".to_owned(),
            page_size: 200,
            completion: Completion::Immediate,
            default_outbound: None,
            resource_groups: None,
            public_ips: PublicIpConfig::default(),
            compute: ComputeConfig::default(),
            epoch: Duration::ZERO,
        }
    }
}

/// How writes of single resources are answered. In any case they take effect at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion {
    /// A PUT says `Succeeded` in its body, although it carries the header of a long-running operation; a DELETE is done.
    Immediate,
    /// A PUT says `Updating`, and a DELETE 202; the operation is `InProgress` at its first poll and `Succeeded` at its
    /// second.
    Polled,
    /// As recorded traffic has it: a PUT that makes something other than a load balancer says `Updating`, any other one
    /// `Succeeded`, and a DELETE 202; the operation has succeeded at its first poll.
    Recorded,
}

/// Since this api-version, both actions on the ServiceGateway are described as plain synchronous ones.
const PLAIN_ACTIONS_SINCE: &str = "2025-09-01";

/// Azure's side of everything.
#[derive(Clone, Debug)]
pub struct Azure {
    pub(super) config: AzureConfig,
    /// By kind and id in lower case.
    pub(super) resources: BTreeMap<(Kind, String), Resource>,
    pub(super) gateway: Gateway,
    /// The public IPs that still wait for their addresses, by when they get them.
    pub(super) unprovisioned: BTreeSet<(Duration, String)>,
    pub(super) operations: Operations,
    pub(super) compute: Compute,
    /// How long it has been there.
    pub(super) now: Duration,
    /// For ids, addresses and etags.
    pub(super) counter: u64,
}

impl Azure {
    /// An Azure in which there is nothing but the ServiceGateway, and the default outbound service if it is to be there.
    #[must_use]
    pub fn new(config: AzureConfig) -> Self {
        let default_outbound = config.default_outbound.clone();
        let compute = Compute::new(&config.compute);
        let mut azure = Self {
            config,
            resources: BTreeMap::new(),
            gateway: Gateway::default(),
            unprovisioned: BTreeSet::new(),
            operations: Operations::default(),
            compute,
            now: Duration::ZERO,
            counter: 0,
        };
        if let Some(ResourceGroup { subscription, name }) = &default_outbound {
            azure.add_default_outbound(Scope { subscription, group: name });
        }
        azure
    }

    /// Lets time pass until it is `now`, since the start: what takes time and is due is done. Time does not go back.
    pub fn advance_to(&mut self, now: Duration) {
        self.now = self.now.max(now);
        self.provision_public_ips();
        self.settle();
    }

    /// How long it has been there, as it was last told.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.now
    }

    /// A time as it is written.
    pub(super) fn timestamp(&self, time: Duration) -> String {
        let seconds = i64::try_from((self.config.epoch + time).as_secs()).unwrap_or(i64::MAX);
        Timestamp::from_second(seconds).unwrap_or(Timestamp::MAX).to_string()
    }

    /// Answers one request. A refused one changes nothing.
    pub fn handle(&mut self, request: &Request) -> Response {
        self.answer(request).unwrap_or_else(Response::from)
    }

    fn answer(&mut self, request: &Request) -> Result<Response, Refusal> {
        if request.parameter("api-version").is_none_or(str::is_empty) {
            let message = "The api-version query parameter (?api-version=) is required for all requests.";
            return Err(Refusal::bad("MissingApiVersionParameter", message));
        }
        let not_modelled =
            || Refusal::not_modelled(format_args!("{} {}", request.method.as_str(), request.path));
        let target = parse(&request.path).ok_or_else(not_modelled)?;
        let is_read = request.method == Method::Get;
        if let Some(scope) = target.scope() {
            self.check_group(scope)?;
        }
        match target {
            // So Compute tells the one from the other.
            Target::Operation { id, .. } if is_read && request.parameter("monitor").is_some() => {
                self.poll_result(id)
            }
            Target::Operation { provider, id } if is_read => self.poll_status(provider, id),
            Target::OperationResult { id, .. } if is_read => self.poll_result(id),
            Target::Collection { .. }
            | Target::Subscription { .. }
            | Target::Resource { .. }
            | Target::Below { .. }
                if target.provider() == Provider::Compute =>
            {
                let answer = self.answer_compute(request, &target)?.ok_or_else(not_modelled);
                // What takes no time is done before anybody else asks.
                self.settle();
                answer
            }
            Target::Collection { scope, kind: Kind::ServiceGateway } if is_read => {
                self.page(request, self.service_gateways(scope))
            }
            Target::Collection { scope, kind } if is_read => {
                self.page_of(request, self.below(kind, &scope.id(kind, "")), |item| self.shown(kind, item))
            }
            Target::Subscription { subscription, kind: Kind::ServiceGateway } if is_read => {
                self.page(request, self.all_service_gateways(subscription))
            }
            Target::Subscription { subscription, kind } if is_read => {
                let prefix = format!("/subscriptions/{subscription}/");
                self.page_of(request, self.below(kind, &prefix), |item| self.shown(kind, item))
            }
            Target::Operation { .. }
            | Target::OperationResult { .. }
            | Target::Collection { .. }
            | Target::Subscription { .. } => Err(not_modelled()),
            Target::Resource { scope, kind, name } if is_read => self.get(scope, kind, name),
            Target::Resource { scope, kind, name } => match request.method {
                Method::Put if kind == Kind::ServiceGateway => self.put_service_gateway(request, scope, name),
                Method::Delete if kind == Kind::ServiceGateway => {
                    self.delete_service_gateway(request, scope, name)
                }
                Method::Put => self.put(request, scope, kind, name),
                Method::Delete => self.delete(request, &scope.id(kind, name), kind),
                Method::Patch => self.update_tags(request, scope, kind, name),
                Method::Get | Method::Post | Method::Other(_) => Err(not_modelled()),
            },
            Target::Below { scope, kind: Kind::LoadBalancer, name, parts } => {
                let missing = || parent_not_found(scope, Kind::LoadBalancer, name, parts[0]);
                let load_balancer = self.existing(scope, Kind::LoadBalancer, name).ok_or_else(missing)?;
                let body = self.shown(Kind::LoadBalancer, &load_balancer);
                match parts[..] {
                    [kind] if is_read => {
                        let parts = parts_of(&body, kind).ok_or_else(not_modelled)?;
                        self.page_of(request, parts, Value::clone)
                    }
                    [kind, name] if is_read => {
                        let mut parts = parts_of(&body, kind).ok_or_else(not_modelled)?.iter();
                        let part = parts.find(|part| text(part, "name").eq_ignore_ascii_case(name));
                        let part = part.ok_or_else(|| part_not_found(&request.path))?;
                        Ok(Response::new(200, part.clone()).with_header("etag", text(part, "etag")))
                    }
                    [..] => Err(not_modelled()),
                }
            }
            Target::Below { scope, name, parts, .. } if !self.holds_services(name) => {
                let is_part = ["services", "addressLocations"]
                    .iter()
                    .any(|it| it.eq_ignore_ascii_case(&parts.join("/")));
                match self.service_gateway(scope, name) {
                    None => Err(not_found(scope, Kind::ServiceGateway, name)),
                    Some(_) if is_read && is_part => self.page(request, Vec::new()),
                    Some(_) => Err(not_modelled()),
                }
            }
            Target::Below { parts, .. } => {
                match (&request.method, parts.join("/").to_ascii_lowercase().as_str()) {
                    (Method::Get, "services") => self.page(request, self.gateway.services_body()),
                    (Method::Get, "addresslocations") => self.page(request, self.gateway.locations_body()),
                    (Method::Post, "updateservices") => {
                        self.update_services(&request.body)?;
                        Ok(self.done_at_once(request))
                    }
                    (Method::Post, "updateaddresslocations") => {
                        self.gateway.update_address_locations(&request.body)?;
                        Ok(self.done_at_once(request))
                    }
                    _ => Err(not_modelled()),
                }
            }
        }
    }

    /// Refuses what is in a resource group that there is not.
    fn check_group(&self, scope: Scope<'_>) -> Result<(), Refusal> {
        let Some(groups) = &self.config.resource_groups else { return Ok(()) };
        let is_it = |group: &ResourceGroup| {
            group.subscription.eq_ignore_ascii_case(scope.subscription)
                && group.name.eq_ignore_ascii_case(scope.group)
        };
        if groups.iter().any(is_it) {
            return Ok(());
        }
        let message = format!("Resource group '{}' could not be found.", scope.group);
        Err(Refusal::new(404, "ResourceGroupNotFound", message).bare())
    }

    /// The resources of a kind whose ids begin like this.
    pub(super) fn below(&self, kind: Kind, prefix: &str) -> impl Iterator<Item = &Resource> + use<'_> {
        let prefix = prefix.to_ascii_lowercase();
        let first = (kind, prefix.clone());
        let items = self.resources.range(first..);
        items.take_while(move |((of, id), _)| *of == kind && id.starts_with(&prefix)).map(|(_, item)| item)
    }

    /// NRP answers both actions on the ServiceGateway with 200, and stamps the headers of a long-running operation on it
    /// although nothing is left to poll; under newer api-versions it says `OK` instead.
    fn done_at_once(&mut self, request: &Request) -> Response {
        if request.parameter("api-version").unwrap_or_default() >= PLAIN_ACTIONS_SINCE {
            return Response::new(200, json!({"status": "OK"}));
        }
        let operation = self.operation(request);
        Response::new(200, Value::Null)
            .with_header("azure-asyncoperation", operation.status)
            .with_header("location", operation.result)
    }

    /// A page of a list: the one that the request's `$skiptoken` names.
    pub(super) fn page(
        &self,
        request: &Request,
        items: impl IntoIterator<Item = Value>,
    ) -> Result<Response, Refusal> {
        self.page_of(request, items, |item| item)
    }

    /// A page of a list, of which only the entries in it are written.
    pub(super) fn page_of<T>(
        &self,
        request: &Request,
        items: impl IntoIterator<Item = T>,
        write: impl Fn(T) -> Value,
    ) -> Result<Response, Refusal> {
        let start = match request.parameter("$skiptoken") {
            None => 0,
            Some(token) => token
                .parse::<usize>()
                .map_err(|_| Refusal::bad("InvalidSkipToken", format!("$skiptoken is {token:?}")))?,
        };
        let size = self.config.page_size.max(1);
        let mut items = items.into_iter().skip(start);
        let page: Vec<Value> = items.by_ref().take(size).map(write).collect();
        let mut body = json!({"value": page});
        if items.next().is_some() {
            let kept = request.query.iter().filter(|(name, _)| !name.eq_ignore_ascii_case("$skiptoken"));
            let next = ("$skiptoken".to_owned(), start.saturating_add(size).to_string());
            let query: Vec<String> = kept
                .chain([&next])
                .map(|(name, value)| format!("{}={}", encoded(name), encoded(value)))
                .collect();
            body["nextLink"] = json!(format!("{}?{}", request.path, query.join("&")));
        }
        Ok(Response::new(200, body))
    }
}

/// Text as it may stand in a query.
fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~$/".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

pub(super) fn not_found(scope: Scope<'_>, kind: Kind, name: &str) -> Refusal {
    let message = format!(
        "The Resource '{}/{name}' under resource group '{}' was not found. For more details please go to \
         https://aka.ms/ARMResourceNotFoundFix",
        kind.type_name(),
        scope.group
    );
    Refusal::new(404, "ResourceNotFound", message).bare()
}
