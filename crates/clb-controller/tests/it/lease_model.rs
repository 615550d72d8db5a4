//! Never do two lead: replicas and a server of one Lease, through pauses, deaths, releases, partitions, lost, late and repeated
//! requests, lost answers, wrong clocks and people who touch the Lease. And when all that ends, one leads and stays.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use clb_controller::Leadership;
use clb_controller::lease::{Action, Answer, Election, LeaseConfig, Notice, RequestId};
use k8s_openapi::api::coordination::v1::Lease;
use proptest::prelude::*;
use tokio::time::Instant;

/// During this time things go wrong.
const DISTURBED: u64 = 120_000;
/// How long the longest disturbance lasts, and how late the latest message arrives.
const LONGEST: u64 = 40_000;

#[derive(Clone, Copy, Debug)]
enum Disturbance {
    /// The process stands still; its clock and what it has sent go on.
    Pause { ms: u64 },
    /// The process dies, and another starts with the same identity.
    Kill { back_after: u64 },
    /// The process is told to stop, and another starts.
    Stop { back_after: u64 },
    /// Requests do not arrive.
    Cut { ms: u64 },
    /// Answers do not.
    Deafen { ms: u64 },
    /// Messages take up to so long, each way; some requests arrive twice.
    Slow { ms: u64, up_to: u64 },
    /// The wall clock is set.
    SetClock { by: i64 },
    /// Somebody labels the Lease.
    Touch,
}

#[derive(Clone, Debug)]
struct Plan {
    seed: u64,
    replicas: usize,
    /// Do all replicas bear one identity, by mistake?
    is_one_identity: bool,
    is_hasty: bool,
    disturbances: Vec<(u64, usize, Disturbance)>,
}

fn plans() -> impl Strategy<Value = Plan> {
    let ms = || 1..LONGEST;
    let disturbance = prop_oneof![
        3 => ms().prop_map(|ms| Disturbance::Pause { ms }),
        2 => ms().prop_map(|back_after| Disturbance::Kill { back_after: back_after / 4 }),
        2 => ms().prop_map(|back_after| Disturbance::Stop { back_after: back_after / 4 }),
        3 => ms().prop_map(|ms| Disturbance::Cut { ms }),
        3 => ms().prop_map(|ms| Disturbance::Deafen { ms }),
        4 => (ms(), 1..LONGEST / 2).prop_map(|(ms, up_to)| Disturbance::Slow { ms, up_to }),
        1 => (-100_000..100_000_i64).prop_map(|by| Disturbance::SetClock { by }),
        1 => Just(Disturbance::Touch),
    ];
    let disturbances = prop::collection::vec((0..DISTURBED, 0..3_usize, disturbance), 0..24);
    (any::<u64>(), 2..=3_usize, prop::bool::weighted(0.2), any::<bool>(), disturbances).prop_map(
        |(seed, replicas, is_one_identity, is_hasty, disturbances)| Plan {
            seed,
            replicas,
            is_one_identity,
            is_hasty,
            disturbances,
        },
    )
}

#[derive(Debug)]
enum Event {
    /// Its timeout, if that has not been set anew since.
    Wake {
        who: usize,
        nth: u64,
    },
    /// A request arrives at the server; its answer, if any, takes so long.
    Arrives {
        from: Sender,
        action: Action,
        answer_after: Option<u64>,
    },
    Answered {
        to: Sender,
        answer: Answer,
    },
    Disturb {
        who: usize,
        what: Disturbance,
    },
    Start {
        who: usize,
    },
}

/// Which request of which run of which replica.
#[derive(Clone, Copy, Debug)]
struct Sender {
    who: usize,
    run: u32,
    id: RequestId,
}

struct Replica {
    identity: String,
    run: u32,
    /// `None` between two runs.
    election: Option<Election>,
    /// As whoever sends was told last.
    told: Leadership,
    clock: i64,
    paused_until: Instant,
    cut_until: Instant,
    deaf_until: Instant,
    slow: (Instant, u64),
    back_after: u64,
    timeouts: u64,
}

