//! Rebuilds a service when the permissions of its webhook change.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;
use tower::{Service, ServiceExt, service_fn};

use crate::guard::Permissions;
use crate::review::AdmissionRequest;

/// Returns a service that answers as `build` makes it of the latest permissions. Clones share it.
pub(crate) fn live<S>(
    mut permissions: watch::Receiver<Permissions>,
    build: impl Fn(&Permissions) -> S + Send + Sync + 'static,
) -> impl Service<AdmissionRequest, Response = S::Response, Error = S::Error, Future: Send> + Clone + Send + Sync
where
    S: Service<AdmissionRequest, Future: Send> + Clone + Send + 'static,
{
    let service = build(&permissions.borrow_and_update());
    let shared = Arc::new((build, Mutex::new((permissions, service))));
    service_fn(move |request| {
        let (build, latest) = &*shared;
        let mut latest = latest.lock().unwrap_or_else(PoisonError::into_inner);
        let (permissions, service) = &mut *latest;
        // If the sender is gone, its last value applies.
        if permissions.has_changed().unwrap_or_default() {
            *service = build(&permissions.borrow_and_update());
        }
        service.clone().oneshot(request)
    })
}
