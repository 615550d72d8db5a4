#![forbid(unsafe_code)]
#![doc = include_str!("../README.md")]

mod api;
mod cache;
mod client;
mod computer_name;
mod inventory;
mod key;
pub mod membership;
pub mod models;
mod name;
mod node_stream;
mod poller;
mod pool;
mod provider_id;
mod read;
mod slot;

pub use api::{View, VmssApi};
pub use cache::{CacheConfig, Freshness, Lookup, NodeIdentity, VmssCache};
pub use clb_arm::{CallContext, Error, ErrorKind, ResourceId, Result};
pub use client::{COMPUTE_API_VERSION, NETWORK_API_VERSION, VmssClient};
pub use computer_name::{ComputerName, ComputerNameError, InstanceName, InstanceNameError};
pub use inventory::{MachineState, NodeKind, NodeRecord, Snapshot};
pub use key::{ResourceGroupKey, ScaleSetKey};
pub use membership::{Membership, MembershipConfig, Outcome, Report, Selection, Skip};
pub use name::{ArmName, NameError};
pub use node_stream::{Listing, Machine, NodeDiffer, NodeEvent, Power};
pub use poller::NodePoller;
pub use provider_id::{ProviderId, ProviderIdError};
pub use read::{read_machine, read_scale_set};
pub use slot::Cached;
