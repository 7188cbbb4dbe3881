//! Calls an admission webhook as kube-apiserver does and prints what it saw as JSON. `cargo xtask bench` starts it.

mod connection;
mod engine;
mod record;
mod review;

use std::error::Error;
use std::io::{BufRead, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use clap::{ArgAction, Args, Parser, Subcommand};
use rustls::crypto::aws_lc_rs::{self, cipher_suite, kx_group};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};

use crate::connection::Expected;
use crate::engine::Engine;
use crate::record::Record;
use crate::review::Request;

#[derive(Parser)]
struct Program {
    #[command(flatten)]
    target: Target,
    #[command(subcommand)]
    load: Load,
}

#[derive(Args)]
struct Target {
    /// Addresses of the server; new connections take them in turn.
    #[arg(long, required = true)]
    endpoint: Vec<SocketAddr>,
    /// The server's certificate, PEM.
    #[arg(long)]
    ca: PathBuf,
    /// The name that the server's certificate has to be for.
    #[arg(long, default_value = "localhost")]
    name: String,
    /// Path of the webhook.
    #[arg(long)]
    path: String,
    /// Bytes of the AdmissionReview.
    #[arg(long)]
    body: usize,
    /// Image of an auditor that the pod has besides its containers.
    #[arg(long)]
    auditor: Option<String>,
    /// Expect the uid of the request in its answer.
    #[arg(long, default_value_t = true, action = ArgAction::Set)]
    check_uid: bool,
    /// Expected verdict.
    #[arg(long, default_value_t = true, action = ArgAction::Set)]
    allowed: bool,
    /// Processes whose CPU time counts as the server's.
    #[arg(long)]
    server: Vec<u32>,
}

#[derive(Subcommand)]
enum Load {
    /// Closed loop: each of some connections always has a request on its way.
    Saturate {
        #[arg(long)]
        connections: usize,
        #[command(flatten)]
        time: Time,
    },
    /// Open loop: requests at fixed times, however long the answers take.
    Schedule {
        /// Requests per second.
        #[arg(long)]
        rate: f64,
        #[command(flatten)]
        time: Time,
    },
    /// As `schedule`, until standard input says `end`; `endpoints ADDRESS...` there says where new connections go.
    Follow {
        /// Requests per second.
        #[arg(long)]
        rate: f64,
    },
    /// Opens connections, says `connected`, waits for a line, sends one request on each, says `sent`, and waits for the
    /// answers.
    Hold {
        #[arg(long)]
        connections: usize,
    },
}

#[derive(Args)]
struct Time {
    /// Seconds before anything counts.
    #[arg(long, default_value_t = 1.0)]
    warm_up: f64,
    /// Seconds that count.
    #[arg(long)]
    seconds: f64,
}

type Outcome = Result<(), Box<dyn Error>>;

fn main() -> Outcome {
    let Program { target, load } = Program::parse();
    let request = Request::new(&target.path, "webhook.shop.svc:443", target.body, target.auditor.as_deref())
        .ok_or("the review that was made has no uid")?;
    let record = Record::new(target.server)?;
    let (tls, name) = (tls(&target.ca)?, ServerName::try_from(target.name)?);
    let expected = Expected { allowed: target.allowed, uid: target.check_uid };
    let mut engine = Engine::new(tls, name, target.endpoint, request, expected, record)?;
    match load {
        Load::Saturate { connections, time } => saturate(&mut engine, connections, &time)?,
        Load::Schedule { rate, time } => {
            let begin = Instant::now();
            let open = begin + Duration::from_secs_f64(time.warm_up);
            let close = open + Duration::from_secs_f64(time.seconds);
            schedule(&mut engine, rate, Some(open), |_| Ok(Instant::now() >= close))?;
        }
        Load::Follow { rate } => {
            let orders = orders();
            schedule(&mut engine, rate, None, |engine| follow(engine, &orders))?;
        }
        Load::Hold { connections } => hold(&mut engine, connections)?,
    }
    let summary = engine.record.summary().ok_or("nothing was measured")?;
    println!("{}", serde_json::to_string(&summary)?);
    Ok(())
}

