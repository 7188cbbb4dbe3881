//! The certificate authority that signs serving certificates

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::Arc,
    time::{Duration, SystemTime},
};

use aws_lc_rs::rand;
use rcgen::{
    BasicConstraints, CertificateParams, CidrSubnet, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    GeneralSubtree, IsCa, Issuer, KeyPair, KeyUsagePurpose, NameConstraints, PublicKeyData, SanType,
};
use rustls::{
    crypto::aws_lc_rs as provider,
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer},
    sign::CertifiedKey,
};
use snafu::{ResultExt, Snafu, ensure};
use x509_parser::error::X509Error;

use crate::{
    bundle::TrustBundle,
    fingerprint::Fingerprint,
    names::ServingNames,
    pem::{self, PemError},
    serving::ServingCertificate,
    validity::{self, Validity},
};

const DAY: Duration = Duration::from_hours(24);

/// How long a new certificate authority is valid: 365 days
pub const CA_LIFETIME: Duration = DAY.saturating_mul(365);

/// How long before its end a certificate authority is to be replaced: 30 days
pub const CA_RENEW_BEFORE: Duration = DAY.saturating_mul(30);

/// How long a replaced certificate authority stays trusted, so that every replica can follow: they look
/// at least once a minute. 10 minutes from when its successor was made, and again from when a replica
/// that came late serves under the successor.
pub const CA_OVERLAP: Duration = Duration::from_mins(10);

/// How long a serving certificate is valid: 7 days, or until its authority ends
pub const SERVING_LIFETIME: Duration = DAY.saturating_mul(7);

/// How far in the past a validity begins, for clients whose clock is behind: 1 hour
pub const BACKDATE: Duration = Duration::from_hours(1);

/// Why a certificate authority was refused or could not sign
#[derive(Debug, Snafu)]
#[non_exhaustive]
pub enum CaError {
    /// There is no certificate to read
    #[snafu(display("failed to read the CA certificate"))]
    CertificatePem {
        /// What is wrong with the text
        source: PemError,
    },
    /// The certificate does not parse
    #[snafu(display("failed to parse the CA certificate"))]
    Certificate {
        /// What is wrong with it
        source: X509Error,
    },
    /// The certificate parses, but its subject cannot be used as an issuer
    #[snafu(display("failed to use the subject of the CA certificate as an issuer"))]
    Subject {
        /// What is wrong with it
        source: rcgen::Error,
    },
    /// There is no private key to read
    #[snafu(display("failed to read the private key of the CA"))]
    PrivateKeyPem {
        /// What is wrong with the text
        source: PemError,
    },
    /// The private key does not parse or is of another kind
    #[snafu(display("failed to parse the private key of the CA: ECDSA, RSA and Ed25519 are accepted"))]
    PrivateKey {
        /// What is wrong with it
        source: rcgen::Error,
    },
    /// Certificate and private key do not belong together
    #[snafu(display(
        "failed to match the private key with the CA certificate {fingerprint}: it belongs to another certificate"
    ))]
    KeyMismatch {
        /// SHA-256 of the certificate
        fingerprint: Fingerprint,
    },
    /// The certificate is one of a server or client
    #[snafu(display(
        "failed to use the certificate {fingerprint} as a CA: its basic constraints do not say CA:TRUE"
    ))]
    NotACa {
        /// SHA-256 of the certificate
        fingerprint: Fingerprint,
    },
    /// The certificate is one of a CA that may not sign certificates
    #[snafu(display("failed to use the CA certificate {fingerprint}: its key usage lacks keyCertSign"))]
    MayNotSign {
        /// SHA-256 of the certificate
        fingerprint: Fingerprint,
    },
    /// The certificate is expired
    #[snafu(display(
        "failed to use the CA certificate {fingerprint}: expired, it was valid from {validity}"
    ))]
    Expired {
        /// SHA-256 of the certificate
        fingerprint: Fingerprint,
        /// From when to when it was valid
        validity: Validity,
    },
    /// The certificate is not valid yet, or our clock is behind
    #[snafu(display(
        "failed to use the CA certificate {fingerprint}: not valid yet, it is valid from {validity}"
    ))]
    NotYetValid {
        /// SHA-256 of the certificate
        fingerprint: Fingerprint,
        /// From when to when it is valid
        validity: Validity,
    },
    /// There was no randomness for a serial number
    #[snafu(display("failed to draw a serial number"))]
    Serial,
    /// A private key could not be made
    #[snafu(display("failed to generate a private key"))]
    GenerateKey {
        /// What the library says
        source: rcgen::Error,
    },
    /// A certificate could not be signed
    #[snafu(display("failed to sign a certificate"))]
    Sign {
        /// What the library says
        source: rcgen::Error,
    },
    /// A signed certificate cannot be served
    #[snafu(display("failed to use a serving certificate with rustls"))]
    Serve {
        /// What the library says
        source: rustls::Error,
    },
}

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
    private_key: PrivateKeyDer<'static>,
    issuer: Issuer<'static, KeyPair>,
    validity: Validity,
}