struct World {
    config: LeaseConfig,
    start: Instant,
    now: Instant,
    rng: fastrand::Rng,
    events: BTreeMap<(Instant, u64), Event>,
    numbers: u64,
    replicas: Vec<Replica>,
    lease: Option<Lease>,
    version: u64,
    /// Until when each run leads, as it was last told; not those that stopped in good order.
    untils: BTreeMap<(usize, u32), Instant>,
    /// Who began to lead, when and in which term.
    gains: Vec<(Duration, usize, u32, u64)>,
    releases: usize,
}

impl World {
    fn new(plan: &Plan) -> Self {
        let start = Instant::now();
        let mut config = LeaseConfig::new("ns", "leader", "x", 0);
        if plan.is_hasty {
            let seconds = Duration::from_secs;
            (config.lease_duration, config.renew_deadline, config.retry_period) =
                (seconds(4), seconds(3), seconds(1));
        }
        let replica = |who: usize| Replica {
            identity: if plan.is_one_identity { "one".to_owned() } else { format!("replica-{who}") },
            run: 0,
            election: None,
            told: Leadership::Standby,
            clock: 1_000_000 * who as i64,
            paused_until: start,
            cut_until: start,
            deaf_until: start,
            slow: (start, 0),
            back_after: 0,
            timeouts: 0,
        };
        let mut world = Self {
            config,
            start,
            now: start,
            rng: fastrand::Rng::with_seed(plan.seed),
            events: BTreeMap::new(),
            numbers: 0,
            replicas: (0..plan.replicas).map(replica).collect(),
            lease: None,
            version: 0,
            untils: BTreeMap::new(),
            gains: Vec::new(),
            releases: 0,
        };
        for who in 0..plan.replicas {
            let after = world.rng.u64(0..3_000);
            world.schedule(after, Event::Start { who });
        }
        for &(at, who, what) in &plan.disturbances {
            world.schedule(at, Event::Disturb { who: who % plan.replicas, what });
        }
        world
    }

    fn schedule(&mut self, after: u64, event: Event) {
        self.schedule_at(self.now + Duration::from_millis(after), event);
    }

    fn schedule_at(&mut self, at: Instant, event: Event) {
        self.numbers += 1;
        self.events.insert((at.max(self.now), self.numbers), event);
    }

    /// Lets everything happen that does until then.
    fn run_until(&mut self, ms: u64) {
        let end = self.start + Duration::from_millis(ms);
        while let Some(entry) = self.events.first_entry().filter(|entry| entry.key().0 <= end) {
            self.now = entry.key().0;
            let event = entry.remove();
            self.happens(event);
            let leaders = self.leaders();
            assert!(leaders.len() <= 1, "at {:?} lead {leaders:?}", self.now - self.start);
        }
        self.now = end;
    }

