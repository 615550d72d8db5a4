//! Where a watch of one set of objects stands: what was seen, how it goes on, and after which wait.

use std::cmp::Ordering;
use std::mem::discriminant;
use std::time::Duration;

use kube::core::Status;
use tokio::time::Instant;

use super::WatchConfig;
use crate::watched::Interruption;

/// A watch that has lasted so long was a good one: whatever ends it, the next one is begun as if nothing had failed before.
/// A server that breaks every watch is so asked every ten seconds, and one that breaks them at once less and less often.
const STEADY: Duration = Duration::from_secs(10);
/// How often the same trouble is logged while it lasts.
const LOG_INTERVAL: Duration = Duration::from_secs(300);

/// What went wrong, and how it goes on.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Trouble {
    why: Interruption,
    /// Whether the watch may go on from where it was; else everything is listed.
    can_resume: bool,
    /// How long the server asks to be left alone.
    retry_after: Duration,
}

impl Trouble {
    /// Trouble that the same request may not have when it is made again.
    pub(super) fn failed(why: impl Into<String>) -> Self {
        Self { why: Interruption::Failed(why.into()), can_resume: true, retry_after: Duration::ZERO }
    }

    /// Trouble that going on from the same version would have again.
    fn lost(why: Interruption) -> Self {
        Self { why, can_resume: false, retry_after: Duration::ZERO }
    }

    /// What the API server refused with, as an answer or as an event.
    pub(super) fn refused(status: &Status) -> Self {
        let Status { code, message, reason, .. } = status;
        if *code == 410 || reason == "Expired" || reason == "Gone" {
            return Self::lost(Interruption::Expired);
        }
        let seconds = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
        let retry_after = Duration::from_secs(seconds.into());
        Self { retry_after, ..Self::failed(format!("{message} ({code} {reason})")) }
    }

    /// What became of a request that was not answered with what was asked for.
    pub(super) fn of(error: &kube::Error) -> Self {
        if let kube::Error::Api(status) = error {
            // What `kube` makes of a line that is no event it knows: any object can be read as a status without content.
            // The same line would come again.
            if status.code == 0 && status.message.is_empty() {
                let why = "the watch told an event that cannot be read".to_owned();
                return Self::lost(Interruption::Failed(why));
            }
            return Self::refused(status);
        }
        let can_resume = !matches!(error, kube::Error::SerdeError(_));
        Self { can_resume, ..Self::failed(in_full(error)) }
    }

    pub(super) fn into_interruption(self) -> Interruption {
        self.why
    }
}

/// An error with what caused it, where it does not say so itself.
fn in_full(error: &dyn std::error::Error) -> String {
    let mut told = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_told = cause.to_string();
        if !told.contains(&cause_told) {
            told = format!("{told}: {cause_told}");
        }
        source = cause.source();
    }
    told
}

/// What to ask for next.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Next {
    /// A whole list.
    List,
    /// A watch from this version on.
    Watch(String),
}

#[derive(Clone, Debug, PartialEq)]
enum Stage {
    /// A list is due.
    Start,
    /// Some pages of a list of this version have been told.
    Listing { version: String },
    /// Everything up to this version has been told.
    Listed { version: String },
    /// Everything up to this version has been told, and a watch goes on from there.
    Watching { version: String, since: Instant, has_told: bool },
}

/// Where a watch stands. It asks nothing and waits for nothing; `handle_*` is what came in, and the wait that some of them
/// return is due before what [`WatchState::next`] names is asked for.
#[derive(Clone, Debug)]
pub(super) struct WatchState {
    config: WatchConfig,
    chance: fastrand::Rng,
    stage: Stage,
    /// The greatest version that a list, an event or a bookmark had.
    seen: Option<u64>,
    relist_at: Option<Instant>,
    /// Troubles in a row, and watches that ended at once.
    failures: u32,
    /// Whether nothing good has been told since the last trouble.
    is_interrupted: bool,
    /// The trouble that was logged last, and when.
    logged: Option<(Interruption, Instant)>,
}

/// Versions are compared where they are numbers, which is what Kubernetes promises of its own kinds.
fn number(version: &str) -> Option<u64> {
    version.parse().ok()
}

