//! What Azure can be asked about scale sets and their machines.

use async_trait::async_trait;
use clb_arm::ResourceId;

use crate::models::{NetworkInterface, ScaleSet, VirtualMachine};
use crate::{CallContext, ProviderId, ResourceGroupKey, Result, ScaleSetKey};

/// How much a list of machines tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// The machines' settings, and nothing about whether they run.
    Settings,
    /// The machines' settings and their instance views, in which power is.
    WithStatus,
}

/// The calls on Azure's compute and network resource providers that this crate needs. [`VmssClient`](crate::VmssClient)
/// makes them real; tests and embedders may bring their own.
///
/// Every method performs one logical call to its end, long-running operation and pages included. Lists are whole or an
/// error. Errors are as in [`clb_arm`].
///
/// What is not there is `None`, and its list is `None` or empty: a resource, its scale set or its group that does not
/// exist (404 with `ResourceNotFound`, `NotFound`, `ParentResourceNotFound` or `ResourceGroupNotFound`), or that is being
/// deleted (409 that says so). Any other 404, such as that of a proxy or for a subscription, is an error.
#[async_trait]
pub trait VmssApi: Send + Sync {
    /// All scale sets of a resource group; none if there is no such group.
    async fn list_scale_sets(&self, call: &CallContext, group: &ResourceGroupKey) -> Result<Vec<ScaleSet>>;

    /// One scale set.
    async fn get_scale_set(&self, call: &CallContext, set: &ScaleSetKey) -> Result<Option<ScaleSet>>;

    /// Creates or replaces a scale set. If it carries an ETag, only that version is replaced.
    async fn put_scale_set(
        &self,
        call: &CallContext,
        set: &ScaleSetKey,
        scale_set: &ScaleSet,
    ) -> Result<ScaleSet>;

    /// Changes how many machines a scale set should have, and nothing else of it.
    async fn set_capacity(&self, call: &CallContext, set: &ScaleSetKey, capacity: u32) -> Result<()>;

    /// Deletes machines of a scale set: numbers of uniform instances, names of flexible members. The capacity sinks by as
    /// many.
    async fn delete_instances(
        &self,
        call: &CallContext,
        set: &ScaleSetKey,
        instance_ids: &[String],
    ) -> Result<()>;

    /// All instances of a uniform scale set.
    async fn list_instances(
        &self,
        call: &CallContext,
        set: &ScaleSetKey,
        view: View,
    ) -> Result<Option<Vec<VirtualMachine>>>;

    /// All virtual machines of a flexible scale set. If there is no such scale set, the list may also be empty.
    async fn list_members(
        &self,
        call: &CallContext,
        set: &ScaleSetKey,
        view: View,
    ) -> Result<Option<Vec<VirtualMachine>>>;

    /// One machine, with its settings only.
    async fn get_machine(&self, call: &CallContext, id: &ProviderId) -> Result<Option<VirtualMachine>>;

    /// Replaces a machine's settings. If it carries an ETag, only that version is replaced.
    async fn put_machine(
        &self,
        call: &CallContext,
        id: &ProviderId,
        machine: &VirtualMachine,
    ) -> Result<VirtualMachine>;

    /// The network interfaces of all instances of a uniform scale set, as one list.
    async fn list_instance_interfaces(
        &self,
        call: &CallContext,
        set: &ScaleSetKey,
    ) -> Result<Option<Vec<NetworkInterface>>>;

    /// All network interfaces of a resource group that are resources of their own, as those of flexible members are; none
    /// if there is no such group.
    async fn list_interfaces(
        &self,
        call: &CallContext,
        group: &ResourceGroupKey,
    ) -> Result<Vec<NetworkInterface>>;

    /// One network interface.
    async fn get_interface(&self, call: &CallContext, id: &ResourceId) -> Result<Option<NetworkInterface>>;

    /// Creates or replaces a network interface. If it carries an ETag, only that version is replaced.
    async fn put_interface(
        &self,
        call: &CallContext,
        id: &ResourceId,
        interface: &NetworkInterface,
    ) -> Result<NetworkInterface>;
}
