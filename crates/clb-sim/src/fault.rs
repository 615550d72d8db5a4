//! Faults as data: when × what × how.
//!
//! A [`FaultPlan`] can be written in code or read from JSON or YAML. Every fault that fires is recorded, and the records
//! make up a plan that makes the same faults happen again ([`replay`]), as long as the calls come as they did.
//!
//! ```
//! use clb_sim::fault::{Fault, FaultPlan, How, What, When};
//!
//! let plan = FaultPlan::new(7).with(
//!     When::Nth(2),
//!     What::verb("PUT").path("*/publicIPAddresses/*"),
//!     How::LoseAnswer,
//! );
//! let json = r#"{"seed": 7, "faults": [
//!     {"when": {"nth": 2}, "what": {"verb": "PUT", "path": "*/publicIPAddresses/*"}, "how": "loseAnswer"}
//! ]}"#;
//! assert_eq!(serde_json::from_str::<FaultPlan>(json)?, plan);
//! # Ok::<(), serde_json::Error>(())
//! ```

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::azure::OperationShape;

/// Which faults happen. The first one in the list that fires for a call is the one that happens to it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FaultPlan {
    /// What [`When::Probability`] draws from: the same seed and the same calls give the same faults.
    #[serde(default)]
    pub seed: u64,
    /// The faults, most important first.
    pub faults: Vec<Fault>,
}

/// One fault.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Fault {
    /// When.
    pub when: When,
    /// To which calls.
    #[serde(default)]
    pub what: What,
    /// How.
    pub how: How,
}

/// When a fault happens to a call that it is meant for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum When {
    /// Every time, until the plan is taken away.
    Always,
    /// To the nth such call only, counted from 1.
    Nth(u64),
    /// To one in so many, by chance: 0 never, 1 always.
    Probability(f64),
    /// From one time (included) to another (excluded), in milliseconds since the simulator started.
    Between {
        /// The first millisecond.
        from: u64,
        /// The first millisecond that is spared again.
        to: u64,
    },
}

/// Which calls a fault is meant for: those that fit everything that is given here. The default is any call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct What {
    /// Which API.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api: Option<Api>,
    /// The HTTP method in any casing, or `WATCH` for a watch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verb: Option<String>,
    /// The path without the query, in any casing; `*` stands for anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// A part of the `User-Agent`, in any casing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub caller: Option<String>,
}

/// An API of the simulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Api {
    /// Azure Resource Manager.
    Azure,
    /// Kubernetes.
    Kubernetes,
}

/// How a call fails. What makes no sense for a call does not happen to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum How {
    /// It is answered as ever, this many milliseconds late.
    Delay(u64),
    /// It is refused with this status and changes nothing.
    Refuse {
        /// The HTTP status.
        status: u16,
        /// The error code (Azure) or reason (Kubernetes).
        code: String,
    },
    /// It is answered 429, and so is, for so many seconds, everything that draws on the same budget of Azure's.
    Throttle {
        /// The seconds, which `Retry-After` names.
        seconds: u64,
    },
    /// The connection is reset before the call has any effect.
    LoseRequest,
    /// The call has its effect, and the connection is reset before the answer.
    LoseAnswer,
    /// The call has its effect, and the connection is cut after so many bytes of the answer's body, which may be in
    /// the middle of a watch's event.
    Truncate(usize),
    /// The call has its effect twice, and the second answer is the one that arrives. A watch tells every event twice.
    Repeat,
    /// A write to Azure becomes a long-running operation of this shape.
    Operation(OperationShape),
    /// A list or a read from Kubernetes shows the state of so many versions ago.
    Stale(u64),
    /// A watch leaves out its next so many events.
    SkipEvents(usize),
    /// A watch ends after so many events.
    EndWatch(usize),
    /// A watch or a list is told that its version is too old: 410.
    Gone,
}

/// A call, as a fault sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Which API was called.
    pub api: Api,
    /// The HTTP method in capitals, or `WATCH`.
    pub verb: String,
    /// The path without the query.
    pub path: String,
    /// The `User-Agent`, empty if there was none.
    pub caller: String,
}

/// A fault that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Injected {
    /// When, since the simulator started.
    pub at: Duration,
    /// To which call.
    pub call: Call,
    /// The how-manieth call of this API, verb and path it was since the simulator started, from 1.
    pub nth: u64,
    /// What happened to it.
    pub how: How,
}

/// The plan that makes the same faults happen again.
#[must_use]
pub fn replay(injected: &[Injected]) -> FaultPlan {
    let fault = |injected: &Injected| Fault {
        when: When::Nth(injected.nth),
        what: What {
            api: Some(injected.call.api),
            verb: Some(injected.call.verb.clone()),
            path: Some(injected.call.path.clone()),
            caller: None,
        },
        how: injected.how.clone(),
    };
    FaultPlan { seed: 0, faults: injected.iter().map(fault).collect() }
}