fn saturate(engine: &mut Engine, connections: usize, time: &Time) -> Outcome {
    engine.connect(connections)?;
    let open = Instant::now() + Duration::from_secs_f64(time.warm_up);
    let close = open + Duration::from_secs_f64(time.seconds);
    let mut opened = false;
    engine.ended = connections;
    loop {
        let now = Instant::now();
        if now >= close {
            break;
        }
        if !opened && now >= open {
            engine.record.open_window(now)?;
            opened = true;
        }
        for _ in 0..std::mem::take(&mut engine.ended) {
            engine.call(now);
        }
        engine.turn();
    }
    engine.record.close_window(Instant::now())?;
    finish(engine);
    Ok(())
}

/// Makes calls at a fixed rate until `done` says so. What is late is not left out: it is made as soon as possible, and
/// its latency counts from when it was due.
fn schedule(
    engine: &mut Engine,
    rate: f64,
    open: Option<Instant>,
    mut done: impl FnMut(&mut Engine) -> Result<bool, Box<dyn Error>>,
) -> Outcome {
    engine.connect(25)?;
    let begin = Instant::now();
    let open = open.unwrap_or(begin);
    let mut opened = false;
    let mut made = 0;
    while !done(engine)? {
        let now = Instant::now();
        if !opened && now >= open {
            engine.record.open_window(now)?;
            opened = true;
        }
        loop {
            let due = begin + Duration::from_secs_f64(f64::from(made) / rate);
            if due > now {
                break;
            }
            engine.call(due);
            made += 1;
        }
        engine.turn();
    }
    engine.record.close_window(Instant::now())?;
    finish(engine);
    Ok(())
}

fn hold(engine: &mut Engine, connections: usize) -> Outcome {
    let orders = orders();
    // Memory is looked at, not time.
    engine.timeout = Duration::from_secs(120);
    engine.connect(connections)?;
    say("connected")?;
    orders.recv()?;
    let now = Instant::now();
    engine.record.open_window(now)?;
    for _ in 0..connections {
        engine.call(now);
    }
    engine.turn();
    while !engine.all_sent() {
        engine.turn();
    }
    say("sent")?;
    finish(engine);
    engine.record.close_window(Instant::now())
}

/// Waits for the answers that are still to come; those that do not come fail by themselves.
fn finish(engine: &mut Engine) {
    while engine.pending() > 0 {
        engine.turn();
    }
}

fn follow(engine: &mut Engine, orders: &mpsc::Receiver<String>) -> Result<bool, Box<dyn Error>> {
    match orders.try_recv() {
        Err(mpsc::TryRecvError::Empty) => Ok(false),
        Err(mpsc::TryRecvError::Disconnected) => Ok(true),
        Ok(order) => match order.split_once(' ') {
            Some(("endpoints", addresses)) => {
                let addresses: Result<_, _> = addresses.split(' ').map(str::parse).collect();
                engine.set_endpoints(addresses?);
                Ok(false)
            }
            _ => Ok(true),
        },
    }
}

/// The lines of standard input, as they come.
fn orders() -> mpsc::Receiver<String> {
    let (orders, inbox) = mpsc::channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if orders.send(line).is_err() {
                break;
            }
        }
    });
    inbox
}

fn say(word: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{word}")?;
    out.flush()
}

/// Mimics kube-apiserver (Go's crypto/tls): TLS 1.3, AES-128 first, hybrid key exchange, ALPN http/1.1, no session
/// resumption.
fn tls(ca: &PathBuf) -> Result<Arc<rustls::ClientConfig>, Box<dyn Error>> {
    let mut provider = aws_lc_rs::default_provider();
    provider.cipher_suites = vec![
        cipher_suite::TLS13_AES_128_GCM_SHA256,
        cipher_suite::TLS13_AES_256_GCM_SHA384,
        cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
    ];
    provider.kx_groups = vec![kx_group::X25519MLKEM768, kx_group::X25519, kx_group::SECP256R1];
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(ca)? {
        roots.add(certificate?)?;
    }
    let mut tls = rustls::ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_root_certificates(roots)
        .with_no_client_auth();
    tls.alpn_protocols = vec![b"http/1.1".to_vec()];
    tls.resumption = rustls::client::Resumption::disabled();
    Ok(Arc::new(tls))
}
