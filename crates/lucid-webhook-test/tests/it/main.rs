//! Tests of the public API: a service that breaks a rule is rejected as by the API server.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

mod calls;
mod conversion;
mod network;
mod register;
mod registrations;
mod reviews;