    /// Who leads by its own reckoning, in which run and term.
    fn leaders(&self) -> Vec<(usize, u32, u64)> {
        let leads =
            |(who, replica): (usize, &Replica)| Some((who, replica.run, replica.told.term_at(self.now)?));
        self.replicas.iter().enumerate().filter_map(leads).collect()
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Wake { who, nth } => {
                if nth == self.replicas[who].timeouts {
                    self.drive(who, |election, now| election.handle_timeout(now));
                }
            }
            Event::Answered { to, answer } => {
                let replica = &self.replicas[to.who];
                if replica.run != to.run {
                    return;
                }
                if self.now < replica.paused_until {
                    return self.schedule_at(replica.paused_until, Event::Answered { to, answer });
                }
                self.drive(to.who, |election, now| election.handle_answer(to.id, answer, now));
            }
            Event::Arrives { from, action, answer_after } => {
                let answer = self.serve(action);
                if let Some(after) = answer_after {
                    self.schedule(after, Event::Answered { to: from, answer });
                }
            }
            Event::Disturb { who, what } => self.disturb(who, what),
            Event::Start { who } => {
                let replica = &mut self.replicas[who];
                if replica.election.is_some() {
                    return;
                }
                replica.run += 1;
                let seed = 1_000 * u64::from(replica.run) + who as u64;
                let config = LeaseConfig { identity: replica.identity.clone(), seed, ..self.config.clone() };
                replica.election = Some(Election::new(config, self.now).unwrap());
                self.drive(who, |_, _| ());
            }
        }
    }

    fn disturb(&mut self, who: usize, what: Disturbance) {
        let now = self.now;
        let later = |ms| now + Duration::from_millis(ms);
        let replica = &mut self.replicas[who];
        match what {
            Disturbance::Pause { ms } => replica.paused_until = later(ms),
            Disturbance::Cut { ms } => replica.cut_until = later(ms),
            Disturbance::Deafen { ms } => replica.deaf_until = later(ms),
            Disturbance::Slow { ms, up_to } => replica.slow = (later(ms), up_to),
            Disturbance::SetClock { by } => replica.clock += by * 1_000,
            Disturbance::Touch => {
                self.version += 1;
                if let Some(lease) = &mut self.lease {
                    let label = ("touched".to_owned(), self.version.to_string());
                    lease.metadata.labels = Some([label].into());
                    lease.metadata.resource_version = Some(self.version.to_string());
                }
            }
            Disturbance::Kill { back_after } => {
                if replica.election.take().is_some() {
                    replica.told = Leadership::Standby;
                    replica.paused_until = now;
                    self.schedule(back_after, Event::Start { who });
                }
            }
            Disturbance::Stop { back_after } => {
                replica.back_after = back_after;
                if now >= replica.paused_until {
                    self.untils.remove(&(who, replica.run));
                    self.drive(who, |election, now| election.handle_shutdown(now));
                }
            }
        }
    }

    /// Gives a replica its turn, as a shell does.
    fn drive(&mut self, who: usize, input: impl FnOnce(&mut Election, Instant)) {
        let now = self.now;
        let replica = &mut self.replicas[who];
        let Some(election) = &mut replica.election else { return };
        replica.timeouts += 1;
        let nth = replica.timeouts;
        if now < replica.paused_until {
            let until = replica.paused_until;
            return self.schedule_at(until, Event::Wake { who, nth });
        }
        input(election, now);
        // Each replica's clock goes wrong in its own way, down to the microsecond.
        let micros = replica.clock + 10 * i64::from(replica.run) + who as i64;
        let wall = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000) + (now - self.start);
        let offset = Duration::from_micros(micros.unsigned_abs());
        let request = election.poll_request(now, if micros < 0 { wall - offset } else { wall + offset });
        let told = std::mem::replace(&mut replica.told, election.leadership());
        while let Some(notice) = election.poll_notice() {
            self.releases += usize::from(notice == Notice::Released);
        }
        let timeout = election.poll_timeout();
        let run = replica.run;
        if election.is_over() {
            replica.election = None;
            let back_after = replica.back_after;
            self.schedule(back_after, Event::Start { who });
        }
        self.note(who, run, told);
        if let Some((at, _)) = timeout {
            self.schedule_at(at, Event::Wake { who, nth });
        }
        if let Some(request) = request {
            self.send(Sender { who, run, id: request.id }, &request.action, request.deadline);
        }
    }

    /// Checks what a replica tells against what was told before.
    fn note(&mut self, who: usize, run: u32, before: Leadership) {
        let Leadership::Leading { term, until } = self.replicas[who].told else { return };
        let until = until.expect("it runs out");
        assert!(until > self.now && until <= self.now + self.config.renew_deadline);
        if before.term_at(self.now) != Some(term) {
            let margin = self.config.lease_duration - self.config.renew_deadline;
            for (&other, &ended) in &self.untils {
                assert!(
                    other == (who, run) || ended + margin <= self.now,
                    "{who} begins to lead {:?} after the end of {other:?}",
                    self.now.checked_duration_since(ended)
                );
            }
            let earlier = self.gains.iter().rfind(|gain| (gain.1, gain.2) == (who, run));
            assert_eq!(term, earlier.map_or(1, |gain| gain.3 + 1));
            self.gains.push((self.now - self.start, who, run, term));
        }
        self.untils.insert((who, run), until);
    }

    fn send(&mut self, from: Sender, action: &Action, deadline: Instant) {
        let failed = Answer::Failed("no answer in time".to_owned());
        self.schedule_at(deadline, Event::Answered { to: from, answer: failed });
        let replica = &self.replicas[from.who];
        let is_slow = self.now < replica.slow.0;
        let most = if is_slow { replica.slow.1 } else { 20 };
        let (is_cut, is_deaf) = (self.now < replica.cut_until, self.now < replica.deaf_until);
        if is_cut {
            return;
        }
        let times = if is_slow && self.rng.u8(..) < 64 { 2 } else { 1 };
        for time in 0..times {
            let there = self.rng.u64(0..=most);
            let back = self.rng.u64(0..=most);
            // Of a request that arrives twice, one answer finds its way, at most.
            let answer_after = (!is_deaf && time == 0).then_some(back);
            self.schedule(there, Event::Arrives { from, action: action.clone(), answer_after });
        }
    }

    /// What a server does with a Lease.
    fn serve(&mut self, action: Action) -> Answer {
        let written = match (action, &self.lease) {
            (Action::Read, None) | (Action::Replace(_), None) => return Answer::Missing,
            (Action::Read, Some(lease)) => return Answer::Lease(Box::new(lease.clone())),
            (Action::Create(_), Some(_)) => return Answer::Conflict,
            (Action::Create(lease), None) => lease,
            (Action::Replace(lease), Some(now)) => {
                if lease.metadata.resource_version != now.metadata.resource_version {
                    return Answer::Conflict;
                }
                lease
            }
        };
        self.version += 1;
        let mut lease = *written;
        lease.metadata.resource_version = Some(self.version.to_string());
        self.lease = Some(lease.clone());
        Answer::Lease(Box::new(lease))
    }
}

