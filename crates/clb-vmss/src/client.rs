//! The real compute and network resource providers.

use async_trait::async_trait;
use clb_arm::http::StatusCode;
use clb_arm::{ArmClient, Request, ResourceId};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::models::{InstanceView, NetworkInterface, ScaleSet, VirtualMachine};
use crate::{
    CallContext, Error, ErrorKind, ProviderId, ResourceGroupKey, Result, ScaleSetKey, View, VmssApi,
};

/// The version of the compute API that the models follow; the one that the recorded traffic speaks.
pub const COMPUTE_API_VERSION: &str = "2025-04-01";

/// The version of the network API that the models follow; the one that the recorded traffic speaks.
pub const NETWORK_API_VERSION: &str = "2025-05-01";

/// [`VmssApi`] over Azure Resource Manager. Cloning is cheap.
///
/// Retries, pacing and the shared budget are those of the [`ArmClient`]. Compute's own 429s carry `Retry-After` like those
/// of the gate, and close the same door.
#[derive(Clone, Debug)]
pub struct VmssClient {
    arm: ArmClient,
    compute: String,
    network: String,
}

impl VmssClient {
    /// A client over `arm`.
    #[must_use]
    pub fn new(arm: ArmClient) -> Self {
        Self { arm, compute: COMPUTE_API_VERSION.to_owned(), network: NETWORK_API_VERSION.to_owned() }
    }

    /// With other versions of the APIs than [`COMPUTE_API_VERSION`] and [`NETWORK_API_VERSION`].
    #[must_use]
    pub fn with_api_versions(mut self, compute: impl Into<String>, network: impl Into<String>) -> Self {
        self.compute = compute.into();
        self.network = network.into();
        self
    }

    /// The client that the calls are made with, to make others or to [resume](ArmClient::resume) an operation.
    #[must_use]
    pub fn arm(&self) -> &ArmClient {
        &self.arm
    }

    /// What an instance is doing.
    ///
    /// # Errors
    /// Of any kind.
    pub async fn get_instance_view(
        &self,
        call: &CallContext,
        id: &ProviderId,
    ) -> Result<Option<InstanceView>> {
        there(self.arm.get(self.compute(format!("{}/instanceView", id.resource_id()), call)).await)
    }

    /// Deletes a machine; one that is not there is deleted.
    ///
    /// # Errors
    /// Of any kind.
    pub async fn delete_machine(&self, call: &CallContext, id: &ProviderId) -> Result<()> {
        self.arm.delete(self.compute(id.resource_id(), call)).await
    }

    /// Deletes a scale set with all its instances; one that is not there is deleted.
    ///
    /// # Errors
    /// Of any kind.
    pub async fn delete_scale_set(&self, call: &CallContext, set: &ScaleSetKey) -> Result<()> {
        self.arm.delete(self.compute(set.to_string(), call)).await
    }

    /// Deletes a network interface; one that is not there is deleted.
    ///
    /// # Errors
    /// Of any kind.
    pub async fn delete_interface(&self, call: &CallContext, id: &ResourceId) -> Result<()> {
        self.arm.delete(self.network(id.to_string(), call)).await
    }

    fn compute(&self, path: impl Into<String>, call: &CallContext) -> Request {
        Request::new(path, &self.compute, call)
    }

    fn network(&self, path: impl Into<String>, call: &CallContext) -> Request {
        Request::new(path, &self.network, call)
    }

    async fn put<T: Serialize + DeserializeOwned + Sync>(
        &self,
        request: Request,
        etag: Option<&str>,
        resource: &T,
    ) -> Result<T> {
        let request = match etag {
            Some(etag) => request.if_match(etag)?,
            None => request,
        };
        self.arm.put(request, to_json(resource)?).await
    }
}

fn to_json<T: Serialize>(value: &T) -> Result<Vec<u8>> {
    serde_json::to_vec(value)
        .map_err(|error| Error::new(ErrorKind::Invalid, "the request cannot be written").with_source(error))
}

