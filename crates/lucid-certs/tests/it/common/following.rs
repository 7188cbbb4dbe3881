//! What asks a source as a server does

use std::{
    fmt,
    time::{Duration, SystemTime},
};

use lucid_certs::{
    Fingerprint,
    source::{CertificateSource, Live, Offer, Reason, SourceError},
};

/// Far more than anything takes
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) async fn ask(source: &mut impl CertificateSource) -> Result<Offer, SourceError> {
    source.offer(&Live::default(), SystemTime::now()).await
}

/// Asks, and again each time the source says that its answer changed, until the answer is right
pub(crate) async fn until(
    source: &mut impl CertificateSource,
    what: impl fmt::Debug,
    is_right: impl Fn(&Result<Offer, SourceError>) -> bool,
) -> Result<Offer, SourceError> {
    let mut last = ask(source).await;
    let right = async {
        while !is_right(&last) {
            source.changed().await;
            last = ask(source).await;
        }
    };
    if tokio::time::timeout(PATIENCE, right).await.is_err() {
        panic!("no {what:?} within {PATIENCE:?}, last was {last:?}");
    }
    last
}

pub(crate) async fn until_offered(source: &mut impl CertificateSource, fingerprint: Fingerprint) -> Offer {
    let is_it = |outcome: &Result<Offer, SourceError>| {
        outcome.as_ref().is_ok_and(|offer| offer.certificate.as_ref().unwrap().fingerprint() == fingerprint)
    };
    until(source, fingerprint, is_it).await.unwrap()
}

pub(crate) async fn until_refused(source: &mut impl CertificateSource, reason: Reason) -> SourceError {
    let is_it =
        |outcome: &Result<Offer, SourceError>| outcome.as_ref().is_err_and(|error| error.reason == reason);
    until(source, reason, is_it).await.unwrap_err()
}
