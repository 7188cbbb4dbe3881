use std::time::Duration;

use backon::ExponentialBuilder;
use tower::Layer;

use super::Retry;
use crate::client::Metrics;

/// The first pause; each one after it is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Asks again when that may help: after a timeout, a connection that broke or was refused, and the statuses 408, 429 and
/// 5xx. Not after an answer that makes no sense, another status, a failure of TLS, or while a breaker is open.
///
/// The pauses between are 50 ms, 100 ms and so on up to 1 s, each with up to as much again at random, so that those who
/// failed together do not come back together.
#[derive(Clone, Debug)]
pub struct RetryLayer {
    pauses: ExponentialBuilder,
    metrics: Metrics,
}

impl RetryLayer {
    /// Asks again at most so many times.
    #[must_use]
    pub fn new(retries: usize) -> Self {
        let pauses = ExponentialBuilder::new()
            .with_min_delay(FIRST_PAUSE)
            .with_max_delay(LONGEST_PAUSE)
            .with_max_times(retries)
            .with_jitter();
        Self { pauses, metrics: Metrics::default() }
    }

    /// Counts retries there.
    #[must_use]
    pub fn metrics(mut self, metrics: Metrics) -> Self {
        self.metrics = metrics;
        self
    }
}

impl<S> Layer<S> for RetryLayer {
    type Service = Retry<S>;

    fn layer(&self, inner: S) -> Retry<S> {
        Retry { inner, pauses: self.pauses, metrics: self.metrics.clone() }
    }
}
