//! The tracker against independent models of Azure and of the cluster.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

mod azure;
mod cluster;
mod explorer;
mod properties;
mod scenarios;
mod steps;
mod trouble;
mod vocabulary;
mod world;
