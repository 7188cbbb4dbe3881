//! The Lucid operator: injects auditor chains into pods and validates them.
//!
//! The binary is a thin shell around [`run`] and [`cainjector`]. `config` says what it is told, `injector` is the handler
//! of `/mutate`, `registration` what that is called for, `notice` what users hear of it, as warnings, `events` and
//! `metrics`; `/validate` is `lucid_validator`'s, and certificates are `lucid_serving`'s. [`inject`], [`uninject`],
//! [`explain`] and [`review`] do the same to files, without a cluster. Under another name it is kubectl's [`Plugin`].

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
