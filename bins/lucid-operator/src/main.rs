//! The Lucid operator.

use std::error::Error;
use std::io::stderr;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use lucid_operator::{
    CainjectorArgs, CertsArgs, CheckArgs, CheckError, ConnectionArgs, ExplainArgs, InjectArgs, ManifestsArgs,
    Name, OfflineError, Plugin, PluginCommand, ReviewArgs, RunArgs, UninjectArgs, UninstallArgs,
};
use lucid_process::{LogArgs, ManualCommand};

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
    /// Look whether Lucid works in the cluster, and which pods are not audited as they should be, and why.
    ///
    /// Nothing is changed. The exit status is 0 when nothing failed, 1 when something did, and 2 when the cluster cannot
    /// be reached.
    Check(Box<CheckArgs>),

    /// Print everything to install, for kubectl apply.
    Manifests(Box<ManifestsArgs>),

    /// Remove what Lucid has registered and made, in the order that keeps nobody waiting.
    ///
    /// The exit status is 0 when it is gone, 1 when something stays, and 2 when nothing was tried.
    Uninstall(UninstallArgs),

    #[command(flatten)]
    Manual(ManualCommand),
}

/// Exit status of `kubectl lucid audit` for a faulty log, as in `lucid audit`.
const FAULTY: u8 = 3;

#[tokio::main]
async fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().collect();
    match Name::of(arguments.first()) {
        Name::Operator => {
            let Args { command, log } = lucid_process::parse();
            let service = matches!(command, Command::Run(_)).then_some("lucid-operator");
            end(&log, service, run(command)).await
        }
        Name::Plugin => {
            let plugin: Plugin = lucid_process::parse();
            let log = plugin.log.clone();
            end(&log, None, run_plugin(plugin)).await
        }
        Name::Completion => {
            let completed = lucid_operator::complete(arguments, &mut lucid_process::output());
            lucid_process::end(async { Ok(completed?) }).await
        }
    }
}

/// Runs `work` and maps errors to exit status 1. `service` is the name in traces; without one, only logging is set up.
async fn end(
    log: &LogArgs,
    service: Option<&'static str>,
    work: impl Future<Output = Result<ExitCode, Box<dyn Error>>>,
) -> ExitCode {
    let mut status = ExitCode::SUCCESS;
    let end = lucid_process::end(async {
        let Some(service) = service else {
            lucid_process::init_logging(log)?;
            status = work.await?;
            return Ok(());
        };
        let telemetry = lucid_process::init_telemetry(log, service)?;
        let done = work.await;
        telemetry.end().await;
        status = done?;
        Ok(())
    });
    let end = end.await;
    if end == ExitCode::SUCCESS { status } else { end }
}

async fn run_plugin(mut plugin: Plugin) -> Result<ExitCode, Box<dyn Error>> {
    if let Err(error) = plugin.settle_namespace() {
        return Ok(not_tried(&error));
    }
    let (out, err) = (&mut lucid_process::output(), &mut stderr());
    match plugin.command {
        PluginCommand::Check(args) => {
            Ok(checked(lucid_operator::check(&args, &plugin.connection, out).await))
        }
        PluginCommand::Explain(args) => offline(lucid_operator::explain(&args, out, err)),
        PluginCommand::Inject(args) => offline(lucid_operator::inject(&args, out, err)),
        PluginCommand::Audit(args) => {
            let is_good = lucid_validator::audit(*args, out).await?;
            Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::from(FAULTY) })
        }
        PluginCommand::Manual(manual) => {
            manual.run::<Plugin>(out)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

async fn run(command: Command) -> Result<ExitCode, Box<dyn Error>> {
    let (out, err) = (&mut lucid_process::output(), &mut stderr());
    match command {
        Command::Run(args) => lucid_operator::run(*args).await?,
        Command::Cainjector(args) => lucid_operator::cainjector(args).await?,
        Command::Certs(args) => lucid_operator::certs(&args, out).await?,
        Command::Manifests(args) => lucid_operator::manifests(&args, out)?,
        Command::Manual(manual) => manual.run::<Args>(out)?,
        Command::Inject(args) => return offline(lucid_operator::inject(&args, out, err)),
        Command::Uninject(args) => return offline(lucid_operator::uninject(&args, out, err)),
        Command::Explain(args) => return offline(lucid_operator::explain(&args, out, err)),
        Command::Review(args) => return offline(lucid_operator::review(&args, out).await),
        Command::Check(args) => {
            return Ok(checked(lucid_operator::check(&args, &ConnectionArgs::default(), out).await));
        }
        Command::Uninstall(args) => {
            return match lucid_operator::uninstall(&args, out).await {
                Ok(is_gone) => Ok(status(is_gone)),
                Err(error) if error.is_usage() => Ok(not_tried(&error)),
                Err(error) => Err(error.into()),
            };
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Maps success to exit status 0, and a failed check or refused document to 1.
fn status(good: bool) -> ExitCode {
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn checked(outcome: Result<bool, CheckError>) -> ExitCode {
    outcome.map_or_else(|error| not_tried(&error), status)
}

fn offline(outcome: Result<bool, OfflineError>) -> Result<ExitCode, Box<dyn Error>> {
    match outcome {
        Ok(is_good) => Ok(status(is_good)),
        Err(error) if error.is_usage() => Ok(not_tried(&error)),
        Err(error) => Err(error.into()),
    }
}

/// Reports `error` and returns exit status 2, as clap does for usage errors.
fn not_tried(error: &dyn Error) -> ExitCode {
    lucid_process::complain(error);
    ExitCode::from(2)
}
