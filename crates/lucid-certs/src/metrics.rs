//! Prometheus metrics.

use std::time::{SystemTime, UNIX_EPOCH};

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

use crate::source::Reason;

/// Metrics of a server's certificates.
///
/// | metric | labels | value |
/// |---|---|---|
/// | `certificate_expiry_timestamp_seconds` | certificate, source | expiry in Unix seconds; absent without a certificate |
/// | `certificate_rotation_phase` | phase | 1 for the current rotation phase, 0 for the others |
/// | `certificate_reloads_total` | source, result, reason | requests to a source, by result |
/// | `certificate_last_success_timestamp_seconds` | source | time of the last round with a valid offer and readable targets, in Unix seconds; initially 0 |
/// | `certificate_ready` | | 1 while callers accept the certificate in service |
/// | `trust_bundle_publications_total` | target, result | reconciliations of a target's bundle, by result |
/// | `trust_bundle_drift_healed_total` | target | external changes that were reverted |
///
/// Label values:
///
/// - certificate: `ca`, `next_ca`, `leaf` (in service) or `source` (offered by an external source)
/// - phase: see [`Phase`]
/// - result of a reload: `swapped`, `unchanged` or `refused`; the latter with a [`Reason`]
/// - result of a publication: `written`, `unchanged`, `conflict` or `error`
///
/// The [`Default`] instance counts without being registered.
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
            "Expiry of a certificate in Unix seconds",
            metrics.expiry.clone(),
        );
        certificates.register(
            "rotation_phase",
            "1 for the current phase of the CA rotation, 0 for the others",
            metrics.phase.clone(),
        );
        certificates.register("reloads", "Requests to a source, by result", metrics.reloads.clone());
        certificates.register(
            "last_success_timestamp_seconds",
            "Time of the last valid certificate from a source in Unix seconds, initially 0",
            metrics.last_success.clone(),
        );
        certificates.register(
            "ready",
            "1 while callers accept the certificate in service, 0 otherwise",
            metrics.ready.clone(),
        );
        let bundles = registry.sub_registry_with_prefix("trust_bundle");
        bundles.register(
            "publications",
            "Reconciliations of the trust bundle in a target, by result",
            metrics.publications.clone(),
        );
        bundles.register(
            "drift_healed",
            "External changes of the trust bundle that were reverted",
            metrics.drift_healed.clone(),
        );
        metrics
    }

    /// Returns the metrics of one source, by [name](crate::source::CertificateSource::name). Initializes its
    /// counters to 0, so that alerts see the first increment.
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

    /// Returns the metrics of one target, by [name](crate::target::TrustTarget::name). Initializes its
    /// counters to 0.
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

    /// Sets the current rotation phase.
    pub fn phase(&self, phase: Phase) {
        for each in Phase::ALL {
            let labels = PhaseLabels { phase: each.as_str() };
            self.phase.get_or_create(&labels).set(i64::from(each == phase));
        }
    }

    /// Sets whether callers accept the certificate in service.
    pub fn ready(&self, ready: bool) {
        self.ready.set(i64::from(ready));
    }
}

/// Metrics of one source; see [`Metrics::source`]. Cheap to clone.
#[derive(Clone, Debug)]
pub struct SourceMetrics {
    metrics: Metrics,
    name: String,
}

impl SourceMetrics {
    /// Sets the expiry of a certificate, or removes it.
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

    /// Counts a request to the source.
    pub fn reload(&self, reload: Reload) {
        self.metrics.reloads.get_or_create(&self.reload_labels(reload)).inc();
    }

    /// Records the time of a valid offer.
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

/// Metrics of one target; see [`Metrics::target`]. Cheap to clone.
#[derive(Clone, Debug)]
pub struct TargetMetrics {
    metrics: Metrics,
    name: String,
}

impl TargetMetrics {
    /// Counts a reconciliation of the target.
    pub fn publication(&self, publication: Publication) {
        self.metrics.publications.get_or_create(&self.publication_labels(publication)).inc();
    }

    /// Counts an external change that was reverted.
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

/// Certificates with an expiry metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CertificateKind {
    /// The signing CA.
    Ca,
    /// The next signing CA.
    NextCa,
    /// The certificate in service.
    Leaf,
    /// The certificate that the source offers.
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

/// Result of a request to a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reload {
    /// A new certificate went into service.
    Swapped,
    /// The offered certificate is already in service.
    Unchanged,
    /// The offer was rejected, and the certificate in service was kept.
    Refused(Reason),
}

/// Result of a reconciliation of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Publication {
    /// The bundle was written.
    Written,
    /// The bundle was already there.
    Unchanged,
    /// Another client wrote at the same time.
    Conflict,
    /// The target could not be read or written.
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

/// Phases of a CA rotation, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Phase {
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

    /// Returns the metric label: the name in lower case.
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
