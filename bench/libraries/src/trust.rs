//! Requests to the client of the Verifier, as a webhook makes them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use lucid_notary::client::{Answer, TimeToLive, Verifier, VerifierError};
use lucid_notary::{Digest, NotaryVerdict};
use tower::{BoxError, service_fn};

use crate::{Figure, Outcome};

/// Response time of the Verifier.
const ANSWER: Duration = Duration::from_millis(20);
const PATIENCE: Duration = Duration::from_secs(60);

/// Number of requests in each measurement.
const REQUESTS: usize = 200_000;
/// Number of concurrent requests for the same digest.
const CALLERS: usize = 1_000;
/// Number of rounds of concurrent requests.
const ROUNDS: usize = 100;

pub(crate) async fn measure() -> Outcome<Vec<Figure>> {
    let digests = digests(10_000)?;
    let (calls, coalesced) = at_once(&digests, CALLERS, ROUNDS).await?;
    let verifier = warm(&digests[..1_000]).await;
    let cached = time(REQUESTS, |number| {
        let (verifier, digest) = (&verifier, digests[number % 1_000].clone());
        async move { verifier.check(digest).await.verdict.is_notarized() }
    })
    .await?;
    let pod = time(REQUESTS, |number| {
        let (verifier, digests) = (&verifier, digests.iter().skip(number % 996).take(4).cloned());
        async move {
            let all = verifier.check_all(digests, Instant::now() + PATIENCE).await;
            all.len() == 4 && all.values().all(|checked| checked.verdict.is_notarized())
        }
    })
    .await?;
    let verifier = broken(&digests).await;
    let open = time(REQUESTS / 10, |number| {
        let (verifier, digest) = (&verifier, digests[number % digests.len()].clone());
        async move {
            let all = verifier.check_all([digest], Instant::now() + PATIENCE).await;
            all.values().all(|checked| matches!(checked.verdict, NotaryVerdict::Unknown { .. }))
        }
    })
    .await?;
    Ok(vec![
        Figure::new("cached verdict", cached),
        Figure::new("four cached verdicts of a pod", pod),
        Figure::new("circuit breaker open", open),
        Figure { count: Some(calls as u64), ..Figure::new("coalesced requests", coalesced) },
    ])
}

fn digests(count: usize) -> Outcome<Vec<Digest>> {
    (0..count).map(|number| Ok(format!("sha256:{number:064x}").parse()?)).collect()
}

async fn time<F: Future<Output = bool>>(
    requests: usize,
    request: impl Fn(usize) -> F,
) -> Outcome<Vec<Duration>> {
    let mut times = Vec::with_capacity(requests);
    for number in 0..requests {
        let begin = Instant::now();
        let is_right = request(number).await;
        times.push(begin.elapsed());
        if !is_right {
            return Err("a request returned an unexpected verdict".into());
        }
    }
    Ok(times)
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

/// Requests the same digest many times concurrently, another one in each round. Returns the highest number of calls of the
/// Verifier in a round, and the time until the last response, less the Verifier's response time.
async fn at_once(digests: &[Digest], callers: usize, rounds: usize) -> Outcome<(usize, Vec<Duration>)> {
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
        let requests: Vec<_> = (0..callers)
            .map(|_| {
                let (verifier, digest) = (verifier.clone(), digest.clone());
                tokio::spawn(async move { verifier.check(digest).await.to_string() })
            })
            .collect();
        let mut verdicts = BTreeSet::new();
        for request in requests {
            verdicts.insert(request.await?);
        }
        times.push(begin.elapsed().saturating_sub(ANSWER));
        if verdicts.into_iter().ne(["notarized".to_owned()]) {
            return Err("not all callers got the response".into());
        }
        most = most.max(calls.load(Ordering::SeqCst) - before);
    }
    Ok((most, times))
}
