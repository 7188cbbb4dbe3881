//! Access checks of service accounts against the cluster's RBAC.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::{BoxFuture, Shared, WeakShared, ready};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReviewSpec};
use serde::de::{Deserialize, Deserializer, Error};
use tower::BoxError;

use crate::causes::with_causes;
use crate::names::{is_dns_label, is_dns_subdomain};
use crate::review::AdmissionRequest;

/// Service account, written as `namespace/name`, or as `namespace:name` as in `kubectl create rolebinding --serviceaccount`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ServiceAccount {
    namespace: String,
    name: String,
}

impl ServiceAccount {
    fn parse(text: &str) -> Option<Self> {
        let (namespace, name) = text.split_once(['/', ':'])?;
        (is_dns_label(namespace) && is_dns_subdomain(name))
            .then(|| Self { namespace: namespace.to_owned(), name: name.to_owned() })
    }

    /// User name of the account: `system:serviceaccount:<namespace>:<name>`.
    fn user(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace, self.name)
    }

    /// Groups of the account.
    fn groups(&self) -> Vec<String> {
        vec![
            "system:serviceaccounts".to_owned(),
            format!("system:serviceaccounts:{}", self.namespace),
            "system:authenticated".to_owned(),
        ]
    }
}

impl<'de> Deserialize<'de> for ServiceAccount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| {
            let expected = "accepted is namespace/name, both as Kubernetes names them";
            D::Error::custom(format!("service account {text:?}: {expected}"))
        })
    }
}

/// Access of a service account to the subject of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Access {
    pub(super) user: String,
    pub(super) groups: Vec<String>,
    pub(super) verb: String,
    pub(super) group: String,
    pub(super) version: String,
    pub(super) resource: String,
    pub(super) subresource: Option<String>,
    pub(super) namespace: Option<String>,
    /// Empty while the object has no name, which checks access to all names.
    pub(super) name: String,
}

impl Access {
    pub(crate) fn of(account: &ServiceAccount, verb: &str, request: &AdmissionRequest) -> Self {
        Self {
            user: account.user(),
            groups: account.groups(),
            verb: verb.to_owned(),
            group: request.resource.group.clone(),
            version: request.resource.version.clone(),
            resource: request.resource.resource.clone(),
            subresource: request.sub_resource.clone(),
            namespace: request.namespace.clone(),
            name: request.name.clone(),
        }
    }

    pub(crate) fn spec(&self) -> SubjectAccessReviewSpec {
        let some = |text: &str| Some(text.to_owned());
        let attributes = ResourceAttributes {
            verb: some(&self.verb),
            group: some(&self.group),
            version: some(&self.version),
            resource: some(&self.resource),
            subresource: self.subresource.clone(),
            namespace: self.namespace.clone(),
            name: some(&self.name),
            ..ResourceAttributes::default()
        };
        SubjectAccessReviewSpec {
            user: some(&self.user),
            groups: Some(self.groups.clone()),
            resource_attributes: Some(attributes),
            ..SubjectAccessReviewSpec::default()
        }
    }
}

impl fmt::Display for Access {
    /// Formats as `update deployments/scale.apps web in namespace shop`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)?;
        if let Some(subresource) = &self.subresource {
            write!(f, "/{subresource}")?;
        }
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        if !self.name.is_empty() {
            write!(f, " {}", self.name)?;
        }
        match &self.namespace {
            Some(namespace) => write!(f, " in namespace {namespace}"),
            None => Ok(()),
        }
    }
}

/// Checks access of users. The feature `client` has an implementation that queries the cluster.
///
/// ```
/// use futures::future::{BoxFuture, FutureExt};
/// use k8s_openapi::api::authorization::v1::SubjectAccessReviewSpec;
/// use lucid_webhook::BoxError;
/// use lucid_webhook::guard::AccessReview;
///
/// /// For tests.
/// struct OnlyPods;
///
/// impl AccessReview for OnlyPods {
///     fn is_allowed<'a>(&'a self, access: &'a SubjectAccessReviewSpec) -> BoxFuture<'a, Result<bool, BoxError>> {
///         let resource = access.resource_attributes.as_ref().and_then(|it| it.resource.as_deref());
///         async move { Ok(resource == Some("pods")) }.boxed()
///     }
/// }
/// ```
pub trait AccessReview: Send + Sync + 'static {
    /// Returns `true` if the access is allowed.
    ///
    /// # Errors
    ///
    /// Any error if the access could not be determined. A failed check is not a denial.
    fn is_allowed<'a>(&'a self, access: &'a SubjectAccessReviewSpec)
    -> BoxFuture<'a, Result<bool, BoxError>>;
}

impl<A: AccessReview + ?Sized> AccessReview for Arc<A> {
    fn is_allowed<'a>(
        &'a self,
        access: &'a SubjectAccessReviewSpec,
    ) -> BoxFuture<'a, Result<bool, BoxError>> {
        (**self).is_allowed(access)
    }
}

/// Maximum number of cached results.
pub(super) const CAPACITY: usize = 4096;

/// Caches up to 4096 results of another [`AccessReview`]: by default, allowed ones for 60 s and denied ones for 10 s.
/// Concurrent equal requests are coalesced. Errors are not cached.
///
/// A revoked permission stays effective until the cached result expires.
pub struct CachedAccessReview {
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
    /// Caches the results of `inner`.
    #[must_use]
    pub fn new(inner: impl AccessReview) -> Self {
        let lifetimes = Lifetimes { allowed: Duration::from_secs(60), denied: Duration::from_secs(10) };
        Self { inner: Arc::new(inner), answers: Arc::default(), lifetimes }
    }

    /// Sets how long results are cached.
    #[must_use]
    pub fn with_ttl(self, allowed: Duration, denied: Duration) -> Self {
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

impl fmt::Debug for CachedAccessReview {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CachedAccessReview").field("lifetimes", &self.lifetimes).finish_non_exhaustive()
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
