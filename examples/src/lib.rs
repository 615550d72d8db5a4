//! What the examples and their tests share: a recorded cluster played into a simulated API server, and the controller between it
//! and a simulated Azure.

#![forbid(unsafe_code)]

pub mod check;
pub mod observe;
pub mod run;
