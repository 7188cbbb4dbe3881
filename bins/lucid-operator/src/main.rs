//! The Lucid operator: serves and registers the webhooks that inject auditor chains into pods and validate them.

mod cainjector;

use std::process::ExitCode;

use cainjector::CainjectorArgs;
use clap::{Parser, Subcommand};
use lucid_shared::LogArgs;
use lucid_shared::options::OperatorArgs;
use lucid_shared::serving::run_operator;

/// A review is many small allocations: with glibc's allocator they take a quarter of the time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Injects ordered chains of auditor sidecars into pods and admits only notarized auditors.
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
    /// Serve the webhooks and register them with the API server.
    ///
    /// The API server is selected as in kubectl: by KUBECONFIG or ~/.kube/config, or in a cluster by the pod's service
    /// account.
    Run(Box<OperatorArgs>),

    /// Inject CAs into annotated webhook configurations, conversion webhooks, APIServices and ConfigMaps, in clusters
    /// without cert-manager.
    ///
    /// Lucid itself does not need this: `run` writes the CA of its own webhooks. The command refuses to start if
    /// cert-manager's cainjector is running.
    Cainjector(CainjectorArgs),
}

#[tokio::main]
async fn main() -> ExitCode {
    let Args { command, log } = lucid_shared::parse();
    lucid_shared::end(async {
        match command {
            Command::Run(args) => {
                let telemetry = lucid_shared::init_telemetry(&log, "lucid-operator")?;
                let done = run_operator(&args).await;
                telemetry.end().await;
                Ok(done?)
            }
            Command::Cainjector(args) => {
                lucid_shared::init_logging(&log)?;
                Ok(cainjector::cainjector(args).await?)
            }
        }
    })
    .await
}
