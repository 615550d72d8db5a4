//! One service: what the cluster wants of it, what Azure holds of it, and the next step between the two.

use alloc::boxed::Box;

use crate::change::Intent;
use crate::desired::Slot;
use crate::ids::{Ip, IpFamily, ObjectKey};
use crate::load_balancer::LoadBalancerSpec;
use crate::notice::Phase;
use crate::operation::{OperationId, RegistrationUpdate, ResourceRequest};
use crate::table::Id;

/// What we believe Azure holds of one thing, and how sure we are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Observed<T> {
    /// It is not there.
    #[default]
    Absent,
    /// It is there, like this.
    Present(T),
    /// An operation on it ended with nobody knowing how. It may be there, like this or as it was before, where deleting
    /// too early would hurt, and it is not there where relying on it would.
    Unknown(T),
}

impl<T: Clone + PartialEq> Observed<T> {
    /// What was known of it is no longer sure.
    pub(crate) fn doubt(&mut self) {
        if let Self::Present(there) = self {
            *self = Self::Unknown(there.clone());
        }
    }

    fn may_be_other_than(&self, wanted: &T) -> bool {
        match self {
            Self::Absent => false,
            Self::Present(there) | Self::Unknown(there) => there != wanted,
        }
    }

    fn is(&self, wanted: &T) -> bool {
        matches!(self, Self::Present(there) if there == wanted)
    }

    fn is_absent(&self) -> bool {
        matches!(self, Self::Absent)
    }
}

/// How a service is registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Registration {
    /// With its load balancer's backend pool: it can be named by addresses.
    WithPool,
    /// Its pools cleared, on the way out.
    WithoutPool,
}

/// What Azure holds of one service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Resources {
    /// Its public IP, of this family.
    pub public_ip: Observed<IpFamily>,
    /// Its load balancer.
    pub load_balancer: Observed<LoadBalancerSpec>,
    /// Its registration in the ServiceGateway.
    pub registration: Observed<Registration>,
}

/// What is to become of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Goal<'a> {
    /// It serves like this.
    Serve(&'a LoadBalancerSpec),
    /// What serves goes on as it is, and nothing new is made: the Service asks for what it cannot have.
    Keep,
    /// Nothing of it is left.
    Remove,
}

/// The next thing to do for a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing: Azure holds what it should.
    Settled,
    /// Its addresses have to be withdrawn first.
    Drain,
    /// A request of its own.
    Resource(ResourceRequest),
    /// A part of the next `updateServices`.
    Registration(RegistrationUpdate),
}

/// The next step from what Azure holds to the goal. `references` counts the addresses that name the service, or may.
///
/// This is the whole lifecycle. Whatever happened on the way (a delete during a create, a changed mind, a failure, a
/// restart), the step depends only on where things stand.
pub(crate) fn next_step(goal: Goal<'_>, resources: &Resources, references: u32) -> Step {
    match goal {
        Goal::Keep => keeping_step(resources),
        Goal::Remove => removal_step(resources, references),
        Goal::Serve(spec) => {
            let family = spec.family();
            if resources.public_ip.may_be_other_than(&family) {
                // A public IP cannot change its family: it has to go, and whatever uses it before it.
                removal_step(resources, references)
            } else if !resources.public_ip.is(&family) {
                Step::Resource(ResourceRequest::PutPublicIp(family))
            } else if !resources.load_balancer.is(spec) {
                Step::Resource(ResourceRequest::PutLoadBalancer(spec.clone()))
            } else if !resources.registration.is(&Registration::WithPool) {
                Step::Registration(RegistrationUpdate::Register)
            } else {
                Step::Settled
            }
        }
    }
}

/// Nothing new is made, but what serves, or may, and is in doubt is settled by a repetition.
fn keeping_step(resources: &Resources) -> Step {
    use Observed::{Absent, Present, Unknown};
    match (&resources.registration, &resources.public_ip, &resources.load_balancer) {
        (
            Present(Registration::WithPool) | Unknown(Registration::WithPool),
            Unknown(family),
            Present(_) | Unknown(_),
        ) => Step::Resource(ResourceRequest::PutPublicIp(*family)),
        (Present(Registration::WithPool) | Unknown(Registration::WithPool), Present(_), Unknown(spec)) => {
            Step::Resource(ResourceRequest::PutLoadBalancer(spec.clone()))
        }
        (Unknown(Registration::WithPool), Present(_), Present(_)) => {
            Step::Registration(RegistrationUpdate::Register)
        }
        (Absent | Present(_) | Unknown(_), _, _) => Step::Settled,
    }
}

fn removal_step(resources: &Resources, references: u32) -> Step {
    let Resources { public_ip, load_balancer, registration } = resources;
    let pool_may_be_named = !registration.is_absent() && !registration.is(&Registration::WithoutPool);
    if references > 0 {
        Step::Drain
    } else if !load_balancer.is_absent() && pool_may_be_named {
        Step::Registration(RegistrationUpdate::ClearPool)
    } else if !load_balancer.is_absent() {
        Step::Resource(ResourceRequest::DeleteLoadBalancer)
    } else if !registration.is_absent() {
        Step::Registration(RegistrationUpdate::Unregister)
    } else if !public_ip.is_absent() {
        Step::Resource(ResourceRequest::DeletePublicIp)
    } else {
        Step::Settled
    }
}

