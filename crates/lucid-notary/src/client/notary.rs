//! Verdicts on images by the Verifier, by signatures, or by both.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use futures::future::join_all;

use super::Verifier;
use super::signatures::{Require, Signatures};
use crate::digest::Digest;
use crate::reference::ImageReference;
use crate::verdict::{CheckedVerdict, NotaryVerdict, Provenance};

/// Checks images by the [`Verifier`] and by [`Signatures`], as the policy of each image requires. Cheap to clone.
///
/// Signatures are checked first. The Verifier is only asked if they do not suffice; its allowlist counts as its
/// response.
#[derive(Clone, Debug)]
pub struct Notary {
    verifier: Verifier,
    signatures: Option<Signatures>,
}

impl From<Verifier> for Notary {
    fn from(verifier: Verifier) -> Self {
        Self { verifier, signatures: None }
    }
}

impl Notary {
    /// Sets the signatures (default none).
    #[must_use]
    pub fn with_signatures(self, signatures: Signatures) -> Self {
        Self { signatures: Some(signatures), ..self }
    }

    /// Checks the images that have a digest, such as those of one pod, like [`Verifier::check_all`].
    pub async fn check_all(
        &self,
        images: impl IntoIterator<Item = ImageReference>,
        deadline: Instant,
    ) -> BTreeMap<ImageReference, CheckedVerdict> {
        self.all(images, deadline, async |digests| self.verifier.check_all(digests, deadline).await).await
    }

    /// Checks the images like [`check_all`](Self::check_all), with new requests to the Verifier like
    /// [`Verifier::recheck_all`].
    pub async fn recheck_all(
        &self,
        images: impl IntoIterator<Item = ImageReference>,
        deadline: Instant,
    ) -> BTreeMap<ImageReference, CheckedVerdict> {
        self.all(images, deadline, async |digests| self.verifier.recheck_all(digests, deadline).await).await
    }

    async fn all(
        &self,
        images: impl IntoIterator<Item = ImageReference>,
        deadline: Instant,
        verify: impl AsyncFnOnce(Vec<Digest>) -> BTreeMap<Digest, CheckedVerdict>,
    ) -> BTreeMap<ImageReference, CheckedVerdict> {
        let policies = match &self.signatures {
            Some(signatures) => Some(signatures.policies().await),
            None => None,
        };
        let images: BTreeSet<_> = images.into_iter().collect();
        let signed = images.into_iter().filter_map(|image| {
            let digest = image.digest()?.clone();
            let policy = policies.as_ref().and_then(|policies| policies.of(&image));
            let policy = policy.filter(|policy| policy.require != Require::Verifier);
            Some(async move {
                let Some(policy) = policy else { return (image, digest, None) };
                let signatures = policy.signatures(&image).await;
                let mut signed = signatures.check_all([digest.clone()], deadline).await;
                let signed = signed.remove(&digest).unwrap_or_else(unchecked).verdict;
                (image, digest, Some((policy.require, signed)))
            })
        });
        let signed = join_all(signed).await;
        let open = signed.iter().filter(|(_, _, signed)| needs_verifier(signed.as_ref()));
        let verified = verify(open.map(|(_, digest, _)| digest.clone()).collect()).await;
        let mut all = BTreeMap::new();
        for (image, digest, signed) in signed {
            let verified = needs_verifier(signed.as_ref())
                .then(|| verified.get(&digest).cloned().unwrap_or_else(unchecked));
            let checked = match (signed, verified) {
                (Some((Require::Any, signed)), Some(verified)) => either(signed, verified),
                (_, Some(verified)) => verified,
                (Some((_, signed)), None) => {
                    let checked = CheckedVerdict::new(signed, Provenance::Signatures);
                    // The Verifier counts the digests that it decides on.
                    self.signatures.iter().for_each(|signatures| signatures.metrics.checked(&checked));
                    checked
                }
                (None, None) => continue,
            };
            all.insert(image, checked);
        }
        all
    }
}

/// A missing verdict. The checks above return one for every digest.
fn unchecked() -> CheckedVerdict {
    CheckedVerdict::new(NotaryVerdict::unknown("it was not checked"), Provenance::Verifier)
}

/// Returns `true` if the Verifier decides on an image, given the policy and the verdict by signatures, if they count.
fn needs_verifier(signed: Option<&(Require, NotaryVerdict)>) -> bool {
    match signed {
        None => true,
        Some((Require::Any, signed)) => !signed.is_notarized(),
        Some((Require::All, signed)) => signed.is_notarized(),
        Some((Require::Verifier | Require::Signatures, _)) => false,
    }
}

/// Returns the verdict on an image that is not signed, but may be known to the Verifier.
fn either(signed: NotaryVerdict, verified: CheckedVerdict) -> CheckedVerdict {
    use NotaryVerdict::{NotNotarized, NotSigned, Notarized, Unknown};
    let unknown = "the Verifier does not know the digest";
    let verdict = match (signed, &verified.verdict) {
        (Notarized | NotNotarized, _) | (_, Notarized) => return verified,
        (NotSigned { reason }, NotNotarized | NotSigned { .. }) => {
            NotSigned { reason: format!("{reason}; {unknown}") }
        }
        (Unknown { reason }, NotNotarized | NotSigned { .. }) => {
            Unknown { reason: format!("{reason}; {unknown}") }
        }
        (NotSigned { reason } | Unknown { reason }, Unknown { reason: why }) => {
            Unknown { reason: format!("{reason}; {why}") }
        }
    };
    CheckedVerdict::new(verdict, Provenance::Signatures)
}
