//! Serving certificates issued by a replica.

use std::{
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use aws_lc_rs::rand;
use k8s_openapi::{ByteString, api::core::v1::Secret};
use lucid_text::with_causes;
use tracing::info;

use super::{
    contents::{CERTIFICATE, Contents, PRIVATE_KEY, TRUST_BUNDLE, is_ours, mark, value},
    store::Store,
};
use crate::{
    bundle::TrustBundle,
    ca::CertificateAuthority,
    names::ServingNames,
    rotation::{Ca, Shared, SwitchTime},
    serving::{PairError, ServingCertificate},
    source::{Reason, SourceError},
    timing::Timing,
};

#[derive(Debug, Clone)]
pub(super) struct Issued {
    pub(super) certificate: ServingCertificate,
    pub(super) issuer: Ca,
    authority: Arc<CertificateAuthority>,
    renew_at: SystemTime,
}

/// The latest certificate and, until it is swapped in, the one in service.
#[derive(Debug, Default)]
pub(super) struct Leaves {
    latest: Option<Issued>,
    in_service: Option<Issued>,
    switch: SwitchTime,
    shared: Option<Store>,
}

impl Leaves {
    /// Keeps one certificate for all replicas in a Secret.
    pub(super) fn shared(store: Store) -> Self {
        Self { shared: Some(store), ..Self::default() }
    }

    pub(super) fn observe(&mut self, serving: Option<&ServingCertificate>) {
        let is_served = |issued: &Issued| {
            serving.is_some_and(|serving| serving.fingerprint() == issued.certificate.fingerprint())
        };
        if self.latest.as_ref().is_some_and(is_served) {
            self.in_service = self.latest.clone();
        }
    }

    pub(super) fn issuer(&self) -> Option<(Ca, TrustBundle)> {
        self.in_service.as_ref().map(|issued| (issued.issuer, issued.authority.trust_bundle()))
    }

    /// Time until [`next`](Self::next) may return something new by time alone.
    pub(super) fn due_in(&self, now: SystemTime) -> Option<Duration> {
        let renew =
            self.latest.as_ref().map(|issued| issued.renew_at.duration_since(now).unwrap_or_default());
        self.switch.due_in(Instant::now()).into_iter().chain(renew).min()
    }

    /// Returns the certificate to serve: issued by the current signer and not due for renewal.
    pub(super) async fn next(
        &mut self,
        contents: &Contents,
        names: &ServingNames,
        timing: &Timing,
        now: SystemTime,
    ) -> Result<ServingCertificate, SourceError> {
        let shared = &contents.shared;
        if let Some(latest) = self.latest.clone().filter(|latest| latest.is_good(shared, now))
            && (latest.issuer == shared.signer || self.waits(shared.signer, timing.settle))
        {
            // Check a shared certificate each time: another replica may have renewed or deleted it.
            if self.shared.is_none() || latest.issuer != shared.signer {
                return Ok(latest.certificate);
            }
        }
        self.switch = SwitchTime::default();
        let issued = match self.shared.clone() {
            None => issue(contents.signer(), names, timing, now)?,
            Some(store) => shared_leaf(&store, contents, names, timing, now).await?,
        };
        let before = self.latest.as_ref().map(|latest| latest.certificate.fingerprint());
        if before != Some(issued.certificate.fingerprint()) {
            info!(
                leaf = %issued.certificate.fingerprint(),
                issuer = %issued.issuer.fingerprint,
                validity = %issued.certificate.validity(),
                "serving certificate issued"
            );
        }
        Ok(self.latest.insert(issued).certificate.clone())
    }

    fn waits(&mut self, signer: Ca, settle: Duration) -> bool {
        self.switch.waits(signer, settle.mul_f64(spread() / 2.0), Instant::now())
    }
}

impl Issued {
    /// Adds up to a twelfth of the lifetime to the time of renewal, so that replicas that started together do not
    /// renew together.
    fn new(certificate: ServingCertificate, authority: &Arc<CertificateAuthority>) -> Self {
        let renew_at = certificate.renew_at();
        let left = certificate.validity().not_after.duration_since(renew_at).unwrap_or_default();
        let renew_at = renew_at + left.mul_f64(spread() / 4.0);
        Self { certificate, issuer: Ca::of(authority), authority: Arc::clone(authority), renew_at }
    }

    fn is_good(&self, shared: &Shared, now: SystemTime) -> bool {
        let is_valid = self.certificate.validity().contains(now);
        now < self.renew_at && is_valid && !shared.retired.contains(&self.issuer)
    }
}

fn issue(
    authority: &Arc<CertificateAuthority>,
    names: &ServingNames,
    timing: &Timing,
    now: SystemTime,
) -> Result<Issued, SourceError> {
    let certificate = authority.issue_for(timing.leaf_lifetime, names, now).map_err(failed_to_issue)?;
    Ok(Issued::new(certificate, authority))
}

/// Returns the certificate in the Secret, or replaces it by a new one.
async fn shared_leaf(
    store: &Store,
    contents: &Contents,
    names: &ServingNames,
    timing: &Timing,
    now: SystemTime,
) -> Result<Issued, SourceError> {
    let authority = contents.signer();
    // After a conflict, use the winner's certificate. A second conflict is retried in the next round.
    for _ in 0..2 {
        let bundle = contents.bundle(&contents.shared.trusted(None, now)).to_pem();
        let secret = store.get().await?;
        let found = secret.as_ref().and_then(|secret| stored(secret, authority, names, now));
        if let (Some(secret), Some(issued)) = (&secret, found) {
            if value(secret, TRUST_BUNDLE) != Some(bundle.as_bytes()) {
                let fill = |secret: &mut Secret| put(secret, [(TRUST_BUNDLE, bundle.as_bytes())]);
                store.put(Some(secret), fill).await?;
            }
            return Ok(issued);
        }
        if let Some(secret) = &secret
            && !is_ours(secret)
            && value(secret, CERTIFICATE).is_some_and(|certificate| !certificate.is_empty())
        {
            let problem = format!(
                "{store} holds a foreign certificate (it lacks the label app.kubernetes.io/managed-by: \
                 lucid-certs), which is not overwritten: delete it, or configure another Secret"
            );
            return Err(SourceError::new(Reason::Malformed, problem));
        }
        let (certificate, key) =
            authority.issue_pem(timing.leaf_lifetime, names, now).map_err(failed_to_issue)?;
        let fill = |secret: &mut Secret| {
            mark(secret);
            put(
                secret,
                [
                    (CERTIFICATE, certificate.as_bytes()),
                    (PRIVATE_KEY, key.as_bytes()),
                    (TRUST_BUNDLE, bundle.as_bytes()),
                ],
            );
        };
        if let Some(secret) = store.put(secret.as_ref(), fill).await?
            && let Some(issued) = stored(&secret, authority, names, now)
        {
            return Ok(issued);
        }
    }
    let problem = format!("failed to share a serving certificate in {store}: it is changed concurrently");
    Err(SourceError::new(Reason::Unreadable, problem))
}

fn put<'a>(secret: &mut Secret, entries: impl IntoIterator<Item = (&'a str, &'a [u8])>) {
    let data = secret.data.get_or_insert_default();
    data.extend(entries.into_iter().map(|(key, bytes)| (key.to_owned(), ByteString(bytes.to_vec()))));
}

/// Returns the certificate in the Secret, if it can be served.
fn stored(
    secret: &Secret,
    authority: &Arc<CertificateAuthority>,
    names: &ServingNames,
    now: SystemTime,
) -> Option<Issued> {
    let certificate =
        ServingCertificate::from_pem(value(secret, CERTIFICATE)?, value(secret, PRIVATE_KEY)?).ok()?;
    certificate.verify_for(names, &authority.trust_bundle(), now).ok()?;
    let issued = Issued::new(certificate, authority);
    (now < issued.renew_at).then_some(issued)
}

fn failed_to_issue(error: PairError) -> SourceError {
    SourceError::new(
        Reason::Malformed,
        format!("failed to issue a serving certificate: {}", with_causes(&error)),
    )
}

/// Random number from 0 to 1. Falls back to 0, which only makes replicas act at the same time.
pub(super) fn spread() -> f64 {
    let mut bytes = [0; 4];
    rand::fill(&mut bytes).map_or(0.0, |()| f64::from(u32::from_ne_bytes(bytes)) / f64::from(u32::MAX))
}
