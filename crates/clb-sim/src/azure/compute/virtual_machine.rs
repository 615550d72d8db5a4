//! Virtual machines of their own: members of flexible scale sets, and plain ones.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::super::answer::{Refusal, Request, Response, field, text};
use super::super::json::{fill, merge, without};
use super::super::path::{Kind, Scope};
use super::super::state::{Azure, not_found};
use super::instance::wants_view;
use super::interface::{interface_name, references};
use super::life::{Change, Life, Power};
use super::machine::{Machine, MachineKey, computer_name, properties_of};
use super::{Subject, check_version, invalid, key, marked_for_deletion, object, read};

/// The fields that Azure writes.
const READ_ONLY: [&str; 4] = ["id", "name", "type", "etag"];
const READ_ONLY_PROPERTIES: [&str; 5] =
    ["provisioningState", "vmId", "timeCreated", "instanceView", "virtualMachineScaleSet"];

impl Azure {
    /// The virtual machines whose ids begin like this, or those of a flexible scale set.
    pub(super) fn list_virtual_machines(&self, request: &Request, prefix: &str) -> Result<Response, Refusal> {
        let with_view = wants_view(request)?;
        let set = request.parameter("$filter").map(wanted_set).transpose()?;
        let first = MachineKey::VirtualMachine(prefix.to_owned());
        let machines = self.compute.machines.range(first..).take_while(|(key, _)| match key {
            MachineKey::VirtualMachine(id) => id.starts_with(prefix),
            MachineKey::Instance(..) => false,
        });
        let machines =
            machines.filter(|(_, machine)| set.as_ref().is_none_or(|set| machine.set.as_ref() == Some(set)));
        self.page_of(request, machines, |(_, machine)| self.machine_body(machine, with_view))
    }

    pub(super) fn get_virtual_machine(
        &self,
        request: &Request,
        scope: Scope<'_>,
        name: &str,
    ) -> Result<Response, Refusal> {
        let with_view = wants_view(request)?;
        let key = MachineKey::VirtualMachine(key(scope, Kind::VirtualMachine, name));
        let machine = self.compute.machines.get(&key);
        let machine = machine.ok_or_else(|| not_found(scope, Kind::VirtualMachine, name))?;
        Ok(read(self.machine_body(machine, with_view), machine.etag))
    }

    pub(super) fn put_virtual_machine(
        &mut self,
        request: &Request,
        scope: Scope<'_>,
        name: &str,
    ) -> Result<Response, Refusal> {
        let key = MachineKey::VirtualMachine(key(scope, Kind::VirtualMachine, name));
        let existing = self.compute.machines.get(&key);
        check_version(request, existing.map(|machine| machine.etag))?;
        let mut body = object(&request.body)?;
        if text(&request.body, "location").is_empty() {
            let message = "The location property is required for this definition.";
            return Err(Refusal::bad("LocationRequired", message).bare());
        }
        without(&mut body, &READ_ONLY);
        let given = body.get("properties").cloned().unwrap_or_default();
        let body = Value::Object(body);
        if existing.is_some() {
            return self.change_virtual_machine(request, &key, body);
        }
        let set = match field(&given, "virtualMachineScaleSet").map(|set| text(set, "id").to_lowercase()) {
            None => None,
            Some(set) if self.compute.sets.get(&set).is_some_and(super::ScaleSet::is_flexible) => Some(set),
            Some(set) => {
                let message = format!("There is no flexible virtual machine scale set {set:?}.");
                return Err(invalid("virtualMachineScaleSet.id", message));
            }
        };
        let id = scope.id(Kind::VirtualMachine, name);
        let body = complete(body, name)?;
        self.check_references(&id, &body)?;
        self.counter += 1;
        let machine = Machine {
            id,
            name: name.to_owned(),
            set: set.clone(),
            number: self.counter,
            etag: 1,
            life: Life::new(),
            body,
            model: 0,
            is_custom: false,
            addresses: BTreeMap::new(),
            created: self.now,
            unique: self.counter,
        };
        self.attach_all(&machine.id, &machine.body);
        self.compute.machines.insert(key.clone(), machine);
        if let Some(set) = set {
            self.change_capacity(&set, |capacity| capacity.saturating_add(1));
        }
        let until = self.begin(Subject::Machine(key.clone()), Change::Creating, Some(Power::Running));
        Ok(self.answer_virtual_machine(request, 201, &key, until))
    }

    pub(super) fn patch_virtual_machine(
        &mut self,
        request: &Request,
        scope: Scope<'_>,
        name: &str,
    ) -> Result<Response, Refusal> {
        let key = MachineKey::VirtualMachine(key(scope, Kind::VirtualMachine, name));
        let machine = self.compute.machines.get(&key);
        let machine = machine.ok_or_else(|| not_found(scope, Kind::VirtualMachine, name))?;
        check_version(request, Some(machine.etag))?;
        let mut patch = object(&request.body)?;
        without(&mut patch, &READ_ONLY);
        let mut body = machine.body.clone();
        if let (Some(_), Some(body)) = (patch.get("tags"), body.as_object_mut()) {
            body.remove("tags");
        }
        merge(&mut body, &Value::Object(patch));
        self.change_virtual_machine(request, &key, body)
    }

