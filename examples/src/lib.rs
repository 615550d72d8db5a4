//! Shared by the examples.