impl WatchState {
    pub(super) fn new(config: WatchConfig) -> Self {
        let chance = fastrand::Rng::with_seed(config.seed);
        Self {
            config,
            chance,
            stage: Stage::Start,
            seen: None,
            relist_at: None,
            failures: 0,
            is_interrupted: false,
            logged: None,
        }
    }

    pub(super) fn next(&self) -> Next {
        match &self.stage {
            Stage::Start | Stage::Listing { .. } => Next::List,
            Stage::Listed { version } | Stage::Watching { version, .. } => Next::Watch(version.clone()),
        }
    }

    /// When everything is to be listed again; `None` is never, or before the first list.
    pub(super) fn relist_at(&self) -> Option<Instant> {
        self.relist_at
    }

    /// A page of a list has come. Returns whether it is the first one of a list that is to be believed.
    pub(super) fn handle_page(&mut self, version: &str) -> Result<bool, Trouble> {
        if version.is_empty() {
            return Err(Trouble::failed("the list does not say of which version it is"));
        }
        if let Stage::Listing { version: began } = &self.stage {
            if began == version {
                return Ok(false);
            }
            let why = format!("the list began with version {began} and goes on with version {version}");
            return Err(Trouble::failed(why));
        }
        if let (Some(listed), Some(seen)) = (number(version), self.seen)
            && listed < seen
        {
            return Err(Trouble::lost(Interruption::Stale { listed, seen }));
        }
        self.seen = self.seen.max(number(version));
        self.stage = Stage::Listing { version: version.to_owned() };
        self.is_interrupted = false;
        Ok(true)
    }

    /// The list is whole.
    pub(super) fn handle_list_end(&mut self, now: Instant) {
        if let Stage::Listing { version } = &self.stage {
            self.stage = Stage::Listed { version: version.clone() };
        }
        let after = self.config.relist.as_secs_f64() * (1.0 + self.chance.f64());
        self.relist_at = Duration::try_from_secs_f64(after).ok().and_then(|after| now.checked_add(after));
    }

    /// The watch that was asked for begins.
    pub(super) fn handle_watch_begin(&mut self, now: Instant) {
        if let Stage::Listed { version } | Stage::Watching { version, .. } = &self.stage {
            self.stage = Stage::Watching { version: version.clone(), since: now, has_told: false };
        }
    }

    /// The watch told an event. Returns whether it is news.
    pub(super) fn handle_event(&mut self, version: &str) -> Result<bool, Trouble> {
        let is_news = self.move_to(version)?;
        if let Stage::Watching { has_told, .. } = &mut self.stage {
            *has_told |= is_news;
        }
        self.is_interrupted &= !is_news;
        Ok(is_news)
    }

    /// When a watch that goes on after trouble counts as well again, if nothing is told before.
    pub(super) fn resumes_at(&self) -> Option<Instant> {
        match &self.stage {
            Stage::Watching { since, .. } if self.is_interrupted => Some(*since + STEADY),
            Stage::Start | Stage::Listing { .. } | Stage::Listed { .. } | Stage::Watching { .. } => None,
        }
    }

    /// The watch is well. Returns whether that is news.
    pub(super) fn handle_resumed(&mut self) -> bool {
        std::mem::take(&mut self.is_interrupted)
    }

    /// The watch told that it has told everything up to this version.
    pub(super) fn handle_bookmark(&mut self, version: &str) -> Result<(), Trouble> {
        self.move_to(version).map(drop)
    }

    /// Goes on to a version. Returns whether it is another one.
    fn move_to(&mut self, told: &str) -> Result<bool, Trouble> {
        if told.is_empty() {
            // Nothing to compare, and nowhere to go.
            return Ok(true);
        }
        if let (Some(told), Some(seen)) = (number(told), self.seen) {
            match told.cmp(&seen) {
                Ordering::Less => return Err(Trouble::lost(Interruption::OutOfOrder { seen, told })),
                Ordering::Equal => return Ok(false),
                Ordering::Greater => {}
            }
        }
        self.seen = self.seen.max(number(told));
        if let Stage::Watching { version, .. } = &mut self.stage {
            told.clone_into(version);
        }
        Ok(true)
    }

    /// The watch has ended as watches do. Returns how long to wait: not at all, unless it had nothing to say and ended at
    /// once, as it may do again and again.
    pub(super) fn handle_watch_end(&mut self, now: Instant) -> Duration {
        self.settle(now);
        let Stage::Watching { version, since, has_told } = &self.stage else { return Duration::ZERO };
        let is_idle = !has_told && now < *since + STEADY;
        self.stage = Stage::Listed { version: version.clone() };
        if is_idle { self.back_off() } else { Duration::ZERO }
    }

