use super::*;

const MINE: &str = "mine";

/// An election, its clocks and what the test knows of the server.
struct Bench {
    election: Election,
    start: Instant,
    /// Seconds since the start.
    now: f64,
    version: u64,
}

impl Bench {
    fn new() -> Self {
        let start = Instant::now();
        let election = Election::new(LeaseConfig::new("ns", "leader", MINE, 7), start).unwrap();
        Self { election, start, now: 0.0, version: 10 }
    }

    fn at(&mut self, seconds: f64) -> &mut Self {
        self.now = seconds;
        self
    }

    fn instant(&self, seconds: f64) -> Instant {
        self.start + Duration::from_secs_f64(seconds)
    }

    fn ask(&mut self) -> Option<Request> {
        let now = self.instant(self.now);
        self.election.poll_request(now, SystemTime::UNIX_EPOCH + Duration::from_secs_f64(self.now))
    }

    fn asked(&mut self) -> Request {
        self.ask().expect("a request is due")
    }

    fn answer(&mut self, request: &Request, answer: Answer) {
        let now = self.instant(self.now);
        self.election.handle_answer(request.id, answer, now);
    }

    /// What the server holds once it has applied a write.
    fn applied(&mut self, request: &Request) -> Lease {
        let (Action::Create(lease) | Action::Replace(lease)) = request.action.clone() else {
            panic!("not a write: {request:?}")
        };
        self.version += 1;
        versioned(*lease, self.version)
    }

    /// A write that is applied and answered.
    fn writes(&mut self) -> Lease {
        let request = self.asked();
        let lease = self.applied(&request);
        self.answer(&request, Answer::Lease(Box::new(lease.clone())));
        lease
    }

    /// A read that shows this.
    fn reads(&mut self, lease: &Lease) {
        let request = self.asked();
        assert_eq!(request.action, Action::Read);
        self.answer(&request, Answer::Lease(Box::new(lease.clone())));
    }

    /// Leads from second 0 on, in version 11.
    fn leading() -> (Self, Lease) {
        let mut bench = Self::new();
        let read = bench.asked();
        bench.answer(&read, Answer::Missing);
        let lease = bench.writes();
        assert_eq!(bench.leads(), Some((1, 10.0)));
        assert_eq!(bench.told(), [Notice::Gained { term: 1 }]);
        (bench, lease)
    }

    /// The term and until which second.
    fn leads(&self) -> Option<(u64, f64)> {
        match self.election.leadership() {
            Leadership::Leading { term, until } => Some((term, (until? - self.start).as_secs_f64())),
            Leadership::Standby => None,
        }
    }

    fn next(&self) -> Option<(f64, Reason)> {
        self.election.poll_timeout().map(|(at, reason)| ((at - self.start).as_secs_f64(), reason))
    }

    fn told(&mut self) -> Vec<Notice> {
        std::iter::from_fn(|| self.election.poll_notice()).collect()
    }

    fn stop(&mut self) {
        let now = self.instant(self.now);
        self.election.handle_shutdown(now);
    }

    fn wake(&mut self) {
        let now = self.instant(self.now);
        self.election.handle_timeout(now);
    }
}

fn versioned(mut lease: Lease, version: u64) -> Lease {
    lease.metadata.resource_version = Some(version.to_string());
    lease
}

fn micro(seconds: f64) -> MicroTime {
    micro_time(SystemTime::UNIX_EPOCH + Duration::from_secs_f64(seconds))
}

/// Somebody's Lease.
fn held(holder: &str, version: u64) -> Lease {
    let spec = LeaseSpec {
        holder_identity: Some(holder.to_owned()),
        lease_duration_seconds: Some(15),
        acquire_time: Some(micro(1_000.0)),
        renew_time: Some(micro(2_000.0)),
        lease_transitions: Some(4),
        ..LeaseSpec::default()
    };
    versioned(Lease { metadata: ObjectMeta::default(), spec: Some(spec) }, version)
}

