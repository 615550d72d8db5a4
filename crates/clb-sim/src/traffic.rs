//! What was asked of the simulator.

use std::time::Duration;

use serde_json::Value;

use crate::azure::{Method, Request, Response};

/// One answered request.
#[derive(Clone, Debug, PartialEq)]
pub struct CallRecord {
    /// The method.
    pub method: Method,
    /// The path, without the query.
    pub path: String,
    /// What it was for.
    pub kind: CallKind,
    /// How many services, or addresses and locations removed whole, the body names; 0 for anything else.
    pub entries: usize,
    /// The HTTP status of the answer.
    pub status: u16,
    /// The code, if it was an error.
    pub code: Option<String>,
    /// The simulated time it took.
    pub duration: Duration,
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
}

/// How many requests of each kind there were, refused ones included.
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
        *match kind {
            CallKind::UpdateServices => &mut self.update_services,
            CallKind::UpdateAddressLocations => &mut self.update_address_locations,
            CallKind::Put => &mut self.put,
            CallKind::Delete => &mut self.delete,
            CallKind::Get => &mut self.get,
        } += 1;
    }
}

impl CallRecord {
    pub(crate) fn new(request: &Request, response: &Response, duration: Duration) -> Self {
        let is_services = request.path.to_ascii_lowercase().ends_with("/updateservices");
        let kind = match request.method {
            Method::Get => CallKind::Get,
            Method::Put => CallKind::Put,
            Method::Delete => CallKind::Delete,
            Method::Post if is_services => CallKind::UpdateServices,
            Method::Post => CallKind::UpdateAddressLocations,
        };
        Self {
            method: request.method,
            path: request.path.clone(),
            kind,
            entries: entries(&request.body),
            status: response.status,
            code: response.code().map(str::to_owned),
            duration,
        }
    }
}

fn entries(body: &Value) -> usize {
    let list =
        |value: &Value, name: &str| value.get(name).and_then(Value::as_array).cloned().unwrap_or_default();
    let locations = list(body, "addressLocations");
    let addresses = locations.iter().map(|location| list(location, "addresses").len().max(1)).sum::<usize>();
    list(body, "serviceRequests").len() + addresses
}
