//! The certificate authority that signs serving certificates

mod contents;
mod error;
mod params;

use std::{
    fmt,
    time::{Duration, SystemTime},
};

use rcgen::{Issuer, PublicKeyData};
use rustls::pki_types::CertificateDer;
use snafu::{ResultExt, ensure};
use zeroize::Zeroizing;

use self::error::{
    CertificatePemSnafu, CertificateSnafu, ExpiredSnafu, GenerateKeySnafu, KeyMismatchSnafu, MayNotSignSnafu,
    NotACaSnafu, NotForServersSnafu, NotYetValidSnafu, PrivateKeyPemSnafu, PrivateKeySnafu, ServeSnafu,
    SignSnafu, SubjectSnafu,
};
pub use self::{
    error::CaError,
    params::{CaParams, LeafParams},
};
use crate::{
    anchor::{self, Purpose},
    bundle::TrustBundle,
    fingerprint::Fingerprint,
    key::{PrivateKey, SigningKey},
    names::ServingNames,
    pem,
    serving::ServingCertificate,
    validity::{self, Validity},
};

const DAY: Duration = Duration::from_hours(24);

/// How long a new certificate authority is valid: 365 days
pub const CA_LIFETIME: Duration = DAY.saturating_mul(365);

/// How long a serving certificate is valid: 7 days, or until its authority ends
pub const SERVING_LIFETIME: Duration = DAY.saturating_mul(7);

/// How far in the past a validity begins, for clients whose clock is behind: 1 hour
pub const BACKDATE: Duration = Duration::from_hours(1);

/// A certificate authority: a CA certificate and its private key.
///
/// ```
/// use std::time::SystemTime;
/// use lucid_certs::{CertificateAuthority, ServingNames};
///
/// let names = ServingNames::for_services("lucid-system", &["lucid-operator"])?;
/// let now = SystemTime::now();
/// let ca = CertificateAuthority::generate(&names, now)?;
/// let leaf = ca.issue(&names, now)?;
/// leaf.verify_for(&names, &ca.trust_bundle(), now)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct CertificateAuthority {
    certificate: CertificateDer<'static>,
    private_key: PrivateKey,
    issuer: Issuer<'static, SigningKey>,
    validity: Validity,
}

impl CertificateAuthority {
    /// Makes a new authority as [`CaParams::default`] says: ECDSA P-256, valid for [`CA_LIFETIME`]. Its path
    /// length is 0, so it signs no further authority.
    ///
    /// It is constrained (RFC 5280, section 4.2.1.10) to `names` and what is below them, and to
    /// `localhost`, 127.0.0.1 and ::1: stolen, it can impersonate nothing else.
    ///
    /// # Errors
    ///
    /// When the key or the signature cannot be made.
    pub fn generate(names: &ServingNames, now: SystemTime) -> Result<Self, CaError> {
        Self::generate_with(CaParams::default(), names, now)
    }

    /// As [`generate`](Self::generate), with another kind of key, lifetime or begin.
    ///
    /// # Errors
    ///
    /// When the key or the signature cannot be made.
    pub fn generate_with(params: CaParams, names: &ServingNames, now: SystemTime) -> Result<Self, CaError> {
        let key = params.algorithm.generate().context(GenerateKeySnafu)?;
        let validity = contents::validity(now, params.backdate, params.lifetime);
        let certificate = contents::authority(names, validity)?.self_signed(&key).context(SignSnafu)?;
        Self::from_der(certificate.der().clone(), key.to_pkcs8(), now)
    }

    /// Takes over an authority made elsewhere, such as by openssl: the first certificate of
    /// `certificate_pem` and the only key of `private_key_pem` (PKCS#8, SEC1 or PKCS#1).
    ///
    /// # Errors
    ///
    /// Says which of both is wrong and how: not PEM, does not parse, key of another certificate, not
    /// a CA, may not sign, not for servers, expired or not valid yet at `now`.
    pub fn from_pem(
        certificate_pem: &[u8],
        private_key_pem: &[u8],
        now: SystemTime,
    ) -> Result<Self, CaError> {
        let certificate =
            pem::parse_certificates(certificate_pem).context(CertificatePemSnafu)?.swap_remove(0);
        let private_key = pem::parse_private_key(private_key_pem).context(PrivateKeyPemSnafu)?;
        Self::from_der(certificate, private_key, now)
    }

