//! Lucid against a real API server. One binary, so that it is linked once.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::unreachable,
    reason = "helpers of tests"
)]

mod auditor;
mod auditors_yaml;
mod backstop;
mod bad_input;
mod book;
mod certificates;
mod check;
mod common;
mod correlation;
mod docs;
mod failures;
mod injection;
mod installation;
mod lifecycle;
mod manifests;
mod modes;
mod node;
mod notices;
mod policy;
mod record;
mod reinvocation;
mod selectors;
mod uninstall;
mod validation;
mod validator;
