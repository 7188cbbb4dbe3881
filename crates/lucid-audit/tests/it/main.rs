//! Tests of the public API.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking, in its helpers too")]

mod correlation;
mod crash;
mod files;
mod forged_records;
mod healing;
mod log;
mod notes;
mod opening;
mod proof;
mod pruning;
mod recorder;
mod support;
mod tampering;
