//! Azure in memory: pages that are read one after another, ETags as the real ones, calls that are counted and fail by seed.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use clb_vmss::models::{InterfaceProperties, NetworkInterface, Resource, ScaleSet, VirtualMachine};
use clb_vmss::{
    ArmName, CallContext, ComputerName, Error, ErrorKind, Listing, Machine, ProviderId, ResourceGroupKey,
    ResourceId, Result, ScaleSetKey, View, VmssApi,
};
use serde_json::{Value, json};

pub(crate) fn name(text: &str) -> ArmName {
    text.parse().unwrap()
}

pub(crate) fn group(text: &str) -> ResourceGroupKey {
    ResourceGroupKey { subscription: name("s"), name: name(text) }
}

pub(crate) fn set(group: &str, set: &str) -> ScaleSetKey {
    ScaleSetKey { subscription: name("s"), resource_group: name(group), name: name(set) }
}

pub(crate) fn member(set: &ScaleSetKey, vm: &str) -> ProviderId {
    let ScaleSetKey { subscription, resource_group, name: _ } = set.clone();
    ProviderId::VirtualMachine { subscription, resource_group, name: name(vm) }
}

pub(crate) fn call() -> CallContext {
    CallContext::random()
}

pub(crate) fn pool(load_balancer: &str) -> ResourceId {
    let id = format!(
        "/subscriptions/s/resourceGroups/rg/providers/Microsoft.Network/loadBalancers/{load_balancer}"
    );
    format!("{id}/backendAddressPools/nodes").parse().unwrap()
}

/// The node of an instance.
pub(crate) fn node(set: &ScaleSetKey, instance_id: u32) -> String {
    ComputerName::new(set.name.as_str(), instance_id).unwrap().to_string()
}

type Hook = Box<dyn FnMut(&str, &mut State) -> bool + Send>;

#[derive(Default)]
pub(crate) struct State {
    pub(crate) sets: BTreeMap<ScaleSetKey, ScaleSet>,
    pub(crate) machines: BTreeMap<ProviderId, (ScaleSetKey, VirtualMachine)>,
    pub(crate) interfaces: BTreeMap<ResourceId, NetworkInterface>,
    etags: u64,
}

impl State {
    fn etag(&mut self) -> Option<String> {
        self.etags += 1;
        Some(format!("\"{}\"", self.etags))
    }

    pub(crate) fn add_set(&mut self, key: &ScaleSetKey, mode: &str) {
        let set = json!({
            "id": key.to_string(), "etag": self.etag(), "location": "eastus2", "tags": {"owner": "else"},
            "sku": {"name": "Standard_D2s_v3", "tier": "Standard", "capacity": 0},
            "properties": {"orchestrationMode": mode, "virtualMachineProfile": {
                "osProfile": {"computerNamePrefix": key.name.as_str(), "adminUsername": "a"},
                "networkProfile": {"networkInterfaceConfigurations": configurations()}}},
        });
        self.sets.insert(key.clone(), serde_json::from_value(set).unwrap());
    }

    /// Adds an instance of a uniform set, with an address of each family.
    pub(crate) fn add_instance(&mut self, key: &ScaleSetKey, instance_id: u32, vm_id: &str, last: u16) {
        let id = key.instance(instance_id);
        let mut machine = self.machine(&id, vm_id, &node(key, instance_id));
        machine.properties.network_profile_configuration = Some(
            serde_json::from_value(json!({"networkInterfaceConfigurations": configurations()})).unwrap(),
        );
        let interface = format!("{}/networkInterfaces/nic", id.resource_id());
        self.attach(key, id, machine, &interface, last);
    }

    /// Adds a member of a flexible set.
    pub(crate) fn add_member(&mut self, key: &ScaleSetKey, vm: &str, last: u16) {
        let id = member(key, vm);
        let mut machine = self.machine(&id, vm, vm);
        machine.properties.scale_set = Some(serde_json::from_value(json!({"id": key.to_string()})).unwrap());
        let interface = format!("{}/providers/Microsoft.Network/networkInterfaces/{vm}-nic", key.group());
        self.attach(key, id, machine, &interface, last);
    }

