//! A running operation that outlives the process that began it.

use std::fmt;

use http::Method;
use serde::{Deserialize, Serialize};
use url::Url;

use super::{Polling, Source};
use crate::{Endpoint, Error, ErrorKind, PollSchedule, Result};

/// A running operation as plain data, to be stored and followed later with
/// [`ArmClient::resume`](crate::ArmClient::resume).
///
/// The URLs in it are signed: whoever has them can read the operation. `Debug` leaves their queries out.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SavedOperation {
    /// The method of the request that began it.
    method: String,
    /// The resource that it is about.
    resource: String,
    /// Where it is polled.
    url: String,
    /// What a poll reads.
    source: Source,
}

impl Polling {
    /// This operation, which was begun by a request for `resource`, as plain data.
    #[must_use]
    pub fn save(&self, resource: &Url) -> SavedOperation {
        SavedOperation {
            method: self.method.to_string(),
            resource: resource.to_string(),
            url: self.url.to_string(),
            source: self.source,
        }
    }
}

impl SavedOperation {
    /// The operation at `endpoint`, to be polled at once, and the URL of its resource.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] when it was saved at another endpoint, or is not one.
    pub fn restore(&self, endpoint: &Endpoint, schedule: PollSchedule) -> Result<(Polling, Url)> {
        let follow = |url: &str| {
            endpoint
                .follow(url)
                .ok_or_else(|| Error::new(ErrorKind::Invalid, "the operation was saved at another endpoint"))
        };
        let method = [Method::PUT, Method::PATCH, Method::POST, Method::DELETE]
            .into_iter()
            .find(|method| method.as_str() == self.method)
            .ok_or_else(|| Error::new(ErrorKind::Invalid, "no operation begins with this method"))?;
        let polling = Polling {
            url: follow(&self.url)?,
            source: self.source,
            wait: std::time::Duration::ZERO,
            method,
            endpoint: endpoint.clone(),
            schedule,
            polls: 0,
        };
        Ok((polling, follow(&self.resource)?))
    }
}

impl fmt::Debug for SavedOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = |url: &str| url.split(['?', '#']).next().unwrap_or_default().to_owned();
        f.debug_struct("SavedOperation")
            .field("method", &self.method)
            .field("resource", &path(&self.resource))
            .field("url", &path(&self.url))
            .field("source", &self.source)
            .finish()
    }
}
