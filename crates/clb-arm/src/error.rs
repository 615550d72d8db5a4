//! One error, and what the caller should do about it.

use std::fmt;
use std::time::{Duration, SystemTime};

use http::{HeaderMap, Method, Response, StatusCode};

use crate::error_body::ErrorBody;
use crate::request::Request;
use crate::{ResourceId, SavedOperation, retry_after};

/// A result with this crate's error.
pub type Result<T> = std::result::Result<T, Error>;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Why a call failed.
///
/// [`Error::kind`] says what to do; the rest is for people, who get it all in one line from `Display`.
pub struct Error(Box<Inner>);

#[derive(Debug)]
struct Inner {
    kind: ErrorKind,
    may_have_been_applied: bool,
    retry_after: Option<Duration>,
    operation: Option<SavedOperation>,
    call: Option<Call>,
    status: Option<StatusCode>,
    body: ErrorBody,
    request_id: Option<String>,
    correlation_id: Option<String>,
    source: Option<BoxError>,
}

/// The request that an error is about.
#[derive(Clone, Debug)]
struct Call {
    method: Method,
    path: String,
    client_request_id: String,
}

/// What the caller should do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// Nothing was sent: there is no connection or no token. Try again later.
    NotSent,
    /// Refused because too much was asked for. Send nothing that draws on the same budget before this has passed.
    Throttled {
        /// The server's word on how long that is, if it gave one.
        retry_after: Option<Duration>,
    },
    /// Refused because of something else that is there or going on: another operation, or what still uses the
    /// resource. Try again when that may have gone.
    Conflict,
    /// Refused because the resource has changed since it was read. Read it again.
    PreconditionFailed,
    /// The resource, or something that it is inside of or refers to, does not exist.
    NotFound,
    /// This request can never succeed. Do not repeat it.
    Invalid,
    /// Refused until somebody grants permission, unlocks the scope or changes a policy. Try again slowly, and say so.
    Forbidden,
    /// The token was not accepted. Get another one.
    Unauthorized,
    /// A quota of the subscription is used up. Try again slowly, and say so.
    Quota,
    /// The server or the way to it is ill, and nothing was changed. Try again later.
    Transient,
    /// The request was accepted, was worked on and failed, for a reason not known to be one of the others.
    OperationFailed,
    /// Nobody knows whether the request was, or still will be, applied. Repeat it if that is safe, or look.
    Unknown,
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotSent => "not sent",
            Self::Throttled { .. } => "throttled",
            Self::Conflict => "conflict",
            Self::PreconditionFailed => "precondition failed",
            Self::NotFound => "not found",
            Self::Invalid => "invalid",
            Self::Forbidden => "forbidden",
            Self::Unauthorized => "unauthorized",
            Self::Quota => "quota used up",
            Self::Transient => "transient failure",
            Self::OperationFailed => "operation failed",
            Self::Unknown => "outcome unknown",
        })
    }
}

impl Error {
    /// An error that no server sent: of this crate's callers, and of implementations of their traits for tests.
    pub fn new(kind: ErrorKind, message: impl AsRef<str>) -> Self {
        Self(Box::new(Inner {
            kind,
            may_have_been_applied: matches!(kind, ErrorKind::Unknown | ErrorKind::OperationFailed),
            retry_after: if let ErrorKind::Throttled { retry_after } = kind { retry_after } else { None },
            operation: None,
            call: None,
            status: None,
            body: ErrorBody::from_text(message.as_ref()),
            request_id: None,
            correlation_id: None,
            source: None,
        }))
    }

    /// This error with `code` as its most specific code.
    #[must_use]
    pub fn with_code(mut self, code: impl Into<String>) -> Self {
        self.0.body.codes.insert(0, code.into());
        self
    }

    /// This error with the error that caused it.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<BoxError>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// This error after an earlier attempt that may have been applied.
    pub(crate) fn in_doubt(mut self) -> Self {
        self.0.may_have_been_applied = true;
        self
    }

