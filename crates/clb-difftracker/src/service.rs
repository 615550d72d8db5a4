//! One service: what is wanted of it, what there is of it, and what follows for addresses and for people.

use alloc::boxed::Box;

use crate::change::Intent;
use crate::ids::{IpFamily, ObjectKey, ResourceVersion, Timestamp};
use crate::lifecycle::{Goal, Observed, Registration, Resources, ServiceObject, Step, next_step};
use crate::notice::Phase;
use crate::operation::{OperationId, ServiceRequest};
use crate::source::Slot;
use crate::table::Id;

/// Why something that has something to do does not do it now. Its timer says until when.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Wait<S> {
    /// It need not wait.
    #[default]
    No,
    /// A failure that time may cure: nothing cuts this short.
    Backoff,
    /// A failure of this very step: another step need not wait.
    Parked(Box<S>),
}

/// Everything known of one service.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServiceState {
    /// What the Service of this UID asks for; `None` when there is none.
    pub(crate) intent: Option<Intent>,
    /// Its name in the cluster, also when it is gone.
    pub(crate) key: Option<ObjectKey>,
    /// The version in which its object was last seen, or written.
    pub(crate) version: ResourceVersion,
    pub(crate) object: ServiceObject,
    /// The list of Services in which it was last seen.
    pub(crate) seen: u32,
    /// The slots it answers to while its Service exists: by name and by UID.
    pub(crate) slots: [Option<Id<Slot>>; 2],
    /// The slot of the pods that leave through it, while there are some and no Service has this UID.
    pub(crate) egress: Option<Id<Slot>>,
    pub(crate) standing: Standing,
    pub(crate) resources: Resources,
    /// The number of the last operation on it that ended.
    pub(crate) touched: u64,
    /// How many holdings of addresses name it, or may.
    pub(crate) references: u32,
    /// The operation that is in flight for it, alone or as part of a batch.
    pub(crate) in_flight: Option<OperationId>,
    /// Failures in a row.
    pub(crate) failures: u32,
    pub(crate) wait: Wait<Step>,
    /// What it is to addresses, as of its last refresh.
    pub(crate) role: Role,
    /// The phase last told.
    pub(crate) phase: Option<Phase>,
    /// Its place in the queue for its next step: the number is smaller for those waiting longer.
    pub(crate) queued: Option<(Queue, u64)>,
    /// Since when it is not as it should be.
    pub(crate) unsettled: Option<Timestamp>,
}

/// Whether what the gateway holds of a service may be touched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It may.
    #[default]
    Ours,
    /// It is not ours.
    Foreign,
    /// So much would go at once that another list has to confirm it: nothing is taken from it before.
    Unconfirmed,
}

/// Which families something carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Families {
    ipv4: bool,
    ipv6: bool,
}

impl Families {
    fn only(family: IpFamily) -> Self {
        Self { ipv4: family == IpFamily::V4, ipv6: family == IpFamily::V6 }
    }

    pub(crate) fn contain(self, family: IpFamily) -> bool {
        match family {
            IpFamily::V4 => self.ipv4,
            IpFamily::V6 => self.ipv6,
        }
    }
}

/// What a service is to addresses that are claimed for it. In every role but none, claims for it tell where an address of
/// its families is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Role {
    /// Nothing.
    #[default]
    None,
    /// It is to be named, and cannot be yet.
    Expecting(Families),
    /// It was registered and may still be: it stays named where it is, and is not named anew.
    InDoubt(Families),
    /// It is registered and may be named.
    Serving(Families),
}

impl Role {
    /// Whether it counts for addresses of a family.
    pub(crate) fn counts_for(self, family: IpFamily) -> bool {
        match self {
            Self::None => false,
            Self::Expecting(families) | Self::InDoubt(families) | Self::Serving(families) => {
                families.contain(family)
            }
        }
    }
}

/// The queues of services that have something to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Queue {
    /// For a request on a resource of its own.
    Resources,
    /// For a place in an `updateServices`.
    Registrations,
    /// For a write on its Kubernetes object.
    Objects,
}

