//! What was asked of the simulator.

use std::time::Duration;

use serde_json::Value;

use crate::azure::{Method, Response, nullable};
use crate::fault::How;

/// One answered request.
#[derive(Clone, Debug, PartialEq)]
pub struct CallRecord {
    /// When it took effect, since the simulation started.
    pub at: Duration,
    /// The method.
    pub method: Method,
    /// The path, without the query.
    pub path: String,
    /// What it was for.
    pub kind: CallKind,
    /// How many services, or addresses and locations removed whole, the body names; 0 for anything else.
    pub entries: usize,
    /// The HTTP status of the answer, 0 if nothing was done and the connection cut.
    pub status: u16,
    /// The code, if it was an error.
    pub code: Option<String>,
    /// The simulated time it took, which is the latency.
    pub duration: Duration,
    /// What was made of it by a fault.
    pub fault: Option<How>,
}

/// What a request was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallKind {
    /// `updateServices`.
    UpdateServices,
    /// `updateAddressLocations`.
    UpdateAddressLocations,
    /// A PUT of a resource.
    Put,
    /// A DELETE of a resource.
    Delete,
    /// Any read.
    Get,
    /// None of these: a PATCH, an action of Compute, or what is not modelled.
    Other,
}

/// How many requests of each kind there were, refused ones included; those of kind [`CallKind::Other`] are not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct CallCounts {
    /// `updateServices`.
    pub update_services: u64,
    /// `updateAddressLocations`.
    pub update_address_locations: u64,
    /// PUTs of resources.
    pub put: u64,
    /// DELETEs of resources.
    pub delete: u64,
    /// Reads.
    pub get: u64,
}

impl CallCounts {
    pub(crate) fn count(&mut self, kind: CallKind) {
        let count = match kind {
            CallKind::UpdateServices => &mut self.update_services,
            CallKind::UpdateAddressLocations => &mut self.update_address_locations,
            CallKind::Put => &mut self.put,
            CallKind::Delete => &mut self.delete,
            CallKind::Get => &mut self.get,
            CallKind::Other => return,
        };
        *count += 1;
    }
}

impl CallRecord {
    /// A call that nothing was made of yet. `body` is `null` where it could not be read.
    pub(crate) fn new(method: Method, path: String, body: &Value, response: &Response) -> Self {
        Self {
            at: Duration::ZERO,
            kind: kind(&method, &path),
            method,
            path,
            entries: entries(body),
            status: response.status,
            code: response.code().map(str::to_owned),
            duration: Duration::ZERO,
            fault: None,
        }
    }
}

fn kind(method: &Method, path: &str) -> CallKind {
    let action = path.rsplit('/').next().unwrap_or_default();
    match method {
        Method::Get => CallKind::Get,
        Method::Put => CallKind::Put,
        Method::Delete => CallKind::Delete,
        Method::Post if action.eq_ignore_ascii_case("updateServices") => CallKind::UpdateServices,
        Method::Post if action.eq_ignore_ascii_case("updateAddressLocations") => {
            CallKind::UpdateAddressLocations
        }
        Method::Post | Method::Patch | Method::Other(_) => CallKind::Other,
    }
}

fn entries(body: &Value) -> usize {
    let list =
        |value, name| nullable(value, name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let addresses =
        list(body, "addressLocations").iter().map(|location| list(location, "addresses").len().max(1));
    list(body, "serviceRequests").len() + addresses.sum::<usize>()
}
