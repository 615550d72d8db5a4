//! Actions on scale sets and machines.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::super::answer::{Refusal, Request, Response, optional_list};
use super::super::state::Azure;
use super::life::{Change, Power};
use super::machine::MachineKey;
use super::{Subject, invalid, marked_for_deletion};

impl Azure {
    /// Does something with machines that are there; `None` if it is not modelled.
    pub(super) fn act(
        &mut self,
        request: &Request,
        action: &str,
        machines: &[MachineKey],
    ) -> Result<Option<Response>, Refusal> {
        let power = match action.to_lowercase().as_str() {
            "start" | "restart" => Power::Running,
            "poweroff" => Power::Stopped,
            "deallocate" => Power::Deallocated,
            "reimage" | "reimageall" => {
                return self.reimage_machines(machines).map(|until| Some(self.accepted(request, until)));
            }
            _ => return Ok(None),
        };
        self.check_none_is_deleted(machines)?;
        let mut until = self.now;
        for machine in machines {
            until = until.max(self.begin(Subject::Machine(machine.clone()), Change::Updating, Some(power)));
        }
        Ok(Some(self.accepted(request, until)))
    }

    /// Makes machines anew: an instance gets the newest model of its scale set. Says when that is done.
    pub(super) fn reimage_machines(&mut self, machines: &[MachineKey]) -> Result<Duration, Refusal> {
        self.check_none_is_deleted(machines)?;
        let mut until = self.now;
        for machine in machines {
            self.apply_model(machine)?;
            if let Some(machine) = self.compute.machines.get_mut(machine) {
                machine.etag += 1;
                machine.life.power = Power::Starting;
            }
            until = until.max(self.begin(
                Subject::Machine(machine.clone()),
                Change::Updating,
                Some(Power::Running),
            ));
        }
        Ok(until)
    }

    fn check_none_is_deleted(&self, machines: &[MachineKey]) -> Result<(), Refusal> {
        let machines = machines.iter().filter_map(|key| self.compute.machines.get(key));
        match machines.into_iter().find(|machine| machine.life.is_deleting()) {
            None => Ok(()),
            Some(machine) => Err(marked_for_deletion("Virtual Machine", &machine.name)),
        }
    }

    /// Does something with some machines of a scale set; `None` if it is not modelled.
    pub(super) fn act_on_scale_set(
        &mut self,
        request: &Request,
        set: &str,
        action: &str,
    ) -> Result<Option<Response>, Refusal> {
        let given = optional_list(&request.body, "instanceIds")?;
        let is_all = given.is_none_or(|ids| ids == [json!("*")]);
        let is_modelled =
            ["delete", "manualupgrade", "start", "restart", "poweroff", "deallocate", "reimage"]
                .contains(&action);
        if !is_modelled {
            return Ok(None);
        }
        if given.is_none() && ["delete", "manualupgrade"].contains(&action) {
            return Err(invalid("instanceIds", "Required parameter 'instanceIds' is missing (null)."));
        }
        let all: BTreeMap<String, MachineKey> = self
            .compute
            .machines_of(set)
            .map(|(key, machine)| {
                let id = match key {
                    MachineKey::Instance(_, number) => number.to_string(),
                    MachineKey::VirtualMachine(_) => machine.name.to_lowercase(),
                };
                (id, key.clone())
            })
            .collect();
        let machines: Vec<MachineKey> = if is_all {
            all.into_values().collect()
        } else {
            let named = given.unwrap_or_default().iter().map(|id| {
                let id = id.as_str().unwrap_or_default();
                all.get(&id.to_lowercase()).cloned().ok_or_else(|| {
                    let message = format!(
                        "The provided instanceId {id} is not an active Virtual Machine Scale Set VM instanceId."
                    );
                    invalid("instanceIds", message)
                })
            });
            named.collect::<Result<_, _>>()?
        };
        match action {
            "delete" => {
                let mut until = self.now;
                for machine in &machines {
                    until = until.max(self.let_go(machine));
                }
                until = until.max(self.begin(Subject::Set(set.to_owned()), Change::Updating, None));
                Ok(Some(self.accepted(request, until)))
            }
            "manualupgrade" => {
                let until = self.upgrade(&machines)?;
                Ok(Some(self.accepted(request, until)))
            }
            action => self.act(request, action, &machines),
        }
    }

    /// How many machines of a scale set are how far.
    pub(super) fn scale_set_view(&self, key: &str) -> Value {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for (_, machine) in self.compute.machines_of(key) {
            let codes = [
                format!("ProvisioningState/{}", machine.life.state().to_lowercase()),
                format!("PowerState/{}", machine.life.power.as_str()),
            ];
            for code in codes {
                *counts.entry(code).or_default() += 1;
            }
        }
        let summary: Vec<Value> =
            counts.into_iter().map(|(code, count)| json!({"code": code, "count": count})).collect();
        let state = self.compute.sets.get(key).map(|set| set.life.state()).unwrap_or_default();
        let status = json!({
            "code": format!("ProvisioningState/{}", state.to_lowercase()), "level": "Info",
            "displayStatus": format!("Provisioning {}", state.to_lowercase())
        });
        json!({"virtualMachine": {"statusesSummary": summary}, "statuses": [status]})
    }
}
