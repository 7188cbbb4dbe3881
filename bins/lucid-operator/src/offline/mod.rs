//! Injection into files: the same planner without a cluster.
//!
//! `input` reads manifests, `workload` finds the pods in them, and `planning` applies the configuration. The commands
//! are [`inject`](inject()), [`uninject`](uninject()), [`explain`](explain()) and [`review`](review()).

mod error;
mod explain;
mod inject;
mod input;
mod output;
mod planning;
mod review;
mod uninject;
mod workload;

pub use error::OfflineError;
pub use explain::{ExplainArgs, explain};
pub use inject::{InjectArgs, inject};
pub use review::{ReviewArgs, review};
pub use uninject::{UninjectArgs, uninject};
