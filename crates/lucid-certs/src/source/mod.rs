//! Sources of serving certificates.

mod check;
#[cfg(feature = "files")]
mod files;
#[cfg(any(feature = "files", feature = "kube"))]
mod pair;
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
    bundle::TrustBundle, fingerprint::Fingerprint, serving::ServingCertificate, target::Reading,
    validity::Validity,
};

pub(crate) use check::check;
#[cfg(feature = "files")]
pub use files::{FileSource, watch_bundle};
#[cfg(feature = "kube")]
pub use secret::SecretSource;

/// A source of serving certificates and of the trust bundle that verifies them.
///
/// [`Certificates`](crate::Certificates) requests an [`Offer`], publishes its trust bundle to the targets and
/// serves its certificate once callers accept it. If a source returns an error, the certificate in service
/// stays in service.
pub trait CertificateSource: Send {
    /// Name in logs and metric labels, such as `files`.
    fn name(&self) -> &'static str;

    /// Returns the certificate to serve and the bundle to trust at `now`.
    ///
    /// Called at start, when [`changed`](Self::changed) completes, when a target changes, and at least once a
    /// minute by the wall clock, so it must be cheap while nothing changes. `observed` was read from the targets
    /// before the call: shared state that this method reads is at least as recent as the readings.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no usable certificate.
    fn offer(
        &mut self,
        observed: &ObservedTrust,
        now: SystemTime,
    ) -> impl Future<Output = Result<Offer, SourceError>> + Send;

    /// Returns `true` if every offer has [`Trust::External`]. Everything but the bundle is then restored in the targets
    /// before the first offer, too: a registered webhook whose server has no certificate yet refuses requests, an
    /// unregistered one lets them pass.
    fn has_external_trust(&self) -> bool {
        false
    }

    /// Completes when [`offer`](Self::offer) may return something new. Must be cancel safe.
    fn changed(&mut self) -> impl Future<Output = ()> + Send;
}

/// A certificate and its trust bundle, as provided by a source.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Offer {
    /// Certificate to serve once callers accept it, or `None` to keep the one in service.
    pub certificate: Option<ServingCertificate>,
    /// Trust bundle to publish, if any.
    pub trust: Trust,
    /// Time until the next call of [`CertificateSource::offer`], if sooner than the regular minute.
    pub(crate) next_check: Option<Duration>,
    /// Rotation state of sources that have their own CAs.
    pub(crate) rotation: Option<Rotation>,
    /// Problem to report although there is an offer.
    pub(crate) problem: Option<SourceError>,
}

impl Offer {
    /// Creates an offer of `certificate`.
    #[must_use]
    pub fn new(certificate: ServingCertificate, trust: Trust) -> Self {
        Self { certificate: Some(certificate), trust, next_check: None, rotation: None, problem: None }
    }
}

/// Rotation state of a source's CAs, for metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rotation {
    pub(crate) phase: Phase,
    pub(crate) ca: Validity,
    /// Validity of the CA that will sign next.
    pub(crate) next: Option<Validity>,
}

/// Trust bundle that the targets have to hold.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Trust {
    /// The bundle is managed externally, for example by cert-manager's cainjector. Targets are only read.
    External,
    /// At least this bundle. Other certificates in the targets stay until they expire or a day has passed,
    /// because other replicas may still serve under them.
    AtLeast(TrustBundle),
    /// Exactly this bundle: the source knows all CAs that may be in use.
    Exactly(TrustBundle),
}

impl Trust {
    #[must_use]
    pub(crate) fn bundle(&self) -> Option<&TrustBundle> {
        match self {
            Self::External => None,
            Self::AtLeast(bundle) | Self::Exactly(bundle) => Some(bundle),
        }
    }
}

/// Reason why a source has no offer, or why its offer is rejected.
#[derive(Debug, Clone, PartialEq, Eq, Snafu)]
#[snafu(visibility(pub(crate)), display("{problem}"))]
#[non_exhaustive]
pub struct SourceError {
    /// Kind of problem, also used as a metric label.
    pub reason: Reason,
    /// Object or file concerned, problem, and expected input.
    pub(crate) problem: String,
}

impl SourceError {
    /// Creates an error from a one-line problem.
    #[must_use]
    pub fn new(reason: Reason, problem: impl fmt::Display) -> Self {
        Self { reason, problem: problem.to_string() }
    }
}

/// Phases of a CA rotation, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// There is a single CA.
    Stable,
    /// The next CA is shared with the other replicas.
    Publish,
    /// The next CA is added to the targets.
    Trust,
    /// API servers get time to observe the next CA.
    Settle,
    /// The next CA signs from now on.
    Activate,
    /// Certificates of the previous CA leave service.
    Drain,
    /// The previous CA is removed from the targets.
    Retire,
    /// The CA has expired or is revoked; the rotation is shortened.
    Emergency,
}

impl Phase {
    pub(crate) const ALL: [Self; 8] = [
        Self::Stable,
        Self::Publish,
        Self::Trust,
        Self::Settle,
        Self::Activate,
        Self::Drain,
        Self::Retire,
        Self::Emergency,
    ];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Stable => "stable",
            Self::Publish => "publish",
            Self::Trust => "trust",
            Self::Settle => "settle",
            Self::Activate => "activate",
            Self::Drain => "drain",
            Self::Retire => "retire",
            Self::Emergency => "emergency",
        }
    }
}

/// Kinds of problems with an externally issued certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Reason {
    /// A file or object does not exist.
    Missing,
    /// A file or object cannot be read.
    Unreadable,
    /// The content is malformed: not PEM, truncated, or without exactly one key and at least one certificate.
    Malformed,
    /// The private key does not match the certificate.
    Mismatch,
    /// The certificate has expired.
    Expired,
    /// The certificate is not valid yet.
    NotYetValid,
    /// The certificate is not valid for a name by which the server is called.
    WrongName,
    /// The certificate is not trusted by the accompanying bundle.
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

    pub(crate) fn as_str(self) -> &'static str {
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

/// Trust that was just read back from the targets. Decides about the rotation of a [self-managed CA](crate::SelfManaged);
/// other sources ignore it.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
#[cfg_attr(not(feature = "kube"), expect(dead_code, reason = "for self-managed CAs"))]
pub struct ObservedTrust {
    /// Reading of each target by name, or `None` if the target could not be read.
    pub(crate) targets: BTreeMap<String, Option<Reading>>,
    /// Uninterrupted time for which every target was observed to trust each CA.
    pub(crate) trusted_for: BTreeMap<Fingerprint, Duration>,
    pub(crate) serving: Option<ServingCertificate>,
}