impl ServiceState {
    /// What is to become of it. In a dual-stack cluster, an outbound service has IPv6 too, and keeps it.
    pub(crate) fn goal(&self, is_dual_stack: bool) -> Goal<'_> {
        match (&self.intent, self.standing) {
            (_, Standing::Foreign) => Goal::Leave,
            (Some(Intent::LoadBalancer(spec)), _) => Goal::Serve(spec),
            (Some(Intent::Rejected(_)), _) => Goal::Keep,
            (Some(Intent::None), _) => Goal::Remove,
            (None, _) if self.egress.is_some() => {
                Goal::Egress { ipv6: is_dual_stack || !self.resources.second_public_ip.is_absent() }
            }
            (None, Standing::Unconfirmed) => Goal::Leave,
            (None, Standing::Ours) => Goal::Remove,
        }
    }

    pub(crate) fn next_step(&self, is_dual_stack: bool) -> Step {
        let object = self.intent.is_some().then_some(&self.object);
        next_step(self.goal(is_dual_stack), object, &self.resources, self.references)
    }

    /// What it is to addresses now.
    pub(crate) fn derive_role(&self, is_dual_stack: bool) -> Role {
        let Resources { public_ip, registration, .. } = &self.resources;
        let goal = self.goal(is_dual_stack);
        let (families, named_as) = match (goal, public_ip.possible()) {
            (Goal::Serve(spec), _) => (Families::only(spec.family()), Registration::WithPool),
            (Goal::Keep, Some(ip)) => (Families::only(ip.family), Registration::WithPool),
            (Goal::Egress { ipv6 }, _) => (Families { ipv4: true, ipv6 }, Registration::WithNatGateway),
            (Goal::Keep, None) | (Goal::Leave | Goal::Remove, _) => return Role::None,
        };
        // What is there of another kind or family goes first, and takes the registration with it.
        let goes_first = match goal {
            Goal::Serve(_) | Goal::Egress { .. } => public_ip.possible().is_some_and(|ip| {
                let wanted = if named_as.is_inbound() { families } else { Families::only(IpFamily::V4) };
                !wanted.contain(ip.family)
            }),
            Goal::Keep | Goal::Leave | Goal::Remove => false,
        };
        match registration {
            Observed::Present(held) if *held == named_as && !goes_first => Role::Serving(families),
            Observed::Unknown(held) if *held == named_as && !goes_first => Role::InDoubt(families),
            Observed::Absent | Observed::Present(_) | Observed::Unknown(_) => match goal {
                Goal::Serve(_) | Goal::Egress { .. } => Role::Expecting(families),
                Goal::Keep | Goal::Leave | Goal::Remove => Role::None,
            },
        }
    }

    /// Where it is on its way, with this step next; `None` when there is nothing to do or undo.
    pub(crate) fn derive_phase(&self, step: &Step, is_dual_stack: bool) -> Option<Phase> {
        let retrying = self.failures > 0 && *step != Step::Settled;
        match self.goal(is_dual_stack) {
            Goal::Leave => None,
            Goal::Keep => Some(Phase::Rejected),
            _ if retrying => Some(Phase::Retrying),
            Goal::Remove => match step {
                Step::Settled => None,
                Step::Drain => Some(Phase::Draining),
                Step::Resource(_) | Step::Registration(_) | Step::Object(_) => Some(Phase::Deleting),
            },
            Goal::Serve(_) | Goal::Egress { .. } => Some(match step {
                Step::Settled => Phase::Ready,
                Step::Object(ServiceRequest::SetIngress(_)) if self.object.ingress.is_absent() => {
                    Phase::Creating
                }
                _ if matches!(self.role, Role::Serving(_) | Role::InDoubt(_)) => Phase::Updating,
                _ if self.is_untouched() => Phase::Pending,
                Step::Drain | Step::Resource(_) | Step::Registration(_) | Step::Object(_) => Phase::Creating,
            }),
        }
    }

    /// Whether nothing was done for it yet.
    fn is_untouched(&self) -> bool {
        self.resources == Resources::default()
            && self.object.finalizers.is_absent()
            && self.in_flight.is_none()
    }

    /// Whether what names it stays as it is.
    pub(crate) fn is_kept(&self) -> bool {
        self.standing != Standing::Ours
    }

    /// Whether nothing is left to know of it.
    pub(crate) fn is_forgettable(&self) -> bool {
        self.intent.is_none()
            && self.egress.is_none()
            && self.in_flight.is_none()
            && self.references == 0
            && self.standing == Standing::Ours
            && self.resources == Resources::default()
    }
}
