//! Calls a source as the driver does.

use std::{
    fmt,
    time::{Duration, SystemTime},
};

use lucid_certs::{
    Fingerprint, TrustBundle,
    source::{CertificateSource, FileSource, ObservedTrust, Offer, Reason, SourceError, Trust},
};
use tokio::time::timeout;

use super::TIMEOUT;

pub(crate) type Watching = fn(FileSource) -> FileSource;

pub(crate) fn by_events(files: FileSource) -> FileSource {
    files.with_poll(Duration::from_hours(1))
}

pub(crate) fn by_polling(files: FileSource) -> FileSource {
    files.without_events().with_poll(Duration::from_millis(10))
}

pub(crate) async fn ask(source: &mut impl CertificateSource) -> Result<Offer, SourceError> {
    source.offer(&ObservedTrust::default(), SystemTime::now()).await
}

/// A source with its last result. It is called again only after it has signaled a change.
pub(crate) struct Following<S> {
    pub(crate) source: S,
    last: Option<Result<Offer, SourceError>>,
}

impl<S: CertificateSource> Following<S> {
    pub(crate) fn new(source: S) -> Self {
        Self { source, last: None }
    }

    pub(crate) async fn offers(&mut self, fingerprint: Fingerprint) -> Offer {
        let is_it = |outcome: &Result<Offer, SourceError>| {
            outcome
                .as_ref()
                .is_ok_and(|offer| offer.certificate.as_ref().unwrap().fingerprint() == fingerprint)
        };
        self.until(fingerprint, is_it).await.unwrap()
    }

    pub(crate) async fn publishes(&mut self, bundle: &TrustBundle) {
        let trust = Trust::AtLeast(bundle.clone());
        let is_it =
            |outcome: &Result<Offer, SourceError>| outcome.as_ref().is_ok_and(|offer| offer.trust == trust);
        self.until(bundle, is_it).await.unwrap();
    }

    pub(crate) async fn refuses(&mut self, reason: Reason) -> SourceError {
        self.refuses_saying(reason, "").await
    }

    /// As [`refuses`](Self::refuses), for an error that contains `says`.
    pub(crate) async fn refuses_saying(&mut self, reason: Reason, says: &str) -> SourceError {
        let is_it = |outcome: &Result<Offer, SourceError>| {
            outcome.as_ref().is_err_and(|error| error.reason == reason && error.to_string().contains(says))
        };
        self.until((reason, says), is_it).await.unwrap_err()
    }

    async fn until(
        &mut self,
        what: impl fmt::Debug,
        is_right: impl Fn(&Result<Offer, SourceError>) -> bool,
    ) -> Result<Offer, SourceError> {
        let Self { source, last } = self;
        let right = async {
            loop {
                match last {
                    Some(outcome) if is_right(outcome) => return outcome.clone(),
                    Some(_) => source.changed().await,
                    None => {}
                }
                *last = Some(ask(source).await);
            }
        };
        match timeout(TIMEOUT, right).await {
            Ok(outcome) => outcome,
            Err(_) => panic!("no {what:?} within {TIMEOUT:?}, last was {last:?}"),
        }
    }
}