    fn machine(&mut self, id: &ProviderId, vm_id: &str, host: &str) -> VirtualMachine {
        serde_json::from_value(json!({
            "id": id.resource_id(), "etag": self.etag(), "tags": {"owner": "else"},
            "properties": {"vmId": vm_id, "provisioningState": "Succeeded", "latestModelApplied": true,
                "osProfile": {"computerName": host}, "storageProfile": {"osDisk": {"size": 30}},
                "instanceView": {"statuses": [{"code": "PowerState/running"}]}},
        }))
        .unwrap()
    }

    fn attach(
        &mut self,
        key: &ScaleSetKey,
        id: ProviderId,
        mut machine: VirtualMachine,
        interface: &str,
        last: u16,
    ) {
        machine.properties.network_profile =
            serde_json::from_value(json!({"networkInterfaces": [{"id": interface}]})).unwrap();
        let mut properties: Value = configurations()[0]["properties"].take();
        properties["virtualMachine"] = json!({"id": id.resource_id()});
        properties["ipConfigurations"][0]["properties"]["privateIPAddress"] =
            json!(format!("10.0.{}.{}", last >> 8, last & 255));
        properties["ipConfigurations"][1]["properties"]["privateIPAddress"] =
            json!(format!("fd00::{last:x}"));
        let nic = NetworkInterface {
            id: Some(interface.to_owned()),
            etag: self.etag(),
            properties: serde_json::from_value::<InterfaceProperties>(properties).unwrap(),
            ..NetworkInterface::default()
        };
        self.interfaces.insert(interface.parse().unwrap(), nic);
        self.machines.insert(id, (key.clone(), machine));
    }

    pub(crate) fn remove_machine(&mut self, id: &ProviderId) {
        self.machines.remove(id);
        let owner = id.resource_id();
        self.interfaces.retain(|_, nic| {
            nic.properties.virtual_machine.as_ref().unwrap().id.as_deref() != Some(owner.as_str())
        });
    }

    pub(crate) fn remove_set(&mut self, key: &ScaleSetKey) {
        self.sets.remove(key);
        let ids: Vec<ProviderId> =
            self.machines.iter().filter(|(_, (of, _))| of == key).map(|(id, _)| id.clone()).collect();
        ids.iter().for_each(|id| self.remove_machine(id));
    }

    pub(crate) fn machine_mut(&mut self, id: &ProviderId) -> &mut VirtualMachine {
        &mut self.machines.get_mut(id).unwrap().1
    }

    pub(crate) fn set_power(&mut self, id: &ProviderId, state: &str) {
        let view = json!({"statuses": [{"code": format!("PowerState/{state}")}]});
        self.machine_mut(id).properties.instance_view = Some(serde_json::from_value(view).unwrap());
    }

    /// The truth, as a listing would tell it.
    pub(crate) fn listing(&self, key: &ScaleSetKey) -> Listing {
        let machines = self.machines.iter().filter(|(_, (of, machine))| of == key && !is_deleting(machine));
        machines
            .map(|(id, (_, machine))| {
                let node = machine.properties.os_profile.computer_name.clone().unwrap();
                let vm_id = machine.properties.vm_id.clone().unwrap();
                (node, Machine { id: id.clone(), vm_id, ips: self.ips(id), power: machine.power() })
            })
            .collect()
    }

    fn ips(&self, id: &ProviderId) -> std::collections::BTreeSet<IpAddr> {
        let owner = id.resource_id();
        let of = |nic: &&NetworkInterface| {
            nic.properties.virtual_machine.as_ref().unwrap().id.as_deref() == Some(owner.as_str())
        };
        let ips = self.interfaces.values().filter(of).flat_map(|nic| &nic.properties.ip_configurations);
        ips.filter_map(|ip| ip.properties.private_ip).collect()
    }
}

fn is_deleting(machine: &VirtualMachine) -> bool {
    machine.properties.provisioning_state == Some("Deleting".into())
}

/// One interface with an ip-configuration of each family, and what this crate does not know.
fn configurations() -> Value {
    json!([{"name": "nic", "properties": {"primary": true, "enableAcceleratedNetworking": true, "ipConfigurations": [
        {"name": "v4", "properties": {"primary": true, "privateIPAddressVersion": "IPv4", "subnet": {"id": "x"}}},
        {"name": "v6", "properties": {"privateIPAddressVersion": "IPv6"}}]}}])
}