fn failed() -> Answer {
    Answer::Failed("cut off".to_owned())
}

#[test]
fn a_lease_that_is_missing_is_created_and_then_renewed_every_retry_period_and_nothing_else() {
    let (mut bench, lease) = Bench::leading();
    let spec = LeaseSpec {
        holder_identity: Some(MINE.to_owned()),
        lease_duration_seconds: Some(15),
        acquire_time: Some(micro(0.0)),
        renew_time: Some(micro(0.0)),
        lease_transitions: Some(0),
        ..LeaseSpec::default()
    };
    assert_eq!(lease.spec, Some(spec.clone()));
    assert_eq!((lease.metadata.namespace, lease.metadata.name), (Some("ns".into()), Some("leader".into())));
    assert_eq!(bench.next(), Some((2.0, Reason::Due(Step::Claim))));
    assert_eq!(bench.at(1.9).ask(), None);
    let renewed = bench.at(2.0).writes();
    assert_eq!(renewed.spec, Some(LeaseSpec { renew_time: Some(micro(2.0)), ..spec }));
    assert_eq!((bench.leads(), bench.next()), (Some((1, 12.0)), Some((4.0, Reason::Due(Step::Claim)))));
}

#[test]
fn an_answer_that_took_long_makes_the_leadership_end_no_later() {
    let (mut bench, _) = Bench::leading();
    let request = bench.at(2.0).asked();
    assert_eq!(request.deadline, bench.instant(6.0));
    let lease = bench.applied(&request);
    bench.at(6.5).answer(&request, Answer::Lease(Box::new(lease)));
    assert_eq!((bench.leads(), bench.next()), (Some((1, 12.0)), Some((6.5, Reason::Due(Step::Claim)))));
}

#[test]
fn a_first_answer_that_took_too_long_makes_no_leader() {
    let mut bench = Bench::new();
    let read = bench.asked();
    bench.answer(&read, Answer::Missing);
    let request = bench.asked();
    let lease = bench.applied(&request);
    bench.at(10.0).answer(&request, Answer::Lease(Box::new(lease)));
    assert_eq!(bench.leads(), None);
    bench.writes();
    assert_eq!(bench.leads(), Some((1, 20.0)));
}

#[test]
fn another_takes_over_only_what_it_has_seen_unchanged_for_the_whole_duration() {
    let mut bench = Bench::new();
    bench.at(1.0).reads(&held("other", 5));
    assert_eq!(bench.told(), [Notice::HeldBy("other".to_owned())]);
    // Renewed: the same but for its version.
    bench.at(4.0).reads(&held("other", 6));
    for second in [7.0, 10.0, 13.0, 16.0] {
        bench.at(second).reads(&held("other", 6));
        assert!(matches!(bench.next(), Some((_, Reason::Due(Step::Read)))), "{second}");
    }
    assert!(bench.next().unwrap().0 < 19.0);
    bench.at(18.99).reads(&held("other", 6));
    assert_eq!(bench.next(), Some((19.0, Reason::Due(Step::Read))));
    bench.at(19.0).reads(&held("other", 6));
    let request = bench.asked();
    let Action::Replace(lease) = &request.action else { panic!("{request:?}") };
    assert_eq!(lease.metadata.resource_version.as_deref(), Some("6"));
    let spec = lease.spec.clone().unwrap();
    assert_eq!((spec.holder_identity.as_deref(), spec.lease_transitions), (Some(MINE), Some(5)));
    assert_eq!((spec.acquire_time, spec.renew_time), (Some(micro(19.0)), Some(micro(19.0))));
    assert_eq!(bench.leads(), None);
    let lease = bench.applied(&request);
    bench.answer(&request, Answer::Lease(Box::new(lease)));
    assert_eq!(bench.leads(), Some((1, 29.0)));
}

