//! Tests that need only what is public: the library, and the program as a process.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "what fails in a helper fails the test")]

mod access;
mod commands;
mod process;
mod registry;
mod server;
