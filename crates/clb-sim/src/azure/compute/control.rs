//! What can be done to machines behind everybody's back, and how they are.

use std::net::IpAddr;

use super::super::path::Kind;
use super::super::resources::Resource;
use super::super::state::Azure;
use super::Subject;
use super::interface::{addresses, references};
use super::life::Power;
use super::machine::{Machine, MachineKey};

/// How a machine is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineStatus {
    /// Its full id.
    pub id: String,
    /// The full id of its scale set, if it is of one.
    pub scale_set: Option<String>,
    /// Its host name.
    pub computer_name: String,
    /// Whether it runs.
    pub power: Power,
    /// How far it is, such as `Creating` or `Succeeded`.
    pub provisioning_state: &'static str,
    /// Its private addresses, in ascending order.
    pub addresses: Vec<IpAddr>,
}

impl Azure {
    /// All machines: instances by scale set and number, then virtual machines by id.
    pub fn machines(&self) -> impl Iterator<Item = MachineStatus> {
        self.compute.machines.values().map(|machine| MachineStatus {
            id: machine.id.clone(),
            scale_set: machine
                .set
                .as_ref()
                .and_then(|set| self.compute.sets.get(set))
                .map(|set| set.id.clone()),
            computer_name: machine.computer_name().to_owned(),
            power: machine.life.power,
            provisioning_state: machine.life.state(),
            addresses: self.addresses_of(machine),
        })
    }

    fn addresses_of(&self, machine: &Machine) -> Vec<IpAddr> {
        let interfaces = references(&machine.body);
        let interfaces = interfaces.filter_map(|(id, _)| self.resource(Kind::NetworkInterface, id));
        let others = interfaces.flat_map(|interface: &Resource| addresses(interface));
        let mut all: Vec<IpAddr> = machine.addresses.values().copied().chain(others).collect();
        all.sort_unstable();
        all
    }

    /// Turns a machine on or off at once, as its owner or its host might. The machine is named by its full id, in any
    /// casing; `false` if there is none.
    pub fn set_power(&mut self, machine: &str, power: Power) -> bool {
        self.change_machine(machine, |machine| machine.life.set_power(power))
    }

    /// Ends what goes on with a machine, if anything does, as `Failed`. It keeps its power. `false` if there is no such
    /// machine.
    pub fn fail_provisioning(&mut self, machine: &str) -> bool {
        self.change_machine(machine, |machine| machine.life.fail())
    }

    /// Begins to reimage a machine: an instance gets the newest model of its scale set. `false` if there is no such machine,
    /// or if it is being deleted.
    pub fn reimage(&mut self, machine: &str) -> bool {
        let Some(key) = self.find_machine(machine) else { return false };
        let is_begun = self.reimage_machines(&[key]).is_ok();
        self.settle();
        is_begun
    }

    /// Removes a machine at once, with one from the capacity of its scale set. `false` if there is no such machine.
    pub fn remove_machine(&mut self, machine: &str) -> bool {
        let Some(key) = self.find_machine(machine) else { return false };
        self.let_go(&key);
        self.remove_machine_now(&key);
        true
    }

    /// Ends what goes on with a scale set, if anything does, as `Failed`; its machines go their way. `false` if there is no
    /// such scale set.
    pub fn fail_scale_set(&mut self, scale_set: &str) -> bool {
        match self.compute.life(&Subject::Set(scale_set.to_lowercase())) {
            None => false,
            Some(life) => {
                life.fail();
                true
            }
        }
    }

    fn change_machine(&mut self, id: &str, change: impl FnOnce(&mut Machine)) -> bool {
        let machine = self.find_machine(id).and_then(|key| self.compute.machines.get_mut(&key));
        machine.map(change).is_some()
    }

    /// The key of the machine with this id.
    fn find_machine(&self, id: &str) -> Option<MachineKey> {
        let id = id.to_lowercase();
        let key = match id.rsplit_once("/virtualmachines/") {
            Some((set, number)) if set.contains("/virtualmachinescalesets/") => {
                MachineKey::Instance(set.to_owned(), number.parse().ok()?)
            }
            Some(_) | None => MachineKey::VirtualMachine(id),
        };
        self.compute.machines.contains_key(&key).then_some(key)
    }
}
