//! Access checks of service accounts against the cluster's RBAC.

use std::fmt;

use futures::future::BoxFuture;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReviewSpec};
use lucid_text::names::{is_dns_label, is_dns_subdomain};
use serde::de::{Deserialize, Deserializer, Error};
use tower::BoxError;

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

/// Checks access of users.
pub(crate) trait AccessReview: Send + Sync + 'static {
    /// Returns `true` if the access is allowed.
    ///
    /// # Errors
    ///
    /// Any error if the access could not be determined. A failed check is not a denial.
    fn is_allowed<'a>(&'a self, access: &'a SubjectAccessReviewSpec)
    -> BoxFuture<'a, Result<bool, BoxError>>;
}
