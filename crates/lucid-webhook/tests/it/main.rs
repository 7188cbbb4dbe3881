//! Tests of what the crate promises, with real parts.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

mod testing;
