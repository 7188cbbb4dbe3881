//! Tests over real connections.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

mod clients;
mod keepalive;
mod limits;
mod server;
mod shed;
mod shutdown;
mod wire;
