//! What a scale set consists of, put together from what Azure lists. Pure: models in, records out.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use clb_arm::ResourceId;

use crate::models::{
    InterfaceProperties, IpConfiguration, NetworkInterface, OrchestrationMode, ProvisioningState, ScaleSet,
    VirtualMachine,
};
use crate::{ComputerName, Listing, Machine, Power, ProviderId, ScaleSetKey};

/// How far a machine is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MachineState {
    /// It is being created, or has no host name or network interface yet.
    BeingMade,
    /// It is there.
    Ready,
    /// It is there, and a change of it goes on.
    Updating,
    /// Its last change failed. It may well run.
    Failed,
    /// It is being deleted, and counts as absent.
    Deleting,
}

/// One machine of a scale set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRecord {
    /// Which machine it is: subscription, resource group, scale set and number, or name.
    pub id: ProviderId,
    /// Azure's unique id of it, which a new machine of the same number does not have.
    pub vm_id: Option<String>,
    /// The name of its Kubernetes Node, in lower case; none until it has a host name.
    pub node: Option<String>,
    /// Its private addresses, canonical: of each family the primary one of the primary interface first, IPv4 before IPv6.
    pub ips: Vec<IpAddr>,
    /// Whether it runs.
    pub power: Power,
    /// Whether it is as its scale set's model is now; never said of a flexible member.
    pub latest_model_applied: Option<bool>,
    /// How far it is in its life.
    pub state: MachineState,
}

impl NodeRecord {
    /// What `machine` is, with `interfaces`, which may be others', too.
    #[must_use]
    pub fn new(id: ProviderId, machine: &VirtualMachine, interfaces: &[NetworkInterface]) -> Self {
        let index = InterfaceIndex::new(interfaces);
        let interfaces = index.of(&id, machine);
        Self::with(id, machine, &interfaces)
    }

    fn with(id: ProviderId, machine: &VirtualMachine, interfaces: &[&NetworkInterface]) -> Self {
        let properties = &machine.properties;
        let text = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        let node = text(&properties.os_profile.computer_name).map(|name| name.to_ascii_lowercase());
        let ips = addresses(interfaces.iter().map(|one| &one.properties));
        Self {
            id,
            vm_id: text(&properties.vm_id),
            state: state(properties.provisioning_state.as_ref(), node.is_some() && !ips.is_empty()),
            node,
            ips,
            power: machine.power(),
            latest_model_applied: properties.latest_model_applied,
        }
    }
}

/// The machines of a scale set at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    orchestration: OrchestrationMode,
    capacity: Option<u32>,
    prefix: Option<String>,
    records: BTreeMap<ProviderId, NodeRecord>,
    by_node: BTreeMap<String, ProviderId>,
}

impl Snapshot {
    /// What `machines` of `scale_set` with `interfaces` are. Interfaces of other machines do no harm, and a machine that
    /// two pages hold counts once.
    #[must_use]
    pub fn new(scale_set: &ScaleSet, machines: &[VirtualMachine], interfaces: &[NetworkInterface]) -> Self {
        let index = InterfaceIndex::new(interfaces);
        let records: BTreeMap<ProviderId, NodeRecord> = machines
            .iter()
            .filter_map(|machine| {
                let id = machine.provider_id()?;
                let record = NodeRecord::with(id.clone(), machine, &index.of(&id, machine));
                Some((id, record))
            })
            .collect();
        let by_node = records
            .values()
            // A name that two machines bear, as while one replaces the other, is that of the one that stays.
            .filter(|record| record.state != MachineState::Deleting)
            .filter_map(|record| Some((record.node.clone()?, record.id.clone())))
            .collect();
        Self {
            orchestration: scale_set.orchestration(),
            capacity: scale_set.sku.as_ref().and_then(|sku| sku.capacity),
            prefix: scale_set.computer_name_prefix().map(str::to_ascii_lowercase),
            records,
            by_node,
        }
    }

    /// How the scale set's machines are kept.
    #[must_use]
    pub fn orchestration(&self) -> &OrchestrationMode {
        &self.orchestration
    }

    /// How many machines the scale set should have, as its resource last said.
    #[must_use]
    pub fn capacity(&self) -> Option<u32> {
        self.capacity
    }

    /// All machines, those that are being made or deleted included.
    pub fn records(&self) -> impl Iterator<Item = &NodeRecord> {
        self.records.values()
    }

    /// The machine with this id.
    #[must_use]
    pub fn get(&self, id: &ProviderId) -> Option<&NodeRecord> {
        self.records.get(id)
    }

    /// The machine of the Kubernetes Node `node`, in any casing.
    ///
    /// An instance that has no host name yet is found by what it will be; a machine that is called so comes first, since
    /// the name of a plain virtual machine can look the same.
    #[must_use]
    pub fn find(&self, node: &str) -> Option<&NodeRecord> {
        let node = node.to_ascii_lowercase();
        if let Some(id) = self.by_node.get(&node) {
            return self.records.get(id);
        }
        let name: ComputerName = node.parse().ok()?;
        self.prefix.as_deref().filter(|prefix| *prefix == name.prefix())?;
        self.records.values().find(|record| {
            record.node.is_none()
                && matches!(record.id, ProviderId::Uniform { instance_id, .. } if instance_id == name.instance_id())
        })
    }

