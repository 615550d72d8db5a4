//! What instances of uniform scale sets, members of flexible ones and plain virtual machines have in common.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::super::answer::{Refusal, Request, Response, field, text};
use super::super::json::fill;
use super::super::path::{Kind, Scope};
use super::super::resources::unique_id;
use super::super::state::Azure;
use super::life::{Change, Life, Power};
use super::scale_set::ScaleSet;
use super::{Subject, check_version, quoted};

/// What a machine is found by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum MachineKey {
    /// The id of its scale set in lower case, and its number.
    Instance(String, u64),
    /// Its id in lower case.
    VirtualMachine(String),
}

/// A machine.
#[derive(Clone, Debug)]
pub(super) struct Machine {
    pub(super) id: String,
    pub(super) name: String,
    /// Its scale set's id in lower case.
    pub(super) set: Option<String>,
    /// The older, the lower; of an instance the number by which it is known.
    pub(super) number: u64,
    pub(super) etag: u64,
    pub(super) life: Life,
    /// What was written and completed, without what Azure alone writes.
    pub(super) body: Value,
    /// Which model of its scale set it has, and whether it was changed since.
    pub(super) model: u64,
    pub(super) is_custom: bool,
    /// The addresses of the interfaces that are its own, by interface and ip-configuration.
    pub(super) addresses: BTreeMap<(String, String), IpAddr>,
    pub(super) created: Duration,
    pub(super) unique: u64,
}

impl Machine {
    pub(super) fn computer_name(&self) -> &str {
        self.body.pointer("/properties/osProfile/computerName").and_then(Value::as_str).unwrap_or_default()
    }

    fn is_instance(&self) -> bool {
        self.body.pointer("/properties/networkProfileConfiguration").is_some()
    }
}

/// What a machine of a scale set gets from its model; `disk` is what its disk is called.
pub(super) fn properties_of(set: &ScaleSet, computer_name: &str, disk: &str) -> Map<String, Value> {
    let profile = set.profile().cloned().unwrap_or_default();
    let mut os = field(&profile, "osProfile").cloned().unwrap_or_else(|| json!({}));
    if let Some(os) = os.as_object_mut() {
        os.remove("computerNamePrefix");
        os.insert("computerName".to_owned(), json!(computer_name));
    }
    let mut storage = field(&profile, "storageProfile").cloned().unwrap_or_else(|| json!({}));
    let Scope { subscription, group } = Scope::of(&set.id);
    let disk_id = format!(
        "/subscriptions/{subscription}/resourceGroups/{group}/providers/Microsoft.Compute/disks/{disk}"
    );
    fill(&mut storage, json!({"osDisk": {"name": disk, "managedDisk": {"id": disk_id}}, "dataDisks": []}));
    if let Some(image) = storage.get_mut("imageReference") {
        fill(image, json!({"exactVersion": "17763.8276.260109"}));
    }
    let properties = json!({
        "hardwareProfile": {"vmSize": set.sku("name")}, "storageProfile": storage, "osProfile": os
    });
    match properties {
        Value::Object(properties) => properties,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Map::new(),
    }
}

/// The host name of a scale set's machine: the prefix, and its number in six digits of base 36.
pub(super) fn computer_name(set: &ScaleSet, number: u64) -> String {
    let prefix = set.profile().and_then(|profile| field(profile, "osProfile"));
    let prefix = prefix.map(|os| text(os, "computerNamePrefix")).unwrap_or_default();
    let mut digits = String::new();
    let mut rest = number;
    for _ in 0..6 {
        let digit = u32::try_from(rest % 36).ok().and_then(|digit| char::from_digit(digit, 36));
        digits.insert(0, digit.unwrap_or('0').to_ascii_uppercase());
        rest /= 36;
    }
    format!("{prefix}{digits}")
}

impl Azure {
    /// A machine as it is read, with its instance view if that is asked for.
    pub(super) fn machine_body(&self, machine: &Machine, with_view: bool) -> Value {
        let mut body = machine.body.clone();
        let properties = &mut body["properties"];
        properties["provisioningState"] = json!(machine.life.state());
        properties["vmId"] = unique_id(machine.unique);
        properties["timeCreated"] = json!(self.timestamp(machine.created));
        if with_view {
            properties["instanceView"] = self.instance_view(machine);
        }
        let set = machine.set.as_ref().and_then(|set| self.compute.sets.get(set));
        if machine.is_instance() {
            properties["latestModelApplied"] = json!(set.is_some_and(|set| set.model == machine.model));
            properties["modelDefinitionApplied"] =
                json!(if machine.is_custom { "VirtualMachine" } else { "VirtualMachineScaleSet" });
            properties["networkProfile"] = json!({"networkInterfaces": self.interface_references(machine)});
            body["instanceId"] = json!(machine.number.to_string());
            body["type"] = json!(format!("{}/virtualMachines", Kind::ScaleSet.type_name()));
        } else {
            if let Some(set) = set {
                properties["virtualMachineScaleSet"] = json!({"id": set.id});
            }
            body["type"] = json!(Kind::VirtualMachine.type_name());
        }
        body["id"] = json!(machine.id);
        body["name"] = json!(machine.name);
        body["etag"] = json!(quoted(machine.etag));
        body
    }

