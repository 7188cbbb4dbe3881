//! Judges, on real connections and files.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "what fails in a helper fails the test"
)]

#[cfg(feature = "classifier")]
mod classifier;
#[cfg(feature = "http")]
mod http;