#[test]
fn whoever_was_too_late_looks_again() {
    let mut bench = Bench::new();
    bench.reads(&held("", 5));
    let request = bench.asked();
    assert!(matches!(request.action, Action::Replace(_)));
    bench.at(0.1).answer(&request, Answer::Conflict);
    bench.reads(&held("other", 6));
    assert!(bench.next().unwrap().0 >= 2.1);
    assert_eq!((bench.leads(), bench.told()), (None, vec![Notice::HeldBy("other".to_owned())]));
}

#[test]
fn everything_else_in_the_lease_stays() {
    let mut lease = held("", 5);
    lease.metadata.labels = Some([("a".to_owned(), "b".to_owned())].into());
    lease.spec.as_mut().unwrap().strategy = Some("x".to_owned());
    let mut bench = Bench::new();
    bench.reads(&lease);
    let written = bench.writes();
    assert_eq!(written.metadata, versioned(lease, 11).metadata);
    assert_eq!(written.spec.unwrap().strategy.as_deref(), Some("x"));
}

#[test]
fn a_lost_answer_is_settled_by_reading_and_counts_from_before_the_write() {
    let (mut bench, _) = Bench::leading();
    let request = bench.at(2.0).asked();
    let lease = bench.applied(&request);
    bench.at(5.0).answer(&request, failed());
    assert_eq!(bench.told(), [Notice::Failing { step: Step::Claim, error: "cut off".to_owned() }]);
    bench.reads(&lease);
    assert_eq!((bench.leads(), bench.next()), (Some((1, 12.0)), Some((5.0, Reason::Due(Step::Claim)))));
    let renewed = bench.writes();
    assert_eq!((bench.leads(), renewed.metadata.resource_version.as_deref()), (Some((1, 15.0)), Some("13")));
}

#[test]
fn a_conflict_with_ones_own_write_that_came_twice_is_none() {
    let (mut bench, _) = Bench::leading();
    let request = bench.at(2.0).asked();
    let lease = bench.applied(&request);
    bench.answer(&request, Answer::Conflict);
    bench.reads(&lease);
    assert_eq!((bench.leads(), bench.told()), (Some((1, 12.0)), vec![]));
}

#[test]
fn a_write_that_arrives_after_its_repetition_was_sent_is_recognised() {
    let (mut bench, before) = Bench::leading();
    let late = bench.at(2.0).asked();
    bench.at(3.0).answer(&late, failed());
    bench.reads(&before);
    assert_eq!(bench.next(), Some((4.0, Reason::Due(Step::Claim))));
    let again = bench.at(4.0).asked();
    assert_eq!(again.action, late.action);
    let lease = bench.applied(&late);
    bench.answer(&again, Answer::Conflict);
    bench.reads(&lease);
    assert_eq!((bench.leads(), bench.told().len()), (Some((1, 12.0)), 1));
}

#[test]
fn a_renewal_by_a_clock_that_stands_still_differs_from_what_it_renews() {
    let (mut bench, _) = Bench::leading();
    let now = bench.instant(2.0);
    let request = bench.election.poll_request(now, SystemTime::UNIX_EPOCH).unwrap();
    let Action::Replace(lease) = request.action else { panic!("{request:?}") };
    assert_eq!(lease.spec.unwrap().renew_time, Some(micro(0.000_001)));
}

#[test]
fn without_a_renewal_it_runs_out_and_what_comes_then_is_another_term() {
    let (mut bench, lease) = Bench::leading();
    let request = bench.at(2.0).asked();
    bench.answer(&request, failed());
    for second in [2.0, 4.4, 7.0] {
        let read = bench.at(second).asked();
        assert_eq!(read.action, Action::Read);
        bench.answer(&read, failed());
    }
    let read = bench.at(9.5).asked();
    assert_eq!((read.deadline, bench.next()), (bench.instant(9.75), Some((10.0, Reason::RunsOut))));
    bench.at(10.0).answer(&read, failed());
    assert_eq!(bench.leads(), None);
    let failing = |step| Notice::Failing { step, error: "cut off".to_owned() };
    let lost = Notice::Lost { term: 1, why: Loss::RanOut };
    assert_eq!(bench.told(), [failing(Step::Claim), failing(Step::Read), lost]);
    // Nobody else has taken it.
    bench.at(13.0).reads(&lease);
    let again = bench.writes();
    assert_eq!(again.spec.unwrap().lease_transitions, Some(0));
    assert_eq!((bench.leads(), bench.told()), (Some((2, 23.0)), vec![Notice::Gained { term: 2 }]));
}

