//! What one replica serves and what is trusted meanwhile, as values: no I/O and no clock

use std::time::SystemTime;

use snafu::{ResultExt, Snafu};

use crate::{
    bundle::TrustBundle,
    ca::{CA_OVERLAP, CaError, CertificateAuthority},
    names::ServingNames,
    serving::{ServingCertificate, VerifyError},
};

#[cfg(test)]
mod tests;

/// Why there is no serving certificate to swap in
#[derive(Debug, Snafu)]
#[non_exhaustive]
pub enum RotationError {
    /// The authority could not sign one
    #[snafu(display("failed to issue a serving certificate"))]
    Issue {
        /// What went wrong
        source: CaError,
    },
    /// Clients that trust the last published bundle would refuse it
    #[snafu(display("failed to get a serving certificate that the published trust bundle accepts"))]
    Untrusted {
        /// What they would say
        source: VerifyError,
    },
}

/// The leaf in service, the authority in force and the bundle that clients have.
///
/// The rule it keeps: a leaf goes into service only when it verifies against the bundle that was
/// published last, and a bundle lacks the authority of the leaf in service never.
#[derive(Debug)]
pub(crate) struct Rotation {
    names: ServingNames,
    ca: CertificateAuthority,
    /// What other replicas may serve under, as they last said
    previous: Option<TrustBundle>,
    leaf: ServingCertificate,
    renew_at: SystemTime,
    published: TrustBundle,
    retiring: Vec<Retiring>,
}

/// An authority that this replica saw being replaced
#[derive(Debug)]
struct Retiring {
    bundle: TrustBundle,
    /// Unknown as long as our own leaf may be under it
    until: Option<SystemTime>,
}

impl Rotation {
    /// Begins to serve under `ca` when `published` was published. `previous` is as in
    /// [`Rotation::adopt`], `spread` as in [`Rotation::install`].
    pub(crate) fn new(
        names: ServingNames,
        ca: CertificateAuthority,
        previous: Option<TrustBundle>,
        published: TrustBundle,
        now: SystemTime,
        spread: f64,
    ) -> Result<Self, RotationError> {
        let leaf = issue(&ca, &names, &published, now)?;
        let renew_at = renew_at(&leaf, spread);
        Ok(Self { names, ca, previous, leaf, renew_at, published, retiring: Vec::new() })
    }

    /// Takes `ca` into force, and lets the one before retire when it is another. `previous` is what the
    /// other replicas may serve under besides, until this is called again.
    pub(crate) fn adopt(&mut self, ca: CertificateAuthority, previous: Option<TrustBundle>) {
        let before = std::mem::replace(&mut self.ca, ca).trust_bundle();
        if before != self.ca.trust_bundle() {
            self.retiring.push(Retiring { bundle: before, until: None });
        }
        self.previous = previous;
    }

    /// The bundle to publish: the authority in force, then those before it, newest first.
    pub(crate) fn bundle(&mut self, now: SystemTime) -> TrustBundle {
        self.retiring.retain(|retiring| retiring.until.is_none_or(|until| now < until));
        let retiring = self.retiring.iter().rev().map(|retiring| &retiring.bundle);
        self.previous
            .iter()
            .chain(retiring)
            .filter_map(|bundle| bundle.without_expired(now))
            .fold(self.ca.trust_bundle(), |bundle, before| bundle.merge(&before))
    }

    /// Notes that `bundle` was published.
    pub(crate) fn record_published(&mut self, bundle: TrustBundle) {
        self.published = bundle;
    }

    /// A leaf to put into service instead of the present one, or `None` as long as that one is good:
    /// not yet to be renewed, and under the authority in force.
    pub(crate) fn next_leaf(&self, now: SystemTime) -> Result<Option<ServingCertificate>, RotationError> {
        let under_ca = self.leaf.verify_for(&self.names, &self.ca.trust_bundle(), now).is_ok();
        if under_ca && now < self.renew_at {
            return Ok(None);
        }
        issue(&self.ca, &self.names, &self.published, now).map(Some)
    }

    /// Notes that `leaf` is in service from `now` on. `spread` (0 to 1, random) puts off its renewal
    /// a little, so that replicas that started together do not renew together.
    pub(crate) fn install(&mut self, leaf: ServingCertificate, now: SystemTime, spread: f64) {
        self.renew_at = renew_at(&leaf, spread);
        self.leaf = leaf;
        for retiring in &mut self.retiring {
            retiring.until.get_or_insert(now + CA_OVERLAP);
        }
    }

    /// Whether clients accept what is served
    pub(crate) fn is_trusted(&self, now: SystemTime) -> bool {
        self.leaf.verify_for(&self.names, &self.published, now).is_ok()
    }

    pub(crate) fn names(&self) -> &ServingNames {
        &self.names
    }

    pub(crate) fn leaf(&self) -> &ServingCertificate {
        &self.leaf
    }
}

fn issue(
    ca: &CertificateAuthority,
    names: &ServingNames,
    trusted: &TrustBundle,
    now: SystemTime,
) -> Result<ServingCertificate, RotationError> {
    let leaf = ca.issue(names, now).context(IssueSnafu)?;
    leaf.verify_for(names, trusted, now).context(UntrustedSnafu)?;
    Ok(leaf)
}

/// Within the first quarter of the time that is left at the point of renewal
fn renew_at(leaf: &ServingCertificate, spread: f64) -> SystemTime {
    let left = leaf.validity().not_after.duration_since(leaf.renew_at()).unwrap_or_default();
    leaf.renew_at() + left.mul_f64(spread.clamp(0.0, 1.0) / 4.0)
}