/// Runs a plan to its end; the assertions are on the way.
fn run(plan: &Plan) -> World {
    let mut world = World::new(plan);
    // Then nothing is paused, cut, slow or on its way any more.
    let quiet = DISTURBED + 2 * LONGEST;
    world.run_until(quiet);
    let config = &world.config;
    let bound = 2 * config.lease_duration + config.renew_deadline / 2 + 2 * config.retry_period;
    let settled = quiet + u64::try_from(bound.as_millis()).unwrap();
    world.run_until(settled);
    let leaders = world.leaders();
    assert_eq!(leaders.len(), 1, "nobody leads {bound:?} after the end of all trouble");
    world.run_until(settled + 60_000);
    assert_eq!(world.leaders(), leaders, "it changes without a reason");
    world
}

proptest! {
    #[test]
    fn never_do_two_lead_and_when_trouble_ends_one_does(plan in plans()) {
        run(&plan);
    }
}

#[test]
fn undisturbed_the_first_to_come_leads_once_and_for_all() {
    let quiet =
        |seed| Plan { seed, replicas: 3, is_one_identity: false, is_hasty: false, disturbances: vec![] };
    for seed in 0..20 {
        let world = run(&quiet(seed));
        assert_eq!(world.gains.len(), 1, "seed {seed}: {:?}", world.gains);
    }
}

#[test]
fn the_model_sees_leaderships_change_in_every_way() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let (mut gains, mut regained, mut releases) = (0, 0, 0);
    for _ in 0..200 {
        let world = run(&plans().new_tree(&mut runner).unwrap().current());
        gains += world.gains.len();
        regained += world.gains.iter().filter(|gain| gain.3 > 1).count();
        releases += world.releases;
    }
    assert!(gains > 500 && regained > 100 && releases > 50, "{gains} {regained} {releases}");
}
