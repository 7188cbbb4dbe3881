//! The rules of planning and patching, through the public API.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking, in its helpers too")]

mod annotations;
mod catalogue;
mod chain;
mod common;
mod patch;
mod plan;
mod pod;
mod properties;
