//! The tracker against independent models of Azure and of the cluster.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

mod azure;
mod cluster;
mod egress;
mod endpoints;
mod explorer;
mod failures;
mod objects;
mod properties;
mod restore;
mod scenarios;
mod steps;
mod trouble;
mod views;
mod vocabulary;
mod world;
