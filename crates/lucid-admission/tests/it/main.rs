//! Tests of the public API, in one binary to save link time.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

mod audit;
mod browser;
mod definition;
mod kubectl;
mod page;
mod ui;
