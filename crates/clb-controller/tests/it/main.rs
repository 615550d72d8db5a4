//! Kubernetes objects at the gate, from outside.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod admission;
mod budget;
mod convert;
mod driving;
mod fake;
mod ownership;
