//! `kubectl lucid`: the program as the kubectl plugin `kubectl-lucid`.
//!
//! [`Name`] is determined by the file name of the process, [`Plugin`] defines the arguments of the plugin, and
//! [`complete`] implements its shell completion.

mod completion;
mod connection;

use std::ffi::{OsStr, OsString};
use std::path::Path;

use clap::{Parser, Subcommand};
use lucid_process::{LogArgs, ManualCommand};
use lucid_validator::AuditArgs;

use crate::{CheckArgs, ExplainArgs, InjectArgs};

pub use completion::complete;
pub use connection::{ConnectionArgs, ConnectionError};

/// Program selected by the name of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Name {
    /// `lucid-operator`, or any other name.
    Operator,
    /// `kubectl-lucid`, the kubectl plugin.
    Plugin,
    /// `kubectl_complete-lucid`, which kubectl runs to complete arguments of the plugin.
    Completion,
}

impl Name {
    /// Determines the name from the first argument of the process.
    #[must_use]
    pub fn of(argument: Option<&OsString>) -> Self {
        match argument.and_then(|it| Path::new(it).file_stem()).and_then(OsStr::to_str) {
            Some("kubectl-lucid") => Self::Plugin,
            Some("kubectl_complete-lucid") => Self::Completion,
            _ => Self::Operator,
        }
    }
}

/// Looks at chains of auditors: in a cluster, in manifests, and in what was decided.
#[derive(Debug, Parser)]
#[command(name = "kubectl-lucid", bin_name = "kubectl lucid", version)]
// Used by packagers only.
#[command(mut_subcommand("completions", |it| it.hide(true)), mut_subcommand("manual", |it| it.hide(true)))]
// In kubectl `-n` always means the namespace.
#[command(mut_subcommand("audit", |it| it.mut_subcommand("tail", short_of_namespace)))]
pub struct Plugin {
    /// What is to be done.
    #[command(subcommand)]
    pub command: PluginCommand,

    /// Which cluster.
    #[command(flatten)]
    pub connection: ConnectionArgs,

    /// Options of logging.
    #[command(flatten)]
    pub log: LogArgs,
}

/// What the plugin does.
#[derive(Debug, Subcommand)]
pub enum PluginCommand {
    /// Look whether Lucid works in the cluster, and which pods are not audited as they should be, and why.
    ///
    /// Nothing is changed. The exit status is 0 when nothing failed, 1 when something did, and 2 when the cluster cannot
    /// be reached.
    Check(Box<CheckArgs>),

    /// Tell which chains the manifests of a file get, and why.
    ///
    /// Exit code 0: fine; 1: a document was refused; 2: wrong arguments, or a file cannot be read.
    Explain(Box<ExplainArgs>),

    /// Inject chains into the manifests of a file, as the webhook does into pods, for kubectl apply. Everything else in the
    /// file stays as it is written.
    ///
    /// Exit code 0: fine; 1: a document was refused and is left out; 2: wrong arguments, or a file cannot be read.
    Inject(Box<InjectArgs>),

    /// Decisions: print the latest ones, and verify the log of them, prove a record, compare it with the API server's
    /// audit log.
    Audit(Box<AuditArgs>),

    /// What packages need.
    #[command(flatten)]
    Manual(ManualCommand),
}

fn short_of_namespace(tail: clap::Command) -> clap::Command {
    tail.mut_arg("lines", |it| it.short(None)).mut_arg("namespace", |it| it.short('n'))
}

impl Plugin {
    /// Sets the default namespace of manifests to that of the context, as kubectl does.
    ///
    /// # Errors
    ///
    /// Returns an error if the given kubeconfig or context cannot be used.
    pub fn settle_namespace(&mut self) -> Result<(), ConnectionError> {
        let planning = match &mut self.command {
            PluginCommand::Explain(args) => &mut args.planning,
            PluginCommand::Inject(args) => &mut args.planning,
            _ => return Ok(()),
        };
        if planning.namespace.is_none() {
            planning.namespace = self.connection.namespace()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_the_file_makes_the_plugin() {
        for (argument, name) in [
            ("lucid-operator", Name::Operator),
            ("/usr/local/bin/kubectl-lucid", Name::Plugin),
            ("kubectl-lucid.exe", Name::Plugin),
            ("/opt/kubectl_complete-lucid", Name::Completion),
            ("/opt/kubectl-lucid/lucid-operator", Name::Operator),
            ("kubectl-lucidity", Name::Operator),
        ] {
            assert_eq!(Name::of(Some(&argument.into())), name, "{argument}");
        }
        assert_eq!(Name::of(None), Name::Operator);
    }
}
