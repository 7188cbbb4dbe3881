//! Tests of the public API.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "these are tests")]

mod allowlist;
mod breaker;
mod cache;
mod coalesce;
mod common;
mod concurrency;
mod credentials;
mod deadline;
mod digest;
mod http;
mod metrics;
mod proof;
mod reference;
mod retry;
mod server;
#[cfg(feature = "signatures")]
mod signatures;
mod verifier;
