//! The certificate authority that signs serving certificates.

mod contents;

use std::{
    fmt,
    time::{Duration, SystemTime},
};

use rcgen::{Issuer, PublicKeyData};
use rustls::pki_types::CertificateDer;
use snafu::{ResultExt, ensure};
use zeroize::Zeroizing;

use crate::{
    anchor::Purpose,
    bundle::TrustBundle,
    error::Error,
    fingerprint::Fingerprint,
    key::{PrivateKey, SigningKey},
    names::ServingNames,
    pem,
    serving::{
        CertificateSnafu, GenerateSnafu, KeySnafu, MismatchSnafu, PairError, ServingCertificate, UnfitSnafu,
    },
    validity::Validity,
    x509::Certificate,
};

const DAY: Duration = Duration::from_hours(24);

/// Default validity period of a CA: 365 days.
pub(crate) const CA_LIFETIME: Duration = DAY.saturating_mul(365);

/// Default validity period of a serving certificate: 7 days, limited by that of its CA.
pub(crate) const SERVING_LIFETIME: Duration = DAY.saturating_mul(7);

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
    /// Generates a CA with an ECDSA key on P-256, valid for 365 days. Its path length constraint is 0, so it
    /// cannot sign further CAs.
    ///
    /// The CA is constrained (RFC 5280, section 4.2.1.10) to `names`, their subdomains, `localhost`,
    /// 127.0.0.1 and ::1. A stolen key cannot be used to impersonate other servers.
    ///
    /// # Errors
    ///
    /// Returns an error if key generation or signing fails.
    pub fn generate(names: &ServingNames, now: SystemTime) -> Result<Self, Error> {
        Self::generate_for(CA_LIFETIME, names, now)
    }

    /// As [`generate`](Self::generate), with another validity period, which never extends beyond the year 9999.
    pub(crate) fn generate_for(
        lifetime: Duration,
        names: &ServingNames,
        now: SystemTime,
    ) -> Result<Self, Error> {
        let key = generate_key()?;
        let validity = contents::validity(now, lifetime);
        let certificate = contents::authority(names, validity)?.self_signed(&key).boxed().context(SIGN)?;
        Ok(Self::from_der(certificate.der().clone(), key.to_pkcs8())?)
    }

    /// Loads an externally created CA, for example from openssl: the first certificate of `certificate_pem`
    /// and the only key of `private_key_pem` (PKCS#8, SEC1 or PKCS#1).
    ///
    /// # Errors
    ///
    /// Returns an error if either text is not PEM or does not parse, if the key does not match, or if the
    /// certificate is not a CA, may not sign certificates, is not for servers, or is not valid at `now`.
    pub fn from_pem(certificate_pem: &[u8], private_key_pem: &[u8], now: SystemTime) -> Result<Self, Error> {
        let ca = Self::from_pem_at_any_time(certificate_pem, private_key_pem)?;
        ca.check_validity(now)?;
        Ok(ca)
    }

    /// As [`from_pem`](Self::from_pem), also outside of the validity period.
    pub(crate) fn from_pem_at_any_time(
        certificate_pem: &[u8],
        private_key_pem: &[u8],
    ) -> Result<Self, PairError> {
        let certificates = pem::parse_certificates(certificate_pem).boxed();
        let mut certificates =
            certificates.context(CertificateSnafu { problem: "failed to read the CA certificate" })?;
        let private_key = pem::parse_private_key(private_key_pem).boxed();
        let private_key =
            private_key.context(KeySnafu { problem: "failed to read the private key of the CA" })?;
        Self::from_der(certificates.swap_remove(0), private_key)
    }

    fn from_der(certificate: CertificateDer<'static>, private_key: PrivateKey) -> Result<Self, PairError> {
        const PARSE: CertificateSnafu<&str> =
            CertificateSnafu { problem: "failed to parse the CA certificate" };
        let parsed = Certificate::parse(&certificate).boxed().context(PARSE)?;
        let validity = parsed.validity;
        let fingerprint = Fingerprint::of(&certificate);

        let is_ca = parsed.extensions.basic_constraints.is_some_and(|it| it.is_ca);
        let may_sign = parsed.extensions.may_sign();
        let for_servers = Purpose::Servers.allowed_by(&parsed);
        for (is_met, problem) in [
            (is_ca, "its basic constraints do not say CA:TRUE"),
            (may_sign, "its key usage lacks keyCertSign"),
            (for_servers, "its extended key usage lacks serverAuth"),
        ] {
            ensure!(is_met, UnfitSnafu { fingerprint, problem });
        }
        let problem = "failed to parse the private key of the CA: expected ECDSA, RSA or Ed25519";
        let key = SigningKey::try_from(&private_key).boxed().context(KeySnafu { problem })?;
        let is_match = key.subject_public_key_info() == parsed.public_key_info;
        ensure!(is_match, MismatchSnafu { kind: "CA certificate", fingerprint });
        let problem = "failed to use the subject of the CA certificate as an issuer";
        let params = parsed.issuer().boxed().context(CertificateSnafu { problem })?;
        let issuer = Issuer::new(params, key);
        Ok(Self { private_key, issuer, validity, certificate })
    }

    /// Issues a serving certificate for `names` with a new ECDSA key on P-256, valid for 7 days. It is
    /// backdated by an hour, within the validity period of the CA.
    ///
    /// Clients may still reject the certificate: name constraints are not checked here. See
    /// [`ServingCertificate::verify_for`].
    ///
    /// # Errors
    ///
    /// Returns an error if the CA is not valid at `now`, or if key generation or signing fails.
    pub fn issue(&self, names: &ServingNames, now: SystemTime) -> Result<ServingCertificate, Error> {
        Ok(self.issue_for(SERVING_LIFETIME, names, now)?)
    }

    /// As [`issue`](Self::issue), with another validity period, counted from `now`. It ends with that of the CA.
    pub(crate) fn issue_for(
        &self,
        lifetime: Duration,
        names: &ServingNames,
        now: SystemTime,
    ) -> Result<ServingCertificate, PairError> {
        let (leaf, key) = self.sign(lifetime, names, now)?;
        let certificate = ServingCertificate::new(leaf, Vec::new(), &key, Some(now)).boxed();
        certificate.context(GenerateSnafu { problem: "failed to use a serving certificate with rustls" })
    }

    /// As [`issue_for`](Self::issue_for), but returns the certificate and its private key (PKCS#8) as PEM, for the
    /// `tls.crt` and `tls.key` of a Secret.
    #[cfg(feature = "kube")]
    pub(crate) fn issue_pem(
        &self,
        lifetime: Duration,
        names: &ServingNames,
        now: SystemTime,
    ) -> Result<(String, Zeroizing<String>), PairError> {
        let (leaf, key) = self.sign(lifetime, names, now)?;
        Ok((pem::encode_certificate(&leaf), pem::encode_private_key(&key)))
    }

    fn sign(
        &self,
        lifetime: Duration,
        names: &ServingNames,
        now: SystemTime,
    ) -> Result<(CertificateDer<'static>, PrivateKey), PairError> {
        self.check_validity(now)?;
        let key = generate_key()?;
        let wanted = contents::validity(now, lifetime);
        let validity = Validity {
            not_before: wanted.not_before.max(self.validity.not_before),
            not_after: wanted.not_after.min(self.validity.not_after),
        };
        let leaf = contents::leaf(names, validity)?.signed_by(&key, &self.issuer).boxed().context(SIGN)?;
        Ok((leaf.der().clone(), key.to_pkcs8()))
    }

    fn check_validity(&self, now: SystemTime) -> Result<(), PairError> {
        let (validity, fingerprint) = (self.validity, self.fingerprint());
        let problem = format!("expired, it was valid from {validity}");
        ensure!(!validity.is_over(now), UnfitSnafu { fingerprint, problem });
        let problem = format!("not valid yet, it is valid from {validity}");
        ensure!(validity.contains(now), UnfitSnafu { fingerprint, problem });
        Ok(())
    }

    /// Returns the trust bundle with this CA only. Its PEM is that of the CA certificate.
    #[must_use]
    pub fn trust_bundle(&self) -> TrustBundle {
        TrustBundle::of(self.certificate.clone(), self.validity)
    }

    /// Returns the private key as PEM, in the format it was loaded in; PKCS#8 for a generated CA. The text is
    /// zeroed on drop. Anyone who has it can sign certificates, so store it only in a Secret and never log
    /// it.
    #[must_use]
    pub fn private_key_pem(&self) -> Zeroizing<String> {
        pem::encode_private_key(&self.private_key)
    }

    #[cfg(any(test, feature = "kube"))]
    pub(crate) fn validity(&self) -> Validity {
        self.validity
    }

    pub(crate) fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.certificate)
    }
}

