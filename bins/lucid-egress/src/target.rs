//! Servers that requests are sent to.

use hyper::{
    StatusCode,
    header::HeaderValue,
    http::uri::{Authority, Scheme},
};

/// Server that a request is sent to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) scheme: Scheme,
    pub(crate) authority: Authority,
    /// Value of `Host`; that of the request if absent.
    pub(crate) host: Option<HeaderValue>,
    /// `true` for an auditor or the model in the pod.
    pub(crate) is_inside: bool,
}

/// Status and message of a refusal.
pub(crate) type Refusal = (StatusCode, String);
