//! Validation of an externally managed certificate, key and bundle.

use std::time::SystemTime;

use aws_lc_rs::digest;

use super::{Offer, Reason, SourceError, Trust, check::check_trust};
use crate::{
    bundle::TrustBundle,
    fingerprint::Fingerprint,
    serving::{PairError, ServingCertificate},
};

/// Content and its location, as named in errors.
pub(super) struct Text<'a> {
    pub(super) place: String,
    pub(super) bytes: &'a [u8],
}

/// Validated content; its validity period is not checked yet.
#[derive(Clone)]
pub(super) struct Found {
    certificate: ServingCertificate,
    place: String,
    ca: Option<(String, TrustBundle)>,
    publishes: bool,
}

impl Found {
    /// Decodes and checks the content. Without a bundle, the last certificate of the chain is published.
    pub(super) fn decode(
        certificate: Text<'_>,
        key: Text<'_>,
        ca: Option<Result<Text<'_>, SourceError>>,
        publishes: bool,
    ) -> Result<Self, SourceError> {
        for text in [&certificate, &key] {
            refuse_empty(text)?;
        }
        let decoded = ServingCertificate::parse(certificate.bytes, key.bytes)
            .map_err(|error| refused(&error, &certificate.place, &key.place))?;
        let ca = match ca {
            Some(Err(error)) if error.reason != Reason::Missing => return Err(error),
            None | Some(Err(_)) if publishes => {
                let last = decoded.intermediates().last().unwrap_or_else(|| decoded.certificate());
                let last = Fingerprint::of(last);
                let chain = bundle(&certificate)?.filter(|fingerprint, _| *fingerprint == last);
                chain.map(|chain| (chain, certificate.place.clone()))
            }
            None | Some(Err(_)) => None,
            Some(Ok(ca)) => Some((bundle(&ca)?, ca.place)),
        };
        let ca = ca.map(|(bundle, place)| (place, bundle));
        Ok(Self { certificate: decoded, place: certificate.place, ca, publishes })
    }

    /// Returns the offer, if the bundle verifies the certificate at `now`.
    pub(super) fn offer(&self, now: SystemTime) -> Result<Offer, SourceError> {
        let Self { certificate, place, ca, publishes } = self;
        let offer = |trust| Ok(Offer::new(certificate.clone(), trust));
        match ca {
            None => offer(Trust::External),
            // The driver verifies the certificate against the published bundle.
            Some((_, bundle)) if *publishes => offer(Trust::AtLeast(bundle.clone())),
            // The driver rejects a certificate outside its validity period with a more specific error.
            Some(_) if !certificate.validity().contains(now) => offer(Trust::External),
            Some((ca, bundle)) => {
                check_trust(certificate, bundle, now).map_err(|error| {
                    SourceError::new(error.reason, format!("{ca} does not verify {place}: {}", error.problem))
                })?;
                offer(Trust::External)
            }
        }
    }
}

pub(super) fn digest<'a>(texts: impl IntoIterator<Item = &'a [u8]>) -> [u8; 32] {
    let mut digest = digest::Context::new(&digest::SHA256);
    for text in texts {
        digest.update(&text.len().to_be_bytes());
        digest.update(text);
    }
    let mut bytes = [0; 32];
    // SHA-256 digests are 32 bytes, so the lengths match.
    bytes.copy_from_slice(digest.finish().as_ref());
    bytes
}

pub(super) fn bundle(text: &Text<'_>) -> Result<TrustBundle, SourceError> {
    refuse_empty(text)?;
    TrustBundle::from_pem(text.bytes).map_err(|error| {
        SourceError::new(
            Reason::Malformed,
            format!("failed to use {}: {}", text.place, lucid_text::with_causes(&error)),
        )
    })
}

fn refuse_empty(text: &Text<'_>) -> Result<(), SourceError> {
    if text.bytes.iter().all(u8::is_ascii_whitespace) {
        return Err(SourceError::new(
            Reason::Malformed,
            format!("failed to use {}: it is empty, expected PEM", text.place),
        ));
    }
    Ok(())
}

fn refused(error: &PairError, certificate: &str, key: &str) -> SourceError {
    let (reason, place) = match error {
        PairError::Key { .. } => (Reason::Malformed, key.to_owned()),
        PairError::Mismatch { .. } => (Reason::Mismatch, format!("{certificate} with {key}")),
        _ => (Reason::Malformed, certificate.to_owned()),
    };
    SourceError::new(reason, format!("failed to use {place}: {}", lucid_text::with_causes(error)))
}