#[test]
fn a_process_that_was_stopped_too_long_leads_in_another_term_if_at_all() {
    let (mut bench, _) = Bench::leading();
    // Its clock went on; nobody polled it.
    bench.at(60.0).writes();
    assert_eq!(bench.leads(), Some((2, 70.0)));
    let lost = Notice::Lost { term: 1, why: Loss::RanOut };
    assert_eq!(bench.told(), [lost, Notice::Gained { term: 2 }]);
}

#[test]
fn it_stops_leading_at_once_when_the_lease_is_not_what_it_wrote() {
    for (answer, holder) in [
        (Answer::Lease(Box::new(held("other", 30))), "other"),
        (Answer::Lease(Box::new(held("", 30))), ""),
        (Answer::Lease(Box::new(held(MINE, 30))), MINE),
    ] {
        let (mut bench, _) = Bench::leading();
        let request = bench.at(2.0).asked();
        bench.answer(&request, Answer::Conflict);
        let read = bench.asked();
        bench.answer(&read, answer);
        assert_eq!(bench.leads(), None);
        let why = Loss::Taken { holder: holder.to_owned() };
        assert_eq!(bench.told()[0], Notice::Lost { term: 1, why });
    }
}

#[test]
fn what_only_touches_the_metadata_takes_nothing_away() {
    let (mut bench, lease) = Bench::leading();
    let request = bench.at(2.0).asked();
    bench.answer(&request, Answer::Conflict);
    bench.reads(&versioned(lease, 40));
    assert_eq!((bench.leads(), bench.next()), (Some((1, 10.0)), Some((4.0, Reason::Due(Step::Claim)))));
    bench.at(4.0).writes();
    assert_eq!(bench.leads(), Some((1, 14.0)));
}

#[test]
fn a_lease_that_was_deleted_is_created_anew_when_its_holder_cannot_lead_any_more() {
    let (mut bench, _) = Bench::leading();
    let request = bench.at(2.0).asked();
    bench.answer(&request, Answer::Missing);
    assert_eq!((bench.leads(), bench.told()), (None, vec![Notice::Lost { term: 1, why: Loss::Deleted }]));
    while let Some((at, Reason::Due(Step::Read))) = bench.next() {
        assert!(at <= 17.0);
        let read = bench.at(at).asked();
        bench.answer(&read, Answer::Missing);
    }
    assert_eq!(bench.next(), Some((17.0, Reason::Due(Step::Claim))));
    let request = bench.at(17.0).asked();
    assert!(matches!(request.action, Action::Create(_)));
}

#[test]
fn our_identity_alone_makes_no_leader() {
    let mut bench = Bench::new();
    bench.reads(&held(MINE, 5));
    assert_eq!(bench.leads(), None);
    assert!(matches!(&bench.told()[..], [Notice::Odd(what)] if what.contains("an earlier run")));
    while bench.now < 15.0 {
        let (at, reason) = bench.next().unwrap();
        assert_eq!(reason, Reason::Due(Step::Read));
        bench.at(at).reads(&held(MINE, 5));
    }
    let lease = bench.writes();
    assert_eq!((bench.leads(), bench.told()), (Some((1, 25.0)), vec![Notice::Gained { term: 1 }]));
    let spec = lease.spec.unwrap();
    // No transition: the name is the same.
    assert_eq!((spec.lease_transitions, spec.acquire_time), (Some(4), Some(micro(1_000.0))));
}

/// What is wrong with a Lease.
type Spoil = fn(&mut LeaseSpec);

