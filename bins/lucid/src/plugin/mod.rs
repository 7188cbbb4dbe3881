//! `kubectl lucid`: the program as the kubectl plugin `kubectl-lucid`.
//!
//! [`Name`] is determined by the file name of the process, [`Plugin`] defines the arguments of the plugin, and
//! [`complete`] implements its shell completion.

mod completion;

use std::ffi::{OsStr, OsString};
use std::path::Path;

use clap::Parser;

use crate::connection::ConnectionArgs;
use crate::error::Result;
use crate::{Args, Command};

pub(crate) use completion::complete;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Name {
    /// `lucid`, or any other name.
    Lucid,
    /// `kubectl-lucid`, the kubectl plugin.
    Plugin,
    /// `kubectl_complete-lucid`, which kubectl runs to complete arguments of the plugin.
    Completion,
}

impl Name {
    pub(crate) fn of(argument: Option<&OsString>) -> Self {
        match argument.and_then(|it| Path::new(it).file_stem()).and_then(OsStr::to_str) {
            Some("kubectl-lucid") => Self::Plugin,
            Some("kubectl_complete-lucid") => Self::Completion,
            _ => Self::Lucid,
        }
    }
}

/// Injects auditor chains into manifests, and inspects clusters and decision logs.
#[derive(Debug, Parser)]
#[command(name = "kubectl-lucid", bin_name = "kubectl lucid", version)]
// Used by packagers only.
#[command(mut_subcommand("completions", |it| it.hide(true)), mut_subcommand("manual", |it| it.hide(true)))]
// In kubectl `-n` always means the namespace.
#[command(mut_subcommand("audit", |it| it.mut_subcommand("tail", short_of_namespace)))]
pub(crate) struct Plugin {
    /// As in kubectl, any command accepts them.
    #[command(flatten)]
    connection: ConnectionArgs,

    #[command(flatten)]
    args: Args,
}

fn short_of_namespace(tail: clap::Command) -> clap::Command {
    tail.mut_arg("lines", |it| it.short(None)).mut_arg("namespace", |it| it.short('n'))
}

impl Plugin {
    /// Returns the arguments, with the namespace of the context as the default namespace of manifests, as in kubectl.
    pub(crate) fn into_args(self) -> Result<Args> {
        let Self { connection, mut args } = self;
        let namespaces = match &mut args.command {
            Command::Explain(args) => &mut args.planning.namespaces,
            Command::Inject(args) => &mut args.planning.namespaces,
            Command::Validate(args) => &mut args.namespaces,
            _ => return Ok(args),
        };
        if namespaces.namespace.is_none() {
            namespaces.namespace = connection.namespace()?;
        }
        Ok(args)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_options_of_kubectl_may_precede_the_command() {
        let arguments = ["kubectl-lucid", "--context", "a", "certs", "--kubeconfig", "b", "status"];
        let plugin = Plugin::try_parse_from(arguments).unwrap();
        let Command::Certs(args) = plugin.into_args().unwrap().command else { panic!("another command") };
        let args = format!("{args:?}");
        assert!(
            args.contains(r#"context: Some("a")"#) && args.contains(r#"kubeconfig: Some("b")"#),
            "{args}"
        );
    }

    #[test]
    fn only_commands_on_a_cluster_take_a_context() {
        for (arguments, is_taken) in [
            (&["lucid", "check", "--context", "a"][..], true),
            (&["lucid", "uninstall", "--context", "a"], true),
            (&["lucid", "certs", "status", "--context", "a"], true),
            (&["lucid", "--context", "a", "check"], false),
            (&["lucid", "inject", "-f", "-", "--context", "a"], false),
            (&["lucid", "manifests", "--context", "a"], false),
            (&["kubectl-lucid", "manifests", "--context", "a"], true),
        ] {
            let parsed = match arguments[0] {
                "lucid" => Args::try_parse_from(arguments).map(drop),
                _ => Plugin::try_parse_from(arguments).map(drop),
            };
            assert_eq!(parsed.is_ok(), is_taken, "{arguments:?}");
        }
    }

    #[test]
    fn the_plugin_is_recognized_by_its_file_name() {
        for (argument, name) in [
            ("lucid", Name::Lucid),
            ("/usr/local/bin/kubectl-lucid", Name::Plugin),
            ("kubectl-lucid.exe", Name::Plugin),
            ("/opt/kubectl_complete-lucid", Name::Completion),
            ("/opt/kubectl-lucid/lucid", Name::Lucid),
            ("kubectl-lucidity", Name::Lucid),
        ] {
            assert_eq!(Name::of(Some(&argument.into())), name, "{argument}");
        }
        assert_eq!(Name::of(None), Name::Lucid);
    }
}
