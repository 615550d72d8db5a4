//! What one logical call carries through all the requests it takes.

use std::time::Duration;

use http::HeaderValue;
use uuid::Uuid;

use crate::deadline::Deadline;

/// The identity of one logical call, which may take several requests: the first one, polls, a final read, pages; and how long
/// all of them may take.
///
/// The client request id travels with each of them as `x-ms-client-request-id` and stands in Azure's own logs, so
/// that one id finds everything a caller's operation did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallContext {
    client_request_id: String,
    header: HeaderValue,
    deadline: Deadline,
}

impl CallContext {
    /// A call named `client_request_id`; a UUID is customary, but any visible ASCII text is accepted.
    ///
    /// # Errors
    /// [`InvalidClientRequestId`] when the text is empty or could not travel in a header.
    pub fn new(client_request_id: impl Into<String>) -> Result<Self, InvalidClientRequestId> {
        let client_request_id = client_request_id.into();
        if client_request_id.is_empty() || !client_request_id.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(InvalidClientRequestId { text: client_request_id });
        }
        match HeaderValue::from_str(&client_request_id) {
            Ok(header) => Ok(Self { client_request_id, header, deadline: Deadline::default() }),
            Err(_) => Err(InvalidClientRequestId { text: client_request_id }),
        }
    }

    /// A call with a fresh random UUID.
    #[must_use]
    pub fn random() -> Self {
        Self::from(Uuid::new_v4())
    }

    /// The same call, with no more time than `timeout` from now on; what the client's
    /// [`call_timeout`](crate::ArmClientBuilder::call_timeout) says stays the most that it has.
    #[must_use]
    pub fn with_timeout(self, timeout: Duration) -> Self {
        self.until(Deadline::after(timeout))
    }

    /// The same call, with this deadline if it has no earlier one.
    pub(crate) fn until(mut self, deadline: Deadline) -> Self {
        self.deadline = self.deadline.min(deadline);
        self
    }

    pub(crate) fn deadline(&self) -> Deadline {
        self.deadline
    }

    /// The id, as it is sent.
    #[must_use]
    pub fn client_request_id(&self) -> &str {
        &self.client_request_id
    }

    pub(crate) fn header(&self) -> HeaderValue {
        self.header.clone()
    }
}

impl From<Uuid> for CallContext {
    fn from(id: Uuid) -> Self {
        let client_request_id = id.to_string();
        #[allow(clippy::expect_used, reason = "a hyphenated UUID is hexadecimal digits and hyphens")]
        let header = HeaderValue::from_str(&client_request_id).expect("a UUID is visible ASCII");
        Self { client_request_id, header, deadline: Deadline::default() }
    }
}

/// A client request id that could not travel in a header.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a client request id: it must be visible ASCII")]
pub struct InvalidClientRequestId {
    text: String,
}
