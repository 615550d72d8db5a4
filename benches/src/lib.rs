//! What the benchmarks share: a synthetic cluster, a tracker in sync with it, and the naive differ that serves as the
//! yardstick.

#![forbid(unsafe_code)]

pub mod cluster;
pub mod kubernetes;
pub mod measure;
pub mod naive;
