//! The rules of planning and patching, through the public API.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking, in its helpers too")]

mod annotations;
mod catalogue;
mod catalogue_bounds;
mod chain;
mod common;
mod model_port;
mod patch;
mod plan;
mod pod;
mod properties;
mod redirect;
