//! Access checks of service accounts against the cluster's RBAC.

use futures::future::BoxFuture;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReviewSpec};
use lucid_text::names::{is_dns_label, is_dns_subdomain};
use serde::de::{Deserialize, Deserializer, Error};
use tower::BoxError;

use crate::review::AdmissionRequest;

/// Service account, written as `namespace/name`, or as `namespace:name` as in `kubectl create rolebinding
/// --serviceaccount`.
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
    pub(super) fn user(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace, self.name)
    }

    pub(super) fn access(&self, verb: &str, request: &AdmissionRequest) -> SubjectAccessReviewSpec {
        let some = |text: &str| Some(text.to_owned());
        let attributes = ResourceAttributes {
            verb: some(verb),
            group: some(&request.resource.group),
            version: some(&request.resource.version),
            resource: some(&request.resource.resource),
            subresource: request.sub_resource.clone(),
            namespace: request.namespace.clone(),
            // Empty while the object has no name, which checks access to all names.
            name: some(&request.name),
            ..ResourceAttributes::default()
        };
        let groups = vec![
            "system:serviceaccounts".to_owned(),
            format!("system:serviceaccounts:{}", self.namespace),
            "system:authenticated".to_owned(),
        ];
        SubjectAccessReviewSpec {
            user: Some(self.user()),
            groups: Some(groups),
            resource_attributes: Some(attributes),
            ..SubjectAccessReviewSpec::default()
        }
    }
}

impl<'de> Deserialize<'de> for ServiceAccount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| {
            let expected = "expected namespace/name, both as Kubernetes names them";
            D::Error::custom(format!("service account {text:?}: {expected}"))
        })
    }
}

/// Formats the access to the subject of `request` as `update deployments/scale.apps web in namespace shop`.
pub(super) fn describe(verb: &str, request: &AdmissionRequest) -> String {
    let mut access = format!("{verb} {}", request.resource.resource);
    for (separator, part) in [
        ("/", request.sub_resource.as_deref().unwrap_or_default()),
        (".", &request.resource.group),
        (" ", &request.name),
        (" in namespace ", request.namespace.as_deref().unwrap_or_default()),
    ] {
        if !part.is_empty() {
            access += separator;
            access += part;
        }
    }
    access
}

pub(crate) trait AccessReview: Send + Sync + 'static {
    /// A failed check is an error, not a denial.
    fn is_allowed<'a>(&'a self, access: &'a SubjectAccessReviewSpec)
    -> BoxFuture<'a, Result<bool, BoxError>>;
}
