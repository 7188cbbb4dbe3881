//! Tables of requests and their evaluations. A single binary keeps link time low.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod break_glass;
mod bypass;
mod chain;
mod common;
mod exemptions;
mod files;
mod images;
mod labels;
mod matrix;
mod modes;
mod never_blocked;
mod older_pods;
mod openshift;
mod reach;
mod ways_out;
