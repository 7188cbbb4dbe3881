//! Tests of the crate through its public interface.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

#[cfg(feature = "client")]
mod client;
mod guard;
#[cfg(feature = "client")]
mod registration;