#[test]
fn a_malformed_lease_is_told_of_once_and_waited_out() {
    let cases: [(Spoil, f64, &str); 8] = [
        (|spec| *spec = LeaseSpec::default(), 0.0, "no spec"),
        (|spec| spec.lease_duration_seconds = None, 15.0, "no leaseDurationSeconds"),
        (|spec| spec.lease_duration_seconds = Some(-3), 15.0, "leaseDurationSeconds are -3"),
        (|spec| spec.lease_duration_seconds = Some(i32::MAX), f64::from(i32::MAX), "delete the Lease"),
        (|spec| spec.renew_time = None, 15.0, "no renewTime"),
        (|spec| spec.acquire_time = Some(micro(9e9)), 15.0, "before its acquireTime"),
        (|spec| spec.lease_transitions = Some(-1), 15.0, "leaseTransitions are negative"),
        (|spec| spec.holder_identity = Some("\u{0}\u{202e} 🦀".repeat(1_000)), 15.0, ""),
    ];
    for (spoil, seconds, word) in cases {
        let mut lease = held("other", 5);
        spoil(lease.spec.as_mut().unwrap());
        let mut bench = Bench::new();
        bench.reads(&lease);
        let odd = |notice: &Notice| matches!(notice, Notice::Odd(what) if what.contains(word));
        assert_eq!(bench.told().iter().filter(|notice| odd(notice)).count(), usize::from(!word.is_empty()));
        if seconds > 0.0 {
            assert_eq!(bench.ask(), None);
            bench.at(2.5).reads(&lease);
            assert_eq!(bench.told(), []);
            bench.at(seconds - 0.001).reads(&lease);
            assert_eq!(bench.ask(), None, "{word}");
            bench.at(seconds).reads(&lease);
        }
        let lease = bench.writes();
        assert_eq!(bench.leads(), Some((1, seconds + 10.0)), "{word}");
        assert!(lease.spec.unwrap().lease_transitions.unwrap() > 0);
    }
}

#[test]
fn a_holder_that_asks_for_longer_gets_it_and_one_that_asks_for_less_does_not() {
    for (asked, seconds) in [(60, 60.0), (2, 15.0)] {
        let mut lease = held("other", 5);
        lease.spec.as_mut().unwrap().lease_duration_seconds = Some(asked);
        let mut bench = Bench::new();
        bench.reads(&lease);
        bench.at(seconds - 0.5).reads(&lease);
        assert_eq!(bench.next(), Some((seconds, Reason::Due(Step::Read))));
    }
}

#[test]
fn a_lease_without_a_version_is_never_written() {
    let mut lease = held("", 5);
    for version in [None, Some(String::new())] {
        lease.metadata.resource_version = version;
        let mut bench = Bench::new();
        bench.reads(&lease);
        assert!(matches!(&bench.told()[..], [Notice::Failing { step: Step::Read, .. }]));
        assert!(matches!(bench.next(), Some((_, Reason::Due(Step::Read)))));
    }
}

#[test]
fn trouble_is_told_once_until_it_is_over() {
    let mut bench = Bench::new();
    let mut told = Vec::new();
    for (second, works) in [(0.0, false), (3.0, false), (6.0, true), (9.0, false), (12.0, false)] {
        let read = bench.at(second).asked();
        bench.answer(
            &read,
            if works { Answer::Lease(Box::new(held("other", second as u64 + 1))) } else { failed() },
        );
        told.push(bench.told().len());
    }
    assert_eq!(told, [1, 0, 1, 1, 0]);
    // Who may read but not write says so once, and asks no more than once a retry period.
    let mut bench = Bench::new();
    let mut writes = 0;
    while bench.now < 20.0 {
        let request = bench.asked();
        let is_read = request.action == Action::Read;
        writes += usize::from(!is_read);
        bench.answer(
            &request,
            if is_read { Answer::Lease(Box::new(held("", 5))) } else { Answer::Failed("403".to_owned()) },
        );
        bench.now = bench.next().unwrap().0;
    }
    let error = "403".to_owned();
    assert_eq!((writes, bench.told()), (10, vec![Notice::Failing { step: Step::Claim, error }]));
}

