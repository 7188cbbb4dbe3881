//! Entry point of `lucid-verifier`: command-line arguments and wiring. The library implements the commands.

use std::error::Error;
use std::fs;
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};
use lucid_shared::LogArgs;
use lucid_verifier::http::{self, Service};
use lucid_verifier::listing;
use lucid_verifier::registry::{Entry, ParseError};
use lucid_verifier::reload::{self, RegistryFile};
use lucid_verifier::tls::CertificateFiles;
use lucid_verifier::{Named, edit, store};
use lucid_webhook::Tls;
use lucid_webhook::TokenFile;

const POLL: Duration = Duration::from_secs(2);

/// A small notarization registry: tells which image digests are notarized, from a file.
///
/// It is meant for development and for air-gapped clusters: one file, no users, no history. Who can write the file decides
/// which images may run.
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
    /// It is meant for development and for air-gapped clusters: one file, no users. The file is read again when it
    /// changes; a broken version is logged and the last good one stays in force. SIGTERM or SIGINT ends the process.
    Serve(ServeArgs),

    /// Writes a digest into a registry file, which is made when there is none.
    ///
    /// A digest that is listed already gets the new image and note. The file is replaced in one step, and what else stands
    /// in it stays as it was written, comments too. Processes that serve the file notice.
    Notarize {
        #[command(flatten)]
        registry: RegistryArgs,

        /// The digest, or an image with its digest, which is written down as well.
        #[arg(value_name = "DIGEST|IMAGE@DIGEST")]
        named: Named,

        /// Why, or by whom; text for people.
        #[arg(long, value_name = "TEXT")]
        note: Option<String>,
    },

    /// Takes a digest out of a registry file.
    ///
    /// Pods that run already go on running. Validators may remember the answer of before for as long as they cache it.
    Revoke {
        #[command(flatten)]
        registry: RegistryArgs,

        /// The digest, or an image with its digest.
        #[arg(value_name = "DIGEST|IMAGE@DIGEST")]
        named: Named,
    },

    /// Prints what a registry file notarizes, in the order of digests.
    List {
        #[command(flatten)]
        registry: RegistryArgs,

        /// A table for people, or JSON, which is a registry file as well.
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
    /// The registry file: YAML with the key `notarized` and a list of digests, or of mappings with the keys digest,
    /// image and note.
    #[arg(long, value_name = "FILE")]
    registry: PathBuf,
}

#[derive(Debug, clap::Args)]
struct ServeArgs {
    #[command(flatten)]
    registry: RegistryArgs,

    /// The IP address and port to listen on. With port 0 the system picks a free one; the address is printed.
    #[arg(long, env = "LUCID_LISTEN", value_name = "ADDRESS", default_value = "0.0.0.0:8080")]
    #[arg(value_parser = lucid_shared::parse_address)]
    listen: SocketAddr,

    /// Speak TLS, with the certificate and its chain in this PEM file. It is read again when it changes; while it does
    /// not match the key, the last good pair stays in force.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,

    /// The certificate's private key, in PEM.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,

    /// Answer only who shows the token in this file, as `Authorization: Bearer TOKEN`. It is read again at each question.
    /// /healthz is open to all.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> ExitCode {
    let Args { command, log } = lucid_shared::parse();
    lucid_shared::end(async {
        lucid_shared::init_logging(&log)?;
        match command {
            Command::Serve(args) => serve(args).await,
            Command::Notarize { registry, named, note } => notarize(&registry, named, note),
            Command::Revoke { registry, named } => revoke(&registry, &named),
            Command::List { registry, output } => list(&registry, output),
        }
    })
    .await
}

async fn serve(args: ServeArgs) -> Result<(), Box<dyn Error>> {
    let shutdown = lucid_shared::shutdown_signal()?;
    let file = RegistryFile::open(args.registry.registry).await?;
    let token = args.token_file.map(TokenFile::open).transpose()?;
    let certificate = match (args.tls_cert, args.tls_key) {
        (Some(certificate), Some(key)) => Some(CertificateFiles::open(certificate, key).await?),
        _ => None,
    };
    let tls = certificate.as_ref().map(CertificateFiles::server_config).transpose()?;
    if token.is_some() && tls.is_none() {
        tracing::warn!("the token is sent unencrypted: set --tls-cert and --tls-key to enable TLS");
    }
    let server = http::bind(args.listen).await?;
    let scheme = if tls.is_some() { "https" } else { "http" };
    writeln!(lucid_shared::output(), "listening on {scheme}://{}", server.local_addr())?;

    let service = Service { registry: file.current(), token };
    tokio::spawn(file.follow(POLL));
    if let Some(certificate) = certificate {
        tokio::spawn(certificate.follow(POLL));
    }
    service.serve(server, tls.map_or_else(Tls::plain, Tls::from), shutdown).await;
    Ok(())
}

fn notarize(args: &RegistryArgs, named: Named, note: Option<String>) -> Result<(), Box<dyn Error>> {
    let Named { digest, image } = named;
    let entry = Entry { image, note };
    let mut said = "is already notarized";
    store::change(&args.registry, edit::EMPTY, |text| {
        let new = edit::notarize(text, &digest, &entry)?;
        said = if new.is_some() { "is notarized" } else { said };
        Ok::<_, ParseError>(new)
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
    store::change(&args.registry, edit::EMPTY, |text| {
        let new = edit::revoke(text, digest)?;
        is_listed = new.is_some();
        Ok::<_, ParseError>(new)
    })?;
    if !is_listed {
        // An error, because the digest may be misspelled and another one still be notarized.
        return Err(format!("{digest} is not notarized in {}", args.registry.display()).into());
    }
    writeln!(lucid_shared::output(), "{digest} is revoked")?;
    Ok(())
}

fn list(args: &RegistryArgs, output: Output) -> Result<(), Box<dyn Error>> {
    let registry = reload::load(&args.registry)?;
    let text = match output {
        Output::Table => listing::table(&registry),
        Output::Json => listing::json(&registry)?,
    };
    lucid_shared::output().write_all(text.as_bytes())?;
    Ok(())
}
