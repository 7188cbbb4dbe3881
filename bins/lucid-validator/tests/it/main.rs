//! Tests of the public API.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "what fails in a helper fails the test"
)]

mod audit;
mod browser;
mod docs;
mod event;
mod image;
mod program;
mod review;
mod ring;
mod ui;
mod verifier;