    /// Everything is to be listed again.
    pub(super) fn handle_relist(&mut self, now: Instant) {
        self.settle(now);
        self.stage = Stage::Start;
    }

    /// Something went wrong. Returns how long to wait: not at all where a list is due that may well be answered.
    pub(super) fn handle_trouble(&mut self, trouble: &Trouble, now: Instant) -> Duration {
        self.settle(now);
        self.is_interrupted = true;
        let is_first = self.failures == 0;
        let wait = self.back_off().max(trouble.retry_after.min(self.config.max_backoff));
        match &self.stage {
            Stage::Listed { version } | Stage::Watching { version, .. } if trouble.can_resume => {
                self.stage = Stage::Listed { version: version.clone() };
            }
            Stage::Start | Stage::Listing { .. } | Stage::Listed { .. } | Stage::Watching { .. } => {
                self.stage = Stage::Start;
            }
        }
        match trouble.why {
            Interruption::Expired | Interruption::OutOfOrder { .. } if is_first => Duration::ZERO,
            Interruption::Expired
            | Interruption::OutOfOrder { .. }
            | Interruption::Stale { .. }
            | Interruption::Failed(_) => wait,
        }
    }

    /// Whether this is to be logged: the same trouble is not, for a while.
    pub(super) fn is_worth_logging(&mut self, trouble: &Trouble, now: Instant) -> bool {
        let is_same = |logged: &Interruption| match (logged, &trouble.why) {
            (Interruption::Failed(logged), Interruption::Failed(now)) => logged == now,
            (logged, now) => discriminant(logged) == discriminant(now),
        };
        let is_known = self.logged.as_ref().is_some_and(|(why, at)| is_same(why) && now < *at + LOG_INTERVAL);
        if !is_known {
            self.logged = Some((trouble.why.clone(), now));
        }
        !is_known
    }

    /// Forgets earlier trouble after a watch that was a good one.
    fn settle(&mut self, now: Instant) {
        if let Stage::Watching { since, .. } = self.stage
            && now >= since + STEADY
        {
            self.failures = 0;
            self.logged = None;
        }
    }

