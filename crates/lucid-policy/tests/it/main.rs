//! The policy against tables of requests. One binary, so that it is linked once.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod break_glass;
mod bypass;
mod chain;
mod common;
mod exemptions;
mod images;
mod labels;
mod matrix;
mod modes;
mod never_blocked;
mod pod_fields;
mod reach;
