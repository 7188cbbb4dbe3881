//! The Lucid operator.

use std::io::{stderr, stdout};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use lucid_operator::{
    CainjectorArgs, CertsArgs, ExplainArgs, InjectArgs, OfflineError, ReviewArgs, RunArgs, UninjectArgs,
};
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

    /// Inject chains into the manifests of a file, as the webhook does into pods: what a cluster would run, ahead of
    /// time. Everything else in the file stays as it is written.
    ///
    /// Exit code 0: fine; 1: a document was refused and is left out; 2: wrong arguments, or a file cannot be read.
    Inject(Box<InjectArgs>),

    /// Take injected chains out of the manifests of a file again.
    ///
    /// Exit codes as for inject.
    Uninject(UninjectArgs),

    /// Tell which chains the manifests of a file get, and why.
    ///
    /// Exit codes as for inject.
    Explain(Box<ExplainArgs>),

    /// Answer an AdmissionReview in a file, as the webhook would.
    ///
    /// Exit code 0: the pod is allowed; 1: it is denied; 2: wrong arguments, or it is no review.
    Review(Box<ReviewArgs>),
}

/// As clap ends it.
const USAGE: u8 = 2;

#[tokio::main]
async fn main() -> ExitCode {
    let Args { command, log } = lucid_process::parse();
    let mut said = None;
    let mut tell = |outcome: Result<bool, OfflineError>| -> Result<(), OfflineError> {
        // Whether something was refused, or nothing could be told.
        said = Some(if outcome.as_ref().is_err_and(OfflineError::is_usage) {
            USAGE
        } else {
            u8::from(!matches!(outcome, Ok(true)))
        });
        outcome.map(|_| ())
    };
    let end = lucid_process::end(async {
        lucid_process::init_logging(&log)?;
        match command {
            Command::Inject(args) => tell(lucid_operator::inject(&args, &mut stdout(), &mut stderr()))?,
            Command::Uninject(args) => tell(lucid_operator::uninject(&args, &mut stdout(), &mut stderr()))?,
            Command::Explain(args) => tell(lucid_operator::explain(&args, &mut stdout(), &mut stderr()))?,
            Command::Review(args) => tell(lucid_operator::review(&args, &mut stdout()).await)?,
            Command::Run(args) => lucid_operator::run(*args).await?,
            Command::Cainjector(args) => lucid_operator::cainjector(args).await?,
            Command::Certs(args) => lucid_operator::certs(&args, &mut stdout()).await?,
        }
        Ok(())
    })
    .await;
    said.map_or(end, ExitCode::from)
}
