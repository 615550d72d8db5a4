//! Behaviours by name.
