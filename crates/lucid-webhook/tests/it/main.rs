//! The crate's integration tests, in one binary.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod conversion;
mod cron_tab;
