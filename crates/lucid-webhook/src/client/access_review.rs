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

/// Reviews access with a `SubjectAccessReview` per request.
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
            let answer = self.api.create(&PostParams::default(), &review).await?;
            let status =
                answer.status.ok_or("the API server answered a SubjectAccessReview without a status")?;
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

/// Maximum number of cached results.
pub(crate) const CAPACITY: usize = 4096;

/// Caches up to 4096 results of another [`AccessReview`]: allowed ones for 60 s and denied ones for 10 s.
/// Concurrent equal requests are coalesced. Errors are not cached.
///
/// A revoked permission stays effective until the cached result expires.
pub(crate) struct CachedAccessReview {
    inner: Arc<dyn AccessReview>,
    answers: Arc<Mutex<Answers>>,
    lifetimes: Lifetimes,
}

#[derive(Clone, Copy, Debug)]
struct Lifetimes {
    allowed: Duration,
    denied: Duration,
}

/// Coalesced requests share the error.
type Review = Shared<BoxFuture<'static, Result<bool, Arc<str>>>>;

enum Answer {
    /// Ends with its last caller.
    Pending(WeakShared<BoxFuture<'static, Result<bool, Arc<str>>>>),
    Known {
        is_allowed: bool,
        until: Instant,
    },
}

/// Answers by the JSON of the access, in two generations: a full one replaces the older one, so that no insertion searches
/// for answers to evict.
#[derive(Default)]
struct Answers {
    recent: HashMap<String, Answer>,
    older: HashMap<String, Answer>,
}

impl Answers {
    fn get(&self, access: &str) -> Option<&Answer> {
        self.recent.get(access).or_else(|| self.older.get(access))
    }

    fn insert(&mut self, access: String, answer: Answer) {
        if self.recent.len() >= CAPACITY / 2 && !self.recent.contains_key(&access) {
            self.older = std::mem::take(&mut self.recent);
        }
        self.recent.insert(access, answer);
    }

    fn remove(&mut self, access: &str) {
        self.recent.remove(access);
        self.older.remove(access);
    }
}

impl CachedAccessReview {
    pub(crate) fn new(inner: Arc<dyn AccessReview>) -> Self {
        let lifetimes = Lifetimes { allowed: Duration::from_secs(60), denied: Duration::from_secs(10) };
        Self { inner, answers: Arc::default(), lifetimes }
    }

    #[cfg(test)]
    pub(crate) fn with_ttl(self, allowed: Duration, denied: Duration) -> Self {
        Self { lifetimes: Lifetimes { allowed, denied }, ..self }
    }

    /// Returns the cached result, or the review to wait for.
    fn answer(&self, access: &SubjectAccessReviewSpec, key: String) -> Result<bool, Review> {
        let now = Instant::now();
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        match answers.get(&key) {
            Some(Answer::Known { is_allowed, until }) if now < *until => return Ok(*is_allowed),
            Some(Answer::Pending(review)) => {
                if let Some(review) = review.upgrade() {
                    return Err(review);
                }
            }
            _ => {}
        }
        let review = self.review(access.clone(), key.clone());
        if let Some(pending) = review.downgrade() {
            answers.insert(key, Answer::Pending(pending));
        }
        Err(review)
    }

    fn review(&self, access: SubjectAccessReviewSpec, key: String) -> Review {
        let (inner, answers) = (Arc::clone(&self.inner), Arc::clone(&self.answers));
        let lifetimes = self.lifetimes;
        let review = async move {
            let answer = inner.is_allowed(&access).await.map_err(|error| Arc::from(with_causes(&*error)));
            let mut answers = answers.lock().unwrap_or_else(PoisonError::into_inner);
            match answer {
                Ok(is_allowed) => {
                    let lifetime = if is_allowed { lifetimes.allowed } else { lifetimes.denied };
                    if let Some(until) = Instant::now().checked_add(lifetime) {
                        answers.insert(key, Answer::Known { is_allowed, until });
                    }
                }
                Err(_) => answers.remove(&key),
            }
            answer
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
        match self.answer(access, key) {
            Ok(is_allowed) => ready(Ok(is_allowed)).boxed(),
            Err(review) => async move { review.await.map_err(|error| error.to_string().into()) }.boxed(),
        }
    }
}