    fn change_virtual_machine(
        &mut self,
        request: &Request,
        key: &MachineKey,
        body: Value,
    ) -> Result<Response, Refusal> {
        let Some(machine) = self.compute.machines.get(key) else {
            return Ok(Response::new(204, Value::Null));
        };
        if machine.life.is_deleting() {
            return Err(marked_for_deletion("Virtual Machine", &machine.name));
        }
        let id = machine.id.clone();
        let body = complete(body, &machine.name)?;
        self.check_references(&id, &body)?;
        if let Some(machine) = self.compute.machines.get_mut(key).filter(|machine| machine.body != body) {
            let set = machine.set.clone();
            machine.etag += 1;
            let former = std::mem::replace(&mut machine.body, body.clone());
            if let Some(set) = set.and_then(|set| self.compute.sets.get_mut(&set)) {
                set.etag += 1;
            }
            for (gone, _) in references(&former) {
                if !references(&body).any(|(kept, _)| kept.eq_ignore_ascii_case(gone)) {
                    self.attach(gone, None);
                }
            }
            self.attach_all(&id, &body);
        }
        let until = self.begin(Subject::Machine(key.clone()), Change::Updating, None);
        Ok(self.answer_virtual_machine(request, 200, key, until))
    }

    /// Gives a machine the interfaces that it names and does not have.
    fn attach_all(&mut self, id: &str, body: &Value) {
        for (interface, _) in references(body) {
            let resource = self.resource(Kind::NetworkInterface, interface);
            if resource.is_some_and(|resource| resource.property("virtualMachine").is_none()) {
                self.attach(interface, Some(id));
            }
        }
    }

    fn answer_virtual_machine(
        &mut self,
        request: &Request,
        status: u16,
        key: &MachineKey,
        until: Duration,
    ) -> Response {
        let Some(machine) = self.compute.machines.get(key) else {
            return Response::new(status, Value::Null);
        };
        let (etag, body) = (machine.etag, self.machine_body(machine, false));
        self.begun(request, status, etag, body, until)
    }

    /// Makes one more member of a flexible scale set, with interfaces that go when it goes.
    pub(super) fn make_member(&mut self, set_key: &str) -> Result<MachineKey, Refusal> {
        self.counter += 1;
        let (created, unique) = (self.now, self.counter);
        let Some(set) = self.compute.sets.get_mut(set_key) else {
            return Err(Refusal::not_modelled("a scale set that went while it was changed"));
        };
        let number = set.next;
        set.next += 1;
        let name = format!("{}_{unique:08x}", set.name());
        let id = Scope::of(&set.id).id(Kind::VirtualMachine, &name);
        let location = set.location().to_owned();
        let mut properties = properties_of(set, &computer_name(set, number), &format!("{name}_disk1"));
        let configurations = set
            .profile()
            .and_then(|profile| profile.pointer("/networkProfile/networkInterfaceConfigurations"))
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default();
        let mut interfaces = Vec::new();
        for configuration in &configurations {
            let interface = interface_name(text(configuration, "name"), &name);
            let given = field(configuration, "properties").cloned().unwrap_or_default();
            let primary = field(&given, "primary").cloned().unwrap_or(json!(configurations.len() == 1));
            let interface = self.make_interface(&id, &interface, &location, &given)?;
            interfaces
                .push(json!({"id": interface, "properties": {"primary": primary, "deleteOption": "Delete"}}));
        }
        properties.insert("networkProfile".to_owned(), json!({"networkInterfaces": interfaces}));
        let machine = Machine {
            id,
            name,
            set: Some(set_key.to_owned()),
            number: unique,
            etag: 1,
            life: Life::new(),
            body: json!({"location": location, "properties": properties}),
            model: 0,
            is_custom: false,
            addresses: BTreeMap::new(),
            created,
            unique,
        };
        let key = MachineKey::VirtualMachine(machine.id.to_lowercase());
        self.compute.machines.insert(key.clone(), machine);
        Ok(key)
    }
}

/// Completes the body of a virtual machine with what Azure adds.
fn complete(mut body: Value, name: &str) -> Result<Value, Refusal> {
    let properties = body.get("properties").cloned().unwrap_or_else(|| json!({}));
    let mut properties = object(&properties)?;
    without(&mut properties, &READ_ONLY_PROPERTIES);
    let mut properties = Value::Object(properties);
    fill(&mut properties, json!({"osProfile": {"computerName": name}}));
    if let Some(os) = properties["osProfile"].as_object_mut() {
        without(os, &["adminPassword"]);
    }
    body["properties"] = properties;
    Ok(body)
}

/// The scale set, in lower case, that a filter asks for: `'virtualMachineScaleSet/id' eq '<id>'`, the only one that Azure
/// has.
fn wanted_set(filter: &str) -> Result<String, Refusal> {
    let lower = filter.trim().to_lowercase();
    let id = lower
        .trim_start_matches('\'')
        .strip_prefix("virtualmachinescaleset/id")
        .map(|rest| rest.trim_start_matches('\'').trim_start())
        .and_then(|rest| rest.strip_prefix("eq"))
        .and_then(|rest| rest.trim().strip_prefix('\'')?.strip_suffix('\''));
    id.map(str::to_owned).ok_or_else(|| Refusal::not_modelled(format_args!("$filter={filter}")))
}
