//! The certificate a server shows

use std::{fmt, sync::Arc, time::SystemTime};

use rustls::{
    crypto::aws_lc_rs::sign,
    pki_types::{CertificateDer, ServerName, UnixTime},
    sign::CertifiedKey,
};
use snafu::{ResultExt, Snafu};
use webpki::{ALL_VERIFICATION_ALGS, EndEntityCert, KeyUsage};
use x509_parser::error::X509Error;

use crate::{
    anchor::{self, Purpose, Unfit},
    bundle::TrustBundle,
    fingerprint::Fingerprint,
    key::PrivateKey,
    names::ServingNames,
    pem::{self, PemError},
    validity::{self, Validity},
};

/// Why a certificate and a key cannot be served
#[derive(Debug, Snafu)]
#[non_exhaustive]
pub enum PairError {
    /// There is no certificate to read
    #[snafu(display("failed to read the certificate"))]
    CertificatePem {
        /// What is wrong with the text
        source: PemError,
    },
    /// A certificate does not parse
    #[snafu(display("failed to parse certificate {position} of the chain"))]
    Certificate {
        /// Which one, counted from 1
        position: usize,
        /// What is wrong with it
        #[snafu(source(from(X509Error, Box::from)))]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// There is no private key to read
    #[snafu(display("failed to read the private key"))]
    KeyPem {
        /// What is wrong with the text
        source: PemError,
    },
    /// The key is of a kind that TLS has no use for, or does not parse
    #[snafu(display("failed to use the private key: ECDSA P-256 to P-521, Ed25519 and RSA are accepted"))]
    Key {
        /// What the library says
        source: rustls::Error,
    },
    /// The key is that of another certificate
    #[snafu(display(
        "failed to match the private key with the certificate {fingerprint}: it is that of another certificate"
    ))]
    Mismatch {
        /// The certificate
        fingerprint: Fingerprint,
        /// What the library says
        source: rustls::Error,
    },
}

