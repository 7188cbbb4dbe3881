//! Tests with running control planes, in one binary so that they are linked once.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod binaries;
mod cert_manager;
mod cluster;
mod common;
mod controllers;
mod node;
mod service;