    fn from_der(
        certificate: CertificateDer<'static>,
        private_key: PrivateKey,
        now: SystemTime,
    ) -> Result<Self, CaError> {
        let parsed = validity::parse(&certificate).context(CertificateSnafu)?;
        let validity = Validity::of(&parsed);
        let fingerprint = Fingerprint::of(&certificate);

        ensure!(parsed.is_ca(), NotACaSnafu { fingerprint });
        ensure!(anchor::may_sign(&parsed).context(CertificateSnafu)?, MayNotSignSnafu { fingerprint });
        let for_servers = Purpose::Servers.is_that_of(&parsed).context(CertificateSnafu)?;
        ensure!(for_servers, NotForServersSnafu { fingerprint });
        ensure!(!validity.is_over(now), ExpiredSnafu { fingerprint, validity });
        ensure!(validity.contains(now), NotYetValidSnafu { fingerprint, validity });

        let key = SigningKey::try_from(&private_key).context(PrivateKeySnafu)?;
        ensure!(key.subject_public_key_info() == parsed.public_key().raw, KeyMismatchSnafu { fingerprint });
        let issuer = Issuer::from_ca_cert_der(&certificate, key).context(SubjectSnafu)?;
        Ok(Self { private_key, issuer, validity, certificate })
    }

    /// Signs a serving certificate with a fresh key for `names`, as [`LeafParams::default`] says: P-256, valid for
    /// [`SERVING_LIFETIME`]. Its validity begins [`BACKDATE`] ago, and lies within that of the authority.
    ///
    /// Whether clients accept it is the question of [`ServingCertificate::verify_for`]: an authority
    /// made for other names signs, but its name constraints forbid the use.
    ///
    /// # Errors
    ///
    /// When the authority is out of its validity at `now`, or the key or signature cannot be made.
    pub fn issue(&self, names: &ServingNames, now: SystemTime) -> Result<ServingCertificate, CaError> {
        self.issue_with(LeafParams::default(), names, now)
    }

    /// As [`issue`](Self::issue), with another kind of key or another lifetime.
    ///
    /// # Errors
    ///
    /// As [`issue`](Self::issue).
    pub fn issue_with(
        &self,
        params: LeafParams,
        names: &ServingNames,
        now: SystemTime,
    ) -> Result<ServingCertificate, CaError> {
        let (leaf, key) = self.sign(params, names, now)?;
        ServingCertificate::new(vec![leaf], &key, Some(now)).context(ServeSnafu)
    }

    /// As [`issue_with`](Self::issue_with), as text that others can read too: what `tls.crt` and `tls.key` of a Secret
    /// hold. [`ServingCertificate::from_pem`] reads it.
    ///
    /// # Errors
    ///
    /// As [`issue`](Self::issue).
    pub fn issue_pem(
        &self,
        params: LeafParams,
        names: &ServingNames,
        now: SystemTime,
    ) -> Result<PemPair, CaError> {
        let (leaf, key) = self.sign(params, names, now)?;
        Ok(PemPair {
            certificate: pem::encode_certificate(&leaf),
            private_key: pem::encode_private_key(&key),
        })
    }

    fn sign(
        &self,
        params: LeafParams,
        names: &ServingNames,
        now: SystemTime,
    ) -> Result<(CertificateDer<'static>, PrivateKey), CaError> {
        let (own, fingerprint) = (self.validity, self.fingerprint());
        ensure!(!own.is_over(now), ExpiredSnafu { fingerprint, validity: own });
        ensure!(own.contains(now), NotYetValidSnafu { fingerprint, validity: own });

        let key = params.algorithm.generate().context(GenerateKeySnafu)?;
        let wanted = contents::validity(now, BACKDATE, params.lifetime);
        let validity = Validity {
            not_before: wanted.not_before.max(own.not_before),
            not_after: wanted.not_after.min(own.not_after),
        };
        let leaf = contents::leaf(names, validity)?.signed_by(&key, &self.issuer).context(SignSnafu)?;
        Ok((leaf.der().clone(), key.to_pkcs8()))
    }

    /// The bundle that holds this authority alone
    #[must_use]
    pub fn trust_bundle(&self) -> TrustBundle {
        TrustBundle::of(self.certificate.clone(), self.validity)
    }

    /// The CA certificate as PEM
    #[must_use]
    pub fn certificate_pem(&self) -> String {
        pem::encode_certificate(&self.certificate)
    }

    /// The private key as PEM, in the form it was read in (PKCS#8 when it was generated). Whoever has
    /// it can sign: it belongs into a Secret, never into a log. The text is overwritten when it is dropped.
    #[must_use]
    pub fn private_key_pem(&self) -> Zeroizing<String> {
        pem::encode_private_key(&self.private_key)
    }

    /// From when to when it is valid
    #[must_use]
    pub fn validity(&self) -> Validity {
        self.validity
    }

    /// The name of the certificate in logs
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.certificate)
    }
}

impl fmt::Debug for CertificateAuthority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CertificateAuthority")
            .field("fingerprint", &format_args!("{}", self.fingerprint()))
            .field("validity", &format_args!("{}", self.validity))
            .finish_non_exhaustive()
    }
}

/// A serving certificate and its private key, both PEM
pub struct PemPair {
    /// The certificate
    pub certificate: String,
    /// The key, PKCS#8, which is overwritten when it is dropped
    pub private_key: Zeroizing<String>,
}

impl fmt::Debug for PemPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PemPair").field("certificate", &self.certificate).finish_non_exhaustive()
    }
}
