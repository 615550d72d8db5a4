//! The driver in virtual time: what is called, when, and what becomes of calls that go wrong.

use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use clb_controller::{
    Driver, DriverConfig, Inbox, LocationAndNrpServiceBatchUpdater, ResourceExecutor, Stopped,
};
use clb_difftracker::{
    Change, Endpoint, EndpointSlice, Finalizers, FrontendPort, IdleTimeout, Intent, Ip, IpFamily,
    LoadBalancerSpec, Node, NodeName, Notice, ObjectKey, Phase, Protocol, Rule, Service, ServiceId,
    ServiceRef,
};
use clb_nrp::models::UpdateAction;
use clb_nrp::{Error, ErrorKind, NrpApi, NrpConfig};
use serde_json::json;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::fake::{Call, Fake, Objects, Trouble};

const SECOND: Duration = Duration::from_secs(1);

pub(crate) fn config() -> NrpConfig {
    let network = "/subscriptions/s/resourceGroups/rg/providers/Microsoft.Network/virtualNetworks/vnet";
    NrpConfig::new("s", "rg", "eastus", network.parse().unwrap()).unwrap()
}

struct Running {
    fake: Arc<Fake>,
    objects: Arc<Objects>,
    inbox: Inbox,
    notices: Arc<Mutex<Vec<Notice>>>,
    shutdown: CancellationToken,
    driver: JoinHandle<usize>,
}

fn start(delay: Duration) -> Running {
    start_with(delay, DriverConfig::default())
}

fn start_with(delay: Duration, settings: DriverConfig) -> Running {
    let fake = Arc::new(Fake::new(delay));
    let nrp: Arc<dyn NrpApi> = fake.clone();
    let updater = LocationAndNrpServiceBatchUpdater::new(nrp.clone(), config());
    let executor = ResourceExecutor::new(nrp, config(), "here");
    let objects = Arc::new(Objects::default());
    let (driver, inbox) = Driver::new(settings, updater, executor, objects.clone());
    let notices = Arc::new(Mutex::new(Vec::new()));
    let heard = notices.clone();
    let driver = driver.on_notice(move |notice| heard.lock().unwrap().push(notice.clone()));
    let shutdown = CancellationToken::new();
    let driver = tokio::spawn(driver.run(shutdown.clone()));
    Running { fake, objects, inbox, notices, shutdown, driver }
}

impl Running {
    async fn tell(&self, change: Change) {
        self.inbox.change(change).await.unwrap();
    }

    async fn settle(&self) {
        timeout(3_600 * SECOND, self.inbox.synced()).await.expect("in sync within an hour").unwrap();
    }

    /// A world in which `service(0)` serves and its slice is empty.
    async fn serving(delay: Duration) -> Self {
        let running = start(delay);
        running.tell(service(0, &[80])).await;
        running.tell(node()).await;
        running.settle().await;
        running
    }
}

fn id(number: usize) -> ServiceId {
    ServiceId::new(&format!("00000000-0000-0000-0000-{number:012}")).unwrap()
}

fn service(number: usize, ports: &[u16]) -> Change {
    let rule = |&port: &u16| Rule {
        protocol: Protocol::Tcp,
        frontend_port: FrontendPort::new(port).unwrap(),
        backend_port: port.try_into().unwrap(),
    };
    let rules = ports.iter().map(rule).collect();
    let spec = LoadBalancerSpec::new(IpFamily::V4, IdleTimeout::default(), rules).unwrap();
    let key = ObjectKey::new("default", format!("service-{number}"));
    Change::ServiceApplied(Service::new(id(number), key, Intent::LoadBalancer(spec)))
}

/// The same Service once we have written on it.
fn written_service(number: usize, ports: &[u16]) -> Change {
    let Change::ServiceApplied(service) = service(number, ports) else { unreachable!("made just so") };
    let ingress = vec![Ip::from(IpAddr::from([20, 0, 0, 1]))];
    Change::ServiceApplied(Service { finalizers: Finalizers::Complete, ingress, ..service })
}

