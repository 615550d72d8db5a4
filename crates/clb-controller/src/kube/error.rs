//! What an error of the client means to the tracker.

use std::fmt;
use std::time::Duration;

use clb_difftracker::{Failure, FailureKind, Outcome};
use kube::Error;
use kube::core::Status;
use kube::core::response::StatusCause;

/// The cause in a refusal to create something in a namespace that is being deleted.
const NAMESPACE_TERMINATING: &str = "NamespaceTerminating";

/// Why a request failed. The message names the verb, the object and what the server said.
pub(super) fn failure(verb: &str, object: impl fmt::Display, error: &Error) -> Failure {
    let said = if let Error::Api(status) = error {
        let words = if status.message.is_empty() { &status.reason } else { &status.message };
        format!("{words} ({})", status.code)
    } else {
        error.to_string()
    };
    Failure { kind: kind(error), message: format!("{verb} {object}: {said}") }
}

/// The outcome of a write that failed.
pub(super) fn write_outcome(verb: &str, object: impl fmt::Display, error: &Error) -> Outcome {
    let failure = failure(verb, object, error);
    if may_have_been_applied(error) { Outcome::Unknown(failure) } else { Outcome::Failed(failure) }
}

/// Whether the server refuses since the object is not in the version that the request is about, or exists already.
pub(super) fn is_conflict(error: &Error) -> bool {
    kind(error) == FailureKind::Conflict
}

/// Whether the object is not there, in the server's own words.
pub(super) fn is_not_found(error: &Error) -> bool {
    kind(error) == FailureKind::NotFound
}

fn kind(error: &Error) -> FailureKind {
    let Error::Api(status) = error else {
        // What cannot be put together will not be the next time either. Whatever else went wrong did so on the way.
        let is_unsendable = matches!(error, Error::BuildRequest(_));
        return if is_unsendable { FailureKind::Invalid } else { FailureKind::Transient };
    };
    match status.code {
        // All that is in the namespace is going, or gone.
        403 if has_cause(status, |cause| cause.reason == NAMESPACE_TERMINATING) => FailureKind::NotFound,
        // The next try may have another token: they are renewed while they are in use.
        401 => FailureKind::Transient,
        403 => FailureKind::Forbidden,
        // Only in the API server's own words. A proxy on the way says 404 of anything, and of what is believed to be gone
        // nothing is left to be done.
        404 if status.reason == "NotFound" => FailureKind::NotFound,
        404 | 408 => FailureKind::Transient,
        409 => FailureKind::Conflict,
        // The precondition: the object of this name has another UID.
        422 if has_cause(status, |cause| cause.field == "metadata.uid") => FailureKind::NotFound,
        429 => FailureKind::Throttled { retry_after: retry_after(status) },
        400..=499 => FailureKind::Invalid,
        _ => FailureKind::Transient,
    }
}

fn has_cause(status: &Status, is_it: impl Fn(&StatusCause) -> bool) -> bool {
    status.details.as_ref().is_some_and(|details| details.causes.iter().any(is_it))
}

/// What the body says; the client does not show the header.
fn retry_after(status: &Status) -> Option<Duration> {
    let seconds = status.details.as_ref().map(|details| details.retry_after_seconds);
    seconds.filter(|&seconds| seconds > 0).map(|seconds| Duration::from_secs(seconds.into()))
}

/// Whether a write that failed so may have been applied all the same. A server that is ill, or a proxy before it, also says
/// so when it does not know: etcd may take a write and be late to say it.
fn may_have_been_applied(error: &Error) -> bool {
    if let Error::Api(status) = error {
        return status.code == 408 || !(400..=499).contains(&status.code);
    }
    !matches!(error, Error::BuildRequest(_))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn api(status: Value) -> Error {
        Error::Api(Box::new(serde_json::from_value(status).unwrap()))
    }

    /// What a write comes to, and what of it the tracker hears: whether it is known to be refused, and why it failed.
    fn of(error: &Error) -> (bool, FailureKind) {
        match write_outcome("patch", "Service a/b", error) {
            Outcome::Failed(failure) => (true, failure.kind),
            Outcome::Unknown(failure) => (false, failure.kind),
            Outcome::Succeeded(_) => panic!("an error is no success"),
        }
    }

    #[test]
    fn every_status_has_its_consequence() {
        let cases = [
            (400, "BadRequest", (true, FailureKind::Invalid)),
            (401, "Unauthorized", (true, FailureKind::Transient)),
            (403, "Forbidden", (true, FailureKind::Forbidden)),
            (404, "NotFound", (true, FailureKind::NotFound)),
            (404, "Failed to parse error data", (true, FailureKind::Transient)),
            (405, "MethodNotAllowed", (true, FailureKind::Invalid)),
            (408, "Timeout", (false, FailureKind::Transient)),
            (409, "Conflict", (true, FailureKind::Conflict)),
            (409, "AlreadyExists", (true, FailureKind::Conflict)),
            (413, "RequestEntityTooLarge", (true, FailureKind::Invalid)),
            (415, "UnsupportedMediaType", (true, FailureKind::Invalid)),
            (422, "Invalid", (true, FailureKind::Invalid)),
            (429, "TooManyRequests", (true, FailureKind::Throttled { retry_after: None })),
            (500, "InternalError", (false, FailureKind::Transient)),
            (503, "ServiceUnavailable", (false, FailureKind::Transient)),
            (504, "Timeout", (false, FailureKind::Transient)),
        ];
        for (code, reason, expected) in cases {
            let error = api(json!({"code": code, "reason": reason}));
            assert_eq!(of(&error), expected, "{code} {reason}");
        }
    }

    #[test]
    fn what_the_server_says_in_details_counts() {
        let namespace = json!({"code": 403, "reason": "Forbidden",
            "details": {"causes": [{"reason": "NamespaceTerminating", "field": "metadata.namespace"}]}});
        let other = json!({"code": 422, "reason": "Invalid",
            "details": {"causes": [{"reason": "FieldValueInvalid", "field": "metadata.uid"}]}});
        let throttled =
            json!({"code": 429, "reason": "TooManyRequests", "details": {"retryAfterSeconds": 3}});
        let retry_after = Some(Duration::from_secs(3));
        assert_eq!(of(&api(namespace)), (true, FailureKind::NotFound));
        assert_eq!(of(&api(other)), (true, FailureKind::NotFound));
        assert_eq!(of(&api(throttled)), (true, FailureKind::Throttled { retry_after }));
    }

    #[test]
    fn a_connection_that_breaks_says_nothing_of_a_write() {
        let broken = Error::Service("connection reset".into());
        assert_eq!(of(&broken), (false, FailureKind::Transient));
        let unreadable = serde_json::from_str::<Value>("{").unwrap_err();
        assert_eq!(of(&Error::SerdeError(unreadable)), (false, FailureKind::Transient));
    }

    #[test]
    fn the_message_names_the_verb_the_object_and_what_was_said() {
        let error = api(json!({"code": 403, "reason": "Forbidden", "message": "services is forbidden"}));
        let failure = failure("patch", "Service a/b", &error);
        assert_eq!(failure.message, "patch Service a/b: services is forbidden (403)");
    }
}
