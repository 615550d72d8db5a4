//! Bytes as what Azure answers: whatever can be read can be written and read back as the same.
//!
//! `cargo install cargo-fuzz`, then, in `crates/clb-nrp`, `cargo fuzz run -s none decode -- -max_total_time=60`.

#![no_main]

#[path = "../../tests/it/decode.rs"]
mod decode;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| decode::every_model(bytes));
