//! Reading a whole scale set in as few calls as there are lists.

use std::collections::BTreeSet;

use futures::{StreamExt, TryStreamExt, stream};

use crate::models::{NetworkInterface, OrchestrationMode, ProvisioningState, ScaleSet, VirtualMachine};
use crate::{
    CallContext, NodeRecord, ProviderId, ResourceGroupKey, ResourceId, Result, ScaleSetKey, Snapshot, View,
    VmssApi,
};

/// How many of a scale set's interfaces that are in no list are asked for at the same time.
const SINGLE_READS: usize = 8;

/// Reads the scale set `set`, or finds that it is gone. `known` is its resource from a list of the group; without one, that
/// is read first.
///
/// A uniform scale set takes two lists, its instances and all their network interfaces. A flexible one takes its members
/// and the network interfaces of the resource groups that those are in. An interface that a machine names and no list has
/// takes one call more.
///
/// # Errors
/// Of any kind, when any part could not be read: a part of a scale set is not a scale set.
pub async fn read_scale_set(
    api: &dyn VmssApi,
    call: &CallContext,
    set: &ScaleSetKey,
    known: Option<&ScaleSet>,
) -> Result<Option<Snapshot>> {
    let read;
    let scale_set = match known {
        Some(known) => known,
        None => match api.get_scale_set(call, set).await? {
            Some(scale_set) => {
                read = scale_set;
                &read
            }
            None => return Ok(None),
        },
    };
    // Machines first: one that is complete by then has its interfaces in the list that follows.
    let (machines, interfaces) = match scale_set.orchestration() {
        OrchestrationMode::Flexible => {
            let Some(members) = api.list_members(call, set, View::WithStatus).await? else { return Ok(None) };
            // The filter finds nothing in a scale set that is gone, without saying so.
            if members.is_empty() && known.is_some() && api.get_scale_set(call, set).await?.is_none() {
                return Ok(None);
            }
            let interfaces = member_interfaces(api, call, &members).await?;
            (members, interfaces)
        }
        OrchestrationMode::Uniform | OrchestrationMode::Other(_) => {
            let Some(instances) = api.list_instances(call, set, View::WithStatus).await? else {
                return Ok(None);
            };
            // Nothing to ask about, and a set without machines may have no such list.
            if instances.is_empty() {
                return Ok(Some(Snapshot::new(scale_set, &[], &[])));
            }
            let Some(mut interfaces) = api.list_instance_interfaces(call, set).await? else {
                return Ok(None);
            };
            // One can slip from page to page unseen. A machine that comes or goes may not have its own.
            let complete = instances.iter().filter(|one| {
                let state = one.properties.provisioning_state.as_ref();
                !matches!(state, Some(ProvisioningState::Creating | ProvisioningState::Deleting))
            });
            let wanted: BTreeSet<ResourceId> = complete.flat_map(interface_ids).collect();
            interfaces.extend(get_unlisted(api, call, &wanted, &interfaces).await?);
            (instances, interfaces)
        }
    };
    Ok(Some(Snapshot::new(scale_set, &machines, &interfaces)))
}

/// Reads one machine with its network interfaces, and the flexible scale set that it is of, if it is of one. It says nothing
/// about power.
///
/// # Errors
/// Of any kind, when any part could not be read.
pub async fn read_machine(
    api: &dyn VmssApi,
    call: &CallContext,
    id: &ProviderId,
) -> Result<Option<(NodeRecord, Option<ScaleSetKey>)>> {
    let Some(machine) = api.get_machine(call, id).await? else { return Ok(None) };
    let wanted = interface_ids(&machine).collect();
    let interfaces = get_unlisted(api, call, &wanted, &[]).await?;
    let set = machine.properties.scale_set.as_ref();
    let set = set.and_then(|set| ScaleSetKey::from_resource_id(set.id.as_deref()?));
    Ok(Some((NodeRecord::new(id.clone(), &machine, &interfaces), set)))
}

fn interface_ids(machine: &VirtualMachine) -> impl Iterator<Item = ResourceId> {
    let references = machine.properties.network_profile.interfaces.iter();
    references.filter_map(|reference| reference.id.as_deref()?.parse().ok())
}

/// Those of the `wanted` interfaces that are not `listed`, asked for one by one, as far as there are such.
async fn get_unlisted(
    api: &dyn VmssApi,
    call: &CallContext,
    wanted: &BTreeSet<ResourceId>,
    listed: &[NetworkInterface],
) -> Result<Vec<NetworkInterface>> {
    let listed: BTreeSet<ResourceId> = listed.iter().filter_map(NetworkInterface::resource_id).collect();
    let reads: Vec<_> = wanted.difference(&listed).map(|id| api.get_interface(call, id)).collect();
    let reads = stream::iter(reads).buffered(SINGLE_READS);
    let interfaces: Vec<Option<NetworkInterface>> = reads.try_collect().await?;
    Ok(interfaces.into_iter().flatten().collect())
}

/// The network interfaces of flexible members, and others of the same groups.
async fn member_interfaces(
    api: &dyn VmssApi,
    call: &CallContext,
    members: &[VirtualMachine],
) -> Result<Vec<NetworkInterface>> {
    let wanted: BTreeSet<ResourceId> = members.iter().flat_map(interface_ids).collect();
    let group = |id: &ResourceId| {
        Some(ResourceGroupKey {
            subscription: id.subscription().parse().ok()?,
            name: id.resource_group().parse().ok()?,
        })
    };
    let groups: BTreeSet<ResourceGroupKey> = wanted.iter().filter_map(group).collect();
    let mut interfaces = Vec::new();
    for group in &groups {
        interfaces.extend(api.list_interfaces(call, group).await?);
    }
    interfaces.extend(get_unlisted(api, call, &wanted, &interfaces).await?);
    Ok(interfaces)
}
