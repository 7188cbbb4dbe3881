//! Access reviews by the cluster.

use std::fmt;

use futures::future::BoxFuture;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::api::PostParams;
use kube::{Api, Client};
use tower::BoxError;

use crate::guard::{Access, AccessReview};

/// Reviews access with a `SubjectAccessReview` per request; see
/// [`CachedAccessReview`](crate::guard::CachedAccessReview) to reduce their number.
///
/// The client needs the RBAC permission to `create` `subjectaccessreviews.authorization.k8s.io`, which the ClusterRole
/// `system:auth-delegator` includes.
#[derive(Clone)]
pub struct SubjectAccessReviews {
    api: Api<SubjectAccessReview>,
}

impl SubjectAccessReviews {
    /// Creates reviews through `client`.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self { api: Api::all(client) }
    }
}

impl fmt::Debug for SubjectAccessReviews {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SubjectAccessReviews").finish_non_exhaustive()
    }
}

impl AccessReview for SubjectAccessReviews {
    fn is_allowed<'a>(&'a self, access: &'a Access) -> BoxFuture<'a, Result<bool, BoxError>> {
        Box::pin(async move {
            let answer = self.api.create(&PostParams::default(), &question(access)).await?;
            let status =
                answer.status.ok_or("the API server answered a SubjectAccessReview without a status")?;
            // Not a failed review: RBAC reports bindings to missing roles here, and still decides.
            if let Some(error) = status.evaluation_error.filter(|_| !status.allowed) {
                tracing::debug!(
                    user = access.user,
                    "denied {access}, and some RBAC rules could not be evaluated: {error}"
                );
            }
            Ok(status.allowed)
        })
    }
}

fn question(access: &Access) -> SubjectAccessReview {
    let some = |text: &str| Some(text.to_owned());
    let attributes = ResourceAttributes {
        verb: some(&access.verb),
        group: some(&access.group),
        version: some(&access.version),
        resource: some(&access.resource),
        subresource: access.subresource.clone(),
        namespace: access.namespace.clone(),
        name: some(&access.name),
        ..ResourceAttributes::default()
    };
    SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: some(&access.user),
            groups: Some(access.groups.clone()),
            resource_attributes: Some(attributes),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    }
}