pub(crate) struct Fake {
    state: Mutex<State>,
    page: usize,
    calls: Mutex<BTreeMap<String, usize>>,
    /// How many calls of a thousand fail, and the state of the dice.
    faults: Mutex<(u64, u64)>,
    hook: Mutex<Option<Hook>>,
}

impl Fake {
    /// An empty Azure whose lists have `page` entries on a page. Every call takes a millisecond.
    pub(crate) fn new(page: usize) -> Arc<Self> {
        let (state, calls, hook) = Default::default();
        Arc::new(Self { state, page, calls, faults: Mutex::new((0, 0)), hook })
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub(crate) fn fail(&self, per_mille: u64, seed: u64) {
        *self.faults.lock().unwrap() = (per_mille, seed);
    }

    /// Has `hook` see, and change, what there is when a call of the given name arrives. Where it returns true, the call fails.
    pub(crate) fn on_call(&self, hook: impl FnMut(&str, &mut State) -> bool + Send + 'static) {
        *self.hook.lock().unwrap() = Some(Box::new(hook));
    }

    /// The calls since this was last asked.
    pub(crate) fn take_calls(&self) -> BTreeMap<String, usize> {
        std::mem::take(&mut self.calls.lock().unwrap())
    }

    async fn arrive(&self, name: &str) -> Result<()> {
        tokio::time::sleep(Duration::from_millis(1)).await;
        *self.calls.lock().unwrap().entry(name.to_owned()).or_default() += 1;
        let fails = self.hook.lock().unwrap().as_mut().is_some_and(|hook| hook(name, &mut self.state()));
        let mut faults = self.faults.lock().unwrap();
        faults.1 = faults.1.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        if fails || (faults.1 >> 33) % 1000 < faults.0 {
            return Err(Error::new(ErrorKind::Transient, "bad luck"));
        }
        Ok(())
    }

    /// All pages, each as things are when its turn comes; `None` once there is no such list any more.
    async fn pages<T: Send>(
        &self,
        name: &str,
        list: impl Fn(&State) -> Option<Vec<T>> + Send + Sync,
    ) -> Result<Option<Vec<T>>> {
        let mut items = Vec::new();
        for page in 0.. {
            self.arrive(name).await?;
            let Some(all) = list(&self.state()) else { break };
            let more = all.len() > (page + 1) * self.page;
            items.extend(all.into_iter().skip(page * self.page).take(self.page));
            if !more {
                return Ok(Some(items));
            }
        }
        Ok(None)
    }

    async fn machines(
        &self,
        name: &str,
        set: &ScaleSetKey,
        view: View,
    ) -> Result<Option<Vec<VirtualMachine>>> {
        let list = |state: &State| {
            state.sets.get(set)?;
            let of = state.machines.values().filter(|(of, _)| of == set);
            Some(of.map(|(_, machine)| viewed(machine, view)).collect())
        };
        self.pages(name, list).await
    }
}

fn viewed(machine: &VirtualMachine, view: View) -> VirtualMachine {
    let mut machine = machine.clone();
    if view == View::Settings {
        machine.properties.instance_view = None;
    }
    machine
}

fn absent() -> Error {
    Error::new(ErrorKind::NotFound, "it is not there").with_code("ResourceNotFound")
}

/// Replaces `current` with what was sent, and nothing else: what was not sent is lost.
fn replace<P: Clone>(
    current: &mut Resource<P>,
    sent: &Resource<P>,
    etag: Option<String>,
) -> Result<Resource<P>> {
    if sent.etag.is_some() && sent.etag != current.etag {
        return Err(Error::new(ErrorKind::PreconditionFailed, "the ETag is an old one"));
    }
    *current = Resource { etag, ..sent.clone() };
    Ok(current.clone())
}

#[async_trait]
impl VmssApi for Fake {
    async fn list_scale_sets(&self, _: &CallContext, group: &ResourceGroupKey) -> Result<Vec<ScaleSet>> {
        let list = |state: &State| {
            Some(
                state
                    .sets
                    .iter()
                    .filter(|(key, _)| key.group() == *group)
                    .map(|(_, set)| set.clone())
                    .collect(),
            )
        };
        Ok(self.pages("list sets", list).await?.unwrap_or_default())
    }

    async fn get_scale_set(&self, _: &CallContext, set: &ScaleSetKey) -> Result<Option<ScaleSet>> {
        self.arrive("get set").await?;
        Ok(self.state().sets.get(set).cloned())
    }