    pub(crate) fn with_operation(mut self, operation: SavedOperation) -> Self {
        self.0.operation = Some(operation);
        self
    }

    pub(crate) fn with_call(mut self, request: &Request) -> Self {
        self.0.call = Some(Call {
            method: request.http_method().clone(),
            path: request.path().to_owned(),
            client_request_id: request.context().client_request_id().to_owned(),
        });
        self
    }

    /// This error with the ids that the answer it is about carries.
    pub(crate) fn with_answer(mut self, answer: &Response<Vec<u8>>) -> Self {
        self.0.status = Some(answer.status());
        self.0.request_id = header(answer.headers(), REQUEST_ID);
        self.0.correlation_id = header(answer.headers(), CORRELATION_ID);
        self
    }

    /// What an answer to a `method` request other than a success means.
    pub(crate) fn from_answer(method: &Method, answer: &Response<Vec<u8>>, now: SystemTime) -> Self {
        let body = ErrorBody::read(answer.body());
        let retry_after = retry_after(answer.headers(), now);
        let mut error = Self::new(classify(method, answer.status(), &body, retry_after), "");
        error.0.retry_after = retry_after;
        error.0.body = body;
        error.with_answer(answer)
    }

    /// What the failure of an accepted operation means, given what its last answer says.
    pub(crate) fn operation_failed(body: ErrorBody) -> Self {
        let mut error = Self::new(by_code(&body).unwrap_or(ErrorKind::OperationFailed), "");
        error.0.may_have_been_applied = true;
        error.0.body = body;
        error
    }

    /// What the caller should do.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Whether the request may have changed something, or may still: the outcome is unknown, an accepted operation failed
    /// on the way, or an earlier attempt may have been applied. Everything else was refused as a whole.
    #[must_use]
    pub fn may_have_been_applied(&self) -> bool {
        self.0.may_have_been_applied
    }

    /// How long the server asks to wait before the next attempt, whatever kind of error it is.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.retry_after
    }

    /// The operation that was begun and could not be followed to its end, for
    /// [`ArmClient::resume`](crate::ArmClient::resume).
    #[must_use]
    pub fn operation(&self) -> Option<&SavedOperation> {
        self.0.operation.as_ref()
    }

    /// The ARM code that matters: the innermost one, since the outer ones only say that something failed.
    #[must_use]
    pub fn code(&self) -> Option<&str> {
        self.0.body.codes.first().map(String::as_str)
    }

    /// All ARM codes, the most specific first.
    #[must_use]
    pub fn codes(&self) -> &[String] {
        &self.0.body.codes
    }

    /// Whether the answer names `code`, in any casing: as a code, or as a word in its text when there is no better.
    #[must_use]
    pub fn has_code(&self, code: &str) -> bool {
        self.0.body.has_code(code)
    }

    /// What the server says in words: one line of at most 400 bytes, perhaps empty.
    #[must_use]
    pub fn message(&self) -> &str {
        self.0.body.message()
    }

    /// The HTTP status of the answer, if there was one.
    #[must_use]
    pub fn status(&self) -> Option<StatusCode> {
        self.0.status
    }

    /// `x-ms-request-id` of the answer: what Azure's support asks for.
    #[must_use]
    pub fn request_id(&self) -> Option<&str> {
        self.0.request_id.as_deref()
    }

    /// `x-ms-correlation-request-id` of the answer.
    #[must_use]
    pub fn correlation_id(&self) -> Option<&str> {
        self.0.correlation_id.as_deref()
    }

    /// The id that the call was sent under.
    #[must_use]
    pub fn client_request_id(&self) -> Option<&str> {
        self.0.call.as_ref().map(|call| call.client_request_id.as_str())
    }

    /// The HTTP method of the call.
    #[must_use]
    pub fn method(&self) -> Option<&Method> {
        self.0.call.as_ref().map(|call| &call.method)
    }

    /// The path of the call, without its query.
    #[must_use]
    pub fn path(&self) -> Option<&str> {
        self.0.call.as_ref().map(|call| call.path.as_str())
    }

    /// The resource that the call was about, be it itself, an action on it or a list inside of it.
    #[must_use]
    pub fn resource_id(&self) -> Option<ResourceId> {
        let path = self.path()?;
        let inside = || path.rsplit_once('/')?.0.parse().ok();
        path.parse().ok().or_else(inside)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = &self.0;
        if let Some(Call { method, path, .. }) = &inner.call {
            write!(f, "{method} {path}: ")?;
        }
        write!(f, "{}", inner.kind)?;
        if let Some(status) = inner.status {
            write!(f, " ({})", status.as_u16())?;
        }
        if let Some(code) = self.code() {
            write!(f, ": {code}")?;
        }
        if !self.message().is_empty() {
            write!(f, ": {}", self.message())?;
        }
        let ids = [
            ("request id", self.request_id()),
            ("correlation id", self.correlation_id()),
            ("client request id", self.client_request_id()),
        ];
        let ids = ids.iter().filter_map(|(name, id)| id.map(|id| format!("{name} {id}"))).collect::<Vec<_>>();
        if !ids.is_empty() {
            write!(f, " [{}]", ids.join(", "))?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }
}