/// Why a client would refuse a serving certificate
#[derive(Debug, Snafu)]
#[non_exhaustive]
pub enum VerifyError {
    /// No certificate of the trust bundle is a CA for servers that is valid now
    #[snafu(display(
        "failed to verify a serving certificate: nothing in the trust bundle vouches for it: {why}"
    ))]
    NothingTrusted {
        /// Of the first certificates of the bundle, the newest first
        why: String,
    },
    /// No chain leads to the trust bundle, or a name constraint or the validity forbids it
    #[snafu(display("failed to verify the serving certificate {fingerprint} against the trust bundle"))]
    Chain {
        /// SHA-256 of the certificate
        fingerprint: Fingerprint,
        /// Which rule it breaks
        #[snafu(source(from(webpki::Error, Box::from)))]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The certificate is trusted, but not under this name
    #[snafu(display("failed to verify the serving certificate {fingerprint} for the name {name}"))]
    Name {
        /// SHA-256 of the certificate
        fingerprint: Fingerprint,
        /// The name it lacks
        name: String,
        /// What the verifier says
        #[snafu(source(from(webpki::Error, Box::from)))]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// A certificate with its private key, as [`CertificateAuthority::issue`] makes it.
///
/// The key stays in memory, in the form that aws-lc uses and overwrites at the end; `Debug` shows neither key nor
/// certificate bytes.
///
/// [`CertificateAuthority::issue`]: crate::CertificateAuthority::issue
#[derive(Clone)]
pub struct ServingCertificate {
    pub(crate) certified: Arc<CertifiedKey>,
    leaf: CertificateDer<'static>,
    validity: Validity,
    /// When it was made, which is after the begin of its validity
    made: SystemTime,
}

impl ServingCertificate {
    /// A certificate that was made elsewhere: first itself and then its intermediates, if any, in PEM, and its
    /// key as PKCS#8, SEC1 or PKCS#1. Both texts may be the same.
    ///
    /// Whether it is valid now, and for which names, is the question of [`verify_for`](Self::verify_for).
    ///
    /// # Errors
    ///
    /// Says which of both is wrong and how: not PEM, does not parse, or the key of another certificate.
    pub fn from_pem(certificates: &[u8], key: &[u8]) -> Result<Self, PairError> {
        let chain = pem::parse_certificates(certificates).context(CertificatePemSnafu)?;
        let key = pem::parse_private_key(key).context(KeyPemSnafu)?;
        Self::new(chain, &key, None)
    }

    /// When it was `made` is guessed where it is not known, see [`Self::renew_at`]
    pub(crate) fn new(
        chain: Vec<CertificateDer<'static>>,
        key: &PrivateKey,
        made: Option<SystemTime>,
    ) -> Result<Self, PairError> {
        let mut validities = Vec::with_capacity(chain.len());
        for (index, certificate) in chain.iter().enumerate() {
            let certificate =
                validity::parse(certificate).context(CertificateSnafu { position: index + 1 })?;
            validities.push(Validity::of(&certificate));
        }
        let (Some(leaf), Some(validity)) = (chain.first().cloned(), validities.first().copied()) else {
            return Err(PemError::NoCertificate).context(CertificatePemSnafu);
        };
        let key = sign::any_supported_type(key).context(KeySnafu)?;
        let certified = CertifiedKey::new(chain, key);
        certified.keys_match().context(MismatchSnafu { fingerprint: Fingerprint::of(&leaf) })?;
        let made = made.unwrap_or_else(|| validity.probably_made());
        Ok(Self { certified: Arc::new(certified), leaf, validity, made })
    }

    /// The certificate itself
    #[must_use]
    pub fn certificate(&self) -> &CertificateDer<'static> {
        &self.leaf
    }

    /// What is sent behind it: none for one that our own authority issued, which is in the trust bundle
    /// itself
    #[must_use]
    pub fn intermediates(&self) -> &[CertificateDer<'static>] {
        self.certified.cert.get(1..).unwrap_or_default()
    }

    /// From when to when it is valid
    #[must_use]
    pub fn validity(&self) -> Validity {
        self.validity
    }

    /// When to ask for the next one: two thirds through its life, which begins when it was made. One that was
    /// made elsewhere is taken as backdated by [`BACKDATE`](crate::BACKDATE), if it is valid for longer than that.
    #[must_use]
    pub fn renew_at(&self) -> SystemTime {
        let left = self.validity.not_after.duration_since(self.made).unwrap_or_default();
        self.made + left / 3 * 2
    }

    /// The name of the certificate in logs
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.leaf)
    }

    /// Checks what a client that trusts `bundle` checks, for each name: chain, validity, use as a
    /// server's certificate, name constraints of the CA, and the name itself.
    ///
    /// # Errors
    ///
    /// The first rule that is broken.
    pub fn verify_for(
        &self,
        names: &ServingNames,
        bundle: &TrustBundle,
        now: SystemTime,
    ) -> Result<(), VerifyError> {
        self.verify_chain(bundle, now)?;
        let fingerprint = self.fingerprint();
        let leaf = EndEntityCert::try_from(&self.leaf).context(ChainSnafu { fingerprint })?;
        for name in names.server_names() {
            leaf.verify_is_valid_for_subject_name(&name)
                .context(NameSnafu { fingerprint, name: name.to_str() })?;
        }
        Ok(())
    }

    /// Checks of [`verify_for`](Self::verify_for) all but the names
    pub(crate) fn verify_chain(&self, bundle: &TrustBundle, now: SystemTime) -> Result<(), VerifyError> {
        verify_chain(&self.leaf, self.intermediates(), self.validity, bundle, now)
    }

    /// The names under which API servers call that it is not for
    #[cfg(feature = "runtime")]
    pub(crate) fn lacking(&self, names: &ServingNames) -> Vec<String> {
        let leaf = EndEntityCert::try_from(&self.leaf);
        let is_for =
            |name| leaf.as_ref().is_ok_and(|leaf| leaf.verify_is_valid_for_subject_name(name).is_ok());
        names.called().filter(|name| !is_for(name)).map(|name| name.to_str().into_owned()).collect()
    }
}