impl CertificateAuthority {
    /// Makes a new authority: ECDSA P-256, valid for [`CA_LIFETIME`], path length 0 (it signs no
    /// further authority).
    ///
    /// It is constrained (RFC 5280, section 4.2.1.10) to `names` and what is below them, and to
    /// `localhost`, 127.0.0.1 and ::1: stolen, it can impersonate nothing else.
    ///
    /// # Errors
    ///
    /// When the key or the signature cannot be made.
    pub fn generate(names: &ServingNames, now: SystemTime) -> Result<Self, CaError> {
        let key = KeyPair::generate().context(GenerateKeySnafu)?;
        // 64 characters is the limit of a common name.
        let common_name = format!("{:.61} CA", names.common_name());
        let mut params = certificate_params(&common_name, now - BACKDATE, now + CA_LIFETIME)?;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.name_constraints =
            Some(NameConstraints { permitted_subtrees: permitted(names), excluded_subtrees: Vec::new() });
        let certificate = params.self_signed(&key).context(SignSnafu)?.der().clone();
        Self::from_der(certificate, PrivatePkcs8KeyDer::from(key).into(), now)
    }

    /// Takes over an authority made elsewhere, such as by openssl: the first certificate of
    /// `certificate_pem` and the only key of `private_key_pem` (PKCS#8, SEC1 or PKCS#1).
    ///
    /// # Errors
    ///
    /// Says which of both is wrong and how: not PEM, does not parse, key of another certificate, not
    /// a CA, may not sign, expired or not valid yet at `now`.
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
        private_key: PrivateKeyDer<'static>,
        now: SystemTime,
    ) -> Result<Self, CaError> {
        let parsed = validity::parse(&certificate).context(CertificateSnafu)?;
        let validity = Validity::of(&parsed);
        let fingerprint = Fingerprint::of(&certificate);

        ensure!(parsed.is_ca(), NotACaSnafu { fingerprint });
        let key_usage = parsed.key_usage().context(CertificateSnafu)?;
        ensure!(key_usage.is_none_or(|usage| usage.value.key_cert_sign()), MayNotSignSnafu { fingerprint });
        ensure!(!validity.is_over(now), ExpiredSnafu { fingerprint, validity });
        ensure!(validity.contains(now), NotYetValidSnafu { fingerprint, validity });

        let key = KeyPair::try_from(&private_key).context(PrivateKeySnafu)?;
        ensure!(key.subject_public_key_info() == parsed.public_key().raw, KeyMismatchSnafu { fingerprint });
        let issuer = Issuer::from_ca_cert_der(&certificate, key).context(SubjectSnafu)?;
        Ok(Self { private_key, issuer, validity, certificate })
    }

    /// Signs a serving certificate with a fresh P-256 key for `names`, valid for
    /// [`SERVING_LIFETIME`] and never beyond the authority itself.
    ///
    /// Whether clients accept it is the question of [`ServingCertificate::verify_for`]: an authority
    /// made for other names signs, but its name constraints forbid the use.
    ///
    /// # Errors
    ///
    /// When the authority is out of its validity at `now`, or the key or signature cannot be made.
    pub fn issue(&self, names: &ServingNames, now: SystemTime) -> Result<ServingCertificate, CaError> {
        let validity = self.validity;
        ensure!(!validity.is_over(now), ExpiredSnafu { fingerprint: self.fingerprint(), validity });
        ensure!(validity.contains(now), NotYetValidSnafu { fingerprint: self.fingerprint(), validity });

        let key = KeyPair::generate().context(GenerateKeySnafu)?;
        let mut params = certificate_params(
            names.common_name(),
            (now - BACKDATE).max(validity.not_before),
            (now + SERVING_LIFETIME).min(validity.not_after),
        )?;
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        for name in names.dns_names() {
            let name = name.try_into().context(SignSnafu)?;
            params.subject_alt_names.push(SanType::DnsName(name));
        }
        params.subject_alt_names.extend(names.ip_addresses().iter().copied().map(SanType::IpAddress));

        let leaf = params.signed_by(&key, &self.issuer).context(SignSnafu)?.der().clone();
        let validity = Validity::of(&validity::parse(&leaf).context(CertificateSnafu)?);
        let certified = CertifiedKey::from_der(
            vec![leaf.clone()],
            PrivatePkcs8KeyDer::from(key).into(),
            &provider::default_provider(),
        )
        .context(ServeSnafu)?;
        Ok(ServingCertificate { certified: Arc::new(certified), leaf, validity })
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
    /// it can sign: it belongs into a Secret, never into a log.
    #[must_use]
    pub fn private_key_pem(&self) -> String {
        pem::encode_private_key(&self.private_key)
    }

    /// From when to when it is valid
    #[must_use]
    pub fn validity(&self) -> Validity {
        self.validity
    }

    /// Whether less than [`CA_RENEW_BEFORE`] is left at `now`
    #[must_use]
    pub fn is_due_for_renewal(&self, now: SystemTime) -> bool {
        self.validity.is_over(now + CA_RENEW_BEFORE)
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

/// What every certificate of ours has: subject, validity, a serial number and both key identifiers
fn certificate_params(
    common_name: &str,
    not_before: SystemTime,
    not_after: SystemTime,
) -> Result<CertificateParams, CaError> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    params.not_before = not_before.into();
    params.not_after = not_after.into();
    params.serial_number = Some(serial_number()?.to_vec().into());
    params.use_authority_key_identifier_extension = true;
    Ok(params)
}

/// 128 bits whose first two are 01: positive, and always of full length
fn serial_number() -> Result<[u8; 16], CaError> {
    let mut serial = [0; 16];
    rand::fill(&mut serial).map_err(|_| CaError::Serial)?;
    serial[0] = serial[0] & 0x3f | 0x40;
    Ok(serial)
}

/// Addresses must be listed too: a constraint on one type of name leaves the other types free.
fn permitted(names: &ServingNames) -> Vec<GeneralSubtree> {
    let dns_names = names.dns_names().chain(["localhost"]);
    let loopback = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
    let addresses = names.ip_addresses().iter().copied().chain(loopback);
    let mut subtrees = Vec::new();
    for subtree in dns_names
        .map(|name| GeneralSubtree::DnsName(name.to_owned()))
        .chain(addresses.map(|address| GeneralSubtree::IpAddress(single(address))))
    {
        if !subtrees.contains(&subtree) {
            subtrees.push(subtree);
        }
    }
    subtrees
}

fn single(address: IpAddr) -> CidrSubnet {
    CidrSubnet::from_addr_prefix(address, if address.is_ipv4() { 32 } else { 128 })
}
