//! A small notarization registry that serves the digests listed in a file.
//!
//! It implements the Verifier's protocol (`GET /registry/check?digest=sha256:…`) for development and for air-gapped
//! clusters without their own registry. It has no users: write access to the file decides which images are notarized. A
//! log can keep its history.
//!
//! [`registry`] is the file format, [`edit`] edits its text, and [`file`](mod@file) reads and replaces the file.
//! [`conformance`] reads reports of tests. [`reload`] reloads the registry when its file changes, [`tls`] the serving certificate. [`http`] has the endpoints, and
//! [`log`](mod@log) their proofs.

mod conformance;
mod edit;
mod file;
mod http;
mod listing;
mod log;
mod named;
mod registry;
mod reload;
mod tls;

use std::error::Error;
use std::fs;
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};
use log::RegistryLog;
use lucid_shared::LogArgs;
use lucid_webhook::{Tls, TokenFile};

use conformance::Conformance;
use http::Service;
use named::Named;
use registry::Entry;
use reload::RegistryFile;
use tls::CertificateFiles;

const POLL: Duration = Duration::from_secs(2);

/// A small notarization registry, which serves the image digests listed in a file.
///
/// It is meant for development and for air-gapped clusters: one file, no users. Write access to the file determines which
/// images may run. With `serve --log`, a sealed log keeps its history.
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
    /// Serve GET /registry/check?digest=sha256:... from a registry file.
    ///
    /// The file is reloaded when it changes. Invalid versions are logged, and the last valid one stays in force.
    Serve(ServeArgs),

    /// Add a digest to a registry file. Creates the file if it is missing.
    ///
    /// The image, note and report of a listed digest are replaced. The file is replaced atomically, and keeps its comments at the
    /// top. Processes that serve it reload it.
    Notarize {
        #[command(flatten)]
        registry: RegistryArgs,

        /// Digest, or image with a digest, which is recorded as well.
        #[arg(value_name = "DIGEST|IMAGE@DIGEST")]
        named: Named,

        /// Free text, such as the reason or the reviewer.
        #[arg(long, value_name = "TEXT")]
        note: Option<String>,

        /// Report of `lucid auditor test -o json` with this image. Its counts and the names of failed checks are recorded;
        /// failed checks cause a warning.
        #[arg(long, value_name = "FILE")]
        conformance: Option<PathBuf>,
    },

    /// Remove a digest from a registry file.
    ///
    /// Running pods are not affected. Validators may use cached responses until they expire.
    Revoke {
        #[command(flatten)]
        registry: RegistryArgs,

        /// Digest, or image with a digest.
        #[arg(value_name = "DIGEST|IMAGE@DIGEST")]
        named: Named,
    },

    /// List the digests in a registry file, in order.
    List {
        #[command(flatten)]
        registry: RegistryArgs,

        /// Format of the output. JSON is a valid registry file.
        #[arg(long, short, value_name = "FORMAT", default_value = "table")]
        output: Output,
    },
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Output {
    Table,
    Json,
}

#[derive(Debug, clap::Args)]
struct RegistryArgs {
    /// Registry file: YAML with the key `notarized` and a list of digests, or of mappings with the keys digest, image,
    /// note and conformance.
    #[arg(long, value_name = "FILE")]
    registry: PathBuf,
}

#[derive(Debug, clap::Args)]
struct ServeArgs {
    #[command(flatten)]
    registry: RegistryArgs,

    /// IP address and port to listen on. Port 0 selects a free port. The address is printed.
    #[arg(long, env = "LUCID_LISTEN", value_name = "ADDRESS", default_value = "0.0.0.0:8080")]
    #[arg(value_parser = lucid_shared::parse_address)]
    listen: SocketAddr,

    /// PEM file with the certificate chain. Enables TLS. Reloaded when it changes; while it does not match the key, the last
    /// valid pair stays in force.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,

    /// PEM file with the private key of the certificate.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,

    /// File with the token that clients must send as `Authorization: Bearer TOKEN`. Read for each request. /healthz needs no
    /// token.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,

    /// Directory of a log, created if missing, of what is notarized and revoked. Responses with proof=true prove that it
    /// is logged. Only one process may write a log. By default nothing is logged.
    #[arg(long, value_name = "DIRECTORY")]
    log: Option<PathBuf>,