/// Checks what a client that trusts `bundle` checks of a certificate that a server shows, `name` being what it calls the
/// server: a DNS name or an IP address. The server's own certificate comes first in `shown`, intermediates follow.
///
/// For who looks at a server from outside; who serves asks [`ServingCertificate::verify_for`]. Returns how long the
/// certificate is valid.
///
/// # Errors
///
/// The first rule that is broken; a certificate that does not parse breaks the first.
pub fn verify_shown(
    shown: &[CertificateDer<'_>],
    name: &str,
    bundle: &TrustBundle,
    now: SystemTime,
) -> Result<Validity, VerifyError> {
    let nothing = CertificateDer::from_slice(&[]);
    let (leaf, intermediates) = shown.split_first().unwrap_or((&nothing, &[]));
    let chain = ChainSnafu { fingerprint: Fingerprint::of(leaf) };
    let parsed = EndEntityCert::try_from(leaf).context(chain)?;
    let validity = validity::parse(leaf).map_err(|_| webpki::Error::BadDer).context(chain)?;
    let validity = Validity::of(&validity);
    verify_chain(leaf, intermediates, validity, bundle, now)?;
    ServerName::try_from(name)
        .map_err(|_| webpki::Error::MalformedDnsIdentifier)
        .and_then(|name| parsed.verify_is_valid_for_subject_name(&name))
        .context(NameSnafu { fingerprint: Fingerprint::of(leaf), name })?;
    Ok(validity)
}

fn verify_chain(
    leaf: &CertificateDer<'_>,
    intermediates: &[CertificateDer<'_>],
    validity: Validity,
    bundle: &TrustBundle,
    now: SystemTime,
) -> Result<(), VerifyError> {
    let fingerprint = Fingerprint::of(leaf);
    // To Go, whose rules an API server follows, one that is in the bundle itself needs nobody else, even if
    // it says of itself that it is a CA, as `openssl req -x509` makes it.
    if bundle.contains(&fingerprint) && validity.contains(now) && is_for_servers(leaf) {
        return Ok(());
    }
    let anchors =
        bundle.anchors(now).map_err(|left_out| VerifyError::NothingTrusted { why: reasons(&left_out) })?;
    let trusted: Vec<_> = anchors.iter().map(|anchor| anchor.trusted.clone()).collect();
    let chain = ChainSnafu { fingerprint };
    let leaf = EndEntityCert::try_from(leaf).context(chain)?;
    let unix = UnixTime::since_unix_epoch(now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default());
    leaf.verify_for_usage(
        ALL_VERIFICATION_ALGS,
        &trusted,
        intermediates,
        unix,
        KeyUsage::server_auth(),
        None,
        Some(&|path| anchor::check_path(&anchors, path)),
    )
    .context(chain)?;
    Ok(())
}

/// Whether it may be used for what it is here for
fn is_for_servers(leaf: &CertificateDer<'_>) -> bool {
    validity::parse(leaf).and_then(|leaf| Purpose::Servers.is_that_of(&leaf)).unwrap_or(false)
}

/// Of the first three, which is enough for a message
fn reasons(left_out: &[(Fingerprint, Unfit)]) -> String {
    let shown: Vec<_> =
        left_out.iter().take(3).map(|(fingerprint, unfit)| format!("{fingerprint} {unfit}")).collect();
    match left_out.len().saturating_sub(shown.len()) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

impl fmt::Debug for ServingCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServingCertificate")
            .field("fingerprint", &format_args!("{}", self.fingerprint()))
            .field("validity", &format_args!("{}", self.validity))
            .finish_non_exhaustive()
    }
}
