//! Error types and classification shared by the services.

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

/// An error shared by several callers of a coalesced request. Displays as the original error, which is its source.
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

/// A cached error. Displays as the original error, which is its source.
#[derive(Clone, Debug)]
pub struct CachedFailure {
    pub(super) error: SharedError,
    pub(super) age: Duration,
}

impl CachedFailure {
    /// Returns the time since the failure.
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

/// Returns the first error of type `E` in the chain of sources.
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

/// Returns `true` if the error means that the Verifier is unavailable, rather than that it rejects this request:
/// requests for other digests would fail as well.
///
/// Outages are the errors for which [`VerifierError::is_outage`] returns `true`, an exceeded deadline and an open
/// circuit breaker.
#[must_use]
pub fn is_outage(error: &(dyn Error + 'static)) -> bool {
    find::<VerifierError>(error).is_some_and(VerifierError::is_outage)
        || find::<DeadlineExceeded>(error).is_some()
        || was_not_asked(error)
}

/// Returns `true` if an open circuit breaker rejected the request.
pub(super) fn was_not_asked(error: &(dyn Error + 'static)) -> bool {
    find::<BreakerOpen>(error).is_some()
}

/// Returns `true` if the same request may succeed when retried.
pub(super) fn is_worth_a_retry(error: &(dyn Error + 'static)) -> bool {
    find::<VerifierError>(error).is_some_and(VerifierError::is_worth_a_retry)
}

/// Returns the verdict on a digest whose request failed.
pub(super) fn unknown(error: &(dyn Error + 'static)) -> Checked {
    let provenance = match find::<CachedFailure>(error) {
        Some(cached) => Provenance::Cached { age: cached.age },
        None => Provenance::Asked,
    };
    Checked::new(Verdict::Unknown { reason: error.to_string() }, provenance)
}
