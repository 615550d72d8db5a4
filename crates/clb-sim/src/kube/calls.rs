//! What was asked of the API server.

use std::time::Duration;

use crate::fault::{Call, How};

/// One request, as it took effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubeCall {
    /// When, since the simulation started.
    pub at: Duration,
    /// What was asked, and by whom.
    pub call: Call,
    /// The HTTP status of the answer; 0 if the connection is cut instead.
    pub status: u16,
    /// What was made of it by a fault.
    pub fault: Option<How>,
}
