//! Side effects of handlers.

/// Side effects of a webhook (`sideEffects` in `admissionregistration.k8s.io/v1`).
///
/// For requests that will not be stored (`dryRun=All`), the API server calls only webhooks that promise no side
/// effects. `Some` and `Unknown` are not offered, since `v1` rejects them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum SideEffects {
    /// No side effects. The handler gets a client that only writes as a dry run.
    #[default]
    None,
    /// No side effects in a dry run; otherwise the handler may write.
    NoneOnDryRun,
}

impl SideEffects {
    /// The name in the API, such as `NoneOnDryRun`.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::None => "None",
            Self::NoneOnDryRun => "NoneOnDryRun",
        }
    }

    /// Returns `true` if a handler with this promise may change anything while it handles a request.
    #[cfg(feature = "client")]
    pub(crate) const fn may_write(self, dry_run: bool) -> bool {
        match self {
            Self::None => false,
            Self::NoneOnDryRun => !dry_run,
        }
    }
}
