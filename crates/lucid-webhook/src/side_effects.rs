//! What a handler does besides answering.

use std::fmt;

/// What a webhook does to the world besides answering (`sideEffects` of a webhook, `admissionregistration.k8s.io/v1`).
///
/// The API server calls a webhook for requests that will not be stored (`dryRun=All`) because of this promise, and
/// `v1` takes no webhook that makes none: its `Some` and `Unknown` are not offered here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SideEffects {
    /// None, whatever the request. A handler that says so gets a client that only ever writes as a dry run.
    #[default]
    None,
    /// None when the request is a dry run; otherwise it may write.
    NoneOnDryRun,
}

impl SideEffects {
    /// The name in the API, such as `NoneOnDryRun`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "None",
            Self::NoneOnDryRun => "NoneOnDryRun",
        }
    }

    /// Whether a handler that promises this may change anything while it answers a request.
    #[must_use]
    pub const fn may_write(self, dry_run: bool) -> bool {
        match self {
            Self::None => false,
            Self::NoneOnDryRun => !dry_run,
        }
    }
}

impl fmt::Display for SideEffects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
