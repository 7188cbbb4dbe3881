//! Access checks of service accounts against the cluster's RBAC.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use moka::Expiry;
use moka::future::Cache;
use serde::Deserialize;
use snafu::{OptionExt, Snafu};
use tower::BoxError;

use crate::causes::with_causes;
use crate::names::{is_dns_label, is_dns_subdomain};
use crate::review::AdmissionRequest;

/// Service account, written as `namespace/name`, or as `namespace:name` as in `kubectl create rolebinding --serviceaccount`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(try_from = "String")]
pub struct ServiceAccount {
    namespace: String,
    name: String,
}

/// The text is not a valid service account.
#[derive(Clone, Debug, PartialEq, Eq, Snafu)]
#[snafu(display("service account {found:?}: accepted is namespace/name, both as Kubernetes names them"))]
pub struct InvalidServiceAccount {
    found: String,
}

impl ServiceAccount {
    /// The service account `name` in `namespace`.
    ///
    /// # Errors
    ///
    /// [`InvalidServiceAccount`] if the namespace or the name is invalid.
    pub fn new(namespace: &str, name: &str) -> Result<Self, InvalidServiceAccount> {
        (is_dns_label(namespace) && is_dns_subdomain(name))
            .then(|| Self { namespace: namespace.to_owned(), name: name.to_owned() })
            .context(InvalidServiceAccountSnafu { found: format!("{namespace}/{name}") })
    }

    /// User name of the account: `system:serviceaccount:<namespace>:<name>`.
    #[must_use]
    pub fn user(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace, self.name)
    }

    /// Groups of the account.
    #[must_use]
    pub fn groups(&self) -> Vec<String> {
        vec![
            "system:serviceaccounts".to_owned(),
            format!("system:serviceaccounts:{}", self.namespace),
            "system:authenticated".to_owned(),
        ]
    }
}

impl FromStr for ServiceAccount {
    type Err = InvalidServiceAccount;

    fn from_str(text: &str) -> Result<Self, InvalidServiceAccount> {
        let (namespace, name) =
            text.split_once(['/', ':']).context(InvalidServiceAccountSnafu { found: text })?;
        Self::new(namespace, name)
    }
}

impl TryFrom<String> for ServiceAccount {
    type Error = InvalidServiceAccount;

    fn try_from(text: String) -> Result<Self, InvalidServiceAccount> {
        text.parse()
    }
}

/// Access to check (`spec` of a `SubjectAccessReview`, `authorization.k8s.io/v1`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Access {
    /// User, such as `system:serviceaccount:example:injector`.
    pub user: String,
    /// Groups of the user.
    pub groups: Vec<String>,
    /// Verb of the API, such as `update`.
    pub verb: String,
    /// API group; empty for core.
    pub group: String,
    /// API version.
    pub version: String,
    /// Resource (plural, lower case).
    pub resource: String,
    /// Subresource, such as `status`.
    pub subresource: Option<String>,
    /// Namespace; `None` for cluster-scoped resources.
    pub namespace: Option<String>,
    /// Name; empty while the object has none, which checks access to all names.
    pub name: String,
}

impl Access {
    /// Access of `account` with `verb` to the subject of `request`.
    #[must_use]
    pub fn of(account: &ServiceAccount, verb: &str, request: &AdmissionRequest) -> Self {
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
/// use lucid_webhook::BoxError;
/// use lucid_webhook::guard::{Access, AccessReview};
///
/// /// For tests.
/// struct OnlyPods;
///
/// impl AccessReview for OnlyPods {
///     fn is_allowed<'a>(&'a self, access: &'a Access) -> BoxFuture<'a, Result<bool, BoxError>> {
///         async move { Ok(access.resource == "pods") }.boxed()
///     }
/// }
/// ```
pub trait AccessReview: Send + Sync + 'static {
    /// Returns `true` if the access is allowed.
    ///
    /// # Errors
    ///
    /// Any error if the access could not be determined. A failed check is not a denial.
    fn is_allowed<'a>(&'a self, access: &'a Access) -> BoxFuture<'a, Result<bool, BoxError>>;
}

impl<A: AccessReview + ?Sized> AccessReview for Arc<A> {
    fn is_allowed<'a>(&'a self, access: &'a Access) -> BoxFuture<'a, Result<bool, BoxError>> {
        (**self).is_allowed(access)
    }
}

/// Caches the results of another [`AccessReview`]: by default up to 4096, allowed ones for 60 s and denied ones for 10
/// s. Concurrent equal requests are coalesced. Errors are not cached.
///
/// A revoked permission stays effective until the cached result expires.
pub struct CachedAccessReview {
    inner: Arc<dyn AccessReview>,
    answers: Cache<Access, bool>,
    lifetimes: Lifetimes,
    capacity: u64,
}

#[derive(Clone, Copy, Debug)]
struct Lifetimes {
    allowed: Duration,
    denied: Duration,
}

impl CachedAccessReview {
    /// Caches the results of `inner`.
    #[must_use]
    pub fn new(inner: impl AccessReview) -> Self {
        let lifetimes = Lifetimes { allowed: Duration::from_secs(60), denied: Duration::from_secs(10) };
        Self::build(Arc::new(inner), lifetimes, 4096)
    }

    /// Sets how long results are cached.
    #[must_use]
    pub fn with_ttl(self, allowed: Duration, denied: Duration) -> Self {
        Self::build(self.inner, Lifetimes { allowed, denied }, self.capacity)
    }

    /// Sets the maximum number of cached results.
    #[must_use]
    pub fn with_capacity(self, answers: u64) -> Self {
        Self::build(self.inner, self.lifetimes, answers)
    }

    fn build(inner: Arc<dyn AccessReview>, lifetimes: Lifetimes, capacity: u64) -> Self {
        let answers = Cache::builder().max_capacity(capacity).expire_after(lifetimes).build();
        Self { inner, answers, lifetimes, capacity }
    }
}

impl fmt::Debug for CachedAccessReview {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CachedAccessReview")
            .field("lifetimes", &self.lifetimes)
            .field("capacity", &self.capacity)
            .finish_non_exhaustive()
    }
}

impl Expiry<Access, bool> for Lifetimes {
    fn expire_after_create(&self, _: &Access, &is_allowed: &bool, _: Instant) -> Option<Duration> {
        Some(if is_allowed { self.allowed } else { self.denied })
    }
}

impl AccessReview for CachedAccessReview {
    fn is_allowed<'a>(&'a self, access: &'a Access) -> BoxFuture<'a, Result<bool, BoxError>> {
        // If the caller that runs the request is cancelled, the next waiting one takes over.
        let answer = self.answers.entry_by_ref(access).or_try_insert_with(self.inner.is_allowed(access));
        Box::pin(async move {
            match answer.await {
                Ok(entry) => Ok(entry.into_value()),
                // Coalesced requests share the error.
                Err(error) => Err(with_causes(&**error).into()),
            }
        })
    }
}
