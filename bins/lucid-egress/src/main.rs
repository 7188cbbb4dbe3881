//! The last hop of chains that audit outbound traffic.
//!
//! Network rules redirect calls that leave the pod to the *intake*. It stores the original destination of the connection and
//! forwards the call to the first auditor, with a token of it in a header. The last auditor forwards to the *exit*,
//! which sends the call to the stored destination. A call without a valid header is refused. Calls to the first auditor's
//! own address, `AUDITOR_URL`, are redirected to the intake as well and go to the upstream.
//!
//! [`original`] finds the destination of a connection, [`routes`] stores them, [`forward`] sends requests, and [`proxy`]
//! connects them. [`outside`] refuses hosts that are the pod itself. [`serve`](mod@serve) has the listeners.

mod activity;
mod forward;
mod original;
mod outside;
mod proxy;
mod routes;
mod serve;
mod target;

use std::{error::Error, process::ExitCode, sync::Arc};

use clap::Parser;
use lucid_chain::{Egress, keys};
use lucid_shared::LogArgs;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use forward::Forward;
use proxy::Proxy;
use serve::{listen, serve};

/// Ends the auditor chain of outbound traffic: forwards each call to the host that the application meant, or to the
/// upstream.
///
/// The operator adds it to pods that audit outbound traffic, and writes LUCID_EGRESS. After SIGTERM and
/// SIGINT it accepts calls for 10 s, unless it is a native sidecar, and answers those in progress.
#[derive(Debug, Parser)]
#[command(name = "lucid-egress", version)]
struct Args {
    /// Ports and destinations, in JSON.
    #[arg(long, env = keys::EGRESS_ENV, value_name = "JSON")]
    settings: String,

    /// CA certificates that the upstream is verified with, in PEM, instead of those of the system.
    #[arg(long, env = "LUCID_UPSTREAM_CA", value_name = "PEM")]
    upstream_ca: Option<String>,

    #[command(flatten)]
    log: LogArgs,
}

fn main() -> ExitCode {
    match run(&lucid_shared::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            lucid_shared::complain(&*error);
            ExitCode::FAILURE
        }
    }
}

#[tokio::main]
async fn run(args: &Args) -> Result<(), Box<dyn Error>> {
    lucid_shared::init_logging(&args.log)?;
    let settings = Egress::from_json(&args.settings)
        .map_err(|error| format!("failed to read {}: {error}", keys::EGRESS_ENV))?;
    raise_descriptor_limit();
    let shutdown = lucid_shared::shutdown_signal()?;
    let forward = Forward::new(args.upstream_ca.as_deref())?;
    let exit = listen(settings.exit).await?;
    let intake = match settings.intake {
        Some(port) => Some(listen(port).await?),
        None => None,
    };
    let upstream = settings.upstream.as_ref().map(ToString::to_string);
    tracing::info!(exit = settings.exit, intake = settings.intake, upstream, "ready");
    let proxy = Proxy::new(settings, forward)?;
    serve(intake, exit, Arc::new(proxy), shutdown).await;
    Ok(())
}

/// Raises the soft limit of file descriptors, often 1024, to the hard one: each connection causes others.
fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }) {
        tracing::warn!(%error, "failed to raise the limit of file descriptors");
    }
}
