//! Lucid with a real API server. One binary, so that it is linked once.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

mod admission;
mod auditor;
mod auditors_yaml;
mod backstop;
mod bad_input;
mod book;
mod certificates;
mod chart;
mod check;
mod cli;
mod common;
mod conformance;
mod correlation;
mod dashboard;
mod docs;
mod embedding;
mod failures;
mod injection;
mod installation;
mod invalid_configuration;
mod keeper;
mod kubectl;
mod lifecycle;
mod manifests;
mod manuals;
mod modes;
mod node;
mod notices;
mod packaging;
mod permissions;
mod policy;
mod rbac;
mod record;
mod reinvocation;
mod revisions;
mod rollout;
mod selectors;
mod skeleton;
mod telemetry;
mod traffic;
mod uninstall;
mod validation;
mod validator;
mod workloads;
