//! Tests of the program as a process.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "test helpers may panic")]

mod access;
mod commands;
mod log;
mod process;
mod server;
