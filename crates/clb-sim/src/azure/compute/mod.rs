//! The compute resource provider: scale sets, their instances and members, and plain virtual machines.

mod address;
mod control;
mod instance;
mod interface;
mod life;
mod machine;
mod model;
mod power;
mod scale_set;
mod virtual_machine;

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value};

pub use address::Subnet;
pub use control::MachineStatus;
pub(super) use interface::{check_interface_is_free, stamp_interface};
pub use life::Power;

use self::address::Addresses;
use self::life::{Agenda, Change, Life};
use self::machine::{Machine, MachineKey};
use self::scale_set::ScaleSet;
use super::answer::{Method, Refusal, Request, Response};
use super::operation::OperationPaths;
use super::path::{Kind, Scope, Target};
use super::state::Azure;

/// Settings of scale sets and machines. What takes no time is done when the request is answered, whose answer still says
/// that it goes on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ComputeConfig {
    /// How long a machine is created. Default: it takes no time.
    pub creation: Duration,
    /// How long a change of a scale set or machine takes, and one of a machine's power. Default: it takes no time.
    pub update: Duration,
    /// How long a scale set or machine is deleted. Default: it takes no time.
    pub deletion: Duration,
    /// Where private addresses come from, whichever subnet an interface names.
    pub subnet: Subnet,
}

impl ComputeConfig {
    fn duration(&self, change: Change) -> Duration {
        match change {
            Change::Creating => self.creation,
            Change::Updating => self.update,
            Change::Deleting => self.deletion,
        }
    }
}

/// What there is of Compute.
#[derive(Clone, Debug, Default)]
pub(super) struct Compute {
    /// By id in lower case.
    sets: BTreeMap<String, ScaleSet>,
    machines: BTreeMap<MachineKey, Machine>,
    addresses: Addresses,
    agenda: Agenda,
}

/// What changes by itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Subject {
    Set(String),
    Machine(MachineKey),
}

impl Compute {
    pub(super) fn new(config: &ComputeConfig) -> Self {
        Self { addresses: Addresses::new(config.subnet), ..Self::default() }
    }

    fn life(&mut self, subject: &Subject) -> Option<&mut Life> {
        match subject {
            Subject::Set(key) => self.sets.get_mut(key).map(|set| &mut set.life),
            Subject::Machine(key) => self.machines.get_mut(key).map(|machine| &mut machine.life),
        }
    }

    /// The machines of a scale set, instances by number.
    fn machines_of<'a>(&'a self, set: &'a str) -> impl Iterator<Item = (&'a MachineKey, &'a Machine)> {
        let first = MachineKey::Instance(set.to_owned(), 0);
        let last = MachineKey::Instance(set.to_owned(), u64::MAX);
        let members = self.machines.range(MachineKey::VirtualMachine(String::new())..);
        self.machines
            .range(first..=last)
            .chain(members.filter(move |(_, machine)| machine.set.as_deref() == Some(set)))
    }
}

impl Azure {
    /// Answers a request about something of Compute; `None` if it is not modelled.
    pub(super) fn answer_compute(
        &mut self,
        request: &Request,
        target: &Target<'_>,
    ) -> Result<Option<Response>, Refusal> {
        let answer = match target {
            Target::Operation { .. } | Target::OperationResult { .. } => return Ok(None),
            Target::Subscription { subscription, kind } => match request.method {
                Method::Get => {
                    self.list_compute(request, &format!("/subscriptions/{subscription}/"), *kind)?
                }
                Method::Put | Method::Delete | Method::Post | Method::Patch | Method::Other(_) => {
                    return Ok(None);
                }
            },
            Target::Collection { scope, kind } => match request.method {
                Method::Get => self.list_compute(request, &scope.id(*kind, ""), *kind)?,
                Method::Put | Method::Delete | Method::Post | Method::Patch | Method::Other(_) => {
                    return Ok(None);
                }
            },
            Target::Resource { scope, kind: Kind::ScaleSet, name } => match request.method {
                Method::Get => self.get_scale_set(*scope, name)?,
                Method::Put => self.put_scale_set(request, *scope, name)?,
                Method::Patch => self.patch_scale_set(request, *scope, name)?,
                Method::Delete => self.delete_scale_set(request, *scope, name)?,
                Method::Post | Method::Other(_) => return Ok(None),
            },
            Target::Resource { scope, name, .. } => match request.method {
                Method::Get => self.get_virtual_machine(request, *scope, name)?,
                Method::Put => self.put_virtual_machine(request, *scope, name)?,
                Method::Patch => self.patch_virtual_machine(request, *scope, name)?,
                Method::Delete => {
                    let key = MachineKey::VirtualMachine(scope.id(Kind::VirtualMachine, name).to_lowercase());
                    self.delete_machine(request, &key)?
                }
                Method::Post | Method::Other(_) => return Ok(None),
            },
            Target::Below { scope, kind: Kind::ScaleSet, name, parts } => {
                return self.answer_in_scale_set(request, *scope, name, parts);
            }
            Target::Below { scope, name, parts, .. } => {
                let [part] = parts[..] else { return Ok(None) };
                let key = MachineKey::VirtualMachine(scope.id(Kind::VirtualMachine, name).to_lowercase());
                let missing = || super::state::not_found(*scope, Kind::VirtualMachine, name);
                match request.method {
                    Method::Get if part.eq_ignore_ascii_case("instanceView") => {
                        let machine = self.compute.machines.get(&key).ok_or_else(missing)?;
                        Response::new(200, self.instance_view(machine))
                    }
                    Method::Post => {
                        if !self.compute.machines.contains_key(&key) {
                            return Err(missing());
                        }
                        return self.act(request, part, &[key]);
                    }
                    Method::Get | Method::Put | Method::Delete | Method::Patch | Method::Other(_) => {
                        return Ok(None);
                    }
                }
            }
        };
        Ok(Some(answer))
    }

