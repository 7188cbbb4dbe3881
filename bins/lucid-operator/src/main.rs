//! The Lucid operator.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use lucid_operator::{CainjectorArgs, CertsArgs, RunArgs};
use lucid_process::LogArgs;

/// Injects ordered chains of auditor sidecars into pods, and lets only notarized auditors run.
#[derive(Debug, Parser)]
#[command(name = "lucid-operator", version)]
struct Args {
    #[command(subcommand)]
    command: Command,

    #[command(flatten)]
    log: LogArgs,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve the webhooks of a cluster and register them with its API server.
    ///
    /// The API server is found as kubectl finds it: by KUBECONFIG or ~/.kube/config, or in the cluster by the pod's
    /// service account.
    Run(Box<RunArgs>),

    /// Inject CAs into webhook configurations, conversion webhooks, APIServices and ConfigMaps that ask for one by
    /// annotation, in a cluster without cert-manager.
    ///
    /// Lucid itself does not need this: `run` writes the CA of its own webhooks. It refuses to start beside a running
    /// cainjector of cert-manager.
    Cainjector(CainjectorArgs),

    /// Look at the operator's own certificate authority, or ask for another one.
    Certs(CertsArgs),
}

#[tokio::main]
async fn main() -> ExitCode {
    let Args { command, log } = lucid_process::parse();
    lucid_process::end(async {
        lucid_process::init_logging(&log)?;
        match command {
            Command::Run(args) => lucid_operator::run(*args).await?,
            Command::Cainjector(args) => lucid_operator::cainjector(args).await?,
            Command::Certs(args) => lucid_operator::certs(&args, &mut std::io::stdout()).await?,
        }
        Ok(())
    })
    .await
}