const SIGN: GenerateSnafu<&str> = GenerateSnafu { problem: "failed to sign a certificate" };

fn generate_key() -> Result<SigningKey, PairError> {
    SigningKey::generate().boxed().context(GenerateSnafu { problem: "failed to generate a private key" })
}

impl fmt::Debug for CertificateAuthority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CertificateAuthority")
            .field("fingerprint", &format_args!("{}", self.fingerprint()))
            .field("validity", &format_args!("{}", self.validity))
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validity::BACKDATE;

    fn names() -> ServingNames {
        ServingNames::for_services("lucid-system", &["lucid-operator"]).unwrap()
    }

    /// Current time in whole seconds, the resolution of certificates.
    fn now() -> SystemTime {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        SystemTime::UNIX_EPOCH + Duration::from_secs(since.as_secs())
    }

    #[cfg(feature = "kube")]
    #[test]
    fn a_leaf_in_pem_form_round_trips() {
        let now = now();
        let ca = CertificateAuthority::generate(&names(), now).unwrap();
        let (certificate, key) = ca.issue_pem(DAY, &names(), now).unwrap();
        let leaf = ServingCertificate::from_pem(certificate.as_bytes(), key.as_bytes()).unwrap();
        leaf.verify_for(&names(), &ca.trust_bundle(), now).unwrap();
        assert_eq!(leaf.validity().not_after, now + DAY);
        assert_eq!(leaf.renew_at(), now + DAY / 3 * 2);
        if lucid_e2e::has_program("openssl") {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("key.pem");
            std::fs::write(&path, &*key).unwrap();
            let mut openssl = std::process::Command::new("openssl");
            assert!(openssl.args(["pkey", "-noout", "-in"]).arg(path).status().unwrap().success());
        }
    }

    #[test]
    fn custom_lifetimes_stay_within_the_validity_of_the_ca() {
        let now = now();
        let after = |seconds| now + Duration::from_secs(seconds);
        let day = DAY.as_secs();
        // Lifetime of the CA, which is issued after 30 s; time of issue and lifetime of the leaf; begin and end of its
        // validity, its renewal.
        for (of_ca, at, of_leaf, not_before, not_after, renew_at) in [
            (60, 30, 9, 30, 39, 36),
            (60, 0, 9, 30, 9, 6),
            (60, 87, day, 87, 90, 89),
            (day, 30, u64::MAX, 30, 30 + day, 30 + day * 2 / 3),
        ] {
            let [of_ca, of_leaf] = [of_ca, of_leaf].map(Duration::from_secs);
            let ca = CertificateAuthority::generate_for(of_ca, &names(), after(30)).unwrap();
            let (not_before, not_after) = (after(not_before) - BACKDATE, after(not_after));
            let expected = Validity { not_before: after(30) - BACKDATE, not_after: after(30) + of_ca };
            assert_eq!(ca.validity(), expected);
            let leaf = ca.issue_for(of_leaf, &names(), after(at)).unwrap();
            assert_eq!(leaf.validity(), Validity { not_before, not_after }, "{of_ca:?} {at} {of_leaf:?}");
            assert_eq!(leaf.renew_at(), after(renew_at), "{of_ca:?} {at} {of_leaf:?}");
            leaf.verify_for(&names(), &ca.trust_bundle(), after(at)).unwrap();
        }
        let forever = CertificateAuthority::generate_for(Duration::MAX, &names(), now).unwrap();
        let end = forever.validity().not_after.duration_since(SystemTime::UNIX_EPOCH).unwrap();
        assert_eq!(end.as_secs(), 253_402_300_799, "99991231235959Z");
    }
}
