//! Azure in memory: Azure Resource Manager's manners, and the network and compute resource providers behind it.
//!
//! [`Azure`] is a pure state machine: a [`Request`] goes in, a [`Response`] comes out, and nothing else happens. It was
//! written from the description of the wire alone and shares no code with this workspace's clients, so that a mistake of
//! theirs does not become one of the simulator's.

mod answer;
mod compute;
mod gateway;
mod json;
mod load_balancer;
mod nat_gateway;
mod operation;
mod path;
mod public_ip;
mod resources;
mod service_gateway;
mod state;
mod view;

pub(crate) use answer::nullable;
pub use answer::{Method, Request, Response};
pub use compute::{ComputeConfig, MachineStatus, Power, Subnet};
pub use gateway::{Locations, Registration};
pub use operation::OperationShape;
pub use public_ip::PublicIpConfig;
pub use state::{Azure, AzureConfig, Completion, ResourceGroup};
pub use view::{Egress, Frontend, Ingress};
