#![forbid(unsafe_code)]
#![doc = include_str!("../README.md")]

mod api;
mod client;
mod config;
pub mod models;
mod resources;
#[cfg(feature = "difftracker")]
pub mod tracker;

pub use api::NrpApi;
pub use clb_arm::{CallContext, Error, ErrorKind, ResourceId, Result};
pub use client::NrpClient;
pub use config::{ConfigError, DEFAULT_API_VERSION, DEFAULT_SERVICE_GATEWAY, NrpConfig};
