//! What a monitoring system gets to know

use std::time::{SystemTime, UNIX_EPOCH};

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

use crate::source::Reason;

/// The metrics of a server's certificates.
///
/// | metric | labels | |
/// |---|---|---|
/// | `certificate_expiry_timestamp_seconds` | certificate, source | when it ends, in seconds of Unix time; absent while there is none |
/// | `certificate_rotation_phase` | phase | 1 for the phase in which the rotation is, 0 for the others |
/// | `certificate_reloads_total` | source, result, reason | what came of asking a source |
/// | `certificate_last_success_timestamp_seconds` | source | when a source last had something good to offer; 0 before |
/// | `certificate_ready` | | 1 when callers accept the certificate in service |
/// | `trust_bundle_publications_total` | target, result | what came of bringing the bundle to a target |
/// | `trust_bundle_drift_healed_total` | target | how often somebody else's change was undone |
///
/// Certificates are `ca`, `next_ca`, `leaf` (the one in service) and `source` (the one that is offered by somebody else
/// than an authority of our own). Phases are those of
/// [`Phase`]. Results of a reload are `swapped`, `unchanged` and `refused`, this one with the [`Reason`]; of a
/// publication `written`, `unchanged`, `conflict` and `error`.
///
/// A [`Default`] one counts without being registered anywhere.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    expiry: Family<ExpiryLabels, Gauge>,
    phase: Family<PhaseLabels, Gauge>,
    reloads: Family<ReloadLabels, Counter>,
    last_success: Family<SourceLabels, Gauge>,
    ready: Gauge,
    publications: Family<PublicationLabels, Counter>,
    drift_healed: Family<TargetLabels, Counter>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ExpiryLabels {
    certificate: &'static str,
    source: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PhaseLabels {
    phase: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReloadLabels {
    source: String,
    result: &'static str,
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SourceLabels {
    source: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PublicationLabels {
    target: String,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TargetLabels {
    target: String,
}

impl Metrics {
    /// Registers the metrics.
    #[must_use]
    pub fn new(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        metrics.phase(Phase::Stable);
        let certificates = registry.sub_registry_with_prefix("certificate");
        certificates.register(
            "expiry_timestamp_seconds",
            "When a certificate ends, in seconds of Unix time",
            metrics.expiry.clone(),
        );
        certificates.register(
            "rotation_phase",
            "1 for the phase in which the rotation of the authority is, 0 for the others",
            metrics.phase.clone(),
        );
        certificates.register(
            "reloads",
            "What came of asking a source for a certificate",
            metrics.reloads.clone(),
        );
        certificates.register(
            "last_success_timestamp_seconds",
            "When a source last had a good certificate to offer, in seconds of Unix time, 0 before",
            metrics.last_success.clone(),
        );
        certificates.register(
            "ready",
            "1 when callers accept the certificate in service, 0 otherwise",
            metrics.ready.clone(),
        );
        let bundles = registry.sub_registry_with_prefix("trust_bundle");
        bundles.register(
            "publications",
            "What came of bringing the trust bundle to a target",
            metrics.publications.clone(),
        );
        bundles.register(
            "drift_healed",
            "How often a change of the trust bundle by somebody else was undone",
            metrics.drift_healed.clone(),
        );
        metrics
    }

    /// The metrics of one source, by [its name](crate::source::CertificateSource::name). Its counters exist from now
    /// on, at 0: an alert on the first refusal needs the counter to have been there before.
    #[must_use]
    pub fn source(&self, name: impl Into<String>) -> SourceMetrics {
        let source = SourceMetrics { metrics: self.clone(), name: name.into() };
        let refusals = Reason::ALL.into_iter().map(Reload::Refused);
        for reload in [Reload::Swapped, Reload::Unchanged].into_iter().chain(refusals) {
            drop(self.reloads.get_or_create(&source.reload_labels(reload)));
        }
        drop(self.last_success.get_or_create(&source.labels()));
        source
    }

    /// The metrics of one target, by [its name](crate::target::TrustTarget::name). They exist from now on, at 0.
    #[must_use]
    pub fn target(&self, name: impl Into<String>) -> TargetMetrics {
        let target = TargetMetrics { metrics: self.clone(), name: name.into() };
        for publication in
            [Publication::Written, Publication::Unchanged, Publication::Conflict, Publication::Error]
        {
            drop(self.publications.get_or_create(&target.publication_labels(publication)));
        }
        drop(self.drift_healed.get_or_create(&target.labels()));
        target
    }

    /// In which phase the rotation is from now on
    pub fn phase(&self, phase: Phase) {
        for each in Phase::ALL {
            let labels = PhaseLabels { phase: each.as_str() };
            self.phase.get_or_create(&labels).set(i64::from(each == phase));
        }
    }

    /// Whether callers accept the certificate in service
    pub fn ready(&self, ready: bool) {
        self.ready.set(i64::from(ready));
    }
}

/// The metrics of one source; see [`Metrics::source`]. Cheap to clone.
#[derive(Clone, Debug)]
pub struct SourceMetrics {
    metrics: Metrics,
    name: String,
}

impl SourceMetrics {
    /// When a certificate ends, or that there is none
    pub fn expiry(&self, certificate: CertificateKind, not_after: Option<SystemTime>) {
        let labels = ExpiryLabels { certificate: certificate.as_str(), source: self.name.clone() };
        match not_after {
            Some(not_after) => {
                self.metrics.expiry.get_or_create(&labels).set(unix_seconds(not_after));
            }
            None => {
                self.metrics.expiry.remove(&labels);
            }
        }
    }

    /// Counts what came of asking the source
    pub fn reload(&self, reload: Reload) {
        self.metrics.reloads.get_or_create(&self.reload_labels(reload)).inc();
    }

    /// Notes that the source had something good to offer
    pub fn success(&self, now: SystemTime) {
        self.metrics.last_success.get_or_create(&self.labels()).set(unix_seconds(now));
    }

    fn labels(&self) -> SourceLabels {
        SourceLabels { source: self.name.clone() }
    }

    fn reload_labels(&self, reload: Reload) -> ReloadLabels {
        let (result, reason) = match reload {
            Reload::Swapped => ("swapped", ""),
            Reload::Unchanged => ("unchanged", ""),
            Reload::Refused(reason) => ("refused", reason.as_str()),
        };
        ReloadLabels { source: self.name.clone(), result, reason }
    }
}

/// The metrics of one target; see [`Metrics::target`]. Cheap to clone.
#[derive(Clone, Debug)]
pub struct TargetMetrics {
    metrics: Metrics,
    name: String,
}

impl TargetMetrics {
    /// Counts what came of bringing the bundle there
    pub fn publication(&self, publication: Publication) {
        self.metrics.publications.get_or_create(&self.publication_labels(publication)).inc();
    }

    /// Counts a change of somebody else that was undone
    pub fn drift_healed(&self) {
        self.metrics.drift_healed.get_or_create(&self.labels()).inc();
    }

    fn labels(&self) -> TargetLabels {
        TargetLabels { target: self.name.clone() }
    }

    fn publication_labels(&self, publication: Publication) -> PublicationLabels {
        PublicationLabels { target: self.name.clone(), result: publication.as_str() }
    }
}

/// Certificates whose end is shown
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CertificateKind {
    /// The authority in force
    Ca,
    /// The authority that is to follow it
    NextCa,
    /// The certificate in service
    Leaf,
    /// The certificate that the source offers
    Source,
}

impl CertificateKind {
    fn as_str(self) -> &'static str {
        match self {
            Self::Ca => "ca",
            Self::NextCa => "next_ca",
            Self::Leaf => "leaf",
            Self::Source => "source",
        }
    }
}

/// What came of asking a source
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reload {
    /// Another certificate is in service
    Swapped,
    /// It is the one in service
    Unchanged,
    /// It was not taken, and the one in service stays
    Refused(Reason),
}

/// What came of bringing the bundle to a target
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Publication {
    /// It was written
    Written,
    /// It was there
    Unchanged,
    /// Somebody else wrote at the same time
    Conflict,
    /// The target could not be read or written
    Error,
}

impl Publication {
    fn as_str(self) -> &'static str {
        match self {
            Self::Written => "written",
            Self::Unchanged => "unchanged",
            Self::Conflict => "conflict",
            Self::Error => "error",
        }
    }
}

/// The phases of a rotation of the authority, in their order
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Phase {
    /// There is one authority
    Stable,
    /// The next authority is made known to the other replicas
    Publish,
    /// The targets are made to trust it too
    Trust,
    /// API servers are given time to hear of it
    Settle,
    /// It signs from now on
    Activate,
    /// Certificates of the former authority are leaving service
    Drain,
    /// The former authority is taken out of the targets
    Retire,
    /// The authority is expired or revoked: the shortest way is taken
    Emergency,
}

impl Phase {
    const ALL: [Self; 8] = [
        Self::Stable,
        Self::Publish,
        Self::Trust,
        Self::Settle,
        Self::Activate,
        Self::Drain,
        Self::Retire,
        Self::Emergency,
    ];

    /// The metric's label: the name in lower case
    #[must_use]
    pub fn as_str(self) -> &'static str {
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

fn unix_seconds(time: SystemTime) -> i64 {
    let seconds = time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    i64::try_from(seconds).unwrap_or(i64::MAX)
}
