//! `cargo xtask soak swaps`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use clap::Args;
use lucid_certs::source::{CertificateSource, Files, Live, Watching};
use lucid_certs::{Fingerprint, ServingCertificateResolver};
use lucid_e2e::Error;
use lucid_testbed::AtomicWriter;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use serde::Serialize;
use tokio::io;
use tokio::sync::watch;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{sleep, timeout};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::Latency;
use crate::old_report::{Goal, Output, Report, Row};

#[derive(Args)]
pub(crate) struct Swaps {
    /// Total number of swaps.
    #[arg(long, default_value_t = 1000)]
    count: usize,
    /// Disable file system events.
    #[arg(long)]
    poll: bool,
    /// Interval between two reads of the files in milliseconds; the default of the library if omitted.
    #[arg(long)]
    interval: Option<u64>,
    /// Number of volumes that are swapped side by side, each with its own server: 4 by default, 50 with --poll.
    #[arg(long)]
    volumes: Option<usize>,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
    #[arg(skip)]
    is_quick: bool,
}

impl Swaps {
    /// Takes some seconds.
    pub(super) const QUICK: [Self; 2] = [Self::quick(false, None), Self::quick(true, Some(100))];

    const fn quick(poll: bool, interval: Option<u64>) -> Self {
        Self { count: 100, poll, interval, volumes: None, output: Output::Table, is_quick: true }
    }
}

/// Server name of the servers.
const NAME: &str = "soak.lucid-system.svc";

/// Number of certificate pairs: consecutive swaps differ, and a pair returns after this many swaps.
const PAIRS: usize = 16;

/// Time after which an unserved swap counts as missed.
const AT_LATEST: Duration = Duration::from_secs(60);

#[derive(Serialize)]
struct Figures {
    noticed: &'static str,
    volumes: usize,
    swaps: usize,
    missed: usize,
    /// Rejected offers: a file was missing, or key, certificate and bundle did not match.
    refused: usize,
    handshakes: usize,
    /// Handshakes that failed or presented a certificate other than the one in the volume.
    mismatched: usize,
    /// Time from a swap until a new handshake presents its certificate.
    seen_ms: Latency,
}

impl Row for Figures {
    const HEADER: &'static [&'static str] = &[
        "noticed by",
        "volumes",
        "swaps",
        "missed",
        "readings\nrefused",
        "handshakes",
        "mismatched",
        "served after\np50 / p99 / max",
    ];

    fn cells(&self) -> Vec<String> {
        vec![
            self.noticed.to_owned(),
            self.volumes.to_string(),
            self.swaps.to_string(),
            self.missed.to_string(),
            self.refused.to_string(),
            self.handshakes.to_string(),
            self.mismatched.to_string(),
            self.seen_ms.cell(),
        ]
    }
}

pub(super) fn run(swaps: &Swaps) -> Result<(), Error> {
    let mut report = Report::new(super::versions()?)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let figures = runtime.block_on(measure(swaps))?;
    report.goals = goals(&figures, swaps.poll);
    report.rows.push(figures);
    super::finish(&report, swaps.output, swaps.is_quick)
}

fn goals(figures: &Figures, poll: bool) -> Vec<Goal> {
    let slowest = figures.seen_ms.max / 1000.0;
    let (goal, seconds) =
        if poll { ("served within 10 s by poll alone", 10.0) } else { ("served within 1 s", 1.0) };
    vec![
        Goal { goal: "no swap missed", found: figures.missed.to_string(), reached: figures.missed == 0 },
        Goal {
            goal: "no mismatched pair served",
            found: figures.mismatched.to_string(),
            reached: figures.mismatched == 0,
        },
        Goal {
            goal: "no version read in parts",
            found: figures.refused.to_string(),
            reached: figures.refused == 0,
        },
        Goal { goal, found: format!("{slowest:.2} s"), reached: slowest <= seconds },
    ]
}

async fn measure(swaps: &Swaps) -> Result<Figures, Error> {
    let volumes = swaps.volumes.unwrap_or(if swaps.poll { 50 } else { 4 }).clamp(1, swaps.count.max(1));
    let watching = if swaps.poll { Watching::by_poll_alone() } else { Watching::default() };
    let watching = swaps.interval.map_or(watching, |ms| watching.with_poll(Duration::from_millis(ms)));
    let authority = Arc::new(Authority::new()?);

    let mut tasks = JoinSet::new();
    for volume in 0..volumes {
        let count = swaps.count / volumes + usize::from(volume < swaps.count % volumes);
        let authority = Arc::clone(&authority);
        tasks.spawn(
            async move { follow(&authority, count, watching).await.map_err(|error| error.to_string()) },
        );
    }
    let mut all = Outcome::default();
    while let Some(outcome) = tasks.join_next().await {
        let Outcome { seen, missed, refused, mismatched } = outcome??;
        all.seen.extend(seen);
        all.missed += missed;
        all.refused += refused;
        all.mismatched += mismatched;
    }
    Ok(Figures {
        noticed: if swaps.poll { "poll alone" } else { "events" },
        volumes,
        swaps: swaps.count,
        missed: all.missed,
        refused: all.refused,
        handshakes: all.seen.len(),
        mismatched: all.mismatched,
        seen_ms: Latency::of(all.seen),
    })
}

