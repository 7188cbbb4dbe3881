//! Access reviews through the client that the configuration is started with.

use std::sync::OnceLock;

use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::api::authorization::v1::SubjectAccessReviewSpec;
use kube::Client;
use lucid_webhook::BoxError;
use lucid_webhook::client::SubjectAccessReviews;
use lucid_webhook::guard::{AccessReview, CachedAccessReview};

/// Reviews access once the configuration was started.
#[derive(Debug, Default)]
pub(crate) struct Reviews(OnceLock<CachedAccessReview>);

impl Reviews {
    pub(crate) fn start(&self, client: Client) {
        self.0.get_or_init(|| CachedAccessReview::new(SubjectAccessReviews::new(client)));
    }
}

impl AccessReview for Reviews {
    fn is_allowed<'a>(
        &'a self,
        access: &'a SubjectAccessReviewSpec,
    ) -> BoxFuture<'a, Result<bool, BoxError>> {
        match self.0.get() {
            Some(reviews) => reviews.is_allowed(access),
            None => std::future::ready(Err("the configuration is not started".into())).boxed(),
        }
    }
}
