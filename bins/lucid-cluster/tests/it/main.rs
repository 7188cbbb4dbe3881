//! What the cluster holds, as a real API server holds it. One binary, so that it is linked once.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

mod definition;
mod kubectl;
mod page;