    /// File with the signing key that seals the log, as generated by `lucid audit key`. By default a key is generated on
    /// the first start and kept in the log's directory, as `key`.
    #[arg(long, value_name = "FILE", requires = "log")]
    log_key: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> ExitCode {
    let Args { command, log } = lucid_shared::parse();
    lucid_shared::end(async {
        lucid_shared::init_logging(&log)?;
        match command {
            Command::Serve(args) => serve(args).await,
            Command::Notarize { registry, named, note, conformance } => {
                notarize(&registry, named, note, conformance.as_deref())
            }
            Command::Revoke { registry, named } => revoke(&registry, &named),
            Command::List { registry, output } => list(&registry, output),
        }
    })
    .await
}

async fn serve(args: ServeArgs) -> Result<(), Box<dyn Error>> {
    let shutdown = lucid_shared::shutdown_signal()?;
    let mut file = RegistryFile::open(args.registry.registry)?;
    let token = args.token_file.map(TokenFile::open).transpose()?;
    let certificate = match (args.tls_cert, args.tls_key) {
        (Some(certificate), Some(key)) => Some(CertificateFiles::open(certificate, key)?),
        _ => None,
    };
    let tls = certificate.as_ref().map(CertificateFiles::server_config).transpose()?;
    if token.is_some() && tls.is_none() {
        tracing::warn!("the token is sent unencrypted: set --tls-cert and --tls-key to enable TLS");
    }
    let log = match &args.log {
        Some(directory) => Some(Arc::new(RegistryLog::open(directory, args.log_key.as_deref())?)),
        None => None,
    };
    if let Some(log) = &log {
        log.update(&file.current().load()).await?;
        file = file.with_log(Arc::clone(log));
    }
    let server = http::bind(args.listen).await?;
    let scheme = if tls.is_some() { "https" } else { "http" };
    writeln!(lucid_shared::output(), "listening on {scheme}://{}", server.local_addr())?;

    let service = Service { registry: file.current(), token, log };
    tokio::spawn(file.follow(POLL));
    if let Some(certificate) = certificate {
        tokio::spawn(certificate.follow(POLL));
    }
    service.serve(server, tls.map_or_else(Tls::plain, Tls::from), shutdown).await;
    Ok(())
}

fn notarize(
    args: &RegistryArgs,
    named: Named,
    note: Option<String>,
    report: Option<&Path>,
) -> Result<(), Box<dyn Error>> {
    let Named { digest, image } = named;
    let conformance = report.map(Conformance::read).transpose()?;
    if let Some(Conformance { failed, .. }) = conformance.as_ref().filter(|it| !it.failed.is_empty()) {
        tracing::warn!("{digest} is notarized although checks failed: {}", failed.join(", "));
    }
    let entry = Entry { image, note, conformance };
    let mut said = "is already notarized";
    file::change(&args.registry, |text| {
        let new = edit::notarize(text, &digest, &entry)?;
        said = if new.is_some() { "is notarized" } else { said };
        Ok(new)
    })?;
    writeln!(lucid_shared::output(), "{digest} {said}")?;
    Ok(())
}

fn revoke(args: &RegistryArgs, named: &Named) -> Result<(), Box<dyn Error>> {
    let digest = &named.digest;
    // A missing file must not be created just to lack the digest.
    fs::metadata(&args.registry)
        .map_err(|error| format!("failed to read {}: {error}", args.registry.display()))?;
    let mut is_listed = false;
    file::change(&args.registry, |text| {
        let new = edit::revoke(text, digest)?;
        is_listed = new.is_some();
        Ok(new)
    })?;
    if !is_listed {
        // An error, because the digest may be misspelled and another one still be notarized.
        return Err(format!("{digest} is not notarized in {}", args.registry.display()).into());
    }
    writeln!(lucid_shared::output(), "{digest} is revoked")?;
    Ok(())
}

fn list(args: &RegistryArgs, output: Output) -> Result<(), Box<dyn Error>> {
    let registry = file::load(&args.registry)?;
    let text = match output {
        Output::Table => listing::table(&registry),
        Output::Json => serde_json::to_string_pretty(&registry)? + "\n",
    };
    lucid_shared::output().write_all(text.as_bytes())?;
    Ok(())
}