#[derive(Default)]
struct Outcome {
    seen: Vec<Duration>,
    missed: usize,
    refused: usize,
    mismatched: usize,
}

/// Certificates for successive volumes, and the client that trusts them.
struct Authority {
    pairs: Vec<(Fingerprint, BTreeMap<String, Vec<u8>>)>,
    client: TlsConnector,
}

impl Authority {
    fn new() -> Result<Self, Error> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key)?;
        let issuer = Issuer::from_params(&params, &key);
        let pair = || -> Result<_, Error> {
            let key = KeyPair::generate()?;
            let leaf = CertificateParams::new([NAME.to_owned()])?.signed_by(&key, &issuer)?;
            let files =
                [("tls.crt", leaf.pem()), ("tls.key", key.serialize_pem()), ("ca.crt", certificate.pem())];
            let files = files.map(|(name, text)| (name.to_owned(), text.into_bytes()));
            Ok((Fingerprint::of(leaf.der()), files.into()))
        };
        let mut roots = RootCertStore::empty();
        roots.add(certificate.der().clone())?;
        let client = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self {
            pairs: (0..PAIRS).map(|_| pair()).collect::<Result<_, _>>()?,
            client: Arc::new(client).into(),
        })
    }
}

/// Swaps one volume `count` times, each time after the previous version was served.
async fn follow(authority: &Authority, count: usize, watching: Watching) -> Result<Outcome, Error> {
    let folder = tempfile::tempdir()?;
    let volume = Arc::new(AtomicWriter::new(folder.path()));
    let swap = |index: usize| {
        let (fingerprint, files) = authority.pairs[index % PAIRS].clone();
        let volume = Arc::clone(&volume);
        let written = spawn_blocking(move || volume.write(&files));
        async move { written.await?.map(|()| fingerprint).map_err(Error::from) }
    };
    swap(0).await?;

    let mut source = Files::cert_manager(folder.path()).with_watching(watching);
    let ask = async |source: &mut Files| -> Result<_, Error> {
        let offer = source.offer(&Live::default(), SystemTime::now()).await?;
        offer.certificate.ok_or_else(|| "no certificate was offered".into())
    };
    let first = ask(&mut source).await?;
    let resolver = Arc::new(ServingCertificateResolver::new(&first));
    let (served, mut in_service) = watch::channel((first.fingerprint(), Instant::now()));
    let (refusals, refused) = watch::channel(0);
    let server = TlsAcceptor::from(Arc::new(
        ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(Arc::<ServingCertificateResolver>::clone(&resolver)),
    ));
    let driver = tokio::spawn(async move {
        loop {
            source.changed().await;
            match ask(&mut source).await {
                Ok(certificate) => {
                    resolver.swap(&certificate);
                    served.send_replace((certificate.fingerprint(), Instant::now()));
                }
                _ => refusals.send_modify(|count| *count += 1),
            }
        }
    });

    let mut outcome = Outcome::default();
    for index in 1..=count {
        let begin = Instant::now();
        let expected = swap(index).await?;
        let is_seen = in_service.wait_for(|(fingerprint, _)| *fingerprint == expected);
        match timeout(AT_LATEST, is_seen).await {
            Ok(seen) => outcome.seen.push(seen?.1.duration_since(begin)),
            Err(_) => {
                outcome.missed += 1;
                continue;
            }
        }
        if shown(&authority.client, &server).await.ok() != Some(expected) {
            outcome.mismatched += 1;
        }
        // Varies, to stay out of step with work that follows a swap.
        sleep(Duration::from_millis(index as u64 * 7 % 20)).await;
    }
    driver.abort();
    outcome.refused = *refused.borrow();
    Ok(outcome)
}

/// Returns the certificate presented on a new connection, after its key was verified.
async fn shown(client: &TlsConnector, server: &TlsAcceptor) -> Result<Fingerprint, Error> {
    let (near, far) = io::duplex(1 << 16);
    let accepted = server.accept(far);
    let connected = client.connect(ServerName::try_from(NAME)?, near);
    let (connection, _accepted) = tokio::try_join!(connected, accepted)?;
    let chain: &[CertificateDer<'_>] = connection.get_ref().1.peer_certificates().unwrap_or_default();
    Ok(Fingerprint::of(chain.first().ok_or("no certificate was shown")?))
}