#[test]
fn a_shutdown_ends_the_leadership_and_then_releases() {
    let (mut bench, lease) = Bench::leading();
    bench.at(1.0).stop();
    assert_eq!((bench.leads(), bench.next()), (None, Some((1.0, Reason::Due(Step::Release)))));
    let request = bench.asked();
    assert_eq!(request.deadline, bench.instant(3.5));
    let released = bench.applied(&request);
    let spec = LeaseSpec {
        holder_identity: None,
        lease_duration_seconds: Some(1),
        acquire_time: Some(micro(1.0)),
        renew_time: Some(micro(1.0)),
        ..lease.spec.unwrap()
    };
    assert_eq!(released.spec, Some(spec));
    bench.answer(&request, Answer::Lease(Box::new(released)));
    assert_eq!(
        bench.told(),
        [Notice::Lost { term: 1, why: Loss::Stopped }, Notice::Released],
        "and the Lease is let go of"
    );
    assert_eq!((bench.election.is_over(), bench.next(), bench.at(100.0).ask()), (true, None, None));
}

#[test]
fn a_shutdown_during_a_renewal_looks_first_what_became_of_it() {
    let (mut bench, _) = Bench::leading();
    let renewal = bench.at(2.0).asked();
    bench.stop();
    let read = bench.asked();
    let lease = bench.applied(&renewal);
    // The answer to what was given up changes nothing.
    bench.answer(&renewal, Answer::Lease(Box::new(held("other", 99))));
    bench.answer(&read, Answer::Lease(Box::new(lease)));
    assert_eq!(bench.leads(), None);
    let request = bench.asked();
    assert_eq!(bench.applied(&request).spec.unwrap().holder_identity, None);
}

#[test]
fn a_release_that_fails_is_tried_until_its_time_is_up() {
    let (mut bench, lease) = Bench::leading();
    bench.at(1.0).stop();
    let mut writes = 0;
    while !bench.election.is_over() {
        bench.now = bench.next().map_or(bench.now, |(at, _)| at);
        bench.wake();
        let Some(request) = bench.ask() else { continue };
        if request.action == Action::Read {
            bench.answer(&request, Answer::Lease(Box::new(lease.clone())));
        } else {
            writes += 1;
            bench.answer(&request, failed());
        }
    }
    let failing = Notice::Failing { step: Step::Release, error: "cut off".to_owned() };
    let lost = Notice::Lost { term: 1, why: Loss::Stopped };
    assert_eq!((bench.now, writes, bench.told()), (6.0, 3, vec![lost, failing, Notice::NotReleased]));
}

#[test]
fn a_standby_that_stops_writes_nothing() {
    let mut bench = Bench::new();
    bench.reads(&held("other", 5));
    bench.stop();
    assert_eq!((bench.ask(), bench.election.is_over(), bench.leads()), (None, true, None));
    // One that may hold it, for all it knows, looks.
    let mut bench = Bench::new();
    bench.reads(&held("", 5));
    let _ = bench.asked();
    bench.stop();
    bench.reads(&held("other", 6));
    assert_eq!((bench.ask(), bench.election.is_over()), (None, true));
}

#[test]
fn a_clock_far_from_our_days_is_written_as_well_as_it_can_be() {
    let time = |wall: SystemTime| micro_time(wall).0.to_string();
    let epoch = SystemTime::UNIX_EPOCH;
    assert_eq!(time(epoch - Duration::from_millis(1_500)), "1969-12-31T23:59:58.5Z");
    assert_eq!(time(epoch + Duration::from_nanos(1_999)), "1970-01-01T00:00:00.000001Z");
    assert_eq!(time(epoch + Duration::from_secs(1 << 50)), "1970-01-01T00:00:00Z");
}
