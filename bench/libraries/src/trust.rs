//! Asks the client of the Verifier in the ways that matter to a webhook, and prints what that took as JSON.
//! `cargo xtask bench` starts it.

use std::collections::BTreeSet;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;
use lucid_notary::client::{Answer, TimeToLive, Verifier, VerifierError};
use lucid_notary::{Digest, Verdict};
use serde::Serialize;
use tower::{BoxError, service_fn};

#[derive(Parser)]
struct Program {
    /// Number of requests in each measurement.
    #[arg(long)]
    requests: usize,
    /// Number of concurrent requests for the same digest.
    #[arg(long)]
    callers: usize,
    /// Number of rounds of concurrent requests.
    #[arg(long)]
    rounds: usize,
}

#[derive(Serialize)]
struct Figures {
    /// One digest whose verdict is cached.
    cached_us: Quantiles,
    /// The four digests of a pod, all cached.
    pod_us: Quantiles,
    /// While the breaker is open.
    open_us: Quantiles,
    /// The most calls that a round of callers made, and the time until the last of them had its answer, less than the
    /// Verifier took.
    calls: usize,
    callers_us: Quantiles,
}

/// Microseconds.
#[derive(Serialize)]
struct Quantiles {
    p50: f64,
    p99: f64,
    max: f64,
}

impl Quantiles {
    fn of(mut times: Vec<Duration>) -> Self {
        times.sort();
        let at = |thousandth: usize| {
            let index = (times.len() * thousandth / 1000).min(times.len().saturating_sub(1));
            times.get(index).map_or(0.0, |time| time.as_secs_f64() * 1e6)
        };
        Self { p50: at(500), p99: at(990), max: at(1000) }
    }
}

/// Response time of the Verifier.
const ANSWER: Duration = Duration::from_millis(20);
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let Program { requests, callers, rounds } = Program::parse();
    let digests = digests(10_000)?;
    let (calls, callers_us) = at_once(&digests, callers, rounds).await?;
    let verifier = warm(&digests[..1_000]).await;
    let cached_us = time(requests, |number| {
        let (verifier, digest) = (&verifier, digests[number % 1_000].clone());
        async move { verifier.check(digest).await.verdict.is_notarized() }
    })
    .await?;
    let pod_us = time(requests, |number| {
        let (verifier, digests) = (&verifier, digests.iter().skip(number % 996).take(4).cloned());
        async move {
            let all = verifier.check_all(digests, Instant::now() + PATIENCE).await;
            all.len() == 4 && all.values().all(|checked| checked.verdict.is_notarized())
        }
    })
    .await?;
    let verifier = broken(&digests).await;
    let open_us = time(requests / 10, |number| {
        let (verifier, digest) = (&verifier, digests[number % digests.len()].clone());
        async move {
            let all = verifier.check_all([digest], Instant::now() + PATIENCE).await;
            all.values().all(|checked| matches!(checked.verdict, Verdict::Unknown { .. }))
        }
    })
    .await?;
    let figures = Figures { cached_us, pod_us, open_us, calls, callers_us };
    println!("{}", serde_json::to_string(&figures)?);
    Ok(())
}

fn digests(count: usize) -> Result<Vec<Digest>, Box<dyn Error>> {
    (0..count).map(|number| Ok(format!("sha256:{number:064x}").parse()?)).collect()
}

/// Times asks, one after the other; each has to come true.
async fn time<F: Future<Output = bool>>(
    requests: usize,
    ask: impl Fn(usize) -> F,
) -> Result<Quantiles, Box<dyn Error>> {
    let mut times = Vec::with_capacity(requests);
    for number in 0..requests {
        let begin = Instant::now();
        let is_right = ask(number).await;
        times.push(begin.elapsed());
        if !is_right {
            return Err("an ask got another verdict than it should".into());
        }
    }
    Ok(Quantiles::of(times))
}

/// A client that knows these digests.
async fn warm(digests: &[Digest]) -> Verifier {
    let mut time_to_live = TimeToLive::default();
    time_to_live.notarized = Duration::from_secs(3_600);
    let verifier = Verifier::builder(service_fn(|_: Digest| async { Ok::<_, BoxError>(Answer::Notarized) }));
    let verifier = verifier.with_time_to_live(time_to_live).build();
    verifier.check_all(digests.iter().cloned(), Instant::now() + PATIENCE).await;
    verifier
}

/// A client whose breaker is open.
async fn broken(digests: &[Digest]) -> Verifier {
    let fail = service_fn(|_: Digest| async {
        let (origin, timeout) = ("http://verifier".to_owned(), ANSWER);
        Err::<Answer, BoxError>(VerifierError::Timeout { origin, timeout }.into())
    });
    let verifier = Verifier::builder(fail).with_breaker(5, Duration::from_secs(3_600)).build();
    verifier.check_all(digests.iter().take(10).cloned(), Instant::now() + PATIENCE).await;
    verifier
}

/// Lets many ask about the same digest at the same time, in each round about another one.
async fn at_once(
    digests: &[Digest],
    callers: usize,
    rounds: usize,
) -> Result<(usize, Quantiles), Box<dyn Error>> {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let verifier = Verifier::builder(service_fn(move |_: Digest| {
        counted.fetch_add(1, Ordering::SeqCst);
        async {
            tokio::time::sleep(ANSWER).await;
            Ok::<_, BoxError>(Answer::Notarized)
        }
    }));
    let verifier = verifier.build();
    let (mut most, mut times) = (0, Vec::new());
    for digest in digests.iter().take(rounds) {
        let before = calls.load(Ordering::SeqCst);
        let begin = Instant::now();
        let asks: Vec<_> = (0..callers)
            .map(|_| {
                let (verifier, digest) = (verifier.clone(), digest.clone());
                tokio::spawn(async move { verifier.check(digest).await.to_string() })
            })
            .collect();
        let mut told = BTreeSet::new();
        for ask in asks {
            told.insert(ask.await?);
        }
        times.push(begin.elapsed().saturating_sub(ANSWER));
        if told.into_iter().ne(["notarized".to_owned()]) {
            return Err("not all callers got the answer".into());
        }
        most = most.max(calls.load(Ordering::SeqCst) - before);
    }
    Ok((most, Quantiles::of(times)))
}
