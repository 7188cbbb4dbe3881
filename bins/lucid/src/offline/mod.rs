//! Injection into files: the same planner without a cluster.
//!
//! `pod_template` finds the pods in manifests, and `planning` applies the configuration. The commands are
//! [`inject`](inject()), [`uninject`](uninject()), [`explain`](explain()) and [`review`](review()).

mod explain;
mod inject;
mod output;
mod planning;
mod pod_template;
mod review;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

pub(crate) use explain::{ExplainArgs, explain};
pub(crate) use inject::{InjectArgs, UninjectArgs, inject, uninject};
pub(crate) use review::{ReviewArgs, review};

/// Input of the offline commands.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct InputArgs {
    /// Manifests in YAML or JSON with any number of documents; `-` is standard input. Repeatable.
    #[arg(long = "file", short = 'f', value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
}
