//! Validates responses as the API server does, so that the cause can be reported.

use std::sync::Arc;
use std::task::{Context, Poll};

use futures::FutureExt;
use futures::future::BoxFuture;
use tower::{BoxError, Layer, Service};

use crate::answer;
use crate::kind::WebhookKind;
use crate::patch::AllowedPaths;
use crate::response::AdmissionResponse;
use crate::review::AdmissionRequest;

/// Turns a response that the API server would reject into an error of the handler: a patch from a validating webhook,
/// or a patch that does not apply to the object or changes forbidden fields. Adjusts warnings and audit annotations.
#[derive(Clone, Debug)]
pub(crate) struct CheckLayer {
    kind: WebhookKind,
    allowed_paths: Arc<[AllowedPaths]>,
}

impl CheckLayer {
    /// Creates a layer that checks responses of a webhook of this kind.
    pub(crate) fn new(kind: WebhookKind) -> Self {
        Self { kind, allowed_paths: Arc::default() }
    }

    /// Rejects patches that change other fields. After several calls, a change has to be allowed by all of them.
    pub(crate) fn with_allowed_paths(mut self, paths: AllowedPaths) -> Self {
        self.allowed_paths = self.allowed_paths.iter().cloned().chain([paths]).collect();
        self
    }

    pub(crate) fn check(
        &self,
        object: Option<&crate::RawObject>,
        response: AdmissionResponse,
    ) -> Result<AdmissionResponse, BoxError> {
        Ok(answer::check(self.kind, object, &self.allowed_paths, response)?)
    }
}

impl<S> Layer<S> for CheckLayer {
    type Service = Check<S>;

    fn layer(&self, inner: S) -> Check<S> {
        Check { inner, layer: self.clone() }
    }
}

/// See [`CheckLayer`].
#[derive(Clone, Debug)]
pub(crate) struct Check<S> {
    inner: S,
    layer: CheckLayer,
}

impl<S> Service<AdmissionRequest> for Check<S>
where
    S: Service<AdmissionRequest, Response = AdmissionResponse>,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
{
    type Response = AdmissionResponse;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<AdmissionResponse, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: AdmissionRequest) -> Self::Future {
        let (object, layer) = (request.object.clone(), self.layer.clone());
        let answer = self.inner.call(request);
        async move { layer.check(object.as_ref(), answer.await.map_err(Into::into)?) }.boxed()
    }
}
