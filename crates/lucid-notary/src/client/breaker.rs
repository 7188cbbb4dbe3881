//! Circuit breaker: pauses requests to an unavailable Verifier.

use std::future::ready;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use snafu::Snafu;
use tokio::time::Instant;
use tower::{BoxError, Service};

use super::ClientMetrics;
use super::answer::Answer;
use super::error::VerifierError;
use crate::digest::Digest;

#[derive(Debug, Snafu)]
#[snafu(display("requests to the Verifier are paused after repeated failures (circuit breaker open)"))]
pub(super) struct BreakerOpen;

/// Rejects requests for a pause after consecutive outages, then lets a single request probe the Verifier.
///
/// An outage is an error for which [`VerifierError::is_outage`] returns `true`. Other errors count as successes, and
/// a cancelled request counts as neither. Clones share the circuit.
#[derive(Clone, Debug)]
pub(super) struct Breaker<S> {
    inner: S,
    circuit: Arc<Circuit>,
}

impl<S> Breaker<S> {
    pub(super) fn new(inner: S, failures: u32, pause: Duration, metrics: ClientMetrics) -> Self {
        let state = Mutex::new(State::Closed { failures: 0 });
        Self { inner, circuit: Arc::new(Circuit { failures, pause, metrics, state }) }
    }
}

impl<S> Service<Digest> for Breaker<S>
where
    S: Service<Digest, Response = Answer, Error = BoxError, Future: Send + 'static>,
{
    type Response = Answer;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Answer, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, digest: Digest) -> Self::Future {
        let attempt = match Attempt::begin(&self.circuit) {
            Ok(attempt) => attempt,
            Err(rejected) => return ready(Err(rejected.into())).boxed(),
        };
        let response = self.inner.call(digest);
        async move {
            let result = response.await;
            let error = result.as_ref().err().and_then(VerifierError::find);
            attempt.end(error.is_some_and(VerifierError::is_outage));
            result
        }
        .boxed()
    }
}

#[derive(Debug)]
struct Circuit {
    failures: u32,
    pause: Duration,
    metrics: ClientMetrics,
    state: Mutex<State>,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Closed { failures: u32 },
    Open { since: Instant },
    HalfOpen { is_probing: bool },
}

impl Circuit {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self, state: &mut State, next: State) {
        *state = next;
        self.metrics.set_breaker_state(match next {
            State::Closed { .. } => "closed",
            State::Open { .. } => "open",
            State::HalfOpen { .. } => "half_open",
        });
    }
}

/// A request that the breaker let through. Updates the circuit when dropped.
struct Attempt {
    circuit: Arc<Circuit>,
    is_probe: bool,
    /// `None` until the request completes.
    is_outage: Option<bool>,
}

impl Attempt {
    fn begin(circuit: &Arc<Circuit>) -> Result<Self, BreakerOpen> {
        let mut state = circuit.lock();
        let is_probe = match *state {
            State::Closed { .. } => false,
            State::Open { since } => since.elapsed() >= circuit.pause,
            State::HalfOpen { is_probing } => !is_probing,
        };
        if is_probe {
            circuit.enter(&mut state, State::HalfOpen { is_probing: true });
        } else if !matches!(*state, State::Closed { .. }) {
            circuit.metrics.breaker_rejected.inc();
            return Err(BreakerOpen);
        }
        Ok(Self { circuit: Arc::clone(circuit), is_probe, is_outage: None })
    }

    fn end(mut self, is_outage: bool) {
        self.is_outage = Some(is_outage);
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        let mut state = self.circuit.lock();
        let next = match (*state, self.is_probe, self.is_outage) {
            (State::HalfOpen { .. }, true, None) => State::HalfOpen { is_probing: false },
            (State::HalfOpen { .. }, true, Some(false)) => State::Closed { failures: 0 },
            (State::HalfOpen { .. }, true, Some(true)) => State::Open { since: Instant::now() },
            (State::Closed { .. }, _, Some(false)) => State::Closed { failures: 0 },
            (State::Closed { failures }, _, Some(true)) if failures + 1 < self.circuit.failures => {
                State::Closed { failures: failures + 1 }
            }
            (State::Closed { .. }, _, Some(true)) => State::Open { since: Instant::now() },
            // Requests from before the circuit opened do not affect it.
            _ => return,
        };
        self.circuit.enter(&mut state, next);
    }
}
