//! # What is retried
//!
//! A request is repeated when that is safe and can help, and only by a client that was given a [`RetryPolicy`]. Two
//! questions decide: *can the server have acted on it?* and *would acting twice be the same as acting once?*
//!
//! | what came back | repeated |
//! | --- | --- |
//! | nothing was sent: no connection, no token | always |
//! | 429 | always, not before `Retry-After` |
//! | 409, 423 or 429 whose code says that another operation is going on | always |
//! | 425, a redirect | always: it was not let through |
//! | 408, 5xx, a connection that was cut, an answer that was too late or too large | reads, PUT and DELETE without `If-Match` |
//! | 401 | once, at once, if another token can be had; without a policy too |
//! | everything else (400, 403, 404, 412, a quota, …) | never: it would come back |
//!
//! POST and PATCH are not repeated once they may have arrived: an action may not be the same when done twice. Nor is a
//! conditional PUT: if the first one was applied, the second one meets 412, which would look like somebody else's change.
//!
//! Between attempts there is *full jitter*: a random wait between nothing and a limit that doubles with each attempt. If the
//! server names a time, that is the least. What does not fit into the request's budget is not waited for: the error goes to the
//! caller at once, who learns the time from it. Dropping the future ends the waiting, and nothing is sent after that.
//!
//! Three limits bound the time: an attempt ([`HttpTransport`](crate::HttpTransport)), a request with all its attempts
//! ([`RetryPolicy::budget`]), and the call with all its requests
//! ([`call_timeout`](crate::ArmClientBuilder::call_timeout), or less by
//! [`CallContext::with_timeout`](crate::CallContext::with_timeout)). When the last one is over, whatever is waited for is given
//! up at that moment: a budget or a token, so that nothing was sent; an answer, so that a write is in doubt; an operation, which
//! can be taken up by another call.
//!
//! An error after attempts of which one may have been applied says so
//! ([`Error::may_have_been_applied`](crate::Error::may_have_been_applied)), even if the last attempt was plainly refused.

use std::time::Duration;

use http::Method;

use crate::{Error, ErrorKind};

/// How often and how long a request is repeated. The limits hold for each request of a call: the write itself, each poll,
/// each page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// The most attempts, the first one included. At most 1 means that nothing is repeated.
    pub attempts: u32,
    /// The limit of the wait before the second attempt; it doubles for each further one.
    pub first: Duration,
    /// The longest limit of a wait, unless the server asks for more.
    pub max: Duration,
    /// No wait is begun that would end later than this after the first attempt began.
    pub budget: Duration,
}

impl RetryPolicy {
    /// Nothing is repeated, and nothing is waited for: for callers that decide that themselves.
    pub const NONE: Self =
        Self { attempts: 1, first: Duration::ZERO, max: Duration::ZERO, budget: Duration::ZERO };

    /// How long to wait before repeating a request that failed with `error`, or `None` if it is not to be repeated.
    ///
    /// `attempt` counts those made so far, `elapsed` is the time since the first one began, `idempotent` says whether doing
    /// it twice is the same as once, and `fraction`, 0–1, is the random part.
    #[must_use]
    pub fn wait(
        &self,
        error: &Error,
        idempotent: bool,
        attempt: u32,
        elapsed: Duration,
        fraction: f64,
    ) -> Option<Duration> {
        if attempt >= self.attempts || !is_repeatable(error, idempotent) {
            return None;
        }
        let doublings = attempt.saturating_sub(1);
        let limit = self.first.saturating_mul(2_u32.saturating_pow(doublings)).min(self.max);
        let wait = limit.mul_f64(fraction.clamp(0.0, 1.0)).max(error.retry_after().unwrap_or_default());
        (elapsed.saturating_add(wait) <= self.budget).then_some(wait)
    }
}

impl Default for RetryPolicy {
    /// Four attempts, 1 s doubling to 30 s, within two minutes: enough for a server that is restarted and for the fill of a
    /// throttling bucket, and short of what people take for a hang.
    fn default() -> Self {
        Self {
            attempts: 4,
            first: Duration::from_secs(1),
            max: Duration::from_secs(30),
            budget: Duration::from_secs(120),
        }
    }
}

/// Whether a request with this method does the same when it arrives twice.
pub(crate) fn is_idempotent(method: &Method, conditional: bool) -> bool {
    method.is_safe() || (matches!(*method, Method::PUT | Method::DELETE) && !conditional)
}

