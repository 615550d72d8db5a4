//! Bytes as the answers to a write and to the polls that follow: it ends, and a poll never leaves the endpoint.
//!
//! `cargo install cargo-fuzz`, then, in `crates/clb-arm`, `cargo fuzz run -s none operation -- -max_total_time=60`.

#![no_main]

#[path = "../../tests/it/arbitrary.rs"]
mod arbitrary;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| arbitrary::follow(bytes));
