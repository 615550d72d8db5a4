//! What a call's result means to the tracker.

use clb_difftracker::{Failure, FailureKind, Outcome, Success};
use clb_nrp::{Error, ErrorKind};

/// NRP's word for a service that cannot go since addresses still name it.
const STILL_REFERENCED: &str = "ServiceWithOverlayMappingsCannotBeDeleted";

/// The outcome of a call.
pub(crate) fn outcome(result: Result<Success, Error>) -> Outcome {
    match result {
        Ok(success) => Outcome::Succeeded(success),
        Err(error) => {
            let failure = Failure { kind: kind(&error), message: error.to_string() };
            if error.may_have_been_applied() { Outcome::Unknown(failure) } else { Outcome::Failed(failure) }
        }
    }
}

/// The outcome of a call on the ServiceGateway.
///
/// When the gateway itself is not found, that says nothing of what the request names: every request would be answered so.
pub(crate) fn gateway_outcome(result: Result<Success, Error>) -> Outcome {
    let is_gateway_missing = |error: &Error| error.status().is_some_and(|status| status.as_u16() == 404);
    match result {
        Err(error) if is_gateway_missing(&error) => {
            Outcome::Failed(Failure { kind: FailureKind::Transient, message: error.to_string() })
        }
        result => outcome(result),
    }
}

/// The outcome of a call that was given up.
pub(crate) fn unknown(message: String) -> Outcome {
    Outcome::Unknown(Failure { kind: FailureKind::Transient, message })
}

fn kind(error: &Error) -> FailureKind {
    match error.kind() {
        _ if error.has_code(STILL_REFERENCED) => FailureKind::StillReferenced,
        ErrorKind::Throttled { retry_after } => FailureKind::Throttled { retry_after },
        // The resource changed since it was read: the next try reads it again.
        ErrorKind::Conflict | ErrorKind::PreconditionFailed => FailureKind::Conflict,
        ErrorKind::NotFound => FailureKind::NotFound,
        ErrorKind::Invalid => FailureKind::Invalid,
        ErrorKind::Forbidden => FailureKind::Forbidden,
        ErrorKind::Quota => FailureKind::Quota,
        // The next try gets another token.
        ErrorKind::Unauthorized
        | ErrorKind::NotSent
        | ErrorKind::Transient
        | ErrorKind::OperationFailed
        | ErrorKind::Unknown => FailureKind::Transient,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn of(error: Error) -> (bool, FailureKind) {
        match outcome(Err(error)) {
            Outcome::Failed(failure) => (false, failure.kind),
            Outcome::Unknown(failure) => (true, failure.kind),
            Outcome::Succeeded(_) => panic!("an error is no success"),
        }
    }

    #[test]
    fn every_error_has_its_consequence() {
        let throttled = Some(Duration::from_secs(3));
        for (error, expected) in [
            (ErrorKind::NotSent, (false, FailureKind::Transient)),
            (
                ErrorKind::Throttled { retry_after: throttled },
                (false, FailureKind::Throttled { retry_after: throttled }),
            ),
            (ErrorKind::Conflict, (false, FailureKind::Conflict)),
            (ErrorKind::PreconditionFailed, (false, FailureKind::Conflict)),
            (ErrorKind::NotFound, (false, FailureKind::NotFound)),
            (ErrorKind::Invalid, (false, FailureKind::Invalid)),
            (ErrorKind::Forbidden, (false, FailureKind::Forbidden)),
            (ErrorKind::Unauthorized, (false, FailureKind::Transient)),
            (ErrorKind::Quota, (false, FailureKind::Quota)),
            (ErrorKind::Transient, (false, FailureKind::Transient)),
            (ErrorKind::OperationFailed, (true, FailureKind::Transient)),
            (ErrorKind::Unknown, (true, FailureKind::Transient)),
        ] {
            assert_eq!(of(Error::new(error, "")), expected, "{error:?}");
        }
    }

    #[test]
    fn nw_26_a_service_still_referenced_is_recognised_by_code_and_by_text() {
        let by_code =
            Error::new(ErrorKind::Conflict, "").with_code("servicewithoverlaymappingscannotbedeleted");
        let by_text = Error::new(ErrorKind::Invalid, format!("no: {STILL_REFERENCED}."));
        assert_eq!([of(by_code), of(by_text)], [(false, FailureKind::StillReferenced); 2]);
    }
}
