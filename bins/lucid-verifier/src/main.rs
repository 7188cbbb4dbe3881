//! `lucid-verifier`: arguments and wiring; what it does is in the library.

use std::error::Error;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use lucid_process::LogArgs;
use lucid_verifier::http;
use lucid_verifier::reload::RegistryFile;

const POLL: Duration = Duration::from_secs(2);

/// A small notarization registry: tells which image digests are notarized, from a file.
///
/// It is meant for development and for air-gapped clusters: plain HTTP, no users, one file. Who can write the file
/// decides which images may run.
#[derive(Debug, Parser)]
#[command(name = "lucid-verifier", version)]
struct Args {
    #[command(subcommand)]
    command: Command,

    #[command(flatten)]
    log: LogArgs,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Answers GET /registry/check?digest=sha256:... from a registry file.
    ///
    /// It is meant for development and for air-gapped clusters: plain HTTP, no users, one file. The file is read
    /// again when it changes; a broken version is logged and the last good one stays in force. SIGTERM or SIGINT
    /// ends the process.
    Serve(ServeArgs),
}

#[derive(Debug, clap::Args)]
struct ServeArgs {
    /// The registry file: YAML with the key `notarized` and a list of digests, or of mappings with the keys digest,
    /// image and note.
    #[arg(long, env = "LUCID_VERIFIER_REGISTRY", value_name = "FILE")]
    registry: PathBuf,

    /// The IP address and port to listen on. With port 0 the system picks a free one; the address is printed.
    #[arg(long, env = "LUCID_VERIFIER_LISTEN", value_name = "ADDRESS", default_value = "0.0.0.0:8080")]
    #[arg(value_parser = lucid_process::parse_address)]
    listen: SocketAddr,
}

#[tokio::main]
async fn main() -> ExitCode {
    let Args { command: Command::Serve(args), log } = lucid_process::parse();
    lucid_process::end(async {
        lucid_process::init_logging(&log)?;
        serve(args).await
    })
    .await
}

async fn serve(ServeArgs { registry, listen }: ServeArgs) -> Result<(), Box<dyn Error>> {
    let shutdown = lucid_process::shutdown_signal()?;
    let file = RegistryFile::open(registry).await?;
    let listener = http::bind(listen).await?;
    writeln!(io::stdout(), "listening on http://{}", listener.local_addr()?)?;

    let registry = file.current();
    tokio::spawn(file.follow(POLL));
    http::serve(listener, registry, shutdown).await;
    Ok(())
}
