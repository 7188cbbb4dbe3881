//! Rebuilds the stack of layers of a webhook when its permissions change.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::watch;
use tower::{BoxError, Service, ServiceExt};

use crate::guard::Permissions;
use crate::response::AdmissionResponse;
use crate::review::AdmissionRequest;
use crate::webhook::AdmissionService;

type Build = dyn Fn(&Permissions) -> AdmissionService + Send + Sync;

/// A webhook with the latest permissions. Clones share them.
#[derive(Clone)]
pub(crate) struct Live(Arc<Shared>);

struct Shared {
    build: Box<Build>,
    latest: Mutex<(watch::Receiver<Permissions>, AdmissionService)>,
}

impl Live {
    pub(crate) fn new(
        mut permissions: watch::Receiver<Permissions>,
        build: impl Fn(&Permissions) -> AdmissionService + Send + Sync + 'static,
    ) -> Self {
        let service = build(&permissions.borrow_and_update());
        Self(Arc::new(Shared { build: Box::new(build), latest: Mutex::new((permissions, service)) }))
    }

    fn latest(&self) -> AdmissionService {
        let mut latest = self.0.latest.lock().unwrap_or_else(PoisonError::into_inner);
        let (permissions, service) = &mut *latest;
        // If the sender is gone, its last value applies.
        if permissions.has_changed().unwrap_or_default() {
            *service = (self.0.build)(&permissions.borrow_and_update());
        }
        service.clone()
    }
}

impl fmt::Debug for Live {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Live").finish_non_exhaustive()
    }
}

impl Service<AdmissionRequest> for Live {
    type Response = AdmissionResponse;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<AdmissionResponse, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: AdmissionRequest) -> Self::Future {
        self.latest().oneshot(request).boxed()
    }
}
