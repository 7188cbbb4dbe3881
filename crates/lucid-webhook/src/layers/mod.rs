//! Layers for admission services, usable independently.
//!
//! All except [`ShedLayer`] wrap a `tower::Service<AdmissionRequest, Response = AdmissionResponse>`. A
//! [`Webhook`](crate::Webhook) consists of them in this order, from the outside: [`MetricsLayer`], [`TraceLayer`],
//! [`FailureLayer`], [`CatchPanicLayer`], [`DeadlineLayer`], [`GuardLayer`](crate::guard::GuardLayer), [`CheckLayer`].

mod catch_panic;
mod check;
mod deadline;
mod failure;
mod metrics;
pub(crate) mod shed;
mod trace;

pub use catch_panic::{CatchPanic, CatchPanicLayer};
pub use check::{Check, CheckLayer};
pub use deadline::{DeadlineLayer, EnforceDeadline, deadline};
pub use failure::{FailureLayer, OnFailure};
pub use metrics::{Count, MetricsLayer};
pub use shed::{Shed, ShedLayer};
pub use trace::{Trace, TraceLayer};

pub use crate::classify::{DeadlineExceeded, Panicked};
