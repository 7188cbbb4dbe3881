//! Tests with a real API server, in one binary to save link time.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

mod definition;
mod kubectl;
mod page;
