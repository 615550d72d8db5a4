//! The edges of the driver's life in virtual time: bursts, a full inbox, its own time limit, and how it ends.

use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use clb_controller::{
    Driver, DriverConfig, Inbox, LocationAndNrpServiceBatchUpdater, ResourceExecutor, Stopped,
};
use clb_difftracker::{
    Change, Endpoint, EndpointSlice, FailureKind, FrontendPort, IdleTimeout, Intent, Ip, IpFamily,
    LoadBalancerSpec, Node, NodeName, Notice, ObjectKey, Protocol, Rule, Service, ServiceId, ServiceRef,
};
use clb_nrp::models::UpdateAction;
use clb_nrp::{Error, ErrorKind, NrpApi};
use tokio::task::unconstrained;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::driving::config;
use crate::fake::{Fake, Objects, Trouble};

const SECOND: Duration = Duration::from_secs(1);
const UID: &str = "00000000-0000-0000-0000-000000000001";

fn driver(delay: Duration, settings: DriverConfig) -> (Arc<Fake>, Driver, Inbox) {
    let fake = Arc::new(Fake::new(delay));
    let nrp: Arc<dyn NrpApi> = fake.clone();
    let updater = LocationAndNrpServiceBatchUpdater::new(nrp.clone(), config());
    let (driver, inbox) = Driver::new(
        settings,
        updater,
        ResourceExecutor::new(nrp, config(), "here"),
        Arc::new(Objects::default()),
    );
    (fake, driver, inbox)
}

/// A driver that runs, with a Service that serves and has no endpoints yet.
async fn serving(settings: DriverConfig) -> (Arc<Fake>, Inbox) {
    let (fake, driver, inbox) = driver(SECOND, settings);
    tokio::spawn(driver.run(CancellationToken::new()));
    inbox.change(service()).await.unwrap();
    inbox.change(node()).await.unwrap();
    settle(&inbox).await;
    (fake, inbox)
}

async fn settle(inbox: &Inbox) {
    timeout(3_600 * SECOND, inbox.synced()).await.expect("in sync within an hour").unwrap();
}

fn service() -> Change {
    let rule = Rule {
        protocol: Protocol::Tcp,
        frontend_port: FrontendPort::new(80).unwrap(),
        backend_port: 80.try_into().unwrap(),
    };
    let spec = LoadBalancerSpec::new(IpFamily::V4, IdleTimeout::default(), vec![rule]).unwrap();
    let (id, key) = (ServiceId::new(UID).unwrap(), ObjectKey::new("default", "service"));
    Change::ServiceApplied(Service::new(id, key, Intent::LoadBalancer(spec)))
}

fn node() -> Change {
    Change::NodeApplied(Node { name: NodeName::new("n1"), ipv4: Some([192, 168, 0, 1].into()), ipv6: None })
}

/// A slice of its own for each pod.
fn pod(number: u16) -> Change {
    let [high, low] = number.to_be_bytes();
    let address = Ip::from(IpAddr::from([10, 0, high, low]));
    Change::EndpointSliceApplied(EndpointSlice {
        key: ObjectKey::new("default", format!("slice-{number}")),
        service: ServiceRef::Name(ObjectKey::new("default", "service")),
        endpoints: [Endpoint::ready(address, NodeName::new("n1"))].into_iter().collect(),
    })
}

/// How many addresses each request on the gateway named, in order.
fn batches(fake: &Fake) -> Vec<usize> {
    let calls = fake.calls();
    let on_addresses = calls.iter().filter(|call| call.what == "updateAddressLocations");
    on_addresses.map(|call| call.entries).collect()
}

/// The two calls of the operation that makes a public IP.
fn making_a_public_ip() -> [String; 2] {
    [format!("GET public IP {UID}-pip"), format!("PUT public IP {UID}-pip")]
}

#[tokio::test(start_paused = true)]
async fn a_burst_that_meets_an_idle_driver_becomes_one_batch() {
    let (fake, inbox) = serving(DriverConfig::default()).await;
    // Not constrained, so that all of them are in before the driver has its turn.
    unconstrained(async {
        for number in 0..500 {
            inbox.change(pod(number)).await.unwrap();
        }
    })
    .await;
    settle(&inbox).await;
    assert_eq!(batches(&fake), [500]);
}

