//! The Lucid operator: injects auditor chains into pods and validates them.
//!
//! The binary is a thin wrapper around [`run`] and the other commands.
//!
//! - `config` defines the options of [`run()`], `injector` handles `/mutate`, and `registration` selects its requests.
//! - `notice` defines the messages to users, which are sent as admission warnings, `events` and `metrics`.
//! - `lucid_validator` handles `/validate`, and `lucid_serving` manages certificates.
//! - [`inject`], [`uninject`], [`explain`] and [`review`] work on files, without a cluster.
//! - [`Plugin`] is the kubectl plugin, selected by the [`Name`] of the process.

mod auditors;
mod cainjector;
mod certs;
mod check;
mod config;
mod events;
mod files;
mod injector;
mod manifests;
mod metrics;
mod notice;
mod offline;
mod plugin;
mod registration;
mod run;
mod uninstall;
mod workload;

pub use cainjector::{CainjectorArgs, CainjectorError, cainjector};
pub use certs::{CertsArgs, CertsError, certs};
pub use check::{CheckArgs, CheckError, check};
pub use config::RunArgs;
pub use files::FilesError;
pub use manifests::{BackstopError, ManifestsArgs, ManifestsError, manifests};
pub use offline::{
    ExplainArgs, InjectArgs, OfflineError, ReviewArgs, UninjectArgs, explain, inject, review, uninject,
};
pub use plugin::{ConnectionArgs, ConnectionError, Name, Plugin, PluginCommand, complete};
pub use run::run;
pub use uninstall::{UninstallArgs, UninstallError, uninstall};
