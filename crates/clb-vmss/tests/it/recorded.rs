//! Recorded traffic with the real service, played back: the client must send what was sent, in that order, and
//! understand what came back.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use clb_arm::http::{self, Response};
use clb_arm::{Anonymous, ArmClient, Cloud, Endpoint, Request, Transport, TransportError};
use clb_vmss::models::{OrchestrationMode, ProvisioningState};
use clb_vmss::{CallContext, ErrorKind, Power, ResourceGroupKey, ScaleSetKey, View, VmssApi, VmssClient};
use serde::Deserialize;
use serde_json::Value;

const RECORDINGS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/cassettes");
const SUBSCRIPTION: &str = "00000000-0000-0000-0000-000000000000";

#[derive(Debug, Deserialize)]
struct Recording {
    interactions: Vec<Interaction>,
}

#[derive(Clone, Debug, Deserialize)]
struct Interaction {
    request: RecordedRequest,
    response: RecordedResponse,
}

#[derive(Clone, Debug, Deserialize)]
struct RecordedRequest {
    method: String,
    url: String,
    body: String,
    headers: BTreeMap<String, Vec<String>>,
}

#[derive(Clone, Debug, Deserialize)]
struct RecordedResponse {
    code: u16,
    body: String,
    headers: BTreeMap<String, Vec<String>>,
}

/// Plays a recording back.
#[derive(Clone, Debug)]
struct Player(Arc<Mutex<VecDeque<Interaction>>>);

impl Player {
    /// Plays the interactions whose URL has one of `parts` in it, in order.
    fn load(name: &str, parts: &[&str]) -> Option<Self> {
        let path = Path::new(RECORDINGS).join(name);
        if !path.exists() {
            println!("skipped: there is no recording {}", path.display());
            return None;
        }
        let recording: Recording = serde_saphyr::from_str(&fs::read_to_string(path).unwrap()).unwrap();
        let relevant = |one: &Interaction| parts.iter().any(|part| one.request.url.contains(part));
        let interactions: VecDeque<_> = recording.interactions.into_iter().filter(relevant).collect();
        assert!(!interactions.is_empty());
        Some(Self(Arc::new(Mutex::new(interactions))))
    }

    fn client(&self) -> VmssClient {
        let endpoint = Endpoint::new(&Cloud::Public).unwrap();
        VmssClient::new(ArmClient::builder(endpoint, Anonymous, self.clone()).build())
    }

    /// The body of the request that is due, as the model it was made from.
    fn next_body<T: for<'de> Deserialize<'de>>(&self) -> T {
        serde_json::from_str(&self.0.lock().unwrap().front().unwrap().request.body).unwrap()
    }

    fn finish(&self) {
        assert_eq!(self.0.lock().unwrap().len(), 0, "the recording goes on");
    }
}

/// A body as a value, none if it is empty.
fn json(body: &[u8]) -> Value {
    if body.is_empty() { Value::Null } else { serde_json::from_slice(body).unwrap() }
}

#[async_trait]
impl Transport for Player {
    async fn send(&self, request: http::Request<Vec<u8>>) -> Result<Response<Vec<u8>>, TransportError> {
        let Interaction { request: recorded, response } =
            self.0.lock().unwrap().pop_front().expect("nothing more was recorded");
        assert_eq!(request.method().as_str(), recorded.method);
        assert_eq!(request.uri().to_string().to_lowercase(), recorded.url.to_lowercase());
        assert_eq!(json(request.body()), json(recorded.body.as_bytes()), "{}", recorded.url);
        let if_match = request.headers().get("if-match").map(|value| value.to_str().unwrap().to_owned());
        assert_eq!(if_match, recorded.headers.get("If-Match").map(|values| values[0].clone()));
        let mut answer = Response::builder().status(response.code);
        for (name, values) in &response.headers {
            for value in values {
                answer = answer.header(name, value);
            }
        }
        Ok(answer.body(response.body.into_bytes()).unwrap())
    }
}

fn call() -> CallContext {
    CallContext::random()
}

fn group(name: &str) -> ResourceGroupKey {
    ResourceGroupKey { subscription: SUBSCRIPTION.parse().unwrap(), name: name.parse().unwrap() }
}

fn set(group: &str, name: &str) -> ScaleSetKey {
    ScaleSetKey {
        subscription: SUBSCRIPTION.parse().unwrap(),
        resource_group: group.parse().unwrap(),
        name: name.parse().unwrap(),
    }
}

