//! What the client sends, and what it makes of the answers that say that something is not there.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use clb_arm::http::{Request, Response};
use clb_arm::{Anonymous, ArmClient, Cloud, Endpoint, Transport, TransportError};
use clb_vmss::models::VirtualMachine;
use clb_vmss::{ErrorKind, View, VmssApi, VmssClient};
use serde_json::{Value, json};

use crate::fake::{call, group, set};

/// Method and path with query, `If-Match`, and body.
type Asked = (String, Option<String>, Value);

/// Gives the same answer to everything, and notes what was asked.
#[derive(Clone, Debug)]
struct Script {
    status: u16,
    body: Value,
    asked: Arc<Mutex<VecDeque<Asked>>>,
}

impl Script {
    fn new(status: u16, body: Value) -> (Self, VmssClient) {
        let script = Self { status, body, asked: Arc::default() };
        let cloud =
            Cloud::Custom { endpoint: "http://localhost".to_owned(), audience: "https://arm".to_owned() };
        let arm = ArmClient::builder(Endpoint::new(&cloud).unwrap(), Anonymous, script.clone()).build();
        (script, VmssClient::new(arm))
    }

    fn take(&self) -> Asked {
        let mut asked = self.asked.lock().unwrap();
        let one = asked.pop_front().unwrap();
        assert!(asked.is_empty(), "{asked:?}");
        one
    }
}

#[async_trait]
impl Transport for Script {
    async fn send(&self, request: Request<Vec<u8>>) -> Result<Response<Vec<u8>>, TransportError> {
        let uri = request.uri();
        let line = format!("{} {}?{}", request.method(), uri.path(), uri.query().unwrap_or_default());
        let if_match = request.headers().get("if-match").map(|value| value.to_str().unwrap().to_owned());
        let body = serde_json::from_slice(request.body()).unwrap_or_default();
        self.asked.lock().unwrap().push_back((line, if_match, body));
        Ok(Response::builder().status(self.status).body(self.body.to_string().into_bytes()).unwrap())
    }
}

fn refused(code: &str, message: &str) -> Value {
    json!({"error": {"code": code, "message": message}})
}

/// Whether a set, its instances, its members, their interfaces and one machine are not there, and the error otherwise.
async fn absences(client: &VmssClient) -> Vec<Result<bool, ErrorKind>> {
    let key = set("rg", "pool");
    let (call, view) = (call(), View::WithStatus);
    fn none<T>(result: clb_vmss::Result<Option<T>>) -> Result<bool, ErrorKind> {
        result.map(|found| found.is_none()).map_err(|error| error.kind())
    }
    vec![
        none(client.get_scale_set(&call, &key).await),
        none(client.list_instances(&call, &key, view).await),
        none(client.list_members(&call, &key, view).await),
        none(client.list_instance_interfaces(&call, &key).await),
        none(client.get_machine(&call, &key.instance(1)).await),
        none(
            client.list_scale_sets(&call, &group("rg")).await.map(|list| (!list.is_empty()).then_some(list)),
        ),
    ]
}

#[tokio::test(start_paused = true)]
async fn what_does_not_exist_or_is_being_deleted_is_absent() {
    for (status, code, message) in [
        (404, "ResourceNotFound", "it was not found"),
        (404, "ParentResourceNotFound", "the parent resource could not be found"),
        (404, "resourcegroupnotfound", "Resource group 'rg' could not be found."),
        (404, "NotFound", "the entity was not found"),
        (409, "ResourceGroupBeingDeleted", "The resource group 'rg' is in deprovisioning state"),
        (409, "OperationNotAllowed", "not allowed on VM 'pool_1' since it is marked for deletion"),
    ] {
        let (_, client) = Script::new(status, refused(code, message));
        assert_eq!(absences(&client).await, [Ok(true); 6], "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_anybody_else_could_say_is_no_absence() {
    for (status, body, kind) in [
        (404, json!("a page of some proxy"), ErrorKind::NotFound),
        (
            404,
            refused("SubscriptionNotFound", "The subscription 's' could not be found."),
            ErrorKind::NotFound,
        ),
        (404, refused("InvalidResourceType", "no such api-version"), ErrorKind::NotFound),
        (409, refused("AnotherOperationInProgress", "wait for it"), ErrorKind::Conflict),
        (400, refused("InvalidParameter", "it was deleted"), ErrorKind::Invalid),
    ] {
        let (_, client) = Script::new(status, body.clone());
        assert_eq!(absences(&client).await, [Err(kind); 6], "{body}");
    }
}

#[tokio::test(start_paused = true)]
async fn requests_say_what_they_mean_and_nothing_else() {
    let key = set("rg", "pool");
    let compute = "/subscriptions/s/resourceGroups/rg/providers/Microsoft.Compute";
    let (script, client) = Script::new(200, json!({"value": []}));
    client.list_instances(&call(), &key, View::WithStatus).await.unwrap();
    let line = format!(
        "GET {compute}/virtualMachineScaleSets/pool/virtualMachines?api-version=2025-04-01&%24expand=instanceView"
    );
    assert_eq!(script.take(), (line, None, Value::Null));
    client.list_members(&call(), &key, View::WithStatus).await.unwrap();
    let (line, ..) = script.take();
    let line = line.replace("%24", "$").replace("%27", "'").replace("%2F", "/").replace('+', " ");
    let filter = format!("'virtualMachineScaleSet/id' eq '{compute}/virtualMachineScaleSets/pool'");
    let query = format!("api-version=2025-04-01&$filter={filter}&$expand=instanceView");
    assert_eq!(line, format!("GET {compute}/virtualMachines?{query}"));
    client.list_instance_interfaces(&call(), &key).await.unwrap();
    let line = format!("GET {compute}/virtualMachineScaleSets/pool/networkInterfaces?api-version=2025-05-01");
    assert_eq!(script.take(), (line, None, Value::Null));

    // The model is never sent along.
    let (script, client) = Script::new(200, json!({"properties": {"provisioningState": "Succeeded"}}));
    client.set_capacity(&call(), &key, 7).await.unwrap();
    let line = format!("PATCH {compute}/virtualMachineScaleSets/pool?api-version=2025-04-01");
    assert_eq!(script.take(), (line, None, json!({"sku": {"capacity": 7}})));
    client.delete_instances(&call(), &key, &["3".to_owned(), "5".to_owned()]).await.unwrap();
    let line = format!("POST {compute}/virtualMachineScaleSets/pool/delete?api-version=2025-04-01");
    assert_eq!(script.take(), (line, None, json!({"instanceIds": ["3", "5"]})));

    // The version that was read, in the body and in front of it, and what this crate knows nothing of.
    let body =
        json!({"etag": "\"4\"", "tags": {"owner": "else"}, "properties": {"vmId": "a", "new": [1, null]}});
    let machine: VirtualMachine = serde_json::from_value(body.clone()).unwrap();
    client.put_machine(&call(), &key.instance(3), &machine).await.unwrap();
    let line = format!("PUT {compute}/virtualMachineScaleSets/pool/virtualMachines/3?api-version=2025-04-01");
    assert_eq!(script.take(), (line, Some("\"4\"".to_owned()), body));
}
