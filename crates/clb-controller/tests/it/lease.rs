//! Electors over a simulated API server.

use std::time::{Duration, SystemTime};

use clb_controller::kube::Elector;
use clb_controller::lease::{LeaseConfig, LeaseConfigError, RELEASE_WITHIN};
use clb_controller::{Leadership, WallClock};
use clb_sim::fault::{FaultPlan, How, What, When};
use clb_sim::kube::{Answer, KubeCall, KubeConfig, KubeSimulation, Request};
use kube::Client;
use serde_json::{Value, json};
use tokio::sync::{broadcast, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

const SECOND: Duration = Duration::from_secs(1);
const LEASE_DURATION: Duration = Duration::from_secs(15);
const RENEW_DEADLINE: Duration = Duration::from_secs(10);
const RETRY_PERIOD: Duration = Duration::from_secs(2);
/// With all its jitter.
const LONGEST_RETRY: Duration = Duration::from_millis(2_400);
/// The clocks of tokio count in milliseconds.
const TICK: Duration = Duration::from_millis(10);

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/ns/leases";

/// A replica at work.
struct Replica {
    leadership: watch::Receiver<Leadership>,
    shutdown: CancellationToken,
    /// Whether it is polled.
    runs: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Replica {
    fn start(simulation: &KubeSimulation, identity: &str) -> Self {
        let config = LeaseConfig::new("ns", "leader", identity, identity.len() as u64);
        let clock =
            WallClock::starting_at(SystemTime::UNIX_EPOCH + Duration::from_micros(1_800_000_000_000_001));
        let client = Client::new(simulation.router(), "default");
        let (elector, leadership) = Elector::new(client, config, clock).unwrap();
        let shutdown = CancellationToken::new();
        let (runs, mut may_run) = watch::channel(true);
        let work = elector.run(shutdown.clone());
        let task = tokio::spawn(async move {
            let mut work = std::pin::pin!(work);
            loop {
                let is_polled = *may_run.borrow_and_update();
                tokio::select! {
                    biased;
                    changed = may_run.changed() => if changed.is_err() { return },
                    () = &mut work, if is_polled => return,
                }
            }
        });
        Self { leadership, shutdown, runs, task }
    }

    fn term(&self) -> Option<u64> {
        self.leadership.borrow().term_at(Instant::now())
    }

    /// Waits until it leads, and tells how long that took.
    async fn led(&mut self) -> Duration {
        let started = Instant::now();
        let leads = |told: &Leadership| told.term_at(Instant::now()).is_some();
        timeout(100 * SECOND, self.leadership.wait_for(leads)).await.expect("it leads some time").unwrap();
        started.elapsed()
    }

    /// Waits until it is told that it does not lead.
    async fn lost(&mut self) -> Duration {
        let started = Instant::now();
        let stands_by = |told: &Leadership| *told == Leadership::Standby;
        timeout(100 * SECOND, self.leadership.wait_for(stands_by)).await.expect("it is lost").unwrap();
        started.elapsed()
    }

    fn until(&self) -> Instant {
        let Leadership::Leading { until: Some(until), .. } = *self.leadership.borrow() else {
            panic!("it does not lead")
        };
        until
    }
}

fn simulated() -> KubeSimulation {
    let simulation = KubeSimulation::new(KubeConfig::default());
    let body = json!({"metadata": {"name": "ns"}});
    ask(&simulation, "POST", "/api/v1/namespaces", body);
    simulation
}

fn ask(simulation: &KubeSimulation, method: &str, path: &str, body: Value) -> Value {
    let (method, path) = (method.to_owned(), path.to_owned());
    let content_type = "application/json".to_owned();
    let answer = simulation.handle(&Request { method, path, body, content_type, ..Request::default() });
    let Answer::Body { status, body } = answer else { panic!("{answer:?}") };
    assert!(status < 300, "{body}");
    body
}

fn spec(simulation: &KubeSimulation) -> Value {
    ask(simulation, "GET", &format!("{LEASES}/leader"), Value::Null)["spec"].clone()
}

/// What goes wrong from now on.
fn always(simulation: &KubeSimulation, what: What, how: How) {
    simulation.set_faults(FaultPlan::new(0).with(When::Always, what, how));
}

fn heals(simulation: &KubeSimulation) {
    simulation.set_faults(FaultPlan::default());
}

fn calls(receiver: &mut broadcast::Receiver<KubeCall>) -> Vec<(Duration, String, u16)> {
    std::iter::from_fn(|| receiver.try_recv().ok())
        .map(|call| (call.at, call.call.verb, call.status))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn one_leads_and_nothing_needless_is_asked() {
    let simulation = simulated();
    let mut heard = simulation.subscribe();
    let mut first = Replica::start(&simulation, "first");
    assert!(first.led().await < TICK);
    assert_eq!(
        spec(&simulation),
        json!({"holderIdentity": "first", "leaseDurationSeconds": 15, "leaseTransitions": 0,
            "acquireTime": "2027-01-15T08:00:00.000001Z", "renewTime": "2027-01-15T08:00:00.000001Z"})
    );
    sleep(10 * RETRY_PERIOD + SECOND).await;
    let mut asked = calls(&mut heard).into_iter().map(|(at, verb, status)| (at.as_secs(), verb, status));
    let beginning: Vec<_> = asked.by_ref().take(2).collect();
    assert_eq!(beginning, [(0, "GET".to_owned(), 404), (0, "POST".to_owned(), 201)]);
    let renewals: Vec<_> = (1..=10).map(|nth| (2 * nth, "PUT".to_owned(), 200)).collect();
    assert_eq!(asked.collect::<Vec<_>>(), renewals);
    assert_eq!(spec(&simulation)["acquireTime"], "2027-01-15T08:00:00.000001Z");

    // One that stands by only reads, and no more often.
    let second = Replica::start(&simulation, "second");
    sleep(10 * RETRY_PERIOD).await;
    let asked = calls(&mut heard);
    let count = |verb: &str| asked.iter().filter(|call| call.1 == verb).count();
    assert_eq!((first.term(), second.term(), count("PUT")), (Some(1), None, 10));
    assert!((9..=11).contains(&count("GET")) && asked.len() == 10 + count("GET"), "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn of_those_that_start_together_one_leads() {
    let simulation = simulated();
    let mut replicas = ["a", "bb", "ccc"].map(|identity| Replica::start(&simulation, identity));
    sleep(SECOND).await;
    let leaders: Vec<_> = replicas.iter().filter_map(Replica::term).collect();
    assert_eq!(leaders, [1]);
    // And of those that compete for one that was released.
    let leader = replicas.iter_mut().find(|replica| replica.term().is_some()).unwrap();
    leader.shutdown.cancel();
    leader.lost().await;
    sleep(LONGEST_RETRY + TICK).await;
    assert_eq!(replicas.iter().filter_map(Replica::term).collect::<Vec<_>>(), [1]);
    assert_eq!(spec(&simulation)["leaseTransitions"], 1);
}

#[tokio::test(start_paused = true)]
async fn after_a_death_another_leads_when_the_lease_has_run_out() {
    let simulation = simulated();
    let mut first = Replica::start(&simulation, "first");
    first.led().await;
    let mut second = Replica::start(&simulation, "second");
    sleep(21 * SECOND).await;
    let until = first.until();
    first.task.abort();
    let took = second.led().await;
    assert!(took <= LEASE_DURATION + LONGEST_RETRY, "{took:?}");
    assert!(Instant::now() - until >= LEASE_DURATION - RENEW_DEADLINE);
    assert_eq!(first.term(), None);
    let spec = spec(&simulation);
    assert_eq!((&spec["holderIdentity"], &spec["leaseTransitions"]), (&json!("second"), &json!(1)));
}

#[tokio::test(start_paused = true)]
async fn after_a_release_another_leads_within_a_retry_period() {
    let simulation = simulated();
    let mut first = Replica::start(&simulation, "first");
    first.led().await;
    let mut second = Replica::start(&simulation, "second");
    sleep(7 * SECOND).await;
    first.shutdown.cancel();
    assert!(first.lost().await < TICK);
    first.task.await.unwrap();
    let released = spec(&simulation);
    let now = "2027-01-15T08:00:07.000001Z";
    let expected =
        json!({"leaseDurationSeconds": 1, "leaseTransitions": 0, "acquireTime": now, "renewTime": now});
    assert_eq!(released, expected);
    assert!(second.led().await <= LONGEST_RETRY + TICK);
    assert_eq!(spec(&simulation)["leaseTransitions"], 1);
}

#[tokio::test(start_paused = true)]
async fn one_that_stood_still_beyond_its_lease_finds_another_leading() {
    let simulation = simulated();
    let mut first = Replica::start(&simulation, "first");
    first.led().await;
    let mut second = Replica::start(&simulation, "second");
    sleep(9 * SECOND).await;
    first.runs.send_replace(false);
    second.led().await;
    // Nobody told its sender, but the clock does.
    assert!(matches!(*first.leadership.borrow(), Leadership::Leading { term: 1, .. }));
    assert_eq!((first.term(), second.term()), (None, Some(1)));
    sleep(30 * SECOND).await;
    first.runs.send_replace(true);
    first.lost().await;
    sleep(30 * SECOND).await;
    assert_eq!((first.term(), second.term()), (None, Some(1)));
    assert_eq!(spec(&simulation)["leaseTransitions"], 1);
}

#[tokio::test(start_paused = true)]
async fn without_an_api_server_it_stands_by_when_its_time_is_up_and_leads_anew_afterwards() {
    let refuse = || How::Refuse { status: 503, code: "ServiceUnavailable".to_owned() };
    for (what, how) in [
        (What::default(), How::LoseRequest),
        (What::default(), refuse()),
        (What::default(), How::Delay(600_000)),
        (What::default(), How::Throttle { seconds: 1 }),
        (What::default(), How::Truncate(30)),
        (What::verb("PUT"), How::LoseRequest),
        (What::verb("PUT"), refuse()),
    ] {
        let simulation = simulated();
        let mut first = Replica::start(&simulation, "first");
        first.led().await;
        sleep(3 * SECOND).await;
        let until = first.until();
        let delays = matches!(how, How::Delay(_));
        always(&simulation, what, how.clone());
        first.lost().await;
        if delays || matches!(how, How::Truncate(_)) {
            // What was written meanwhile counts only if it is known, and never from later than before it was sent.
            assert!(Instant::now() >= until, "{how:?}");
        } else {
            let late = Instant::now() - until;
            assert!(late < TICK, "{how:?}: {late:?}");
        }
        sleep(60 * SECOND).await;
        assert_eq!(first.term(), None, "{how:?}");
        heals(&simulation);
        let took = first.led().await;
        assert!(took < LEASE_DURATION, "{how:?}: {took:?}");
        assert!(first.term() > Some(1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_hangs_leaves_nobody_believing_to_lead() {
    let simulation = simulated();
    let mut first = Replica::start(&simulation, "first");
    first.led().await;
    let begun = Instant::now();
    always(&simulation, What::default(), How::Delay(600_000));
    first.lost().await;
    assert_eq!((begun.elapsed() + TICK / 2).as_secs(), RENEW_DEADLINE.as_secs());
}

#[tokio::test(start_paused = true)]
async fn lost_answers_conflicts_and_repetitions_cost_no_leadership() {
    for how in [
        How::LoseAnswer,
        How::Truncate(40),
        How::Repeat,
        // Answered late, or too late.
        How::Delay(3_500),
        How::Delay(6_000),
        How::Delay(600_000),
    ] {
        let simulation = simulated();
        let mut first = Replica::start(&simulation, "first");
        first.led().await;
        let second = Replica::start(&simulation, "second");
        always(&simulation, What::verb("PUT"), how.clone());
        let mut heard = simulation.subscribe();
        for _ in 0..60 {
            sleep(SECOND).await;
            assert_eq!((first.term(), second.term()), (Some(1), None), "{how:?}");
        }
        let writes = calls(&mut heard).into_iter().filter(|call| call.1 == "PUT").count();
        assert!(writes <= 30, "{how:?}: {writes}");
    }
    let simulation = simulated();
    let conflict = || How::Refuse { status: 409, code: "Conflict".to_owned() };
    let mut first = Replica::start(&simulation, "first");
    first.led().await;
    let every_other = FaultPlan::new(3).with(When::Probability(0.5), What::verb("PUT"), conflict());
    simulation.set_faults(every_other);
    for _ in 0..30 {
        sleep(SECOND).await;
        assert_eq!(first.term(), Some(1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_create_whose_answer_is_lost_is_recognised() {
    let simulation = simulated();
    always(&simulation, What::verb("POST"), How::LoseAnswer);
    let mut first = Replica::start(&simulation, "first");
    assert!(first.led().await < TICK);
    assert_eq!(spec(&simulation)["leaseTransitions"], 0);
}

#[tokio::test(start_paused = true)]
async fn a_restart_with_the_same_identity_waits_for_what_the_earlier_run_sent() {
    let simulation = simulated();
    let mut first = Replica::start(&simulation, "first");
    first.led().await;
    first.task.abort();
    let mut again = Replica::start(&simulation, "first");
    let took = again.led().await;
    assert!(took >= LEASE_DURATION && took < LEASE_DURATION + LONGEST_RETRY, "{took:?}");
    assert_eq!(spec(&simulation)["leaseTransitions"], 0);
}

#[tokio::test(start_paused = true)]
async fn two_with_the_same_identity_do_not_lead_together() {
    let simulation = simulated();
    let mut first = Replica::start(&simulation, "same");
    first.led().await;
    sleep(SECOND / 2).await;
    let second = Replica::start(&simulation, "same");
    for _ in 0..60 {
        sleep(SECOND).await;
        assert_eq!((first.term(), second.term()), (Some(1), None));
    }
}

#[tokio::test(start_paused = true)]
async fn what_others_wrote_into_the_lease_is_kept_and_nonsense_waited_out() {
    let simulation = simulated();
    let body = json!({"metadata": {"name": "leader", "labels": {"a": "b"}},
        "spec": {"holderIdentity": "💥", "leaseDurationSeconds": -7, "leaseTransitions": -2}});
    ask(&simulation, "POST", LEASES, body);
    let mut first = Replica::start(&simulation, "first");
    let took = first.led().await;
    assert!(took >= LEASE_DURATION && took < LEASE_DURATION + TICK, "{took:?}");
    let lease = ask(&simulation, "GET", &format!("{LEASES}/leader"), Value::Null);
    assert_eq!(lease["metadata"]["labels"], json!({"a": "b"}));
    let spec = &lease["spec"];
    assert_eq!((&spec["leaseDurationSeconds"], &spec["leaseTransitions"]), (&json!(15), &json!(1)));
}

#[tokio::test(start_paused = true)]
async fn a_lease_without_a_spec_is_free() {
    let simulation = simulated();
    ask(&simulation, "POST", LEASES, json!({"metadata": {"name": "leader"}}));
    let mut first = Replica::start(&simulation, "first");
    assert!(first.led().await < TICK);
}

#[tokio::test(start_paused = true)]
async fn without_its_namespace_nobody_leads_and_it_is_tried_again() {
    let simulation = KubeSimulation::new(KubeConfig::default());
    let mut first = Replica::start(&simulation, "first");
    sleep(20 * SECOND).await;
    assert_eq!(first.term(), None);
    ask(&simulation, "POST", "/api/v1/namespaces", json!({"metadata": {"name": "ns"}}));
    assert!(first.led().await <= LONGEST_RETRY);
}

#[tokio::test(start_paused = true)]
async fn a_release_that_fails_ends_in_time_and_harms_nobody() {
    for how in [How::LoseRequest, How::Delay(600_000), How::LoseAnswer] {
        let simulation = simulated();
        let mut first = Replica::start(&simulation, "first");
        first.led().await;
        let mut second = Replica::start(&simulation, "second");
        sleep(SECOND).await;
        always(&simulation, What::default(), how.clone());
        let begun = Instant::now();
        first.shutdown.cancel();
        assert!(first.lost().await < TICK);
        first.task.await.unwrap();
        assert!(begun.elapsed() <= RELEASE_WITHIN + TICK, "{how:?}: {:?}", begun.elapsed());
        heals(&simulation);
        assert!(second.led().await <= LEASE_DURATION + LONGEST_RETRY, "{how:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_stands_by_stops_at_once_and_leaves_the_lease_alone() {
    let simulation = simulated();
    let mut first = Replica::start(&simulation, "first");
    first.led().await;
    let second = Replica::start(&simulation, "second");
    sleep(SECOND).await;
    let before = spec(&simulation);
    second.shutdown.cancel();
    timeout(TICK, second.task).await.expect("at once").unwrap();
    assert_eq!((spec(&simulation), first.term()), (before, Some(1)));
}

#[tokio::test(start_paused = true)]
async fn settings_that_make_no_sense_are_refused() {
    let client = Client::new(simulated().router(), "default");
    let config = LeaseConfig::new("ns", "leader", "", 0);
    let refused = Elector::new(client, config, WallClock::system()).err();
    assert_eq!(refused, Some(LeaseConfigError::Empty { field: "identity" }));
}
