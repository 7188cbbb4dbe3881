//! States of running pods.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;

use jiff::{SignedDuration, Timestamp};
use lucid_notary::ImageReference;
use serde::Serialize;

use crate::compare::Comparison;

/// Time after which an auditor that is not ready counts: containers need some time to start.
const START: SignedDuration = SignedDuration::from_mins(1);

/// State of a running pod that requests a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[non_exhaustive]
pub enum State {
    /// It has the current chain.
    Audited,
    /// It has the current chain, and an auditor has not been ready for a minute.
    NotReady,
    /// It has the current chain, in front of a port that nothing names as the model's.
    AssumedPort,
    /// Its chain is from another configuration: other auditors, images or settings than planned now.
    Stale,
    /// An auditor's digest is not notarized any more.
    Revoked,
    /// Its chain is incomplete or was changed after injection.
    Altered,
    /// It requests a chain and has none.
    Missing,
    /// It appears to request a chain, but the request is not effective.
    Ignored,
    /// It opts out of auditing and is allowed to.
    Skipped,
    /// The planned chain is unknown, because the configuration or the pod is invalid.
    Unknown,
}

impl State {
    /// All states.
    pub const ALL: [Self; 10] = [
        Self::Audited,
        Self::NotReady,
        Self::AssumedPort,
        Self::Stale,
        Self::Revoked,
        Self::Altered,
        Self::Missing,
        Self::Ignored,
        Self::Skipped,
        Self::Unknown,
    ];

    /// Name in UpperCamelCase, as in metrics, events and reports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Audited => "Audited",
            Self::NotReady => "NotReady",
            Self::AssumedPort => "AssumedPort",
            Self::Stale => "Stale",
            Self::Revoked => "Revoked",
            Self::Altered => "Altered",
            Self::Missing => "Missing",
            Self::Ignored => "Ignored",
            Self::Skipped => "Skipped",
            Self::Unknown => "Unknown",
        }
    }

    /// Returns `true` for a chain as planned now.
    pub(crate) const fn is_current(self) -> bool {
        matches!(self, Self::Audited | Self::AssumedPort)
    }

    /// Returns `true` if somebody has to act: neither [`Audited`](Self::Audited) nor [`Skipped`](Self::Skipped).
    #[must_use]
    pub const fn is_problem(self) -> bool {
        !matches!(self, Self::Audited | Self::Skipped)
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Known verdicts: `false` for an image that is not notarized. Unknown images revoke nothing.
pub type Verdicts = HashMap<ImageReference, bool>;

/// Returns the state of a pod with its reason, which is empty for [`State::Audited`].
#[must_use]
pub fn state<'a>(comparison: &'a Comparison, verdicts: &Verdicts, now: Timestamp) -> (State, Cow<'a, str>) {
    let Comparison { state, reason, images, readiness, .. } = comparison;
    let revoked = images.iter().filter(|image| verdicts.get(image) == Some(&false));
    let revoked: Vec<_> = revoked.filter_map(ImageReference::digest).collect();
    if !revoked.is_empty() {
        let revoked: Vec<_> = revoked.iter().map(|digest| format!("{digest} is not notarized")).collect();
        let reason = Some(reason.clone()).filter(|reason| !reason.is_empty());
        let reason = revoked.into_iter().chain(reason).collect::<Vec<_>>().join("; ");
        return (State::Revoked, reason.into());
    }
    match &readiness.unready {
        Some((since, why)) if *state == State::Audited && now.duration_since(*since) >= START => {
            (State::NotReady, why.into())
        }
        _ => (*state, reason.into()),
    }
}
