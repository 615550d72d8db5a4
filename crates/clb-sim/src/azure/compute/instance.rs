//! Instances of uniform scale sets.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::super::answer::{Method, Refusal, Request, Response, field};
use super::super::path::{Kind, Scope};
use super::super::resources::parent_not_found;
use super::super::state::{Azure, not_found};
use super::life::{Change, Life};
use super::machine::{Machine, MachineKey, computer_name, properties_of};
use super::model::complete_interfaces;
use super::{Subject, check_version, invalid, key, marked_for_deletion, object, read};

/// What of an instance can be written. Anything else in a PUT changes nothing, as in the recorded traffic.
const WRITABLE: [&str; 2] = ["networkProfileConfiguration", "protectionPolicy"];

impl Azure {
    /// Answers a request about something in a scale set; `None` if it is not modelled.
    pub(super) fn answer_in_scale_set(
        &mut self,
        request: &Request,
        scope: Scope<'_>,
        name: &str,
        parts: &[&str],
    ) -> Result<Option<Response>, Refusal> {
        let set_key = key(scope, Kind::ScaleSet, name);
        let Some(set) = self.compute.sets.get(&set_key) else {
            return Err(match parts {
                [_] if request.method == Method::Post => not_found(scope, Kind::ScaleSet, name),
                [kind, ..] => parent_not_found(scope, Kind::ScaleSet, name, kind),
                [] => not_found(scope, Kind::ScaleSet, name),
            });
        };
        let is_read = request.method == Method::Get;
        let lower: Vec<String> = parts.iter().map(|part| part.to_lowercase()).collect();
        let lower: Vec<&str> = lower.iter().map(String::as_str).collect();
        match lower[..] {
            ["instanceview"] if is_read => Ok(Some(Response::new(200, self.scale_set_view(&set_key)))),
            [action] if request.method == Method::Post => self.act_on_scale_set(request, &set_key, action),
            ["virtualmachines"] if is_read => {
                let with_view = wants_view(request)?;
                let machines = self.compute.machines_of(&set_key);
                self.page_of(request, machines, |(_, machine)| self.machine_body(machine, with_view))
                    .map(Some)
            }
            // Their machines are virtual machines of their own.
            _ if set.is_flexible() => Ok(None),
            ["networkinterfaces"] if is_read => {
                let machines = self.compute.machines_of(&set_key);
                let interfaces = machines.flat_map(|(_, machine)| self.instance_interfaces(machine));
                self.page(request, interfaces).map(Some)
            }
            ["virtualmachines", number, ref rest @ ..] => {
                let number: u64 = number.parse().map_err(|_| {
                    invalid("instanceId", "Virtual Machine Scale Set VM instanceId must be a number.")
                })?;
                let key = MachineKey::Instance(set_key, number);
                self.answer_about_instance(request, scope, name, &key, rest)
            }
            [..] => Ok(None),
        }
    }

    fn answer_about_instance(
        &mut self,
        request: &Request,
        scope: Scope<'_>,
        set: &str,
        key: &MachineKey,
        rest: &[&str],
    ) -> Result<Option<Response>, Refusal> {
        if request.method == Method::Delete && rest.is_empty() {
            return self.delete_machine(request, key).map(Some);
        }
        let number = match key {
            MachineKey::Instance(_, number) => number.to_string(),
            MachineKey::VirtualMachine(id) => id.clone(),
        };
        let machine =
            self.compute.machines.get(key).ok_or_else(|| {
                not_found(scope, Kind::ScaleSet, &format!("{set}/virtualMachines/{number}"))
            })?;
        let answer = match (&request.method, rest) {
            (Method::Get, []) => read(self.machine_body(machine, wants_view(request)?), machine.etag),
            (Method::Get, ["instanceview"]) => Response::new(200, self.instance_view(machine)),
            (Method::Get, ["networkinterfaces"]) => self.page(request, self.instance_interfaces(machine))?,
            (Method::Get, ["networkinterfaces", name]) => {
                let interfaces = self.instance_interfaces(machine);
                let is_it =
                    |one: &Value| one["name"].as_str().is_some_and(|it| it.eq_ignore_ascii_case(name));
                let found = interfaces.into_iter().find(is_it).ok_or_else(|| {
                    let name = format!("{set}/virtualMachines/{number}/networkInterfaces/{name}");
                    not_found(scope, Kind::ScaleSet, &name)
                })?;
                Response::new(200, found)
            }
            (Method::Put, []) => self.put_instance(request, key)?,
            (Method::Post, [action]) => return self.act(request, action, std::slice::from_ref(key)),
            _ => return Ok(None),
        };
        Ok(Some(answer))
    }

