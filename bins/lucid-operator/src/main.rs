//! The Lucid operator.

use std::error::Error;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use lucid_operator::{CainjectorArgs, CertsArgs, ManifestsArgs, RunArgs, UninstallArgs};
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

    /// Print everything to install, for kubectl apply.
    Manifests(ManifestsArgs),

    /// Remove what the operator has registered and made, in the order that keeps nobody waiting.
    ///
    /// The exit status is 0 when it is gone, 1 when something stays, and 2 when nothing was tried.
    Uninstall(UninstallArgs),
}

#[tokio::main]
async fn main() -> ExitCode {
    let Args { command, log } = lucid_process::parse();
    let mut status = ExitCode::SUCCESS;
    let end = lucid_process::end(async {
        lucid_process::init_logging(&log)?;
        status = run(command).await?;
        Ok(())
    });
    let end = end.await;
    if end == ExitCode::SUCCESS { status } else { end }
}

/// What is none of its own exit statuses is 1.
async fn run(command: Command) -> Result<ExitCode, Box<dyn Error>> {
    let out = &mut std::io::stdout();
    match command {
        Command::Run(args) => lucid_operator::run(*args).await?,
        Command::Cainjector(args) => lucid_operator::cainjector(args).await?,
        Command::Certs(args) => lucid_operator::certs(&args, out).await?,
        Command::Manifests(args) => lucid_operator::manifests(&args, out)?,
        Command::Uninstall(args) => {
            return match lucid_operator::uninstall(&args, out).await {
                Ok(is_gone) => Ok(if is_gone { ExitCode::SUCCESS } else { ExitCode::FAILURE }),
                Err(error) if error.is_usage() => Ok(not_tried(&error)),
                Err(error) => Err(error.into()),
            };
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// As clap ends for what it does not understand.
fn not_tried(error: &dyn Error) -> ExitCode {
    eprintln!("error: {}", lucid_process::with_causes(error));
    ExitCode::from(2)
}
