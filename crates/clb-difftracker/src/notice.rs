//! Outputs: what to tell people.

use alloc::string::String;

use crate::change::{Kind, PodRef, Rejection};
use crate::ids::{EgressName, Ip, ObjectKey, ServiceId, Timestamp};
use crate::operation::{FailureKind, OperationId, PodRequest};

/// Something that people should hear, as an event on an object, a condition, or a line in a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A service is in another phase.
    Phase {
        /// The service.
        service: ServiceId,
        /// Its name in the cluster, where it is or was last known.
        key: Option<ObjectKey>,
        /// The phase it left; `None` for one that nothing was done for before.
        from: Option<Phase>,
        /// The phase it is in; `None` when nothing of it is left to do or undo.
        to: Option<Phase>,
    },
    /// A Service asks for something that it is not given. Said once for each rejection.
    Rejected {
        /// The service.
        service: ServiceId,
        /// Its name in the cluster.
        key: ObjectKey,
        /// Why, and what to do about it.
        rejection: Rejection,
    },
    /// Pods ask for an outbound service whose name is the UID of a Service; NRP has one namespace, and the Service has it.
    /// Said when the two meet; the pods do not get the outbound service while the Service exists.
    EgressRefused {
        /// The name of the outbound service.
        egress: EgressName,
        /// The Service's name in the cluster.
        service: Option<ObjectKey>,
    },
    /// A full list would delete more than is believed at once (see [`Config::max_deleted`](crate::Config::max_deleted)). What
    /// it misses stays until a second list says the same: list again.
    DeletionsHeld {
        /// What was listed; [`Kind::Service`] also when Azure was read and the cluster knows too little of what is there.
        kind: Kind,
        /// How many would go.
        missing: usize,
        /// Of how many.
        of: usize,
    },
    /// A write on a pod did not succeed.
    PodFailed {
        /// The operation.
        operation: OperationId,
        /// The pod.
        pod: PodRef,
        /// What was to be written.
        request: PodRequest,
        /// What follows.
        kind: FailureKind,
        /// What the server said.
        message: String,
        /// When it is tried again at the earliest.
        retry_at: Timestamp,
    },
    /// An operation did not succeed.
    Failed {
        /// The operation.
        operation: OperationId,
        /// The service it was for, if it was for one alone.
        service: Option<ServiceId>,
        /// What follows.
        kind: FailureKind,
        /// What the server said.
        message: String,
        /// When what it wanted to do is tried again at the earliest.
        retry_at: Timestamp,
    },
    /// An address is left out of the gateway because NRP refuses the entry; everything else goes on. It is tried again
    /// when it changes, and slowly even if not.
    Quarantined {
        /// The pod's IP.
        address: Ip,
        /// What the server said.
        message: String,
        /// When it is tried again at the latest.
        retry_at: Timestamp,
    },
}

/// Where a service is on its way, for people; no decision reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Wanted; nothing has been made yet.
    Pending,
    /// Its resources are being made.
    Creating,
    /// Registered and as it should be; its addresses flow.
    Ready,
    /// Serving; something about it is being changed.
    Updating,
    /// No longer wanted; its addresses are being withdrawn.
    Draining,
    /// No longer wanted; its resources are being removed.
    Deleting,
    /// Asks for something it cannot have. What serves already goes on serving.
    Rejected,
    /// The last attempt failed; another will follow.
    Retrying,
}

impl core::fmt::Display for Phase {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        core::fmt::Debug::fmt(self, f)
    }
}