    /// All scale sets or virtual machines whose ids begin like this.
    fn list_compute(&self, request: &Request, prefix: &str, kind: Kind) -> Result<Response, Refusal> {
        let prefix = prefix.to_lowercase();
        if kind == Kind::ScaleSet {
            let sets = self.compute.sets.range(prefix.clone()..);
            let sets = sets.take_while(|(key, _)| key.starts_with(&prefix));
            return self.page_of(request, sets, |(_, set)| self.scale_set_body(set));
        }
        self.list_virtual_machines(request, &prefix)
    }

    /// Lets something begin to change, and says until when it does.
    fn begin(&mut self, subject: Subject, change: Change, power: Option<Power>) -> Duration {
        let until = self.now + self.config.compute.duration(change);
        let Some(life) = self.compute.life(&subject) else { return until };
        let until = life.begin(change, until, power);
        self.compute.agenda.add(until, subject);
        until
    }

    /// Does what is due.
    pub(super) fn settle(&mut self) {
        while let Some(subject) = self.compute.agenda.take_due(self.now) {
            let now = self.now;
            if self.compute.life(&subject).and_then(|life| life.end(now)) != Some(Change::Deleting) {
                continue;
            }
            match subject {
                Subject::Machine(key) => self.remove_machine_now(&key),
                Subject::Set(key) => {
                    let machines: Vec<MachineKey> =
                        self.compute.machines_of(&key).map(|(key, _)| key.clone()).collect();
                    for machine in &machines {
                        self.remove_machine_now(machine);
                    }
                    self.compute.sets.remove(&key);
                }
            }
        }
    }

    /// The answer to what has begun and is not read: 202 with both names of its operation.
    fn accepted(&mut self, request: &Request, until: Duration) -> Response {
        let OperationPaths { status, result } = self.operation_until(request, until);
        Response::new(202, Value::Null)
            .with_header("azure-asyncoperation", status)
            .with_header("location", result)
            .with_header("azure-asyncnotification", "Enabled")
    }

    /// The answer to what has begun, and is as it is read then.
    fn begun(&mut self, request: &Request, status: u16, etag: u64, body: Value, until: Duration) -> Response {
        let operation = self.operation_until(request, until);
        Response::new(status, body)
            .with_header("azure-asyncoperation", operation.status)
            .with_header("azure-asyncnotification", "Enabled")
            .with_header("etag", quoted(etag))
    }
}

/// What was read, with its ETag.
fn read(body: Value, etag: u64) -> Response {
    Response::new(200, body).with_header("etag", quoted(etag))
}

/// A version as Compute writes it.
fn quoted(etag: u64) -> String {
    format!("\"{etag}\"")
}

/// Refuses a write that is not of the version that is there, in the words of the recorded traffic.
fn check_version(request: &Request, etag: Option<u64>) -> Result<(), Refusal> {
    let Some(wanted) = request.if_match.as_deref() else { return Ok(()) };
    let message = match etag {
        Some(_) if wanted == "*" => return Ok(()),
        Some(etag) if wanted == quoted(etag) => return Ok(()),
        Some(etag) => format!(
            "Etag provided in if-match header \"{}\" does not match etag \"{etag}\" of resource.",
            wanted.trim_matches('"')
        ),
        None => format!(
            "Etag provided in if-match header \"{}\" does not match: there is no resource.",
            wanted.trim_matches('"')
        ),
    };
    Err(Refusal::new(412, "PreconditionFailed", message).bare())
}

/// A request that can never succeed, and the parameter that is wrong.
fn invalid(target: &'static str, message: impl Into<String>) -> Refusal {
    Refusal::bad("InvalidParameter", message).bare().with_target(target)
}

/// The refusal of a write to what is being deleted.
fn marked_for_deletion(what: &str, name: &str) -> Refusal {
    let message = format!(
        "Operation is not allowed on {what} '{name}' since it is marked for deletion. You can only retry the Delete \
         operation (or wait for an ongoing one to complete)."
    );
    Refusal::new(409, "OperationNotAllowed", message).bare()
}

/// The body of a request as an object.
fn object(body: &Value) -> Result<Map<String, Value>, Refusal> {
    match body {
        Value::Object(map) => Ok(map.clone()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Err(Refusal::bad("InvalidRequestContent", "the body is not a JSON object").bare())
        }
    }
}

/// The key of what is in a scope.
fn key(scope: Scope<'_>, kind: Kind, name: &str) -> String {
    scope.id(kind, name).to_lowercase()
}
