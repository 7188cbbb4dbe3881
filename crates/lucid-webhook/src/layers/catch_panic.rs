//! Isolates panics of handlers.

use std::panic::AssertUnwindSafe;
use std::task::{Context, Poll};

use futures::FutureExt;
use futures::future::BoxFuture;
use tower::{BoxError, Layer, Service, ServiceExt};

use crate::classify::Panicked;
use crate::response::AdmissionResponse;
use crate::review::AdmissionRequest;

/// Turns a panic of the handler into the error [`Panicked`].
///
/// The panic hook still runs and reports the message and location. Panics cannot be caught with `panic = "abort"`.
#[derive(Clone, Copy, Debug, Default)]
pub struct CatchPanicLayer(());

impl CatchPanicLayer {
    /// Creates the layer.
    #[must_use]
    pub const fn new() -> Self {
        Self(())
    }
}

impl<S> Layer<S> for CatchPanicLayer {
    type Service = CatchPanic<S>;

    fn layer(&self, inner: S) -> CatchPanic<S> {
        CatchPanic { inner }
    }
}

/// See [`CatchPanicLayer`].
#[derive(Clone, Debug)]
pub struct CatchPanic<S> {
    inner: S,
}

impl<S> Service<AdmissionRequest> for CatchPanic<S>
where
    S: Service<AdmissionRequest, Response = AdmissionResponse> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<BoxError>,
{
    type Response = AdmissionResponse;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<AdmissionResponse, BoxError>>;

    /// Always ready: `poll_ready` of the handler may panic as well.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: AdmissionRequest) -> Self::Future {
        // The clone is dropped with the panic, so that its possibly inconsistent state is never observed.
        let answer = AssertUnwindSafe(self.inner.clone().oneshot(request)).catch_unwind();
        async move {
            match answer.await {
                Ok(answer) => answer.map_err(Into::into),
                Err(_panic) => Err(Panicked {}.into()),
            }
        }
        .boxed()
    }
}
