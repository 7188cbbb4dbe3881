//! What a webhook may touch, in the hands of the cluster's administrator.
//!
//! A [`Guard`] asks three things of every request, and the first "no" ends it:
//!
//! 1. Is the object selected ([`Selector`])? `kube-system` is not, unless it is named.
//! 2. In strict mode: does the object consent? Its annotation [`CAN_MUTATE`] or [`CAN_VALIDATE`] lists the webhook's name,
//!    among others, separated by commas. Strict mode makes the webhook one that objects opt into: do not use it for a
//!    policy that their owners would rather avoid.
//! 3. May the service account that the webhook acts for do this ([`AccessReview`])? A mutating webhook needs `update`, a
//!    validating one `get`, on the request's resource and subresource; [`Verbs`] changes that.
//!
//! [`Webhook::with_guard`](crate::Webhook::with_guard) sets it in code, [`GuardLayer`] puts it in front of any handler, and
//! [`Permissions`] is configuration:
//!
//! ```
//! use std::sync::Arc;
//!
//! use lucid_webhook::guard::{AccessReview, CachedAccessReview, Permissions};
//! use lucid_webhook::{AdmissionResponse, Router, Webhook};
//!
//! async fn label() -> AdmissionResponse {
//!     AdmissionResponse::allow()
//! }
//!
//! fn router(review: impl AccessReview) -> Result<Router, Box<dyn std::error::Error>> {
//!     let permissions: Permissions = serde_json::from_str(r#"{
//!         "selector": {"namespaces": ["team-*"]},
//!         "strictMode": true,
//!         "serviceAccountName": "policies:labeller",
//!         "allowedPatchPaths": ["/metadata/labels"]
//!     }"#)?;
//!     let review = Arc::new(CachedAccessReview::new(review));
//!     let label = Webhook::mutating("label.example.com", label).with_permissions(permissions, Some(review))?;
//!     Ok(Router::new().webhook("/label", label))
//! }
//! ```

mod access;
mod consent;
mod labels;
mod layer;
mod metadata;
mod permissions;
mod selector;

use std::fmt;
use std::sync::Arc;

use snafu::Snafu;

use crate::kind::WebhookKind;
use crate::review::{AdmissionRequest, DecodeError};
use crate::router::BoxError;
use metadata::Metadata;

pub use access::{Access, AccessReview, CachedAccessReview, InvalidServiceAccount, ServiceAccount};
pub use consent::{CAN_MUTATE, CAN_VALIDATE};
pub use labels::{InvalidLabels, LabelOperator, LabelSelector};
pub use layer::{GuardLayer, Guarded};
pub use permissions::{Forbidden, NoAccessReview, Permissions, Verbs};
pub use selector::{InvalidKind, Selector};

/// Decides whether a webhook may touch what a request is about.
#[derive(Clone)]
pub struct Guard {
    webhook: Arc<str>,
    kind: WebhookKind,
    selector: Arc<Selector>,
    strict: bool,
    rights: Option<Rights>,
}

#[derive(Clone)]
struct Rights {
    account: Arc<ServiceAccount>,
    verb: Arc<str>,
    review: Arc<dyn AccessReview>,
}

/// Whether a request is any of the webhook's business.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// It is.
    Inside,
    /// It is not.
    Outside(Outside),
}

/// Why a request is none of the webhook's business.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outside {
    /// The object is not selected.
    Selector,
    /// In strict mode: the object does not consent.
    NoConsent,
    /// The service account may not do this.
    Forbidden(Box<Access>),
}

impl fmt::Display for Outside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Selector => f.write_str("the object is not selected"),
            Self::NoConsent => f.write_str("the object does not consent"),
            Self::Forbidden(access) => write!(f, "{} may not {access}", access.user),
        }
    }
}

