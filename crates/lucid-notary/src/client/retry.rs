use tokio::time::Sleep;
use tower::BoxError;
use tower::retry::Policy;
use tower::retry::backoff::{Backoff, ExponentialBackoff, ExponentialBackoffMaker, MakeBackoff};

use super::ClientMetrics;
use super::answer::Answer;
use super::error::VerifierError;
use crate::digest::Digest;

/// Retries transient failures after 50 ms, 100 ms and so on, each extended by up to as much again at random.
#[derive(Clone, Debug)]
pub(super) struct RetryPolicy {
    retries: usize,
    /// Created by the first retry: clones of a backoff would share its random sequence.
    backoff: Option<ExponentialBackoff>,
    metrics: ClientMetrics,
}

impl RetryPolicy {
    pub(super) fn new(retries: usize, metrics: ClientMetrics) -> Self {
        Self { retries, backoff: None, metrics }
    }
}

impl Policy<Digest, Answer, BoxError> for RetryPolicy {
    type Future = Sleep;

    fn retry(&mut self, _: &mut Digest, result: &mut Result<Answer, BoxError>) -> Option<Sleep> {
        let error = VerifierError::find(result.as_ref().err()?)?;
        if !error.is_retryable() {
            return None;
        }
        self.retries = self.retries.checked_sub(1)?;
        self.metrics.retries.inc();
        let backoff = self.backoff.get_or_insert_with(|| ExponentialBackoffMaker::default().make_backoff());
        Some(backoff.next_backoff())
    }

    fn clone_request(&mut self, digest: &Digest) -> Option<Digest> {
        Some(digest.clone())
    }
}
