//! Access reviews by the cluster.

use std::fmt;

use futures::future::BoxFuture;
use k8s_openapi::api::authorization::v1::{SubjectAccessReview, SubjectAccessReviewSpec};
use kube::api::PostParams;
use kube::{Api, Client};
use tower::BoxError;

use crate::guard::AccessReview;

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