#[tokio::test(start_paused = true)]
async fn a_change_waits_while_the_inbox_is_full_and_goes_in_when_there_is_room() {
    let (_, driver, inbox) = driver(SECOND, DriverConfig { inbox: 2, ..DriverConfig::default() });
    inbox.change(node()).await.unwrap();
    inbox.change(pod(1)).await.unwrap();
    let waiting = inbox.clone();
    let waiting = tokio::spawn(async move { waiting.change(pod(2)).await });
    sleep(SECOND).await;
    assert!(!waiting.is_finished(), "there is no room for a third");
    tokio::spawn(driver.run(CancellationToken::new()));
    assert_eq!(waiting.await.unwrap(), Ok(()));
    assert_eq!(inbox.stats().await.unwrap().changes, 3);
}

#[tokio::test(start_paused = true)]
async fn the_time_limit_is_the_one_that_is_set_and_questions_are_answered_meanwhile() {
    let limit = 7 * SECOND;
    let (fake, inbox) = serving(DriverConfig { operation_timeout: limit, ..DriverConfig::default() }).await;
    fake.trouble("updateAddressLocations", Trouble::Hang);
    inbox.change(pod(1)).await.unwrap();
    sleep(3 * SECOND).await;
    assert_eq!(inbox.stats().await.unwrap().in_flight, 1);
    settle(&inbox).await;
    let calls = fake.calls();
    let [hanging, repeated] = &calls[calls.len() - 2..] else { panic!("{calls:#?}") };
    let waited = repeated.start - hanging.start;
    // The first delay after a failure is a second at most.
    assert!((limit..=limit + SECOND).contains(&waited), "{waited:?}");
    assert_eq!(batches(&fake), [1, 1]);
}

#[tokio::test(start_paused = true)]
async fn after_a_panic_in_a_batch_its_location_is_in_doubt_and_sent_whole() {
    let (fake, inbox) = serving(DriverConfig::default()).await;
    inbox.change(pod(1)).await.unwrap();
    settle(&inbox).await;
    fake.trouble("updateAddressLocations", Trouble::Panic);
    inbox.change(pod(2)).await.unwrap();
    settle(&inbox).await;
    // One new address in the batch that was lost, both in the one that settles it.
    assert_eq!(batches(&fake), [1, 1, 2]);
    let last = fake.address_updates().pop().unwrap().address_locations.remove(0);
    assert_eq!((last.address_update_action, last.addresses.len()), (UpdateAction::FullUpdate, 2));
}

#[tokio::test(start_paused = true)]
async fn a_change_is_refused_as_soon_as_the_driver_is_shutting_down() {
    let (fake, driver, inbox) = driver(10 * SECOND, DriverConfig::default());
    let shutdown = CancellationToken::new();
    let running = tokio::spawn(driver.run(shutdown.clone()));
    inbox.change(service()).await.unwrap();
    sleep(SECOND).await;
    shutdown.cancel();
    sleep(SECOND).await;
    assert_eq!(inbox.change(node()).await, Err(Stopped));
    assert!(!running.is_finished(), "a call is still in flight");
    running.await.unwrap();
    assert_eq!(fake.sequence(), making_a_public_ip());
}

#[tokio::test(start_paused = true)]
async fn what_a_call_says_that_ends_during_the_shutdown_is_told() {
    let (fake, driver, inbox) = driver(10 * SECOND, DriverConfig::default());
    fake.trouble("PUT public IP", Trouble::Fail(Error::new(ErrorKind::Quota, "no more public IPs")));
    let failures = Arc::new(Mutex::new(Vec::new()));
    let heard = failures.clone();
    let driver = driver.on_notice(move |notice| match notice {
        Notice::Failed { kind, .. } => heard.lock().unwrap().push(*kind),
        Notice::Phase { .. }
        | Notice::Rejected { .. }
        | Notice::EgressRefused { .. }
        | Notice::DeletionsHeld { .. }
        | Notice::PodFailed { .. }
        | Notice::Quarantined { .. } => {}
    });
    let shutdown = CancellationToken::new();
    let running = tokio::spawn(driver.run(shutdown.clone()));
    inbox.change(service()).await.unwrap();
    sleep(SECOND).await;
    shutdown.cancel();
    running.await.unwrap();
    assert_eq!(*failures.lock().unwrap(), [FailureKind::Quota]);
}

#[tokio::test(start_paused = true)]
async fn when_the_last_inbox_goes_the_calls_in_flight_are_still_awaited() {
    let (fake, driver, inbox) = driver(10 * SECOND, DriverConfig::default());
    let started = Instant::now();
    let running = tokio::spawn(driver.run(CancellationToken::new()));
    inbox.change(service()).await.unwrap();
    sleep(SECOND).await;
    drop(inbox);
    running.await.unwrap();
    assert_eq!(started.elapsed(), 20 * SECOND);
    assert_eq!(fake.sequence(), making_a_public_ip());
    assert!(fake.calls().iter().all(|call| call.end.is_some()));
}
