//! The commands that do to files what the webhook does to pods.

#![allow(clippy::unwrap_used, clippy::panic, reason = "what fails in a helper fails the test")]

mod api_server;
mod common;
mod docs;
mod explain;
mod formats;
mod inject;
mod refused;
mod review;