    /// Writes what can be written of an instance. A write that changes something gives its scale set a new version, too.
    fn put_instance(&mut self, request: &Request, key: &MachineKey) -> Result<Response, Refusal> {
        let body = object(&request.body)?;
        let given = body.get("properties").cloned().unwrap_or_default();
        let Some(machine) = self.compute.machines.get(key) else {
            return Ok(Response::new(204, Value::Null));
        };
        check_version(request, Some(machine.etag))?;
        if machine.life.is_deleting() {
            return Err(marked_for_deletion("Virtual Machine", &machine.name));
        }
        self.check_network(&machine.id, field(&given, WRITABLE[0]))?;
        let Some(machine) = self.compute.machines.get_mut(key) else {
            return Ok(Response::new(204, Value::Null));
        };
        let before = machine.body.clone();
        for name in WRITABLE {
            if let Some(value) = field(&given, name) {
                let mut value = value.clone();
                complete_interfaces(&mut value);
                machine.body["properties"][name] = value;
            }
        }
        if machine.body != before {
            let set = machine.set.clone().unwrap_or_default();
            if let Err(refusal) = self.assign_addresses(key) {
                if let Some(machine) = self.compute.machines.get_mut(key) {
                    machine.body = before;
                }
                return Err(refusal);
            }
            if let Some(machine) = self.compute.machines.get_mut(key) {
                machine.etag += 1;
                machine.is_custom = true;
            }
            if let Some(set) = self.compute.sets.get_mut(&set) {
                set.etag += 1;
            }
        }
        let until = self.begin(Subject::Machine(key.clone()), Change::Updating, None);
        let Some(machine) = self.compute.machines.get(key) else {
            return Ok(Response::new(204, Value::Null));
        };
        let (etag, body) = (machine.etag, self.machine_body(machine, false));
        Ok(self.begun(request, 200, etag, body, until))
    }

    /// Makes one more instance of a scale set. Numbers are never given twice.
    pub(super) fn make_instance(&mut self, set_key: &str) -> Result<MachineKey, Refusal> {
        self.counter += 1;
        let (created, unique) = (self.now, self.counter);
        let Some(set) = self.compute.sets.get_mut(set_key) else { return Err(gone()) };
        let number = set.next;
        set.next += 1;
        let machine = Machine {
            id: format!("{}/virtualMachines/{number}", set.id),
            name: format!("{}_{number}", set.name()),
            set: Some(set_key.to_owned()),
            number,
            etag: 1,
            life: Life::new(),
            body: json!({"location": set.location()}),
            model: 0,
            is_custom: false,
            addresses: BTreeMap::new(),
            created,
            unique,
        };
        let key = MachineKey::Instance(set_key.to_owned(), number);
        self.compute.machines.insert(key.clone(), machine);
        self.apply_model(&key)?;
        Ok(key)
    }

    /// Makes an instance what the model of its scale set says now.
    pub(super) fn apply_model(&mut self, key: &MachineKey) -> Result<(), Refusal> {
        let MachineKey::Instance(set, number) = key else { return Ok(()) };
        let (Some(set), Some(machine)) = (self.compute.sets.get(set), self.compute.machines.get_mut(key))
        else {
            return Err(gone());
        };
        let disk = format!("{0}_{0}_{number}_OS__1_{1:032x}", set.name(), machine.unique);
        let mut properties = properties_of(set, &computer_name(set, *number), &disk);
        let network = set.profile().and_then(|profile| field(profile, "networkProfile"));
        properties.insert("networkProfileConfiguration".to_owned(), network.cloned().unwrap_or(json!({})));
        properties.insert("resilientVMDeletionStatus".to_owned(), json!("Disabled"));
        machine.body["properties"] = Value::Object(properties);
        machine.body["sku"] = json!({"name": set.sku("name"), "tier": set.sku("tier")});
        machine.model = set.model;
        machine.is_custom = false;
        self.assign_addresses(key)
    }

    /// Gives instances the newest model of their scale set, where they do not have it. Says when that is done.
    pub(super) fn upgrade(&mut self, machines: &[MachineKey]) -> Result<Duration, Refusal> {
        let mut until = self.now;
        for key in machines {
            let MachineKey::Instance(set, _) = key else { continue };
            let model = self.compute.sets.get(set).map(|set| set.model);
            let Some(machine) = self.compute.machines.get_mut(key) else { continue };
            if Some(machine.model) == model || machine.life.is_deleting() {
                continue;
            }
            machine.etag += 1;
            self.apply_model(key)?;
            until = until.max(self.begin(Subject::Machine(key.clone()), Change::Updating, None));
        }
        Ok(until)
    }
}

fn gone() -> Refusal {
    Refusal::not_modelled("a scale set that went while it was changed")
}

/// Whether instance views are asked for. What else can be asked for is not modelled.
pub(super) fn wants_view(request: &Request) -> Result<bool, Refusal> {
    match request.parameter("$expand") {
        None => Ok(false),
        Some(view) if view.eq_ignore_ascii_case("instanceView") => Ok(true),
        Some(other) => Err(Refusal::not_modelled(format_args!("$expand={other}"))),
    }
}
