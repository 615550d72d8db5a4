//! Readiness of pods.

/// The label of pods whose readiness waits for us.
pub const GATE_LABEL: &str = "clb.azure.com/readiness-gate";
