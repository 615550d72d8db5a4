//! Kubernetes objects at the gate, from outside.

mod admission;
mod convert;