    /// What a machine is doing.
    pub(super) fn instance_view(&self, machine: &Machine) -> Value {
        let time = self.timestamp(machine.created);
        let state = machine.life.state();
        let provisioning = if machine.life.failed { ("Error", "Provisioning failed") } else { ("Info", "") };
        let display = match (provisioning.1, state) {
            ("", "Succeeded") => "Provisioning succeeded",
            ("", state) => state,
            (failed, _) => failed,
        };
        let power = machine.life.power.as_str();
        let statuses = json!([
            {"code": format!("ProvisioningState/{}", state.to_lowercase()), "level": provisioning.0,
             "displayStatus": display, "time": time},
            {"code": format!("PowerState/{power}"), "level": "Info", "displayStatus": format!("VM {power}")}
        ]);
        let mut view = json!({"hyperVGeneration": "V1", "statuses": statuses});
        if let Some(disk) = machine.body.pointer("/properties/storageProfile/osDisk/name") {
            let done = json!({"code": "ProvisioningState/succeeded", "level": "Info",
                "displayStatus": "Provisioning succeeded", "time": time});
            view["disks"] = json!([{"name": disk, "statuses": [done]}]);
        }
        if machine.is_instance() {
            view["platformUpdateDomain"] = json!(0);
            view["platformFaultDomain"] = json!(0);
            let set = machine.set.as_ref().and_then(|set| self.compute.sets.get(set));
            view["placementGroupId"] = set.map(|set| unique_id(set.unique)).unwrap_or_default();
        }
        // Only its agent knows these.
        if machine.life.power == Power::Running {
            let windows = machine.body.pointer("/properties/osProfile/windowsConfiguration").is_some();
            let (name, version) = if windows {
                ("Windows Server 2019 Datacenter", "10.0.17763.8276")
            } else {
                ("ubuntu", "22.04")
            };
            view["computerName"] = json!(machine.computer_name());
            view["osName"] = json!(name);
            view["osVersion"] = json!(version);
            view["vmAgent"] = json!({"vmAgentVersion": "2.7.41491.1149", "statuses": [
                {"code": "ProvisioningState/succeeded", "level": "Info", "displayStatus": "Ready",
                 "message": "GuestAgent is running and processing the extensions.", "time": time}
            ]});
        }
        view
    }

    /// Begins to delete a machine, of which its scale set then has one less.
    pub(super) fn delete_machine(
        &mut self,
        request: &Request,
        key: &MachineKey,
    ) -> Result<Response, Refusal> {
        let Some(machine) = self.compute.machines.get(key) else {
            return Ok(Response::new(204, Value::Null));
        };
        check_version(request, Some(machine.etag))?;
        let until = self.let_go(key);
        Ok(self.accepted(request, until))
    }

    /// The same without a request. Says when it is gone.
    pub(super) fn let_go(&mut self, key: &MachineKey) -> Duration {
        let going = self.compute.machines.get(key).filter(|machine| !machine.life.is_deleting());
        if let Some(set) = going.and_then(|machine| machine.set.clone()) {
            self.change_capacity(&set, |capacity| capacity.saturating_sub(1));
        }
        self.begin(Subject::Machine(key.clone()), Change::Deleting, None)
    }

    pub(super) fn change_capacity(&mut self, set: &str, change: impl FnOnce(u64) -> u64) {
        if let Some(set) = self.compute.sets.get_mut(set) {
            let capacity = set.body.pointer("/sku/capacity").and_then(Value::as_u64).unwrap_or_default();
            set.set_capacity(change(capacity));
        }
    }

    /// Removes a machine and what goes with it.
    pub(super) fn remove_machine_now(&mut self, key: &MachineKey) {
        let Some(machine) = self.compute.machines.remove(key) else { return };
        for address in machine.addresses.into_values() {
            self.compute.addresses.put_back(address);
        }
        self.detach_interfaces(&machine.body);
    }
}