impl FaultPlan {
    /// A plan without faults.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { seed, faults: Vec::new() }
    }

    /// With one more fault.
    #[must_use]
    pub fn with(mut self, when: When, what: What, how: How) -> Self {
        self.faults.push(Fault { when, what, how });
        self
    }
}

impl What {
    /// Calls of this HTTP method, or `WATCH`.
    #[must_use]
    pub fn verb(verb: &str) -> Self {
        Self { verb: Some(verb.to_owned()), ..Self::default() }
    }

    /// Only those with such a path.
    #[must_use]
    pub fn path(mut self, pattern: &str) -> Self {
        self.path = Some(pattern.to_owned());
        self
    }

    /// Whether a call is meant.
    #[must_use]
    pub fn matches(&self, call: &Call) -> bool {
        let lower = str::to_ascii_lowercase;
        self.api.is_none_or(|api| api == call.api)
            && self.verb.as_ref().is_none_or(|verb| verb.eq_ignore_ascii_case(&call.verb))
            && self.path.as_ref().is_none_or(|pattern| fits(&lower(pattern), &lower(&call.path)))
            && self.caller.as_ref().is_none_or(|part| lower(&call.caller).contains(&lower(part)))
    }
}

/// Whether `text` fits a pattern in which `*` stands for anything.
fn fits(pattern: &str, text: &str) -> bool {
    let Some((head, mut rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut text) = text.strip_prefix(head) else { return false };
    while let Some((part, after)) = rest.split_once('*') {
        let Some(at) = text.find(part) else { return false };
        text = &text[at + part.len()..];
        rest = after;
    }
    text.ends_with(rest)
}

impl How {
    fn makes_sense_for(&self, call: &Call) -> bool {
        let is_read = matches!(call.verb.as_str(), "GET" | "WATCH");
        match self {
            Self::Delay(_)
            | Self::Refuse { .. }
            | Self::Throttle { .. }
            | Self::LoseRequest
            | Self::LoseAnswer
            | Self::Truncate(_)
            | Self::Repeat => true,
            Self::Operation(_) => call.api == Api::Azure && !is_read,
            Self::Stale(_) => call.api == Api::Kubernetes && call.verb == "GET",
            Self::SkipEvents(_) | Self::EndWatch(_) => call.verb == "WATCH",
            Self::Gone => call.api == Api::Kubernetes && is_read,
        }
    }
}

/// A plan at work.
#[derive(Clone, Debug, Default)]
pub(crate) struct Injector {
    plan: FaultPlan,
    /// How many calls each fault of the plan was meant for.
    matched: Vec<u64>,
    /// How many calls there were of each API, verb and path, in lower case.
    seen: BTreeMap<(Api, String, String), u64>,
    injected: Vec<Injected>,
}

impl Injector {
    pub(crate) fn set(&mut self, plan: FaultPlan) {
        self.matched = vec![0; plan.faults.len()];
        self.plan = plan;
    }

    pub(crate) fn plan(&self) -> &FaultPlan {
        &self.plan
    }

    pub(crate) fn injected(&self) -> &[Injected] {
        &self.injected
    }

    /// What happens to a call, if anything.
    pub(crate) fn decide(&mut self, call: &Call, now: Duration) -> Option<How> {
        let seen = (call.api, call.verb.clone(), call.path.to_ascii_lowercase());
        let nth = self.seen.entry(seen).or_default();
        *nth += 1;
        let mut happening = None;
        for (at, (fault, matched)) in self.plan.faults.iter().zip(&mut self.matched).enumerate() {
            if !fault.how.makes_sense_for(call) || !fault.what.matches(call) {
                continue;
            }
            *matched += 1;
            let fires = match fault.when {
                When::Always => true,
                When::Nth(nth) => *matched == nth,
                When::Probability(share) => chance(self.plan.seed, at as u64, *matched) < share,
                When::Between { from, to } => {
                    let now = now.as_millis();
                    now >= u128::from(from) && now < u128::from(to)
                }
            };
            // The others still count this call.
            if fires && happening.is_none() {
                happening = Some(fault.how.clone());
            }
        }
        let how = happening?;
        self.injected.push(Injected { at: now, call: call.clone(), nth: *nth, how: how.clone() });
        Some(how)
    }
}

/// A number from 0 up to 1 for the nth call that a fault is meant for: faults draw independently of each other.
#[allow(clippy::cast_precision_loss, reason = "53 bits fit")]
fn chance(seed: u64, fault: u64, nth: u64) -> f64 {
    // SplitMix64 (Steele, Lea, Flood 2014), whose output function mixes any counter well.
    let mix = |mut z: u64| {
        z = z.wrapping_add(0x9E37_79B9_7F4A_7C15);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    };
    let bits = mix(mix(mix(seed) ^ fault) ^ nth) >> 11;
    bits as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(verb: &str, path: &str) -> Call {
        Call { api: Api::Azure, verb: verb.to_owned(), path: path.to_owned(), caller: "me/1".to_owned() }
    }

    fn decided(plan: FaultPlan, calls: &[(&str, &str)]) -> (Vec<Option<How>>, Injector) {
        let mut injector = Injector::default();
        injector.set(plan);
        let decide = |(at, (verb, path)): (usize, &(&str, &str))| {
            injector.decide(&call(verb, path), Duration::from_millis(at as u64))
        };
        (calls.iter().enumerate().map(decide).collect(), injector)
    }

    #[test]
    fn patterns_take_stars_for_anything() {
        for (pattern, text, expected) in [
            ("/a/b", "/a/b", true),
            ("/a/b", "/a/bc", false),
            ("*", "", true),
            ("/a/*", "/a/b/c", true),
            ("*/b/*/d", "/a/b/c/d", true),
            ("*/b/*/d", "/a/b/d", false),
            ("*b*b", "ab", false),
            ("a*", "ba", false),
        ] {
            assert_eq!(fits(pattern, text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn the_nth_such_call_is_counted_among_those_that_are_meant() {
        let plan = FaultPlan::new(0).with(When::Nth(2), What::verb("put").path("*/X"), How::LoseAnswer);
        let (decided, _) = decided(
            plan,
            &[("PUT", "/a/x"), ("GET", "/a/x"), ("PUT", "/a/y"), ("PUT", "/b/x"), ("PUT", "/a/x")],
        );
        assert_eq!(decided, [None, None, None, Some(How::LoseAnswer), None]);
    }

    #[test]
    fn times_include_their_start_and_not_their_end() {
        let plan = FaultPlan::new(0).with(When::Between { from: 1, to: 3 }, What::default(), How::Delay(5));
        let (decided, _) = decided(plan, &[("GET", "/"); 4]);
        assert_eq!(decided, [None, Some(How::Delay(5)), Some(How::Delay(5)), None]);
    }

    #[test]
    fn the_first_fault_that_fires_happens_and_all_count_the_call() {
        let plan = FaultPlan::new(0).with(When::Nth(1), What::default(), How::LoseRequest).with(
            When::Nth(2),
            What::default(),
            How::LoseAnswer,
        );
        assert_eq!(
            decided(plan, &[("GET", "/"); 3]).0,
            [Some(How::LoseRequest), Some(How::LoseAnswer), None]
        );
    }

    #[test]
    fn what_makes_no_sense_for_a_call_does_not_happen() {
        let plan = FaultPlan::new(0).with(When::Always, What::default(), How::Gone).with(
            When::Always,
            What::default(),
            How::Operation(OperationShape::Stuck),
        );
        let (decided, injector) = decided(plan, &[("GET", "/"), ("PUT", "/")]);
        assert_eq!(decided, [None, Some(How::Operation(OperationShape::Stuck))]);
        assert_eq!(injector.injected().len(), 1);
    }

    #[test]
    fn chance_depends_on_the_seed_and_hits_its_share() {
        let plan = |seed, share| {
            FaultPlan::new(seed).with(When::Probability(share), What::default(), How::LoseRequest)
        };
        let hits = |seed, share| {
            let (decided, _) = decided(plan(seed, share), &[("GET", "/"); 2_000]);
            decided.iter().map(Option::is_some).collect::<Vec<_>>()
        };
        let quarter = hits(1, 0.25);
        assert_eq!(quarter, hits(1, 0.25));
        assert_ne!(quarter, hits(2, 0.25));
        let share = quarter.iter().filter(|hit| **hit).count();
        assert!((420..580).contains(&share), "{share} of 2000");
        assert_eq!((hits(3, 0.0).contains(&true), hits(3, 1.0).contains(&false)), (false, false));
    }

    #[test]
    fn a_replayed_plan_does_the_same_to_the_same_calls() {
        let calls: Vec<(&str, &str)> = ["/a", "/b", "/A"]
            .into_iter()
            .cycle()
            .take(60)
            .flat_map(|path| [("PUT", path), ("GET", path)])
            .collect();
        let plan = FaultPlan::new(9).with(When::Probability(0.2), What::verb("PUT"), How::LoseAnswer).with(
            When::Probability(0.2),
            What::default(),
            How::Delay(3),
        );
        let (first, injector) = decided(plan, &calls);
        let printed = serde_json::to_string(&replay(injector.injected())).unwrap();
        let (second, _) = decided(serde_json::from_str(&printed).unwrap(), &calls);
        assert!(first.iter().any(Option::is_some));
        assert_eq!(second, first);
    }
}