/// The server's name for one answer.
pub(crate) const REQUEST_ID: &str = "x-ms-request-id";
/// Azure Resource Manager's name for everything that one request set off.
pub(crate) const CORRELATION_ID: &str = "x-ms-correlation-request-id";

/// A header's value for people.
pub(crate) fn header(headers: &HeaderMap, name: &str) -> Option<String> {
    headers.get(name)?.to_str().ok().map(str::to_owned)
}

/// What an answer other than the wanted success means.
///
/// A refusal (4xx) changed nothing. Any other answer to a write may come from a server on the way that does not know
/// what the one behind it did, so it leaves the outcome unknown; a read is just tried again.
fn classify(
    method: &Method,
    status: StatusCode,
    body: &ErrorBody,
    retry_after: Option<Duration>,
) -> ErrorKind {
    let in_doubt = if method.is_safe() { ErrorKind::Transient } else { ErrorKind::Unknown };
    match status.as_u16() {
        408 => in_doubt,
        // NRP also answers 429 `RetryableErrorDueToAnotherOperation`, which is about one resource and not a budget.
        429 => match by_code(body) {
            Some(ErrorKind::Conflict) => ErrorKind::Conflict,
            _ => ErrorKind::Throttled { retry_after },
        },
        401 => ErrorKind::Unauthorized,
        404 | 410 => ErrorKind::NotFound,
        412 => ErrorKind::PreconditionFailed,
        403 => by_code(body).filter(|kind| *kind == ErrorKind::Quota).unwrap_or(ErrorKind::Forbidden),
        409 | 423 => by_code(body).unwrap_or(ErrorKind::Conflict),
        425 => ErrorKind::Transient,
        400..=499 => by_code(body).unwrap_or(ErrorKind::Invalid),
        // Redirects are not followed: whoever sent this did not pass the request on.
        300..=399 => ErrorKind::Transient,
        _ => in_doubt,
    }
}

/// What the most specific known code means, for statuses that do not say it: NRP answers 400 to much that is not the
/// request's fault, and the failure of an operation has no status of its own.
fn by_code(body: &ErrorBody) -> Option<ErrorKind> {
    let known = body.codes.iter().find_map(|code| known_code(&code.to_ascii_lowercase()));
    // NRP has also been seen to name this one in the message only, under a general code.
    known
        .or_else(|| body.has_code("ServiceWithOverlayMappingsCannotBeDeleted").then_some(ErrorKind::Conflict))
}