/// The codes of a conflict that passes by itself. Others (something still uses the resource) need somebody to act.
const PASSING_CONFLICTS: [&str; 4] =
    ["AnotherOperationInProgress", "RetryableError", "RetryableErrorDueToAnotherOperation", "Conflict"];

fn is_repeatable(error: &Error, idempotent: bool) -> bool {
    match error.kind() {
        ErrorKind::NotSent | ErrorKind::Throttled { .. } | ErrorKind::Transient => true,
        ErrorKind::Conflict => {
            error.codes().iter().any(|code| PASSING_CONFLICTS.iter().any(|it| code.eq_ignore_ascii_case(it)))
        }
        ErrorKind::Unknown => idempotent,
        ErrorKind::PreconditionFailed
        | ErrorKind::NotFound
        | ErrorKind::Invalid
        | ErrorKind::Forbidden
        | ErrorKind::Unauthorized
        | ErrorKind::Quota
        | ErrorKind::OperationFailed => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const POLICY: RetryPolicy = RetryPolicy {
        attempts: 10,
        first: Duration::from_secs(1),
        max: Duration::from_secs(30),
        budget: Duration::from_secs(120),
    };

    fn wait(error: &Error, idempotent: bool) -> Option<Duration> {
        POLICY.wait(error, idempotent, 1, Duration::ZERO, 1.0)
    }

    #[test]
    fn what_may_have_been_applied_is_repeated_only_if_that_is_the_same() {
        let unknown = Error::new(ErrorKind::Unknown, "");
        assert_eq!((wait(&unknown, true), wait(&unknown, false)), (Some(POLICY.first), None));
        for kind in [ErrorKind::NotSent, ErrorKind::Transient, ErrorKind::Throttled { retry_after: None }] {
            let error = Error::new(kind, "");
            assert_eq!((wait(&error, true), wait(&error, false)), (Some(POLICY.first), Some(POLICY.first)));
        }
    }

    #[test]
    fn what_would_come_back_is_not_repeated() {
        for kind in [
            ErrorKind::PreconditionFailed,
            ErrorKind::NotFound,
            ErrorKind::Invalid,
            ErrorKind::Forbidden,
            ErrorKind::Unauthorized,
            ErrorKind::Quota,
            ErrorKind::OperationFailed,
            ErrorKind::Conflict,
        ] {
            assert_eq!(wait(&Error::new(kind, ""), true), None, "{kind}");
        }
        let conflict = |code: &str| Error::new(ErrorKind::Conflict, "").with_code(code);
        assert_eq!(wait(&conflict("anotherOperationInProgress"), false), Some(POLICY.first));
        assert_eq!(wait(&conflict("PublicIPAddressCannotBeDeleted"), true), None);
    }

    #[test]
    fn methods_that_say_what_should_be_are_idempotent_unless_they_depend_on_what_is() {
        for (method, plain, conditional) in [
            (Method::GET, true, true),
            (Method::PUT, true, false),
            (Method::DELETE, true, false),
            (Method::POST, false, false),
            (Method::PATCH, false, false),
        ] {
            assert_eq!(
                (is_idempotent(&method, false), is_idempotent(&method, true)),
                (plain, conditional),
                "{method}"
            );
        }
    }

    proptest! {
        #[test]
        fn waits_are_within_their_bounds(
            attempt in 1_u32..20, elapsed in 0_u64..200, fraction in 0.0..1.0_f64, asked in prop::option::of(0_u64..200),
        ) {
            let asked = asked.map(Duration::from_secs);
            let error = Error::new(ErrorKind::Throttled { retry_after: asked }, "");
            let elapsed = Duration::from_secs(elapsed);
            match POLICY.wait(&error, true, attempt, elapsed, fraction) {
                Some(wait) => {
                    prop_assert!(attempt < POLICY.attempts);
                    prop_assert!(elapsed + wait <= POLICY.budget);
                    prop_assert!(wait >= asked.unwrap_or_default());
                    let limit = Duration::from_secs(1 << (attempt - 1)).min(POLICY.max);
                    prop_assert!(wait <= limit.max(asked.unwrap_or_default()));
                }
                None => prop_assert!(
                    attempt >= POLICY.attempts
                        || elapsed + POLICY.max.max(asked.unwrap_or_default()) > POLICY.budget
                ),
            }
        }
    }
}
