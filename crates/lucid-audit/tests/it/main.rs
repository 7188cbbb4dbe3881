//! Tests that need only the public API.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod forge;
mod merkle;
mod notes;
mod proof;
mod tampering;