    /// The next wait: its ceiling doubles each time, and at least half of it is waited.
    fn back_off(&mut self) -> Duration {
        let WatchConfig { backoff, max_backoff, .. } = self.config;
        let ceiling = backoff.saturating_mul(1 << self.failures.min(31)).min(max_backoff);
        self.failures = self.failures.saturating_add(1);
        ceiling.mul_f64(0.5 + self.chance.f64() / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::serde::de::DeserializeOwned;

    const SECOND: Duration = Duration::from_secs(1);

    fn expired() -> Trouble {
        Trouble::lost(Interruption::Expired)
    }

    /// One that has listed everything at version 10.
    fn listed() -> WatchState {
        let mut state = WatchState::new(WatchConfig::default());
        assert_eq!(state.handle_page("10"), Ok(true));
        state.handle_list_end(Instant::now());
        state
    }

    /// One that watches from version 10 on, since this moment.
    fn watching() -> (WatchState, Instant) {
        let (mut state, now) = (listed(), Instant::now());
        state.handle_watch_begin(now);
        (state, now)
    }

    fn watch(version: &str) -> Next {
        Next::Watch(version.to_owned())
    }

    #[test]
    fn a_list_is_one_version_and_its_pages_begin_it_once() {
        let mut state = WatchState::new(WatchConfig::default());
        assert_eq!((state.next(), state.relist_at()), (Next::List, None));
        assert_eq!((state.handle_page("10"), state.handle_page("10")), (Ok(true), Ok(false)));
        let why = "the list began with version 10 and goes on with version 12";
        assert_eq!(state.handle_page("12"), Err(Trouble::failed(why)));
        let why = "the list does not say of which version it is";
        assert_eq!(state.handle_page(""), Err(Trouble::failed(why)));
        state.handle_trouble(&Trouble::failed(why), Instant::now());
        assert_eq!((state.next(), state.handle_page("12")), (Next::List, Ok(true)));
    }

    #[test]
    fn what_was_seen_of_lists_events_and_bookmarks_is_the_greatest_version() {
        let stale = |listed, seen| Err(Trouble::lost(Interruption::Stale { listed, seen }));
        let (mut state, now) = watching();
        assert_eq!((state.handle_event("11"), state.handle_bookmark("15")), (Ok(true), Ok(())));
        assert_eq!(state.next(), watch("15"));
        state.handle_relist(now);
        assert_eq!(
            (state.next(), state.handle_page("14"), state.next()),
            (Next::List, stale(14, 15), Next::List)
        );
        assert_eq!(state.handle_page("15"), Ok(true));
        // One that is given up counts too.
        state.handle_relist(now);
        assert_eq!(
            (state.handle_page("20"), state.handle_trouble(&expired(), now)),
            (Ok(true), Duration::ZERO)
        );
        assert_eq!(state.handle_page("19"), stale(19, 20));
    }

    #[test]
    fn an_event_is_news_a_duplicate_or_out_of_order() {
        let out_of_order = |seen, told| Trouble::lost(Interruption::OutOfOrder { seen, told });
        let (mut state, now) = watching();
        assert_eq!((state.handle_event("10"), state.handle_event("12")), (Ok(false), Ok(true)));
        assert_eq!((state.handle_event("12"), state.handle_bookmark("12")), (Ok(false), Ok(())));
        assert_eq!(state.handle_event("11"), Err(out_of_order(12, 11)));
        assert_eq!(state.handle_bookmark("9"), Err(out_of_order(12, 9)));
        assert_eq!(state.next(), watch("12"));
        assert_eq!(
            (state.handle_trouble(&out_of_order(12, 11), now), state.next()),
            (Duration::ZERO, Next::List)
        );
    }

    #[test]
    fn versions_that_are_no_numbers_are_gone_on_from_and_not_compared() {
        let mut state = WatchState::new(WatchConfig::default());
        assert_eq!(state.handle_page("b-2"), Ok(true));
        state.handle_list_end(Instant::now());
        state.handle_watch_begin(Instant::now());
        for version in ["b-3", "a-1", "a-1"] {
            assert_eq!((state.handle_event(version), state.next()), (Ok(true), watch(version)));
        }
        assert_eq!((state.handle_event(""), state.next()), (Ok(true), watch("a-1")));
        state.handle_relist(Instant::now());
        assert_eq!(state.handle_page("a-0"), Ok(true));
    }

    #[test]
    fn a_watch_that_ends_with_its_time_or_after_news_is_resumed_at_once_and_others_wait() {
        let (mut state, now) = watching();
        assert_eq!(state.handle_watch_end(now + STEADY), Duration::ZERO);
        let mut waits = Vec::new();
        for version in [11, 12] {
            state.handle_watch_begin(now);
            assert_eq!(state.handle_event(&version.to_string()), Ok(true));
            waits.push(state.handle_watch_end(now));
            state.handle_watch_begin(now);
            assert_eq!(state.handle_event(&version.to_string()), Ok(false));
            waits.push(state.handle_watch_end(now));
        }
        assert_eq!((waits[0], waits[2], state.next()), (Duration::ZERO, Duration::ZERO, watch("12")));
        assert!(waits[1] >= SECOND * 2 / 5 && waits[1] < SECOND * 4 / 5, "{waits:?}");
        assert!(waits[3] >= SECOND * 4 / 5 && waits[3] < SECOND * 8 / 5, "{waits:?}");
        // The time between two watches is no watch's.
        let wait = state.handle_trouble(&Trouble::failed("no"), now + STEADY);
        assert!(wait >= SECOND * 8 / 5, "{wait:?}");
    }

    #[test]
    fn waits_double_up_to_their_ceiling_until_a_watch_was_a_good_one() {
        let (mut state, now) = watching();
        let failed = Trouble::failed("no");
        let waits: Vec<_> = (0..10).map(|_| state.handle_trouble(&failed, now)).collect();
        for (at, wait) in waits.iter().enumerate() {
            let ceiling = (SECOND * 4 / 5 * (1 << at)).min(30 * SECOND);
            assert!(*wait >= ceiling / 2 && *wait < ceiling, "{at}: {wait:?}");
        }
        state.handle_watch_begin(now);
        assert!(state.handle_trouble(&failed, now + STEADY - SECOND) >= 15 * SECOND);
        state.handle_watch_begin(now);
        assert!(state.handle_trouble(&failed, now + STEADY) < SECOND);
        assert_eq!(state.next(), watch("10"));
    }

    #[test]
    fn a_list_is_asked_for_at_once_after_the_first_410_only() {
        let (mut state, now) = watching();
        assert_eq!((state.handle_trouble(&expired(), now), state.next()), (Duration::ZERO, Next::List));
        assert!(state.handle_trouble(&expired(), now) >= SECOND * 4 / 5);
    }

    #[test]
    fn the_server_may_ask_for_more_time_but_not_for_ever() {
        let status = |seconds| {
            let details = json(&format!(r#"{{"retryAfterSeconds": {seconds}}}"#));
            Status { details: Some(details), ..Status::failure("busy", "TooManyRequests").with_code(429) }
        };
        let (mut state, now) = watching();
        let trouble = Trouble::refused(&status(7));
        assert_eq!(trouble.why, Interruption::Failed("busy (429 TooManyRequests)".to_owned()));
        assert_eq!(state.handle_trouble(&trouble, now), 7 * SECOND);
        assert_eq!(state.handle_trouble(&Trouble::refused(&status(86_400)), now), 30 * SECOND);
    }

    fn json<T: DeserializeOwned>(text: &str) -> T {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn errors_say_whether_the_same_request_would_have_them_again() {
        let refusal = |code, reason: &str| {
            Trouble::of(&kube::Error::Api(Status::failure("so", reason).with_code(code).boxed()))
        };
        let failed = |why: &str| Interruption::Failed(why.to_owned());
        assert_eq!(refusal(410, ""), Trouble::lost(Interruption::Expired));
        assert_eq!(refusal(0, "Expired"), Trouble::lost(Interruption::Expired));
        assert_eq!(refusal(403, "Forbidden"), Trouble::failed("so (403 Forbidden)"));
        let unknown = kube::Error::Api(json::<Status>(r#"{"type": "CHANGED", "object": {}}"#).boxed());
        assert_eq!(
            Trouble::of(&unknown),
            Trouble::lost(failed("the watch told an event that cannot be read"))
        );
        let undecodable = kube::Error::SerdeError(serde_json::from_str::<u8>("x").unwrap_err());
        let why = "Error deserializing response: expected value at line 1 column 1";
        assert_eq!(Trouble::of(&undecodable), Trouble::lost(failed(why)));
        let broken = kube::Error::ReadEvents(std::io::Error::other("cut"));
        assert_eq!(Trouble::of(&broken), Trouble::failed("Error reading events stream: cut"));
    }

    #[test]
    fn the_same_trouble_is_logged_now_and_then_and_after_a_good_watch() {
        let (mut state, now) = watching();
        let stale = |listed| Trouble::lost(Interruption::Stale { listed, seen: 10 });
        let mut logged = |trouble: &Trouble, at| {
            let is_logged = state.is_worth_logging(trouble, at);
            state.handle_trouble(trouble, at);
            is_logged
        };
        let (one, other) = (Trouble::failed("one"), Trouble::failed("other"));
        assert_eq!((logged(&one, now), logged(&one, now), logged(&other, now)), (true, false, true));
        assert_eq!((logged(&other, now + LOG_INTERVAL), logged(&other, now + LOG_INTERVAL)), (true, false));
        assert_eq!((logged(&stale(8), now), logged(&stale(9), now)), (true, false));
        state.handle_page("10").unwrap();
        state.handle_list_end(now);
        state.handle_watch_begin(now);
        assert_eq!(state.handle_watch_end(now + STEADY), Duration::ZERO);
        assert!(state.is_worth_logging(&stale(9), now + STEADY));
    }

    #[test]
    fn relists_are_spread_by_the_seed() {
        let relist_after = |seed| {
            let mut state = WatchState::new(WatchConfig { seed, ..WatchConfig::default() });
            let now = Instant::now();
            state.handle_list_end(now);
            state.relist_at().unwrap() - now
        };
        let hour = 3_600 * SECOND;
        assert!((0..20).map(relist_after).all(|after| after >= hour && after < 2 * hour));
        assert_eq!((relist_after(1), relist_after(1) == relist_after(2)), (relist_after(1), false));
    }
}
