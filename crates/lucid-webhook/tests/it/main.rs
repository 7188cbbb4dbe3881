//! The crate as its users see it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

mod admin;
mod api_server;
mod handlers;
mod hostile;
mod http;
mod server_under_test;
mod signatures;
