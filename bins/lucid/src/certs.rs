//! `lucid certs`: shows and rotates the operator's certificate authority.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use lucid_certs::source::SourceError;
use lucid_certs::{CaStatus, RotationRequest};

use crate::connection::ClusterArgs;
use crate::error::{Result, ResultExt};

/// Options of `lucid certs`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct CertsArgs {
    /// Secret with the certificate authority. lucid-validator uses lucid-validator-ca.
    #[arg(long, value_name = "NAME", default_value = "lucid-operator-ca", global = true)]
    #[arg(value_parser = lucid_shared::parse_object_name)]
    ca_secret: String,

    #[command(flatten)]
    cluster: ClusterArgs,

    #[command(subcommand)]
    command: Command,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum Command {
    /// Show the signing, upcoming and trusted certificate authorities.
    Status {
        /// Output format.
        #[arg(long, short, value_name = "FORMAT", default_value = "text")]
        output: Output,
    },
    /// Request a new certificate authority from the running replicas, and show the progress.
    ///
    /// No webhook call fails: the new authority signs once every target trusts it, and the old one stays trusted until
    /// its last certificate has expired.
    Rotate {
        /// Revoke the current authority and all earlier ones, for example because a key was disclosed. Trust in them
        /// ends within minutes. Calls to a replica that cannot reach the API server for that long fail until it
        /// reconnects.
        #[arg(long)]
        now: bool,

        /// Return without waiting for the new authority to sign.
        #[arg(long)]
        no_wait: bool,
    },
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Output {
    Text,
    Json,
}

pub(crate) async fn certs(args: &CertsArgs, out: &mut impl Write) -> Result<()> {
    let CertsArgs { cluster, ca_secret, command } = args;
    let (client, namespace) = (cluster.client().await?, &cluster.namespace);
    let status = || CaStatus::read(client.clone(), namespace, ca_secret);
    match command {
        Command::Status { output } => {
            let status = status().await?;
            match output {
                Output::Text => write!(out, "{status}"),
                Output::Json => serde_json::to_writer_pretty(&mut *out, &status)
                    .map_err(io::Error::from)
                    .and_then(|()| writeln!(out)),
            }
            .failed_to_print()
        }
        Command::Rotate { now, no_wait } => {
            let request = if *now { RotationRequest::Urgent } else { RotationRequest::Ordinary };
            let before = request.send(client.clone(), namespace, ca_secret).await?;
            announce(out, *now).failed_to_print()?;
            if *no_wait { Ok(()) } else { follow(out, before, status).await }
        }
    }
}

fn announce(out: &mut impl Write, now: bool) -> io::Result<()> {
    let text = if now {
        "Requested a new authority. Soon after it signs, the current and all earlier ones are no longer trusted: see \
         `lucid certs status`.\n\
         Calls to a replica that cannot reach the API server for that long fail until it reconnects."
    } else {
        "Requested a new authority. The current one stays trusted until its last certificate has expired; no call \
         fails."
    };
    writeln!(out, "{text}")
}

async fn follow<F>(out: &mut impl Write, mut before: CaStatus, status: impl Fn() -> F) -> Result<()>
where
    F: Future<Output = Result<CaStatus, SourceError>>,
{
    /// Timeout of the first step, which a replica makes as soon as it sees the request.
    const TIMEOUT: Duration = Duration::from_mins(2);
    /// Timeout of the second step, which waits for the operator's trust-settle period.
    const TRUST_TIMEOUT: Duration = Duration::from_mins(15);
    let old = before.signer();
    let mut since = Instant::now();
    loop {
        tokio::time::sleep(Duration::from_millis(250)).await;
        let status = status().await?;
        if status != before {
            since = Instant::now();
        }
        if status.signer() != old {
            return end(out, &status).failed_to_print();
        }
        if let Some(next) = status.next().filter(|_| before.next().is_none()) {
            writeln!(out, "{} signs once every target has trusted it for --trust-settle", next)
                .failed_to_print()?;
        }
        match status.next() {
            None if since.elapsed() > TIMEOUT => {
                return Err(format!(
                    "timed out after {TIMEOUT:?}: no replica handled the request. Check that lucid-operator runs with \
                     LUCID_CERTIFICATES=self-signed and this Secret. The request remains until a replica handles it"
                )
                .into());
            }
            Some(_) if since.elapsed() > TRUST_TIMEOUT => {
                return Err(format!(
                    "timed out after {TRUST_TIMEOUT:?}: the next authority does not sign yet. A target does not trust it \
                     (see the log of lucid-operator), or --trust-settle is longer. The rotation continues; see `lucid \
                     certs status`"
                )
                .into());
            }
            _ => before = status,
        }
    }
}

fn end(out: &mut impl Write, status: &CaStatus) -> io::Result<()> {
    writeln!(out, "{} signs now", status.signer())?;
    status.previous().try_for_each(|(previous, at)| writeln!(out, "{previous} is trusted until {at}"))
}
