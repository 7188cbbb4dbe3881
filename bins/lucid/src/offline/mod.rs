//! Injection into files: the same planner without a cluster.
//!
//! `input` reads manifests, `pod_template` finds the pods in them, and `planning` applies the configuration. The commands
//! are [`inject`](inject()), [`uninject`](uninject()), [`explain`](explain()) and [`review`](review()).

mod error;
mod explain;
mod inject;
mod input;
mod output;
mod planning;
mod pod_template;
#[cfg(test)]
mod properties;
mod review;
mod uninject;

pub(crate) use error::OfflineError;
pub(crate) use explain::{ExplainArgs, explain};
pub(crate) use inject::{InjectArgs, inject};
pub(crate) use review::{ReviewArgs, review};
pub(crate) use uninject::{UninjectArgs, uninject};
