//! Verification of one bundle.

use std::fmt;
use std::sync::Arc;

use serde::Deserialize;
use sigstore_verify::crypto::{KeyAlgorithm, SubjectAltName, verify_signature, verify_signature_prehashed};
use sigstore_verify::types::{
    Bundle, DerPublicKey, HashAlgorithm, Sha256Hash, SignatureBytes, SignatureContent, Statement,
    VerificationMaterialContent,
};
use sigstore_verify::{VerificationPolicy, Verifier};

use crate::digest::Digest;

/// Maximum length of a bundle in bytes. Bundles with the provenance of a build have about 15,000.
pub(super) const MAX_BUNDLE: usize = 128 * 1024;

const IN_TOTO: &str = "application/vnd.in-toto+json";
/// Type of the statements that `cosign sign` signs.
const COSIGN: &str = "https://sigstore.dev/cosign/sign/v1";

/// Accepted signers and statements.
pub(super) struct Signers {
    pub(super) keys: Vec<DerPublicKey>,
    pub(super) identities: Vec<Identity>,
    pub(super) predicate_type: Option<String>,
    /// `None` without a trusted root, and then without `identities`.
    pub(super) trusted_root: Option<Arc<Verifier>>,
}

/// Identity of a signer in the certificate of a keyless signature.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Identity {
    /// Issuer of the OIDC token.
    issuer: String,
    /// Subject: an email address or a URI. A `*` at its end matches any rest.
    subject: String,
}

impl Identity {
    /// Returns `false` if any subject or issuer would match.
    pub(super) fn is_specific(&self) -> bool {
        !self.issuer.is_empty() && !matches!(&*self.subject, "" | "*")
    }

    fn matches(&self, issuer: &str, subject: &str) -> bool {
        let is_subject = match self.subject.strip_suffix('*') {
            Some(start) => subject.starts_with(start),
            None => subject == self.subject,
        };
        is_subject && issuer == self.issuer
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.subject, self.issuer)
    }
}

impl Signers {
    /// Verifies that `bundle` is an accepted signer's signature on `digest`, or on a statement about it. The error
    /// tells what was expected and found.
    pub(super) fn verify(&self, bundle: &[u8], digest: &Digest) -> Result<(), String> {
        if bundle.len() > MAX_BUNDLE {
            return Err(format!("expected at most {MAX_BUNDLE} bytes, found {}", bundle.len()));
        }
        let bundle: Bundle = serde_json::from_slice(bundle)
            .map_err(|error| format!("expected a Sigstore bundle of version 0.3 or earlier: {error}"))?;
        let digest = Sha256Hash::from_hex(digest.hex()).map_err(|error| error.to_string())?;
        let (envelope, signature) = self.signed(&bundle.content, &digest)?;
        match bundle.verification_material.content {
            VerificationMaterialContent::PublicKey(_) => {
                self.verify_key(envelope.as_deref(), signature, &digest)
            }
            _ => self.verify_certificate(&bundle, digest),
        }
    }

    /// Checks that the signed content is about `digest`. Returns the encoded envelope around a statement, if `digest` is
    /// not signed itself, and the signature.
    fn signed<'a>(
        &self,
        content: &'a SignatureContent,
        digest: &Sha256Hash,
    ) -> Result<(Option<Vec<u8>>, &'a SignatureBytes), String> {
        match content {
            SignatureContent::MessageSignature(_) if self.predicate_type.is_some() => {
                Err("expected a statement of the policy's predicateType, found a signature on the digest"
                    .to_owned())
            }
            SignatureContent::MessageSignature(message) => {
                let found = message.message_digest.as_ref();
                let is_other = found.is_some_and(|found| {
                    found.algorithm != HashAlgorithm::Sha2256 || found.digest.as_bytes() != digest.as_bytes()
                });
                if is_other {
                    return Err(
                        "expected a signature on the image's digest, found one on another message".to_owned()
                    );
                }
                Ok((None, &message.signature))
            }
            SignatureContent::DsseEnvelope(envelope) => {
                if envelope.payload_type != IN_TOTO {
                    return Err(format!(
                        "expected a payload of type {IN_TOTO}, found {}",
                        envelope.payload_type
                    ));
                }
                let statement: Statement = serde_json::from_slice(envelope.payload.as_bytes())
                    .map_err(|error| format!("expected an in-toto statement: {error}"))?;
                if !statement.matches_sha256(digest) {
                    return Err(
                        "expected a statement about the image's digest, found other subjects".to_owned()
                    );
                }
                let expected = self.predicate_type.as_deref().unwrap_or(COSIGN);
                if statement.predicate_type != expected {
                    let found = &statement.predicate_type;
                    return Err(format!("expected a statement of type {expected}, found {found}"));
                }
                Ok((Some(envelope.pae()), &envelope.signature.sig))
            }
            _ => Err("expected a message signature or a DSSE envelope".to_owned()),
        }
    }

    fn verify_key(
        &self,
        envelope: Option<&[u8]>,
        signature: &SignatureBytes,
        digest: &Sha256Hash,
    ) -> Result<(), String> {
        let mut found = None;
        for key in &self.keys {
            let scheme =
                KeyAlgorithm::from_spki(key).map_err(|error| error.to_string())?.default_signing_scheme();
            let verified = match envelope {
                Some(envelope) => verify_signature(key, envelope, signature, scheme),
                None => verify_signature_prehashed(key, digest.as_bytes(), signature, scheme),
            };
            match verified {
                Ok(()) => return Ok(()),
                Err(error) => found = Some(error),
            }
        }
        Err(match found {
            Some(found) => format!("expected a signature by a key of the policy: {found}"),
            None => "expected a keyless signature, found one by a key".to_owned(),
        })
    }

    fn verify_certificate(&self, bundle: &Bundle, digest: Sha256Hash) -> Result<(), String> {
        let Some(root) = self.trusted_root.as_ref().filter(|_| !self.identities.is_empty()) else {
            return Err("expected a signature by a key, found a keyless one".to_owned());
        };
        let signed = root.verify(digest, bundle, &VerificationPolicy::any_identity());
        let signed = signed.map_err(|error| error.to_string())?;
        let subject = signed.identity().map_or("no subject", SubjectAltName::as_str);
        let issuer = signed.issuer().unwrap_or("no issuer");
        if self.identities.iter().any(|identity| identity.matches(issuer, subject)) {
            return Ok(());
        }
        let expected: Vec<_> = self.identities.iter().map(Identity::to_string).collect();
        Err(format!("expected a signature by {}, found one by {subject} of {issuer}", expected.join(" or ")))
    }
}