fn node() -> Change {
    Change::NodeApplied(Node { name: NodeName::new("n1"), ipv4: Some([192, 168, 0, 1].into()), ipv6: None })
}

fn slice(pods: impl IntoIterator<Item = u8>) -> Change {
    let endpoint = |last| Endpoint::ready(Ip::from(IpAddr::from([10, 0, 0, last])), NodeName::new("n1"));
    Change::EndpointSliceApplied(EndpointSlice {
        key: ObjectKey::new("default", "slice"),
        service: ServiceRef::Name(ObjectKey::new("default", "service-0")),
        endpoints: pods.into_iter().map(endpoint).collect(),
    })
}

fn of<'a>(calls: &'a [Call], kind: &str) -> Vec<&'a Call> {
    calls.iter().filter(|call| call.what.starts_with(kind)).collect()
}

/// The most calls of these kinds that were ever under way at once.
fn most_at_once(calls: &[Call], kinds: &[&str]) -> usize {
    let chosen: Vec<_> =
        calls.iter().filter(|call| kinds.iter().any(|kind| call.what.starts_with(kind))).collect();
    let at = |moment: Duration| {
        chosen.iter().filter(|call| call.start <= moment && call.end.is_none_or(|end| end > moment)).count()
    };
    chosen.iter().map(|call| at(call.start)).max().unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn a_service_is_made_changed_and_removed_by_these_calls_and_no_others() {
    let running = start(SECOND);
    running.tell(node()).await;
    running.tell(slice([1])).await;
    running.tell(service(0, &[80])).await;
    running.settle().await;
    running.tell(written_service(0, &[80, 443])).await;
    running.settle().await;
    running.tell(Change::ServiceGone(id(0))).await;
    running.settle().await;
    let name = id(0);
    let expected = [
        format!("GET public IP {name}-pip"),
        format!("PUT public IP {name}-pip"),
        format!("GET load balancer {name}"),
        format!("PUT load balancer {name}"),
        "updateServices".to_owned(),
        "updateAddressLocations".to_owned(),
        format!("GET load balancer {name}"),
        format!("PUT load balancer {name}"),
        "updateAddressLocations".to_owned(),
        "updateServices".to_owned(),
        format!("GET load balancer {name}"),
        format!("DELETE load balancer {name}"),
        "updateServices".to_owned(),
        format!("GET public IP {name}-pip"),
        format!("DELETE public IP {name}-pip"),
    ];
    assert_eq!(running.fake.sequence(), expected);
    let writes = [format!("{name}: AddFinalizers"), format!("{name}: SetIngress(20.0.0.1)")];
    assert_eq!(running.objects.writes(), writes);
    let phases: Vec<_> = running
        .notices
        .lock()
        .unwrap()
        .iter()
        .map(|notice| match notice {
            Notice::Phase { to, .. } => *to,
            Notice::Rejected { .. }
            | Notice::EgressRefused { .. }
            | Notice::DeletionsHeld { .. }
            | Notice::PodFailed { .. }
            | Notice::Failed { .. }
            | Notice::Quarantined { .. } => {
                panic!("{notice:?}")
            }
        })
        .collect();
    let phase = Some;
    let expected = [
        phase(Phase::Pending),
        phase(Phase::Creating),
        phase(Phase::Ready),
        phase(Phase::Updating),
        phase(Phase::Ready),
        phase(Phase::Draining),
        phase(Phase::Deleting),
        None,
    ];
    assert_eq!(phases, expected);
}

#[tokio::test(start_paused = true)]
async fn the_bodies_on_the_gateway_are_as_azure_wants_them() {
    let running = start(SECOND);
    for change in [node(), slice([1, 2]), service(0, &[80])] {
        running.tell(change).await;
    }
    running.settle().await;
    running.tell(slice([2, 3])).await;
    running.settle().await;
    running.tell(Change::ServiceGone(id(0))).await;
    running.settle().await;
    let name = id(0).to_string();
    let network = "/subscriptions/s/resourceGroups/rg/providers/Microsoft.Network";
    let service =
        |properties| json!([{"isDelete": false, "service": {"name": name, "properties": properties}}]);
    let pool = json!({
        "id": format!("{network}/loadBalancers/{name}/backendAddressPools/{name}"), "name": name,
        "properties": {"virtualNetwork": {"id": format!("{network}/virtualNetworks/vnet")}}
    });
    let expected = [
        service(json!({"serviceType": "Inbound", "loadBalancerBackendPools": [pool]})),
        service(json!({"serviceType": "Inbound", "loadBalancerBackendPools": []})),
        json!([{"isDelete": true, "service": {"name": name}}]),
    ]
    .map(|requests| json!({"action": "PartialUpdate", "serviceRequests": requests}));
    let sent: Vec<_> =
        running.fake.service_updates().iter().map(|body| serde_json::to_value(body).unwrap()).collect();
    assert_eq!(sent, expected);

    let address =
        |last: u8, services: &[&str]| json!({"address": format!("10.0.0.{last}"), "services": services});
    let location = |action: &str, addresses| {
        json!({"action": "PartialUpdate", "addressLocations": [
            {"addressLocation": "192.168.0.1", "addressUpdateAction": action, "addresses": addresses}
        ]})
    };
    let expected = [
        location("FullUpdate", json!([address(1, &[&name]), address(2, &[&name])])),
        location("PartialUpdate", json!([address(1, &[]), address(3, &[&name])])),
        location("PartialUpdate", json!([])),
    ];
    let sent: Vec<_> =
        running.fake.address_updates().iter().map(|body| serde_json::to_value(body).unwrap()).collect();
    assert_eq!(sent, expected);
}

#[tokio::test(start_paused = true)]
async fn what_changes_while_a_call_runs_goes_into_the_next_batch() {
    let running = Running::serving(10 * SECOND).await;
    running.tell(slice([1])).await;
    sleep(SECOND).await;
    for last in 2..=200 {
        running.tell(slice(1..=last)).await;
        sleep(Duration::from_millis(10)).await;
    }
    running.settle().await;
    let calls = running.fake.calls();
    let batches: Vec<_> = of(&calls, "updateAddressLocations").iter().map(|call| call.entries).collect();
    assert_eq!(batches, [1, 199]);
    assert_eq!(most_at_once(&calls, &["update"]), 1);
}

#[tokio::test(start_paused = true)]
async fn many_services_share_registrations_and_no_more_than_ten_resource_calls_run() {
    let running = start(SECOND);
    for number in 0..200 {
        running.tell(service(number, &[80])).await;
    }
    running.settle().await;
    let calls = running.fake.calls();
    assert_eq!(most_at_once(&calls, &["GET", "PUT"]), 10);
    assert_eq!(most_at_once(&calls, &["update"]), 1);
    let registrations = of(&calls, "updateServices");
    assert_eq!(registrations.iter().map(|call| call.entries).sum::<usize>(), 200);
    assert!(registrations.len() <= 40, "{} calls for 200 services", registrations.len());
}

#[tokio::test(start_paused = true)]
async fn a_call_that_never_answers_is_given_up_and_its_location_is_sent_whole() {
    let running = Running::serving(SECOND).await;
    running.tell(slice([1])).await;
    running.settle().await;
    running.fake.trouble("updateAddressLocations", Trouble::Hang);
    running.tell(slice([1, 2])).await;
    running.settle().await;
    let calls = running.fake.calls();
    let [_, hanging, repeated] = of(&calls, "updateAddressLocations")[..] else { panic!("{calls:#?}") };
    let waited = repeated.start - hanging.start;
    assert!((300 * SECOND..=301 * SECOND).contains(&waited), "{waited:?}");
    let last = running.fake.address_updates().pop().unwrap().address_locations.remove(0);
    assert_eq!((last.address_update_action, last.addresses.len()), (UpdateAction::FullUpdate, 2));
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_a_call_is_an_unknown_outcome_and_the_driver_goes_on() {
    let running = start(SECOND);
    running.fake.trouble("PUT public IP", Trouble::Panic);
    running.tell(service(0, &[80])).await;
    running.settle().await;
    let calls = running.fake.calls();
    assert_eq!(of(&calls, "PUT public IP").len(), 2);
    let notices = running.notices.lock().unwrap();
    assert!(
        notices
            .iter()
            .any(|notice| matches!(notice, Notice::Failed { message, .. } if message.contains("panic")))
    );
}

#[tokio::test(start_paused = true)]
async fn a_throttled_answer_keeps_everything_back_until_the_time_given() {
    let running = start(SECOND);
    let throttled = ErrorKind::Throttled { retry_after: Some(60 * SECOND) };
    running.fake.trouble("GET public IP", Trouble::Fail(Error::new(throttled, "slow down")));
    running.tell(service(0, &[80])).await;
    sleep(2 * SECOND).await;
    for number in 1..5 {
        running.tell(service(number, &[80])).await;
    }
    running.settle().await;
    let calls = running.fake.calls();
    assert_eq!(calls[0].end, Some(SECOND));
    assert!(calls[1..].iter().all(|call| call.start >= 61 * SECOND), "{:?}", calls[1]);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_begins_nothing_new_and_ends_when_the_calls_have() {
    let running = start(10 * SECOND);
    running.tell(service(0, &[80])).await;
    sleep(SECOND).await;
    running.shutdown.cancel();
    running.driver.await.unwrap();
    let calls = running.fake.calls();
    let one_operation = [format!("GET public IP {}-pip", id(0)), format!("PUT public IP {}-pip", id(0))];
    assert_eq!(running.fake.sequence(), one_operation);
    assert!(calls.iter().all(|call| call.end.is_some()));
    assert_eq!(running.inbox.change(node()).await, Err(Stopped));
    assert_eq!(running.inbox.synced().await, Err(Stopped));
    assert_eq!(running.inbox.stats().await, Err(Stopped));
}

#[tokio::test(start_paused = true)]
async fn the_driver_ends_with_its_last_inbox() {
    let Running { inbox, driver, .. } = start(SECOND);
    let other = inbox.clone();
    drop(inbox);
    other.change(node()).await.unwrap();
    drop(other);
    timeout(SECOND, driver).await.expect("it ends").unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_full_inbox_makes_its_sources_wait_and_loses_nothing() {
    let running = start_with(SECOND, DriverConfig { inbox: 1, ..DriverConfig::default() });
    for number in 0..100 {
        running.tell(service(number, &[80])).await;
    }
    running.settle().await;
    let stats = running.inbox.stats().await.unwrap();
    assert_eq!((stats.changes, stats.services, stats.in_flight), (100, 100, 0));
    assert_eq!(
        running.fake.service_updates().iter().map(|body| body.service_requests.len()).sum::<usize>(),
        100
    );
}

#[tokio::test(start_paused = true)]
async fn a_gateway_that_is_not_there_is_waited_for_and_nothing_is_quarantined() {
    let running = Running::serving(SECOND).await;
    for _ in 0..3 {
        running
            .fake
            .trouble("updateAddressLocations", Trouble::Fail(Error::new(ErrorKind::Transient, "away")));
    }
    running.tell(slice([1, 2])).await;
    running.settle().await;
    let calls = running.fake.calls();
    assert_eq!(
        of(&calls, "updateAddressLocations").iter().map(|call| call.entries).collect::<Vec<_>>(),
        [2; 4]
    );
}
