#![forbid(unsafe_code)]
#![doc = include_str!("../README.md")]

mod computer_name;
mod name;
mod node_stream;
mod provider_id;

pub use computer_name::{ComputerName, ComputerNameError, InstanceName, InstanceNameError};
pub use name::{ArmName, NameError};
pub use node_stream::{Listing, Machine, NodeDiffer, NodeEvent, Power, ScaleSetKey};
pub use provider_id::{ProviderId, ProviderIdError};
