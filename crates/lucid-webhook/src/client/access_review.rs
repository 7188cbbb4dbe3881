//! Access reviews by the cluster.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::{BoxFuture, Shared, WeakShared, ready};
use k8s_openapi::api::authorization::v1::{SubjectAccessReview, SubjectAccessReviewSpec};
use kube::api::PostParams;
use kube::{Api, Client};
use lucid_text::with_causes;
use tower::BoxError;

use crate::guard::AccessReview;

pub(crate) struct SubjectAccessReviews {
    api: Api<SubjectAccessReview>,
}

impl SubjectAccessReviews {
    pub(crate) fn new(client: Client) -> Self {
        Self { api: Api::all(client) }
    }
}

impl AccessReview for SubjectAccessReviews {
    fn is_allowed<'a>(
        &'a self,
        access: &'a SubjectAccessReviewSpec,
    ) -> BoxFuture<'a, Result<bool, BoxError>> {
        Box::pin(async move {
            let review = SubjectAccessReview { spec: access.clone(), ..SubjectAccessReview::default() };
            let reviewed = self.api.create(&PostParams::default(), &review).await?;
            let status = reviewed
                .status
                .ok_or("the API server responded to a SubjectAccessReview without a status")?;
            // Not a failed review: RBAC reports bindings to missing roles here, and still decides.
            if let Some(error) = status.evaluation_error.filter(|_| !status.allowed) {
                tracing::debug!(
                    user = access.user,
                    attributes = ?access.resource_attributes,
                    "access denied, and some RBAC rules could not be evaluated: {error}"
                );
            }
            Ok(status.allowed)
        })
    }
}

pub(crate) const CAPACITY: usize = 4096;

/// Caches up to 4096 results of another [`AccessReview`]: allowed ones for 60 s and denied ones for 10 s.
/// Concurrent equal requests are coalesced. Errors are not cached.
///
/// A revoked permission stays effective until the cached result expires.
pub(crate) struct CachedAccessReview {
    inner: Arc<dyn AccessReview>,
    cache: Arc<Mutex<Cache>>,
    lifetimes: Lifetimes,
}

#[derive(Clone, Copy, Debug)]
struct Lifetimes {
    allowed: Duration,
    denied: Duration,
}

/// Coalesced requests share the error.
type Review = Shared<BoxFuture<'static, Result<bool, Arc<str>>>>;

enum CachedReview {
    /// Ends with its last caller.
    Pending(WeakShared<BoxFuture<'static, Result<bool, Arc<str>>>>),
    Known {
        is_allowed: bool,
        until: Instant,
    },
}

/// Reviews by the JSON of the access, in two generations: a full one replaces the older one, so that no insertion
/// searches for reviews to evict.
#[derive(Default)]
struct Cache {
    recent: HashMap<String, CachedReview>,
    older: HashMap<String, CachedReview>,
}

impl Cache {
    fn get(&self, access: &str) -> Option<&CachedReview> {
        self.recent.get(access).or_else(|| self.older.get(access))
    }

    fn insert(&mut self, access: String, review: CachedReview) {
        if self.recent.len() >= CAPACITY / 2 && !self.recent.contains_key(&access) {
            self.older = std::mem::take(&mut self.recent);
        }
        self.recent.insert(access, review);
    }

    fn remove(&mut self, access: &str) {
        self.recent.remove(access);
        self.older.remove(access);
    }
}

impl CachedAccessReview {
    pub(crate) fn new(inner: Arc<dyn AccessReview>) -> Self {
        let lifetimes = Lifetimes { allowed: Duration::from_secs(60), denied: Duration::from_secs(10) };
        Self { inner, cache: Arc::default(), lifetimes }
    }

    #[cfg(test)]
    pub(crate) fn with_ttl(self, allowed: Duration, denied: Duration) -> Self {
        Self { lifetimes: Lifetimes { allowed, denied }, ..self }
    }

    fn cached(&self, access: &SubjectAccessReviewSpec, key: String) -> Result<bool, Review> {
        let now = Instant::now();
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        match cache.get(&key) {
            Some(CachedReview::Known { is_allowed, until }) if now < *until => return Ok(*is_allowed),
            Some(CachedReview::Pending(review)) => {
                if let Some(review) = review.upgrade() {
                    return Err(review);
                }
            }
            _ => {}
        }
        let review = self.review(access.clone(), key.clone());
        if let Some(pending) = review.downgrade() {
            cache.insert(key, CachedReview::Pending(pending));
        }
        Err(review)
    }

    fn review(&self, access: SubjectAccessReviewSpec, key: String) -> Review {
        let (inner, cache) = (Arc::clone(&self.inner), Arc::clone(&self.cache));
        let lifetimes = self.lifetimes;
        let review = async move {
            let result = inner.is_allowed(&access).await.map_err(|error| Arc::from(with_causes(&*error)));
            let mut cache = cache.lock().unwrap_or_else(PoisonError::into_inner);
            match result {
                Ok(is_allowed) => {
                    let lifetime = if is_allowed { lifetimes.allowed } else { lifetimes.denied };
                    if let Some(until) = Instant::now().checked_add(lifetime) {
                        cache.insert(key, CachedReview::Known { is_allowed, until });
                    }
                }
                Err(_) => cache.remove(&key),
            }
            result
        };
        review.boxed().shared()
    }
}

impl AccessReview for CachedAccessReview {
    fn is_allowed<'a>(
        &'a self,
        access: &'a SubjectAccessReviewSpec,
    ) -> BoxFuture<'a, Result<bool, BoxError>> {
        let key = match serde_json::to_string(access) {
            Ok(key) => key,
            Err(error) => return ready(Err(error.into())).boxed(),
        };
        // If the caller that runs the review is cancelled, the next waiting one takes over.
        match self.cached(access, key) {
            Ok(is_allowed) => ready(Ok(is_allowed)).boxed(),
            Err(review) => async move { review.await.map_err(|error| error.to_string().into()) }.boxed(),
        }
    }
}