/// The meaning of a code in lower case.
fn known_code(code: &str) -> Option<ErrorKind> {
    match code {
        "publicipcountlimitreached" | "maxpublicipcountlimitreached" => Some(ErrorKind::Quota),
        _ if code.ends_with("quotaexceeded") => Some(ErrorKind::Quota),
        // Something else must go, or be done, first.
        "publicipaddresscannotbedeleted"
        | "servicewithoverlaymappingscannotbedeleted"
        | "anotheroperationinprogress"
        | "referencedresourcenotprovisioned"
        | "canceledandsupersededduetoanotheroperation"
        | "conflict" => Some(ErrorKind::Conflict),
        _ if code.starts_with("inuse") || code.starts_with("retryableerror") => Some(ErrorKind::Conflict),
        "scopelocked"
        | "readonlydisabledsubscription"
        | "requestdisallowedbypolicy"
        | "authorizationfailed"
        | "linkedauthorizationfailed" => Some(ErrorKind::Forbidden),
        // NRP answers 400 `InvalidResourceReference` when what the request refers to does not exist (yet).
        "resourcenotfound"
        | "resourcegroupnotfound"
        | "parentresourcenotfound"
        | "invalidresourcereference" => Some(ErrorKind::NotFound),
        "duplicatelocationsinrequest"
        | "ipv4locationcannotcontainipv6addresses"
        | "multipledefaultservicesnotallowedinservicegateway"
        | "rulesusesamebackendportprotocolandpool"
        | "invalidparameter"
        | "invalidrequestcontent"
        | "invalidrequestformat" => Some(ErrorKind::Invalid),
        "toomanyrequests" | "operationthrottled" | "subscriptionrequeststhrottled" => {
            Some(ErrorKind::Throttled { retry_after: None })
        }
        "internalservererror"
        | "internalerror"
        | "serviceunavailable"
        | "servertimeout"
        | "gatewaytimeout" => Some(ErrorKind::Transient),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CallContext;

    fn kind(method: &Method, status: u16, code: &str) -> ErrorKind {
        let body = format!(r#"{{"error":{{"code":"{code}","message":"m"}}}}"#);
        let answer = Response::builder().status(status).header("retry-after", "7").body(body.into()).unwrap();
        Error::from_answer(method, &answer, SystemTime::UNIX_EPOCH).kind()
    }

    #[test]
    fn refusals_mean_the_same_for_reads_and_writes() {
        let throttled = ErrorKind::Throttled { retry_after: Some(Duration::from_secs(7)) };
        for (status, code, expected) in [
            (400, "InvalidRequestFormat", ErrorKind::Invalid),
            (400, "DuplicateLocationsInRequest", ErrorKind::Invalid),
            (400, "PublicIPAddressCannotBeDeleted", ErrorKind::Conflict),
            (400, "InUseBackendAddressPoolCannotBeDeleted", ErrorKind::Conflict),
            (400, "serviceWithOverlayMappingsCannotBeDeleted", ErrorKind::Conflict),
            (400, "InvalidResourceReference", ErrorKind::NotFound),
            (400, "PublicIPCountLimitReached", ErrorKind::Quota),
            (400, "MaxPublicIpCountLimitReached", ErrorKind::Quota),
            (401, "InvalidAuthenticationToken", ErrorKind::Unauthorized),
            (403, "AuthorizationFailed", ErrorKind::Forbidden),
            (403, "QuotaExceeded", ErrorKind::Quota),
            (404, "ResourceNotFound", ErrorKind::NotFound),
            (405, "MethodNotAllowed", ErrorKind::Invalid),
            (409, "AnotherOperationInProgress", ErrorKind::Conflict),
            (409, "SomethingNew", ErrorKind::Conflict),
            (409, "QuotaExceeded", ErrorKind::Quota),
            (409, "ScopeLocked", ErrorKind::Forbidden),
            (412, "PreconditionFailed", ErrorKind::PreconditionFailed),
            (413, "RequestEntityTooLarge", ErrorKind::Invalid),
            (422, "Unprocessable", ErrorKind::Invalid),
            (429, "TooManyRequests", throttled),
            (429, "", throttled),
            (429, "RetryableErrorDueToAnotherOperation", ErrorKind::Conflict),
            (307, "", ErrorKind::Transient),
        ] {
            for method in [Method::GET, Method::PUT, Method::DELETE, Method::POST] {
                assert_eq!(kind(&method, status, code), expected, "{method} {status} {code}");
            }
        }
    }

    #[test]
    fn a_server_failure_leaves_a_write_in_doubt_and_a_read_to_be_repeated() {
        for status in [408, 500, 501, 502, 503, 504, 599] {
            assert_eq!(kind(&Method::GET, status, "InternalServerError"), ErrorKind::Transient, "{status}");
            for method in [Method::PUT, Method::DELETE, Method::POST] {
                assert_eq!(kind(&method, status, "InternalServerError"), ErrorKind::Unknown, "{status}");
            }
        }
    }

    #[test]
    fn the_inner_code_decides() {
        let body =
            br#"{"error":{"code":"BadRequest","message":"o","details":[{"code":"InUseX","message":"i"}]}}"#;
        let answer = Response::builder().status(400).body(body.to_vec()).unwrap();
        let error = Error::from_answer(&Method::DELETE, &answer, SystemTime::UNIX_EPOCH);
        assert_eq!(
            (error.kind(), error.code(), error.message()),
            (ErrorKind::Conflict, Some("InUseX"), "o i")
        );
        assert_eq!(error.codes(), ["InUseX", "BadRequest"]);
    }

    #[test]
    fn one_line_tells_everything() {
        let answer = Response::builder()
            .status(409)
            .header(REQUEST_ID, "r1")
            .header(CORRELATION_ID, "c1")
            .body(br#"{"error":{"code":"Conflict","message":"two\nlines"}}"#.to_vec())
            .unwrap();
        let request =
            Request::new("/subscriptions/s", "v", &CallContext::new("id-1").unwrap()).method(Method::PUT);
        let error = Error::from_answer(&Method::PUT, &answer, SystemTime::UNIX_EPOCH).with_call(&request);
        assert_eq!(
            error.to_string(),
            "PUT /subscriptions/s: conflict (409): Conflict: two lines \
             [request id r1, correlation id c1, client request id id-1]"
        );
        assert_eq!(
            (error.method(), error.path(), error.status()),
            (Some(&Method::PUT), Some("/subscriptions/s"), Some(StatusCode::CONFLICT))
        );
        assert_eq!(
            (error.request_id(), error.correlation_id(), error.client_request_id()),
            (Some("r1"), Some("c1"), Some("id-1"))
        );
    }

    #[test]
    fn the_resource_is_what_the_path_is_of() {
        let of = |path: &str| {
            let request = Request::new(path, "v", &CallContext::new("id-1").unwrap());
            let error = Error::new(ErrorKind::NotSent, "").with_call(&request);
            error.resource_id().map(|id| id.to_string())
        };
        let network = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network";
        let gateway = format!("{network}/serviceGateways/g");
        assert_eq!(of(&gateway), Some(gateway.clone()));
        assert_eq!(of(&format!("{gateway}/updateServices")), Some(gateway));
        assert_eq!(of(&format!("{network}/serviceGateways")), None);
        assert_eq!(of("/"), None);
        assert_eq!(Error::new(ErrorKind::NotSent, "").resource_id(), None);
    }

    #[test]
    fn a_failed_operation_may_have_left_traces_and_a_refusal_has_not() {
        let failed = |code: &str| {
            Error::operation_failed(ErrorBody::read(format!(r#"{{"code":"{code}"}}"#).as_bytes()))
        };
        for (code, expected) in [
            ("SGWUpdateFailed", ErrorKind::OperationFailed),
            ("InternalServerError", ErrorKind::Transient),
            ("QuotaExceeded", ErrorKind::Quota),
            ("Conflict", ErrorKind::Conflict),
            ("DuplicateLocationsInRequest", ErrorKind::Invalid),
        ] {
            assert_eq!((failed(code).kind(), failed(code).may_have_been_applied()), (expected, true));
        }
        assert!(Error::new(ErrorKind::Unknown, "").may_have_been_applied());
        assert!(!Error::new(ErrorKind::Conflict, "").may_have_been_applied());
    }
}
