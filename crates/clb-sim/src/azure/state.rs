//! Everything there is, and which request goes where.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::answer::{Method, Refusal, Request, Response};
use super::gateway::Gateway;
use super::path::{Kind, Target, parse};
use super::resources::Resource;

/// Settings of an [`Azure`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AzureConfig {
    /// What the ServiceGateway is called; it exists from the start, in whichever group it is asked for.
    pub service_gateway: String,
    /// How many entries a page of a list has; at least 1. Default 200.
    pub page_size: usize,
    /// How writes of single resources are answered.
    pub completion: Completion,
}

impl Default for AzureConfig {
    fn default() -> Self {
        Self {
            service_gateway: "servicegateway".to_owned(),
            page_size: 200,
            completion: Completion::Immediate,
        }
    }
}

/// How writes of single resources are answered. Either way they take effect at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion {
    /// A PUT says `Succeeded` in its body, although it carries the header of a long-running operation; a DELETE is done.
    Immediate,
    /// A PUT says `Updating`, and a DELETE 202; the operation is `InProgress` at its first poll and `Succeeded` at its
    /// second.
    Polled,
}

/// Azure's side of everything.
#[derive(Debug)]
pub struct Azure {
    pub(super) config: AzureConfig,
    /// By kind and id in lower case.
    pub(super) resources: BTreeMap<(Kind, String), Resource>,
    pub(super) gateway: Gateway,
    /// Operations that have not been polled yet.
    running: BTreeSet<u64>,
    /// For ids, addresses and etags.
    pub(super) counter: u64,
}

impl Azure {
    /// An Azure in which there is nothing but the ServiceGateway, empty.
    #[must_use]
    pub fn new(config: AzureConfig) -> Self {
        Self {
            config,
            resources: BTreeMap::new(),
            gateway: Gateway::default(),
            running: BTreeSet::new(),
            counter: 0,
        }
    }

    /// Answers one request. A refused one changes nothing.
    pub fn handle(&mut self, request: &Request) -> Response {
        self.answer(request).unwrap_or_else(Response::from)
    }

    fn answer(&mut self, request: &Request) -> Result<Response, Refusal> {
        let not_modelled = || {
            let Request { method, path, .. } = request;
            Refusal::new(501, "NotModelled", format!("the simulator does not model {method:?} {path}"))
        };
        if !request.query.iter().any(|(name, _)| name.eq_ignore_ascii_case("api-version")) {
            let message = "The api-version query parameter (?api-version=) is required for all requests.";
            return Err(Refusal::bad("MissingApiVersionParameter", message));
        }
        match (request.method, parse(&request.path).ok_or_else(not_modelled)?) {
            (Method::Get, Target::Operation { id }) => self.poll(id),
            (Method::Get, Target::Collection { scope, kind }) => {
                let prefix = scope.id(kind, "").to_ascii_lowercase();
                let items = self.resources.values().filter(|resource| resource.key().starts_with(&prefix));
                Ok(self.page(request, items.map(Resource::body).collect()))
            }
            (Method::Get, Target::Resource { scope, kind, name }) => {
                self.get(&scope.id(kind, name), kind, name)
            }
            (Method::Put, Target::Resource { scope, kind, name }) => match kind {
                Kind::PublicIp | Kind::LoadBalancer => self.put(request, &scope.id(kind, name), kind, name),
                Kind::ServiceGateway => Err(not_modelled()),
            },
            (Method::Delete, Target::Resource { scope, kind, name }) => match kind {
                Kind::PublicIp | Kind::LoadBalancer => self.delete(&scope.id(kind, name), kind),
                Kind::ServiceGateway => Err(not_modelled()),
            },
            (method, Target::Gateway { name, part }) => {
                if !name.eq_ignore_ascii_case(&self.config.service_gateway) {
                    return Err(not_found(name, Kind::ServiceGateway));
                }
                match (method, part.to_ascii_lowercase().as_str()) {
                    (Method::Get, "services") => Ok(self.page(request, self.gateway.services_body())),
                    (Method::Get, "addresslocations") => {
                        Ok(self.page(request, self.gateway.locations_body()))
                    }
                    (Method::Post, "updateservices") => {
                        self.update_services(&request.body)?;
                        Ok(self.done_at_once())
                    }
                    (Method::Post, "updateaddresslocations") => {
                        self.gateway.update_address_locations(&request.body)?;
                        Ok(self.done_at_once())
                    }
                    _ => Err(not_modelled()),
                }
            }
            _ => Err(not_modelled()),
        }
    }

    /// NRP answers both actions on the ServiceGateway with 200, and stamps the headers of a long-running operation on it
    /// although nothing is left to poll.
    fn done_at_once(&mut self) -> Response {
        let operation = self.operation();
        Response::new(200, Value::Null)
            .with_header("azure-asyncoperation", operation.clone())
            .with_header("location", operation)
    }

    /// The path of a new operation.
    pub(super) fn operation(&mut self) -> String {
        self.counter += 1;
        format!(
            "/subscriptions/00000000-0000-0000-0000-000000000000/providers/Microsoft.Network/locations/eastus/operations/{}\
             ?api-version=2025-05-01",
            self.counter
        )
    }

    /// The path of a new operation that is still running when it is first asked for.
    pub(super) fn running_operation(&mut self) -> String {
        let operation = self.operation();
        self.running.insert(self.counter);
        operation
    }

    fn poll(&mut self, id: &str) -> Result<Response, Refusal> {
        let number = id.parse().ok().filter(|number| (1..=self.counter).contains(number));
        let number =
            number.ok_or_else(|| Refusal::new(404, "OperationNotFound", format!("no operation {id}")))?;
        let status = if self.running.remove(&number) { "InProgress" } else { "Succeeded" };
        Ok(Response::new(200, json!({"status": status})).with_header("retry-after", "1"))
    }

    /// A page of a list: the one that the request's `$skiptoken` names.
    fn page(&self, request: &Request, items: Vec<Value>) -> Response {
        let skip = request.query.iter().find(|(name, _)| name == "$skiptoken");
        let start = skip.and_then(|(_, token)| token.parse::<usize>().ok()).unwrap_or_default();
        let size = self.config.page_size.max(1);
        let is_last = items.len() <= start.saturating_add(size);
        let page: Vec<Value> = items.into_iter().skip(start).take(size).collect();
        let mut body = json!({"value": page});
        if !is_last {
            let version = request.query.iter().find(|(name, _)| name.eq_ignore_ascii_case("api-version"));
            let version = version.map(|(_, version)| version.as_str()).unwrap_or_default();
            body["nextLink"] =
                json!(format!("{}?api-version={version}&$skiptoken={}", request.path, start + size));
        }
        Response::new(200, body)
    }
}

pub(super) fn not_found(name: &str, kind: Kind) -> Refusal {
    let kind = kind.segment();
    Refusal::new(
        404,
        "ResourceNotFound",
        format!("The Resource 'Microsoft.Network/{kind}/{name}' was not found."),
    )
}