    async fn put_scale_set(&self, _: &CallContext, set: &ScaleSetKey, sent: &ScaleSet) -> Result<ScaleSet> {
        self.arrive("put set").await?;
        let mut state = self.state();
        let etag = state.etag();
        replace(state.sets.get_mut(set).ok_or_else(absent)?, sent, etag)
    }

    async fn set_capacity(&self, _: &CallContext, set: &ScaleSetKey, capacity: u32) -> Result<()> {
        self.arrive("set capacity").await?;
        let mut state = self.state();
        let etag = state.etag();
        let set = state.sets.get_mut(set).ok_or_else(absent)?;
        (set.etag, set.sku.as_mut().unwrap().capacity) = (etag, Some(capacity));
        Ok(())
    }

    async fn delete_instances(&self, _: &CallContext, set: &ScaleSetKey, ids: &[String]) -> Result<()> {
        self.arrive("delete instances").await?;
        let mut state = self.state();
        let id =
            |text: &String| text.parse().map_or_else(|_| member(set, text), |number| set.instance(number));
        let ids: Vec<ProviderId> = ids.iter().map(id).collect();
        if ids.iter().any(|id| !state.machines.contains_key(id)) {
            return Err(Error::new(ErrorKind::Invalid, "not an active instance"));
        }
        ids.iter().for_each(|id| state.remove_machine(id));
        Ok(())
    }

    async fn list_instances(
        &self,
        _: &CallContext,
        set: &ScaleSetKey,
        view: View,
    ) -> Result<Option<Vec<VirtualMachine>>> {
        self.machines("list instances", set, view).await
    }

    async fn list_members(
        &self,
        _: &CallContext,
        set: &ScaleSetKey,
        view: View,
    ) -> Result<Option<Vec<VirtualMachine>>> {
        Ok(Some(self.machines("list members", set, view).await?.unwrap_or_default()))
    }

    async fn get_machine(&self, _: &CallContext, id: &ProviderId) -> Result<Option<VirtualMachine>> {
        self.arrive("get machine").await?;
        Ok(self.state().machines.get(id).map(|(_, machine)| viewed(machine, View::Settings)))
    }

    async fn put_machine(
        &self,
        _: &CallContext,
        id: &ProviderId,
        sent: &VirtualMachine,
    ) -> Result<VirtualMachine> {
        self.arrive("put machine").await?;
        let mut state = self.state();
        let (etag, of_set) = (state.etag(), state.etag());
        let (set, machine) = state.machines.get_mut(id).ok_or_else(absent)?;
        let set = set.clone();
        let machine = replace(machine, sent, etag)?;
        state.sets.get_mut(&set).unwrap().etag = of_set;
        Ok(machine)
    }

    async fn list_instance_interfaces(
        &self,
        _: &CallContext,
        set: &ScaleSetKey,
    ) -> Result<Option<Vec<NetworkInterface>>> {
        let prefix = format!("{set}/");
        let list = |state: &State| {
            state.sets.get(set)?;
            let of = state.interfaces.iter().filter(|(id, _)| id.to_string().starts_with(&prefix));
            Some(of.map(|(_, nic)| nic.clone()).collect())
        };
        self.pages("list instance interfaces", list).await
    }

    async fn list_interfaces(
        &self,
        _: &CallContext,
        group: &ResourceGroupKey,
    ) -> Result<Vec<NetworkInterface>> {
        let list = |state: &State| {
            let of = state.interfaces.iter().filter(|(id, _)| {
                id.parent().is_none() && id.resource_group().eq_ignore_ascii_case(group.name.as_str())
            });
            Some(of.map(|(_, nic)| nic.clone()).collect())
        };
        Ok(self.pages("list interfaces", list).await?.unwrap_or_default())
    }

    async fn get_interface(&self, _: &CallContext, id: &ResourceId) -> Result<Option<NetworkInterface>> {
        self.arrive("get interface").await?;
        Ok(self.state().interfaces.get(id).cloned())
    }

    async fn put_interface(
        &self,
        _: &CallContext,
        id: &ResourceId,
        sent: &NetworkInterface,
    ) -> Result<NetworkInterface> {
        self.arrive("put interface").await?;
        let mut state = self.state();
        let etag = state.etag();
        replace(state.interfaces.get_mut(id).ok_or_else(absent)?, sent, etag)
    }
}