/// Why the guard cannot tell.
#[derive(Debug, Snafu)]
#[snafu(visibility(pub(crate)))]
#[non_exhaustive]
pub enum GuardError {
    /// The objects' metadata cannot be read.
    #[snafu(transparent)]
    Metadata {
        /// What the decoder said.
        source: DecodeError,
    },
    /// The review of the service account's rights failed.
    #[snafu(display("failed to find out whether {} may {access}: {source}", access.user))]
    Review {
        /// What was asked.
        access: Box<Access>,
        /// What the review said.
        source: BoxError,
    },
    /// The review did not answer before the request's deadline.
    #[snafu(display("failed to find out in time whether {} may {access}", access.user))]
    TimedOut {
        /// What was asked.
        access: Box<Access>,
    },
}

impl Guard {
    /// A guard of the webhook with this name, such as `label.example.com`, that keeps it out of `kube-system` and lets
    /// everything else in.
    #[must_use]
    pub fn new(webhook: impl Into<Arc<str>>, kind: WebhookKind) -> Self {
        Self { webhook: webhook.into(), kind, selector: Arc::default(), strict: false, rights: None }
    }

    /// Lets in only what is selected.
    #[must_use]
    pub fn with_selector(mut self, selector: Selector) -> Self {
        self.selector = Arc::new(selector);
        self
    }

    /// Lets in only what consents to this webhook.
    #[must_use]
    pub const fn with_strict_mode(mut self) -> Self {
        self.strict = true;
        self
    }

    /// Lets in only what `account` may do `verb` to; see [`Verbs`] for the usual ones.
    ///
    /// `review` is asked for every request that got so far: put a [`CachedAccessReview`] in front of one that goes over
    /// the network.
    #[must_use]
    pub fn with_rights_of(
        mut self,
        account: ServiceAccount,
        verb: impl Into<Arc<str>>,
        review: impl AccessReview,
    ) -> Self {
        let rights = Rights { account: Arc::new(account), verb: verb.into(), review: Arc::new(review) };
        self.rights = Some(rights);
        self
    }

    /// The name of the webhook.
    #[must_use]
    pub fn webhook(&self) -> &str {
        &self.webhook
    }

    /// Decides about one request, within its deadline.
    ///
    /// # Errors
    ///
    /// When the metadata cannot be read, or the service account's rights cannot be found out in time.
    pub async fn check(&self, request: &AdmissionRequest) -> Result<Scope, GuardError> {
        if let Some(reason) = self.check_object(request)? {
            return Ok(Scope::Outside(reason));
        }
        let Some(Rights { account, verb, review }) = &self.rights else { return Ok(Scope::Inside) };
        let access = Box::new(Access::of(account, verb, request));
        match tokio::time::timeout_at(request.deadline, review.is_allowed(&access)).await {
            Ok(Ok(true)) => Ok(Scope::Inside),
            Ok(Ok(false)) => Ok(Scope::Outside(Outside::Forbidden(access))),
            Ok(Err(source)) => Err(GuardError::Review { access, source }),
            Err(_elapsed) => TimedOutSnafu { access }.fail(),
        }
    }

    /// What the object itself says.
    fn check_object(&self, request: &AdmissionRequest) -> Result<Option<Outside>, DecodeError> {
        // Before any of the object is read.
        if !self.selector.matches_request(request) {
            return Ok(Some(Outside::Selector));
        }
        let metadata = if self.strict { Metadata::of(request)? } else { self.selector.metadata(request)? };
        if !self.selector.matches_metadata(request, &metadata) {
            return Ok(Some(Outside::Selector));
        }
        let is_refused = self.strict && !consent::consents(&self.webhook, self.kind, request, &metadata);
        Ok(is_refused.then_some(Outside::NoConsent))
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("webhook", &self.webhook)
            .field("kind", &self.kind)
            .field("selector", &self.selector)
            .field("strict", &self.strict)
            .field("account", &self.rights.as_ref().map(|rights| &rights.account))
            .field("verb", &self.rights.as_ref().map(|rights| &rights.verb))
            .finish_non_exhaustive()
    }
}
