//! Tests of the public API.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

mod admin;
mod api_server;
mod client;
mod clients;
mod common;
mod conversion;
mod cron_tab;
#[path = "../../examples/conversion.rs"]
#[allow(dead_code, reason = "all but what its main does")]
mod example;
mod handlers;
mod hostile;
mod http;
mod interop;
mod keepalive;
mod limits;
mod offload;
mod operator;
mod patch;
mod patch_properties;
mod permissions;
mod readiness;
mod registration;
mod renewal;
mod server;
mod server_under_test;
mod services;
mod shed;
mod shutdown;
mod signatures;
mod typed;
mod widget;
mod wire;
