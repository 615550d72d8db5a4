//! What the examples and their tests share: a recorded cluster replayed through the controller onto a simulated Azure.

#![forbid(unsafe_code)]

pub mod check;
pub mod objects;
pub mod observe;
pub mod replay;
pub mod run;