/// Why a service that has something to do does not do it now. The timer of the service says until when.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Wait {
    /// It need not wait.
    #[default]
    No,
    /// A failure that time may cure: nothing cuts this short.
    Backoff,
    /// A failure of this very step: another step need not wait.
    Parked(Box<Step>),
}

/// Everything known of one service.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServiceState {
    /// What the Service asks for; `None` when it is gone.
    pub(crate) intent: Option<Intent>,
    /// Its name in the cluster, also when it is gone.
    pub(crate) key: Option<ObjectKey>,
    /// The list of Services in which it was last seen.
    pub(crate) seen: u32,
    /// The slots it answers to while it exists: by name and by UID.
    pub(crate) slots: [Option<Id<Slot>>; 2],
    pub(crate) resources: Resources,
    /// The address of its public IP, as last reported.
    pub(crate) ingress: Option<Ip>,
    /// How many holdings of addresses name it, or may.
    pub(crate) references: u32,
    /// The operation that is in flight for it, alone or as part of a batch.
    pub(crate) in_flight: Option<OperationId>,
    /// Failures in a row.
    pub(crate) failures: u32,
    pub(crate) wait: Wait,
    /// What it is to addresses, as of its last refresh.
    pub(crate) role: Role,
    /// The phase last told.
    pub(crate) phase: Option<Phase>,
    /// Its place in the queue for its next step: the number is smaller for those waiting longer.
    pub(crate) queued: Option<(Queue, u64)>,
}

/// What a service is to addresses that are claimed for it. In every role but none, claims for it tell where an address of
/// the family is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Role {
    /// Nothing.
    #[default]
    None,
    /// It is to be named, and cannot be yet.
    Expecting(IpFamily),
    /// It was registered and may still be: it stays named where it is, and is not named anew.
    InDoubt(IpFamily),
    /// It is registered and may be named.
    Serving(IpFamily),
}

impl Role {
    /// The family of the addresses that it counts for.
    pub(crate) fn family(self) -> Option<IpFamily> {
        match self {
            Self::None => None,
            Self::Expecting(family) | Self::InDoubt(family) | Self::Serving(family) => Some(family),
        }
    }
}

/// The queues of services that have something to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Queue {
    /// For a request of its own.
    Resources,
    /// For a place in an `updateServices`.
    Registrations,
}

impl ServiceState {
    pub(crate) fn goal(&self) -> Goal<'_> {
        match &self.intent {
            None | Some(Intent::None) => Goal::Remove,
            Some(Intent::Rejected(_)) => Goal::Keep,
            Some(Intent::LoadBalancer(spec)) => Goal::Serve(spec),
        }
    }

    pub(crate) fn next_step(&self) -> Step {
        next_step(self.goal(), &self.resources, self.references)
    }

    /// What it is to addresses now.
    pub(crate) fn derive_role(&self) -> Role {
        let Resources { public_ip, registration, .. } = &self.resources;
        let family = match (self.goal(), public_ip) {
            (Goal::Serve(spec), _) => spec.family(),
            (Goal::Keep, Observed::Present(family) | Observed::Unknown(family)) => *family,
            (Goal::Keep, Observed::Absent) | (Goal::Remove, _) => return Role::None,
        };
        match (self.goal(), registration) {
            // It goes first, to come back with another public IP.
            _ if public_ip.may_be_other_than(&family) => Role::Expecting(family),
            (_, Observed::Present(Registration::WithPool)) => Role::Serving(family),
            (_, Observed::Unknown(Registration::WithPool)) => Role::InDoubt(family),
            (Goal::Serve(_), Observed::Absent | Observed::Present(_) | Observed::Unknown(_)) => {
                Role::Expecting(family)
            }
            (Goal::Keep | Goal::Remove, Observed::Absent | Observed::Present(_) | Observed::Unknown(_)) => {
                Role::None
            }
        }
    }

    /// Where it is on its way; `None` when there is nothing to do or undo.
    pub(crate) fn derive_phase(&self) -> Option<Phase> {
        let step = self.next_step();
        let retrying = self.failures > 0 && step != Step::Settled;
        match self.goal() {
            Goal::Keep => Some(Phase::Rejected),
            _ if retrying => Some(Phase::Retrying),
            Goal::Remove => match step {
                Step::Settled => None,
                Step::Drain => Some(Phase::Draining),
                Step::Resource(_) | Step::Registration(_) => Some(Phase::Deleting),
            },
            Goal::Serve(_) => Some(match step {
                Step::Settled => Phase::Ready,
                _ if matches!(self.role, Role::Serving(_) | Role::InDoubt(_)) => Phase::Updating,
                _ if self.resources == Resources::default() && self.in_flight.is_none() => Phase::Pending,
                Step::Drain | Step::Resource(_) | Step::Registration(_) => Phase::Creating,
            }),
        }
    }

    /// Whether nothing is left to know of it.
    pub(crate) fn is_forgettable(&self) -> bool {
        self.intent.is_none()
            && self.in_flight.is_none()
            && self.references == 0
            && self.resources == Resources::default()
    }
}
