//! Layers for admission services, usable independently.
//!
//! All except [`ShedLayer`] wrap a `tower::Service<AdmissionRequest, Response = AdmissionResponse>`. The
//! [`Router`](crate::Router) wraps each webhook in a [`TraceLayer`]; inside it are, from the outside, [`FailureLayer`],
//! [`Guard`](crate::guard::Guard), [`CheckLayer`].

mod check;
mod deadline;
mod failure;
pub(crate) mod shed;
mod trace;

pub use check::CheckLayer;
pub use deadline::deadline;
pub use failure::FailureLayer;
pub use shed::ShedLayer;
pub use trace::TraceLayer;
