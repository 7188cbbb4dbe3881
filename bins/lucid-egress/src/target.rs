//! Servers that requests are sent to.

use hyper::{
    StatusCode,
    header::HeaderValue,
    http::uri::{Authority, Scheme},
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) scheme: Scheme,
    pub(crate) authority: Authority,
    /// Value of `Host`; that of the request if absent.
    pub(crate) host: Option<HeaderValue>,
    pub(crate) is_inside: bool,
}

pub(crate) type Refusal = (StatusCode, String);
