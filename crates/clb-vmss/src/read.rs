//! Reading a whole scale set in as few calls as there are lists.

use std::collections::BTreeSet;

use futures::{StreamExt, TryStreamExt, stream};

use crate::models::{NetworkInterface, OrchestrationMode, ScaleSet, VirtualMachine};
use crate::{CallContext, ResourceGroupKey, ResourceId, Result, ScaleSetKey, Snapshot, View, VmssApi};

/// How many of a scale set's interfaces that are in no list are asked for at the same time.
const SINGLE_READS: usize = 8;

/// Reads the scale set `set`, or finds that it is gone. `known` is its resource from a list of the group; without one, that
/// is read first.
///
/// A uniform scale set takes two lists, its instances and all their network interfaces. A flexible one takes its members
/// and the network interfaces of the resource groups that those are in, and one call for each that is in none of them.
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
            let interfaces = match instances.as_slice() {
                [] => Vec::new(),
                [..] => match api.list_instance_interfaces(call, set).await? {
                    Some(interfaces) => interfaces,
                    None => return Ok(None),
                },
            };
            (instances, interfaces)
        }
    };
    Ok(Some(Snapshot::new(scale_set, &machines, &interfaces)))
}

/// The network interfaces of flexible members, and others of the same groups.
async fn member_interfaces(
    api: &dyn VmssApi,
    call: &CallContext,
    members: &[VirtualMachine],
) -> Result<Vec<NetworkInterface>> {
    let references = members.iter().flat_map(|member| &member.properties.network_profile.interfaces);
    let wanted: BTreeSet<ResourceId> =
        references.filter_map(|reference| reference.id.as_deref()?.parse().ok()).collect();
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
    let listed: BTreeSet<ResourceId> = interfaces.iter().filter_map(NetworkInterface::resource_id).collect();
    let missing: Vec<&ResourceId> = wanted.difference(&listed).collect();
    let single: Vec<Option<NetworkInterface>> = stream::iter(missing)
        .map(|id| api.get_interface(call, id))
        .buffered(SINGLE_READS)
        .try_collect()
        .await?;
    interfaces.extend(single.into_iter().flatten());
    Ok(interfaces)
}
