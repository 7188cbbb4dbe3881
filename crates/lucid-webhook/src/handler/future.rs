use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tower::BoxError;

use super::{IntoResponse, Rejection};
use crate::response::AdmissionResponse;
use crate::review::AdmissionRequest;

/// Future of a function's response. It is `Send` if that of the function is: a boxed future would hide from the
/// compiler why it is not.
pub struct ResponseFuture<Fut> {
    request: Arc<AdmissionRequest>,
    response: Result<Pin<Box<Fut>>, Option<Rejection>>,
}

impl<Fut> ResponseFuture<Fut> {
    pub(super) fn new(request: Arc<AdmissionRequest>, response: Fut) -> Self {
        Self { request, response: Ok(Box::pin(response)) }
    }

    pub(super) const fn rejected(request: Arc<AdmissionRequest>, rejection: Rejection) -> Self {
        Self { request, response: Err(Some(rejection)) }
    }
}

impl<Fut: Future<Output: IntoResponse>> Future for ResponseFuture<Fut> {
    type Output = Result<AdmissionResponse, BoxError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        Poll::Ready(match &mut this.response {
            Ok(response) => ready!(response.as_mut().poll(context)).into_response(&this.request),
            Err(rejection) => {
                Err(rejection.take().map_or_else(|| "polled after completion".into(), BoxError::from))
            }
        })
    }
}

impl<Fut> fmt::Debug for ResponseFuture<Fut> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").field("request", &self.request).finish_non_exhaustive()
    }
}