    /// The nodes, as [`NodeDiffer`](crate::NodeDiffer) takes them. A machine that is being deleted is absent, and one that
    /// never had a host name is not there yet. What this listing happens not to say about a machine of `before`, such as
    /// the host name of an instance that is being reimaged, is as it was there.
    #[must_use]
    pub fn listing(&self, before: Option<&Listing>) -> Listing {
        let known: BTreeMap<&ProviderId, (&String, &Machine)> =
            before.into_iter().flatten().map(|(node, machine)| (&machine.id, (node, machine))).collect();
        let mut listing = Listing::new();
        for record in self.records.values().filter(|record| record.state != MachineState::Deleting) {
            let before = known.get(&record.id).copied();
            let node = record.node.as_ref().or(before.map(|(node, _)| node));
            let Some(node) = node.filter(|node| !listing.contains_key(*node)) else { continue };
            let vm_id = record.vm_id.clone().or_else(|| before.map(|(_, machine)| machine.vm_id.clone()));
            let machine = Machine {
                id: record.id.clone(),
                vm_id: vm_id.unwrap_or_default(),
                ips: record.ips.iter().copied().collect(),
                power: record.power,
            };
            listing.insert(node.clone(), machine);
        }
        listing
    }
}

/// The machine that an interface is of: as it says, or, if it is an instance's, as its id says.
fn owner(interface: &NetworkInterface) -> Option<ProviderId> {
    let said = interface.properties.virtual_machine.as_ref().and_then(|it| it.id.as_deref());
    said.and_then(ProviderId::from_resource_id)
        .or_else(|| ProviderId::from_resource_id(&interface.resource_id()?.parent()?.to_string()))
}

/// Network interfaces by what they are found by.
struct InterfaceIndex<'a> {
    by_id: BTreeMap<ResourceId, &'a NetworkInterface>,
    by_owner: BTreeMap<ProviderId, Vec<&'a NetworkInterface>>,
}

impl<'a> InterfaceIndex<'a> {
    fn new(interfaces: &'a [NetworkInterface]) -> Self {
        let by_id = interfaces.iter().filter_map(|one| Some((one.resource_id()?, one))).collect();
        let mut by_owner: BTreeMap<ProviderId, Vec<&NetworkInterface>> = BTreeMap::new();
        for interface in interfaces {
            if let Some(owner) = owner(interface) {
                by_owner.entry(owner).or_default().push(interface);
            }
        }
        Self { by_id, by_owner }
    }

    /// The interfaces of a machine, the primary one first: those that it names and that were listed, or, if it names none
    /// that was, those that name it.
    fn of(&self, id: &ProviderId, machine: &VirtualMachine) -> Vec<&'a NetworkInterface> {
        let mut interfaces: Vec<(bool, &NetworkInterface)> = Vec::new();
        let mut seen = BTreeSet::new();
        for reference in &machine.properties.network_profile.interfaces {
            let id = reference.id.as_deref().and_then(|id| id.parse::<ResourceId>().ok());
            let Some(id) = id.filter(|id| seen.insert(id.clone())) else { continue };
            let Some(interface) = self.by_id.get(&id) else { continue };
            let said = reference.properties.as_ref().and_then(|properties| properties.primary);
            interfaces.push((said.or(interface.properties.primary) == Some(true), interface));
        }
        if interfaces.is_empty() {
            let owned = self.by_owner.get(id).into_iter().flatten();
            interfaces.extend(owned.map(|one| (one.properties.primary == Some(true), *one)));
        }
        // Stable, so that the others stay as they are listed.
        interfaces.sort_by_key(|(primary, _)| !primary);
        interfaces.into_iter().map(|(_, interface)| interface).collect()
    }
}

fn state(provisioning: Option<&ProvisioningState>, complete: bool) -> MachineState {
    match provisioning {
        Some(ProvisioningState::Deleting) => MachineState::Deleting,
        Some(ProvisioningState::Creating) => MachineState::BeingMade,
        _ if !complete => MachineState::BeingMade,
        Some(ProvisioningState::Updating) => MachineState::Updating,
        Some(ProvisioningState::Failed | ProvisioningState::Canceled) => MachineState::Failed,
        // Not a word for trouble that is known.
        Some(ProvisioningState::Succeeded | ProvisioningState::Other(_)) | None => MachineState::Ready,
    }
}

/// All addresses: family by family, IPv4 first, each in the order of `interfaces`, and of an interface the primary one
/// first. Each counts once.
fn addresses<'a>(interfaces: impl Iterator<Item = &'a InterfaceProperties>) -> Vec<IpAddr> {
    let mut seen = BTreeSet::new();
    let mut ips: Vec<IpAddr> = interfaces
        .flat_map(|interface| {
            let mut ips: Vec<&IpConfiguration> = interface.ip_configurations.iter().collect();
            ips.sort_by_key(|ip| ip.properties.primary != Some(true));
            ips
        })
        .filter_map(|ip| ip.properties.private_ip.map(|ip| ip.to_canonical()))
        .filter(|ip| seen.insert(*ip))
        .collect();
    ips.sort_by_key(IpAddr::is_ipv6);
    ips
}

/// What the provider id of a Kubernetes Node says it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeKind {
    /// An instance of this uniform scale set.
    Instance(ScaleSetKey, ProviderId),
    /// A virtual machine of its own: a member of a flexible scale set, or standalone. The id does not tell which; a
    /// snapshot or [`Lookup`](crate::Lookup) does.
    VirtualMachine(ProviderId),
    /// Not a machine of Azure, or one that Azure cannot be asked about.
    Unmanaged,
}

impl NodeKind {
    /// What `provider_id`, a Node's `spec.providerID`, says it is. Never an error, so that one odd Node spoils nothing for
    /// the rest.
    #[must_use]
    pub fn of(provider_id: &str) -> Self {
        match provider_id.parse::<ProviderId>() {
            Ok(id) => match ScaleSetKey::of_instance(&id) {
                Some(set) => Self::Instance(set, id),
                None => Self::VirtualMachine(id),
            },
            Err(_) => Self::Unmanaged,
        }
    }
}
