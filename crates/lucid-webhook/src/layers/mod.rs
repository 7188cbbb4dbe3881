//! Layers around the handler of a webhook.
//!
//! The router wraps each webhook in a [`TraceLayer`]; inside it are, from the outside, [`FailureLayer`],
//! [`Guard`](crate::guard::Guard), [`CheckLayer`].

mod check;
mod deadline;
mod failure;
pub(crate) mod shed;
mod trace;

pub(crate) use check::CheckLayer;
pub(crate) use deadline::deadline;
pub(crate) use failure::FailureLayer;
pub(crate) use trace::TraceLayer;
