//! What the errors of the services have in common.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tower::BoxError;

use super::breaker::BreakerOpen;
use super::deadline::DeadlineExceeded;
use super::http::VerifierError;
use crate::checked::{Checked, Provenance};
use crate::verdict::Verdict;

/// One error for several callers: what came of an ask that they share. It reads as the error itself, which is its source.
#[derive(Clone)]
pub struct SharedError(Arc<dyn Error + Send + Sync>);

impl SharedError {
    pub(super) fn new(error: impl Into<BoxError>) -> Self {
        match error.into().downcast::<Self>() {
            Ok(shared) => *shared,
            Err(error) => Self(Arc::from(error)),
        }
    }
}

impl fmt::Debug for SharedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for SharedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Error for SharedError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.0)
    }
}

/// An ask that failed a while ago, and is not made again yet. It reads as the error it failed with, which is its source.
#[derive(Clone, Debug)]
pub struct CachedFailure {
    pub(super) error: SharedError,
    pub(super) age: Duration,
}

impl CachedFailure {
    /// How long ago it failed.
    #[must_use]
    pub const fn age(&self) -> Duration {
        self.age
    }
}

impl fmt::Display for CachedFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl Error for CachedFailure {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.error)
    }
}

/// The first error of type `E` among `error` and its causes.
fn find<'a, E: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a E> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        next = error.source();
    }
    None
}

/// Whether the Verifier is out of order, in contrast to being in order and refusing this very ask: then others would
/// fare no better. So are the errors of [`HttpVerifier`](super::HttpVerifier) for which
/// [`VerifierError::is_outage`] says so, an exceeded deadline, and an open breaker.
#[must_use]
pub fn is_outage(error: &(dyn Error + 'static)) -> bool {
    find::<VerifierError>(error).is_some_and(VerifierError::is_outage)
        || find::<DeadlineExceeded>(error).is_some()
        || was_not_asked(error)
}

/// Whether a breaker kept the ask from being made.
pub(super) fn was_not_asked(error: &(dyn Error + 'static)) -> bool {
    find::<BreakerOpen>(error).is_some()
}

/// Whether the same ask, made again, may fare better.
pub(super) fn is_worth_a_retry(error: &(dyn Error + 'static)) -> bool {
    find::<VerifierError>(error).is_some_and(VerifierError::is_worth_a_retry)
}

/// What is known of a digest about which an ask failed.
pub(super) fn unknown(error: &(dyn Error + 'static)) -> Checked {
    let provenance = match find::<CachedFailure>(error) {
        Some(cached) => Provenance::Cached { age: cached.age },
        None => Provenance::Asked,
    };
    Checked::new(Verdict::Unknown { reason: error.to_string() }, provenance)
}
