//! Shared helpers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::BoxFuture;
use hyper::StatusCode;
use lucid_notary::client::{Answer, ClientMetrics, TimeToLive, Verifier, VerifierBuilder, VerifierError};
use lucid_notary::{CheckedVerdict, Digest};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use tower::util::BoxCloneSyncService;
use tower::{BoxError, Service, ServiceExt};

use crate::server::Reply;

pub(crate) const PATIENCE: Duration = Duration::from_mins(2);

pub(crate) fn digest(hex_digit: char) -> Digest {
    format!("sha256:{}", hex_digit.to_string().repeat(64)).parse().unwrap()
}

pub(crate) fn many(count: usize) -> Vec<Digest> {
    (0..count).map(|number| format!("sha256:{number:064x}").parse().unwrap()).collect()
}

pub(crate) fn in_time() -> Instant {
    Instant::now() + PATIENCE
}

/// Replies about the requested digest: notarized unless it starts with `b`.
pub(crate) fn honest(target: &str) -> Reply {
    let digest = target.split_once("digest=").map_or("", |(_, digest)| digest);
    Reply::notarized(digest, !digest.starts_with("sha256:b"))
}

pub(crate) type Outcome = Result<Answer, BoxError>;

pub(crate) type Fail = fn() -> BoxError;

pub(crate) type Scripted = BoxCloneSyncService<Digest, Answer, BoxError>;

pub(crate) struct Script {
    pub(crate) service: Scripted,
    calls: Arc<AtomicUsize>,
}

impl Script {
    /// Responds with the outcome of `script` for the number of the call, from 0.
    pub(crate) fn new(script: impl Fn(usize) -> Outcome + Send + Sync + 'static) -> Self {
        Self::waiting(move |call| {
            let outcome = script(call);
            async move { outcome }.boxed()
        })
    }

    /// Like [`new`](Self::new), with an asynchronous script.
    pub(crate) fn waiting(
        script: impl Fn(usize) -> BoxFuture<'static, Outcome> + Send + Sync + 'static,
    ) -> Self {
        let calls = Arc::new(AtomicUsize::new(0));
        let (script, counted) = (Arc::new(script), Arc::clone(&calls));
        let service = tower::service_fn(move |_: Digest| script(counted.fetch_add(1, Ordering::SeqCst)));
        Self { service: BoxCloneSyncService::new(service), calls }
    }

    pub(crate) fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    /// Builds a client without retries, whose circuit breaker stays closed.
    pub(crate) fn client(&self) -> VerifierBuilder<Scripted> {
        Verifier::builder(self.service.clone()).with_retries(0).with_breaker(u32::MAX, PATIENCE)
    }

    /// Builds a [`client`](Self::client) that caches no verdicts.
    pub(crate) fn uncached(&self) -> VerifierBuilder<Scripted> {
        let none = Duration::ZERO;
        self.client().with_time_to_live(time_to_live(none, none, none))
    }
}

pub(crate) fn request<S, R>(service: &S, digest: Digest) -> BoxFuture<'static, Result<R, BoxError>>
where
    S: Service<Digest, Response = R, Error: Into<BoxError>, Future: Send> + Clone + Send + 'static,
{
    service.clone().oneshot(digest).map(|answer| answer.map_err(Into::into)).boxed()
}

pub(crate) fn outage() -> BoxError {
    status(503)
}

pub(crate) fn status(status: u16) -> BoxError {
    let (origin, status) = ("http://verifier".to_owned(), StatusCode::from_u16(status).unwrap());
    VerifierError::Status { origin, status }.into()
}

pub(crate) fn timeout() -> BoxError {
    VerifierError::Timeout { origin: "http://verifier".to_owned(), timeout: Duration::from_secs(1) }.into()
}

pub(crate) fn malformed() -> BoxError {
    VerifierError::Malformed { origin: "http://verifier".to_owned(), fault: "no".to_owned() }.into()
}

pub(crate) fn time_to_live(notarized: Duration, not_notarized: Duration, unknown: Duration) -> TimeToLive {
    let mut time_to_live = TimeToLive::default();
    time_to_live.notarized = notarized;
    time_to_live.not_notarized = not_notarized;
    time_to_live.unknown = unknown;
    time_to_live
}

pub(crate) fn told(checked: &CheckedVerdict) -> (String, &'static str) {
    (checked.verdict.to_string(), checked.provenance.name())
}

pub(crate) async fn until(mut holds: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !holds().await {
        assert!(begun.elapsed() < PATIENCE, "it does not come true");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

pub(crate) struct Scrape {
    registry: Registry,
    pub(crate) metrics: ClientMetrics,
}

impl Scrape {
    pub(crate) fn new() -> Self {
        let mut registry = Registry::default();
        let metrics = ClientMetrics::new(&mut registry);
        Self { registry, metrics }
    }

    /// Returns the value of a series, written as in the exposition format; 0 if absent.
    pub(crate) fn value(&self, series: &str) -> f64 {
        self.find(series).unwrap_or(0.0)
    }

    pub(crate) fn has(&self, series: &str) -> bool {
        self.find(series).is_some()
    }

    fn find(&self, series: &str) -> Option<f64> {
        let mut text = String::new();
        encode(&mut text, &self.registry).unwrap();
        let value = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '))?;
        Some(value.parse().unwrap())
    }
}