/// The result, in which what does not exist is `None` instead of an error.
fn there<T>(result: Result<T>) -> Result<Option<T>> {
    match result {
        Ok(resource) => Ok(Some(resource)),
        Err(error) if is_absence(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether the error says that the resource does not exist, or soon will not.
///
/// A removed node loses its traffic, so a bare 404 is not enough: a proxy answers that, too, and Azure itself when the
/// subscription is wrong. The codes are those of the recorded traffic and of the published REST description.
pub(crate) fn is_absence(error: &Error) -> bool {
    const ABSENT: [&str; 4] =
        ["ResourceNotFound", "NotFound", "ParentResourceNotFound", "ResourceGroupNotFound"];
    let says_so = |text: &str| text.to_ascii_lowercase().contains("delet");
    match error.status() {
        Some(StatusCode::NOT_FOUND) => {
            error.codes().iter().any(|code| ABSENT.iter().any(|absent| code.eq_ignore_ascii_case(absent)))
        }
        // `ResourceGroupBeingDeleted` and its like, or Compute's prose about an instance that is going.
        Some(StatusCode::CONFLICT) => {
            error.codes().iter().any(|code| says_so(code)) || says_so(error.message())
        }
        Some(_) | None => false,
    }
}

fn with_view(request: Request, view: View) -> Request {
    match view {
        View::Settings => request,
        View::WithStatus => request.query("$expand", "instanceView"),
    }
}

#[async_trait]
impl VmssApi for VmssClient {
    async fn list_scale_sets(&self, call: &CallContext, group: &ResourceGroupKey) -> Result<Vec<ScaleSet>> {
        let path = format!("{group}/providers/Microsoft.Compute/virtualMachineScaleSets");
        there(self.arm.list(self.compute(path, call)).await).map(Option::unwrap_or_default)
    }

    async fn get_scale_set(&self, call: &CallContext, set: &ScaleSetKey) -> Result<Option<ScaleSet>> {
        there(self.arm.get(self.compute(set.to_string(), call)).await)
    }

    async fn put_scale_set(
        &self,
        call: &CallContext,
        set: &ScaleSetKey,
        scale_set: &ScaleSet,
    ) -> Result<ScaleSet> {
        self.put(self.compute(set.to_string(), call), scale_set.etag.as_deref(), scale_set).await
    }

    async fn set_capacity(&self, call: &CallContext, set: &ScaleSetKey, capacity: u32) -> Result<()> {
        let body = to_json(&json!({"sku": {"capacity": capacity}}))?;
        self.arm.patch::<ScaleSet>(self.compute(set.to_string(), call), body).await.map(drop)
    }

    async fn delete_instances(
        &self,
        call: &CallContext,
        set: &ScaleSetKey,
        instance_ids: &[String],
    ) -> Result<()> {
        let body = to_json(&json!({"instanceIds": instance_ids}))?;
        self.arm.post_action(self.compute(format!("{set}/delete"), call), body).await.map(drop)
    }

    async fn list_instances(
        &self,
        call: &CallContext,
        set: &ScaleSetKey,
        view: View,
    ) -> Result<Option<Vec<VirtualMachine>>> {
        there(self.arm.list(with_view(self.compute(format!("{set}/virtualMachines"), call), view)).await)
    }

    async fn list_members(
        &self,
        call: &CallContext,
        set: &ScaleSetKey,
        view: View,
    ) -> Result<Option<Vec<VirtualMachine>>> {
        let path = format!("{}/providers/Microsoft.Compute/virtualMachines", set.group());
        let filter = format!("'virtualMachineScaleSet/id' eq '{set}'");
        there(self.arm.list(with_view(self.compute(path, call).query("$filter", &filter), view)).await)
    }

    async fn get_machine(&self, call: &CallContext, id: &ProviderId) -> Result<Option<VirtualMachine>> {
        there(self.arm.get(self.compute(id.resource_id(), call)).await)
    }

    async fn put_machine(
        &self,
        call: &CallContext,
        id: &ProviderId,
        machine: &VirtualMachine,
    ) -> Result<VirtualMachine> {
        self.put(self.compute(id.resource_id(), call), machine.etag.as_deref(), machine).await
    }

    async fn list_instance_interfaces(
        &self,
        call: &CallContext,
        set: &ScaleSetKey,
    ) -> Result<Option<Vec<NetworkInterface>>> {
        there(self.arm.list(self.network(format!("{set}/networkInterfaces"), call)).await)
    }

    async fn list_interfaces(
        &self,
        call: &CallContext,
        group: &ResourceGroupKey,
    ) -> Result<Vec<NetworkInterface>> {
        let path = format!("{group}/providers/Microsoft.Network/networkInterfaces");
        there(self.arm.list(self.network(path, call)).await).map(Option::unwrap_or_default)
    }

    async fn get_interface(&self, call: &CallContext, id: &ResourceId) -> Result<Option<NetworkInterface>> {
        there(self.arm.get(self.network(id.to_string(), call)).await)
    }

    async fn put_interface(
        &self,
        call: &CallContext,
        id: &ResourceId,
        interface: &NetworkInterface,
    ) -> Result<NetworkInterface> {
        self.put(self.network(id.to_string(), call), interface.etag.as_deref(), interface).await
    }
}