#[tokio::test(start_paused = true)]
async fn scale_sets() {
    // The scale set's own operations stand between those of its network.
    let parts = ["/virtualMachineScaleSets", "/providers/Microsoft.Compute/locations/"];
    let Some(player) = Player::load("virtualmachinescaleset.yaml", &parts) else { return };
    let vmss = player.client();
    let key = set("aks-cit-VirtualMachineScaleSet", "testResource");

    assert_eq!(vmss.get_scale_set(&call(), &key).await.unwrap(), None);
    let created = vmss.put_scale_set(&call(), &key, &player.next_body()).await.unwrap();
    assert_eq!(created.orchestration(), OrchestrationMode::Uniform);
    assert_eq!(created.computer_name_prefix(), Some("vmss"));
    assert_eq!(created.etag.as_deref(), Some("\"1\""));
    assert_eq!(created.sku.as_ref().and_then(|sku| sku.capacity), Some(1));
    assert_eq!(created.properties.provisioning_state, Some(ProvisioningState::Succeeded));
    assert_eq!(created.id.as_deref().and_then(ScaleSetKey::from_resource_id), Some(key.clone()));
    // Put again, without an ETag and with one that is not the current one.
    assert_eq!(vmss.put_scale_set(&call(), &key, &player.next_body()).await.unwrap(), created);
    let error = vmss.put_scale_set(&call(), &key, &player.next_body()).await.unwrap_err();
    assert_eq!((error.kind(), error.code()), (ErrorKind::PreconditionFailed, Some("PreconditionFailed")));
    assert_eq!(vmss.list_scale_sets(&call(), &key.group()).await.unwrap(), [created]);
    let nowhere = group("aks-cit-VirtualMachineScaleSetnotfound");
    assert_eq!(vmss.list_scale_sets(&call(), &nowhere).await.unwrap(), []);
    vmss.delete_scale_set(&call(), &key).await.unwrap();
    player.finish();
}

#[tokio::test(start_paused = true)]
async fn instances() {
    let parts = ["/virtualMachineScaleSets", "/providers/Microsoft.Compute/locations/"];
    let Some(player) = Player::load("virtualmachinescalesetvm.yaml", &parts) else { return };
    let vmss = player.client();
    let key = set("aks-cit-VirtualMachineScaleSetVM", "testParentResource");
    let id = key.instance(0);

    vmss.put_scale_set(&call(), &key, &player.next_body()).await.unwrap();
    let view = vmss.get_instance_view(&call(), &id).await.unwrap().unwrap();
    assert!(view.statuses.iter().any(|status| status.code.is_some()));
    let listed = vmss.list_instances(&call(), &key, View::Settings).await.unwrap().unwrap();
    let [instance] = listed.as_slice() else { panic!("{listed:?}") };
    assert_eq!(instance.provider_id(), Some(id.clone()));
    // A listing without instance view says nothing about power.
    assert_eq!(instance.power(), Power::Unknown);
    assert_eq!(instance.properties.os_profile.computer_name.as_deref(), Some("vmss000000"));
    assert_eq!(instance.properties.latest_model_applied, Some(true));
    let nowhere = set("aks-cit-VirtualMachineScaleSetVMnotfound", "testParentResource");
    assert_eq!(vmss.list_instances(&call(), &nowhere, View::Settings).await.unwrap(), None);
    let changed = vmss.put_machine(&call(), &id, &player.next_body()).await.unwrap();
    let error = vmss.put_machine(&call(), &id, &player.next_body()).await.unwrap_err();
    assert_eq!((error.kind(), error.code()), (ErrorKind::PreconditionFailed, Some("PreconditionFailed")));
    assert_eq!(vmss.get_machine(&call(), &id).await.unwrap(), Some(changed));
    // The crate's own types cannot name such an instance.
    let request = Request::new(format!("{key}/virtualMachines/0notfound"), "2025-04-01", &call());
    let error = vmss.arm().get::<Value>(request).await.unwrap_err();
    assert_eq!((error.kind(), error.code()), (ErrorKind::Invalid, Some("InvalidParameter")));
    vmss.delete_machine(&call(), &id).await.unwrap();
    vmss.delete_scale_set(&call(), &key).await.unwrap();
    player.finish();
}

#[tokio::test(start_paused = true)]
async fn interfaces() {
    // The operations of the virtual network are the first and the last of those recorded.
    let parts = ["/networkInterfaces", "/providers/Microsoft.Network/locations/"];
    let Some(player) = Player::load("interface.yaml", &parts) else { return };
    player.0.lock().unwrap().pop_front();
    player.0.lock().unwrap().pop_back();
    let vmss = player.client();
    let group_name = group("aks-cit-Interface");
    let id = |name: &str| {
        format!("{}/providers/Microsoft.Network/networkInterfaces/{name}", group("aks-cit-Interface"))
            .parse()
            .unwrap()
    };

    let created = vmss.put_interface(&call(), &id("testResource"), &player.next_body()).await.unwrap();
    let [ip] = created.properties.ip_configurations.as_slice() else { panic!("{created:?}") };
    assert_eq!(ip.properties.private_ip, Some([10, 0, 0, 4].into()));
    assert_eq!(vmss.get_interface(&call(), &id("testResource")).await.unwrap(), Some(created.clone()));
    assert_eq!(vmss.get_interface(&call(), &id("testResourcenotfound")).await.unwrap(), None);
    let again = vmss.put_interface(&call(), &id("testResource"), &player.next_body()).await.unwrap();
    assert_eq!(again, created);
    assert_eq!(vmss.list_interfaces(&call(), &group_name).await.unwrap(), [created]);
    assert_eq!(vmss.list_interfaces(&call(), &group("aks-cit-Interfacenotfound")).await.unwrap(), []);
    vmss.delete_interface(&call(), &id("testResource")).await.unwrap();
    player.finish();
}
