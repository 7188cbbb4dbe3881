//! `cargo xtask soak hostile`: attacks on the ports of the programs, with legitimate calls alongside.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use futures::future::try_join_all;
use lucid_certs::target::{ObjectTarget, TrustTarget};
use lucid_e2e::{ClusterExt as _, Error, Operator, Verifier};
use lucid_testbed::Cluster;
use reqwest::Url;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{self, AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_rustls::TlsConnector;

use super::call::{address, call, client, review, trusting};
use crate::process::{Usage, raise_descriptor_limit};
use crate::report::{Percentiles, Report, bytes};

#[derive(Args)]
pub(crate) struct Hostile {
    /// Duration of each attack on each port, in seconds.
    #[arg(long, default_value_t = 30)]
    seconds: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Attack {
    SlowHeaders,
    SlowBodies,
    Connections,
    RapidReset,
    Continuation,
    Ping,
    Heads,
    HeldAnswers,
}

/// A port, and the legitimate calls to it.
struct Target {
    name: &'static str,
    pid: u32,
    address: SocketAddr,
    tls: Option<ClientConfig>,
    url: Url,
    review: Option<String>,
}

pub(super) async fn run(hostile: &Hostile, report: &mut Report) -> Result<(), Error> {
    raise_descriptor_limit()?;
    let cluster = Cluster::builder().start().await?;
    cluster.create_namespace("lucid-system", &[]).await?;
    let operator = Operator::builder(&cluster).start().await?;
    let digest = format!("sha256:{}", "a".repeat(64));
    let verifier = Verifier::start(cluster.folder(), &[&digest]).await?;
    let targets = [
        webhooks(&cluster, &operator).await?,
        Target::plain("admin", operator.pid(), &operator.admin_url("/healthz"))?,
        Target::plain(
            "verifier",
            verifier.pid(),
            &format!("{}/registry/check?digest={digest}", verifier.url()),
        )?,
    ]
    .map(Arc::new);

    let (mut failures, mut idle) = (Vec::new(), 0);
    for attack in Attack::value_variants() {
        // Ports without TLS speak HTTP/1.1 only.
        for target in targets.iter().filter(|target| target.tls.is_some() || !attack.is_h2()) {
            let (opened, failed) = target.endure(*attack, hostile, report).await?;
            idle += usize::from(opened == 0);
            failures.extend(failed);
        }
    }
    report.require_none("no legitimate call fails", &failures);
    report.require("each attack opens connections", format!("{idle} did not"), idle == 0);
    Ok(())
}

async fn webhooks(cluster: &Cluster, operator: &Operator) -> Result<Target, Error> {
    let registered =
        ObjectTarget::mutating_webhooks(cluster.client(), "soak", "lucid-operator").read().await?;
    Ok(Target {
        tls: Some(trusting(&registered.bundle().ok_or("there is no caBundle")?)?),
        review: Some(review()),
        ..Target::plain("webhooks", operator.pid(), &format!("{}/mutate?timeout=10s", operator.url()))?
    })
}

impl Target {
    fn plain(name: &'static str, pid: Option<u32>, url: &str) -> Result<Self, Error> {
        let pid = pid.ok_or("the server does not run")?;
        Ok(Self { name, pid, address: address(url)?, tls: None, url: Url::parse(url)?, review: None })
    }

    /// Returns the number of connections that the attack opened, and the failures of legitimate calls.
    async fn endure(
        self: &Arc<Self>,
        attack: Attack,
        hostile: &Hostile,
        report: &mut Report,
    ) -> Result<(usize, Vec<String>), Error> {
        eprintln!("soak: {attack:?} on {}", self.name);
        let connections = match attack {
            Attack::Connections => 10_000,
            Attack::SlowHeaders => 1000,
            Attack::SlowBodies => 100,
            Attack::RapidReset | Attack::Continuation | Attack::Ping => 8,
            Attack::Heads => 15,
            Attack::HeldAnswers => 50,
        };
        let tls = self.tls.clone().map(|mut config| {
            config.alpn_protocols = vec![attack.protocol().to_vec()];
            TlsConnector::from(Arc::new(config))
        });
        Usage::reset_peak(self.pid)?;
        let opened = Arc::new(AtomicUsize::new(0));
        let mut attackers = JoinSet::new();
        for _ in 0..connections {
            let (target, tls, opened) = (Arc::clone(self), tls.clone(), Arc::clone(&opened));
            attackers.spawn(async move {
                loop {
                    // Each attack ends when the server closes the connection.
                    let _ = attack.once(&target, tls.as_ref(), &opened).await;
                    sleep(Duration::from_secs(1)).await;
                }
            });
        }
        let end = Instant::now() + Duration::from_secs(hostile.seconds);
        // Some callers keep their connection, others open one per call.
        let outcomes = try_join_all([1, 1, 0, 0].map(async |idle| {
            let client = client(self.tls.clone(), idle).build()?;
            let mut outcomes = Vec::new();
            while Instant::now() < end {
                let begin = Instant::now();
                let outcome = call(&client, self.url.clone(), self.review.as_deref()).await;
                let error = outcome.err().map(|error| snafu::Report::from_error(&*error).to_string());
                outcomes.push((begin.elapsed(), error));
                sleep(Duration::from_millis(20)).await;
            }
            Ok::<_, Error>(outcomes)
        }));
        let (durations, errors): (Vec<_>, Vec<_>) = outcomes.await?.concat().into_iter().unzip();
        let peak = Usage::of(self.pid)?.peak_memory;
        attackers.shutdown().await;
        let failures: Vec<_> = errors.into_iter().flatten().collect();
        let opened = opened.load(Ordering::Relaxed);
        let cells = [
            ("attack", format!("{attack:?}")),
            ("port", self.name.to_owned()),
            ("connections", opened.to_string()),
            ("calls", durations.len().to_string()),
            ("failed", failures.len().to_string()),
        ];
        let cells = cells.into_iter().chain(Percentiles::of(durations).cells());
        report.row(cells.chain([("peak memory", bytes(peak))]));
        Ok((opened, failures))
    }
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

impl Attack {
    fn is_h2(self) -> bool {
        self.protocol() == b"h2"
    }

    /// ALPN name of the protocol.
    fn protocol(self) -> &'static [u8] {
        match self {
            Self::SlowHeaders | Self::SlowBodies | Self::Connections => b"http/1.1",
            Self::RapidReset | Self::Continuation | Self::Ping | Self::Heads | Self::HeldAnswers => b"h2",
        }
    }

    /// Attacks on one connection until the server closes it.
    async fn once(self, target: &Target, tls: Option<&TlsConnector>, opened: &AtomicUsize) -> io::Result<()> {
        let stream = TcpStream::connect(target.address).await?;
        let stream: Box<dyn Stream> = match tls {
            Some(tls) if self != Self::Connections => {
                let stream = tls.connect(ServerName::from(target.address.ip()), stream).await?;
                if stream.get_ref().1.alpn_protocol() != Some(self.protocol()) {
                    return Err(io::ErrorKind::Unsupported.into());
                }
                Box::new(stream)
            }
            _ => Box::new(stream),
        };
        opened.fetch_add(1, Ordering::Relaxed);
        let (mut reading, mut writing) = io::split(stream);
        let mut responses = io::sink();
        tokio::select! {
            read = io::copy(&mut reading, &mut responses) => read.map(drop),
            sent = self.send(&mut writing, target) => sent,
        }
    }

    async fn send(self, stream: &mut (impl AsyncWrite + Unpin), target: &Target) -> io::Result<()> {
        const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
        /// `POST https://a/`, in HPACK.
        const HEADERS: &[u8] = &[0x83, 0x87, 0x84, 0x01, 0x01, b'a'];
        let head = format!("POST {} HTTP/1.1\r\nhost: a\r\n", target.url.path());
        let (first, pause, mut next): (Vec<u8>, _, Box<dyn FnMut() -> Vec<u8> + Send>) = match self {
            Self::Connections => return std::future::pending().await,
            Self::SlowHeaders => {
                (format!("{head}x-slow: ").into_bytes(), Duration::from_millis(500), Box::new(|| vec![b'a']))
            }
            Self::SlowBodies => (
                format!("{head}content-type: application/json\r\ncontent-length: 20971520\r\n\r\n")
                    .into_bytes(),
                Duration::from_millis(100),
                Box::new(|| vec![b' '; 13_000]),
            ),
            Self::RapidReset => {
                let mut stream = 1;
                let reset = move || {
                    let mut frames = Vec::new();
                    for _ in 0..100 {
                        frames.extend(frame(1, 5, stream, HEADERS));
                        frames.extend(frame(3, 0, stream, &8_u32.to_be_bytes()));
                        stream += 2;
                    }
                    frames
                };
                ([PREFACE, &frame(4, 0, 0, &[])].concat(), Duration::ZERO, Box::new(reset))
            }
            Self::Continuation => {
                let more = frame(9, 0, 1, &[0, 1, b'x', 1, b'y'].repeat(2000));
                let first = [PREFACE, &frame(4, 0, 0, &[]), &frame(1, 1, 1, HEADERS)].concat();
                (first, Duration::ZERO, Box::new(move || more.clone()))
            }
            Self::Ping => {
                let pings = frame(6, 0, 0, &[0; 8]).repeat(1000);
                let first = [PREFACE, &frame(4, 0, 0, &[])].concat();
                (first, Duration::ZERO, Box::new(move || pings.clone()))
            }
            Self::Heads => {
                // The first is above the server's header list limit, the second just below.
                let blocks = [1800, 450].map(|count| [HEADERS, &tiny_headers(count)].concat());
                let heads = (0..250).zip(blocks.iter().cycle());
                let heads = heads.flat_map(|(number, block)| frame(1, 4, 2 * number + 1, block));
                let first = [PREFACE.to_vec(), frame(4, 0, 0, &[]), heads.collect()].concat();
                (first, Duration::from_secs(1), Box::new(Vec::new))
            }
            Self::HeldAnswers => {
                // A zero window: the server cannot send a response on any stream.
                let no_window = frame(4, 0, 0, &[0, 4, 0, 0, 0, 0]);
                let path = [&[4][..], &text(target.url.path())].concat();
                let kind = [&[0][..], &text("content-type"), &text("application/json")].concat();
                let block = [&[0x83, 0x87, 1, 1, b'a'][..], &path, &kind].concat();
                let review = target.review.as_deref().unwrap_or_default();
                let reviews = (0..100).flat_map(|number| {
                    let stream = 2 * number + 1;
                    [frame(1, 4, stream, &block), frame(0, 1, stream, review.as_bytes())].concat()
                });
                let first = [PREFACE.to_vec(), no_window, reviews.collect()].concat();
                (first, Duration::from_secs(1), Box::new(Vec::new))
            }
        };
        stream.write_all(&first).await?;
        loop {
            stream.write_all(&next()).await?;
            stream.flush().await?;
            sleep(pause).await;
        }
    }
}

/// Encodes a text of less than 127 bytes in HPACK.
fn text(text: &str) -> Vec<u8> {
    [&[u8::try_from(text.len()).unwrap_or_default()][..], text.as_bytes()].concat()
}

/// Encodes headers in HPACK with two-letter names and empty values, five bytes each.
fn tiny_headers(count: usize) -> Vec<u8> {
    let names = (b'a'..=b'z').flat_map(|first| (b'a'..=b'z').map(move |second| [first, second]));
    // `te` has a meaning in HTTP/2.
    let names = names.filter(|name| name != b"te").cycle();
    names.take(count).flat_map(|[first, second]| [0, 2, first, second, 0]).collect()
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let [_, length @ ..] = u32::try_from(payload.len()).unwrap_or_default().to_be_bytes();
    [&length, &[kind, flags][..], &stream.to_be_bytes(), payload].concat()
}
