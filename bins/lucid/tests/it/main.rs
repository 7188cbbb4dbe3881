//! Tests of `lucid validate`, `lucid image` and `lucid audit`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "what fails in a helper fails the test"
)]

mod audit;
mod docs;
mod event;
mod image;
mod program;
mod validate;
mod verifier;
