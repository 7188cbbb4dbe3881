//! Where a serving certificate comes from

mod check;
#[cfg(feature = "files")]
mod files;
#[cfg(any(feature = "files", feature = "kube"))]
mod pair;
#[cfg(any(feature = "files", feature = "kube"))]
mod presets;
#[cfg(feature = "kube")]
mod secret;

use std::{
    collections::BTreeMap,
    fmt,
    future::Future,
    time::{Duration, SystemTime},
};

use snafu::Snafu;

use crate::{
    bundle::TrustBundle, fingerprint::Fingerprint, metrics::Phase, serving::ServingCertificate,
    target::Reading, validity::Validity,
};

pub(crate) use check::check;
#[cfg(feature = "files")]
pub use files::{BundleFile, Files, Watching};
#[cfg(feature = "kube")]
pub use secret::SecretSource;

/// Where serving certificates come from, and what vouches for them.
///
/// [`Certificates`](crate::Certificates) asks for an [`Offer`], brings its trust bundle to the targets, and
/// puts its certificate into service when callers accept it. A source that has nothing good to offer says
/// why; what was served stays served meanwhile.
pub trait CertificateSource: Send {
    /// In logs and as a metric's label, such as `files`
    fn name(&self) -> &'static str;

    /// What to trust and what to serve at `now`. It is asked at start, when [`changed`](Self::changed)
    /// completes, when a target changed, and at least each minute by the wall clock, so it must be cheap when
    /// nothing changed. `live` was read from the targets before the call: a source that reads shared state
    /// in here knows that the state is not older than the readings.
    fn offer(
        &mut self,
        live: &Live,
        now: SystemTime,
    ) -> impl Future<Output = Result<Offer, SourceError>> + Send;

    /// Completes when [`offer`](Self::offer) may have another answer. Dropping the future before loses nothing.
    fn changed(&mut self) -> impl Future<Output = ()> + Send;
}

/// What a source has to offer
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Offer {
    /// The certificate to serve as soon as callers accept it; `None` when there is none but what is served
    pub certificate: Option<ServingCertificate>,
    /// What is to be trusted
    pub trust: Trust,
    /// When to ask again, if that is sooner than in a minute
    pub ask_again: Option<Duration>,
    /// Where the source's authorities stand, if it has any of its own
    pub rotation: Option<Rotation>,
    /// What is wrong although there is an offer
    pub problem: Option<SourceError>,
}

impl Offer {
    /// A certificate, and what to do about the trust in it
    #[must_use]
    pub fn new(certificate: ServingCertificate, trust: Trust) -> Self {
        Self { certificate: Some(certificate), ..Self::trust_only(trust) }
    }

    /// What is to be trusted, where there is no certificate but the one in service
    #[must_use]
    pub fn trust_only(trust: Trust) -> Self {
        Self { certificate: None, trust, ask_again: None, rotation: None, problem: None }
    }
}

/// Where the authorities of a source stand, for metrics
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rotation {
    /// What is being done
    pub phase: Phase,
    /// Of the authority that signs
    pub ca: Validity,
    /// Of the one that will sign
    pub next: Option<Validity>,
}

impl Rotation {
    /// The authority that signs is valid for so long; see [`next`](Self::next) for the one that will.
    #[must_use]
    pub fn new(phase: Phase, ca: Validity) -> Self {
        Self { phase, ca, next: None }
    }
}

/// What the targets are to hold
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Trust {
    /// Somebody else brings the bundle there, such as cert-manager's cainjector: it is only read
    Elsewhere,
    /// At least this; what is there besides stays until it is expired or a day has passed, because others may
    /// still serve under it
    AtLeast(TrustBundle),
    /// Exactly this: the source knows all authorities that anybody may serve under
    Exactly(TrustBundle),
}

impl Trust {
    /// What the source itself vouches for
    #[must_use]
    pub fn bundle(&self) -> Option<&TrustBundle> {
        match self {
            Self::Elsewhere => None,
            Self::AtLeast(bundle) | Self::Exactly(bundle) => Some(bundle),
        }
    }
}

/// Why a source has nothing to offer, or why its offer is not taken
#[derive(Debug, Clone, PartialEq, Eq, Snafu)]
#[snafu(visibility(pub(crate)), display("{problem}"))]
#[non_exhaustive]
pub struct SourceError {
    /// The kind of the problem, which is also a metric's label
    pub reason: Reason,
    /// Which object or file, what was found, and what is accepted
    pub problem: String,
}

impl SourceError {
    /// A problem in one line
    #[must_use]
    pub fn new(reason: Reason, problem: impl fmt::Display) -> Self {
        Self { reason, problem: problem.to_string() }
    }
}

/// Kinds of problems with a certificate that comes from elsewhere
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Reason {
    /// A file or object is not there
    Missing,
    /// It cannot be read
    Unreadable,
    /// It is not what it should be: no PEM, cut off, no certificate, no key, several keys
    Malformed,
    /// The key is that of another certificate
    Mismatch,
    /// It is expired
    Expired,
    /// It is not valid yet
    NotYetValid,
    /// It is not for a name under which the server is called
    WrongName,
    /// It is not trusted by the bundle that came with it
    Untrusted,
}

impl Reason {
    pub(crate) const ALL: [Self; 8] = [
        Self::Missing,
        Self::Unreadable,
        Self::Malformed,
        Self::Mismatch,
        Self::Expired,
        Self::NotYetValid,
        Self::WrongName,
        Self::Untrusted,
    ];

    /// The metric's label: `missing`, `unreadable`, `malformed`, `mismatch`, `expired`, `not_yet_valid`,
    /// `wrong_name`, `untrusted`
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Unreadable => "unreadable",
            Self::Malformed => "malformed",
            Self::Mismatch => "mismatch",
            Self::Expired => "expired",
            Self::NotYetValid => "not_yet_valid",
            Self::WrongName => "wrong_name",
            Self::Untrusted => "untrusted",
        }
    }
}

/// What callers trust, as it was just read back from the targets
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Live {
    /// What each target holds, by its name. One that could not be read is `None`.
    pub targets: BTreeMap<String, Option<Reading>>,
    /// For how long every target was seen to trust an authority, without interruption
    pub trusted_for: BTreeMap<Fingerprint, Duration>,
    /// The certificate in service
    pub serving: Option<ServingCertificate>,
}
