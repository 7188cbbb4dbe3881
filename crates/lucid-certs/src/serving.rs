//! Serving certificates and their verification.

use std::{fmt, sync::Arc, time::SystemTime};

use rustls::{
    crypto::aws_lc_rs::sign,
    pki_types::{CertificateDer, ServerName, UnixTime},
    sign::CertifiedKey,
};
use snafu::{ResultExt, Snafu, ensure};
use webpki::{ALL_VERIFICATION_ALGS, EndEntityCert, KeyUsage};

use crate::{
    anchor::{self, Purpose},
    bundle::TrustBundle,
    error::Error,
    fingerprint::Fingerprint,
    key::PrivateKey,
    names::ServingNames,
    pem,
    validity::Validity,
    x509::Certificate,
};

/// Reason why a certificate with its private key was rejected, or could not be issued.
#[derive(Debug, Snafu)]
#[snafu(visibility(pub(crate)))]
pub(crate) enum PairError {
    #[snafu(display("{problem}"))]
    Certificate { problem: String, source: Box<dyn std::error::Error + Send + Sync> },
    #[snafu(display("{problem}"))]
    Key { problem: &'static str, source: Box<dyn std::error::Error + Send + Sync> },
    #[snafu(display(
        "failed to match the private key with the {kind} {fingerprint}: it belongs to another certificate"
    ))]
    Mismatch { kind: &'static str, fingerprint: Fingerprint },
    #[snafu(display("failed to use the CA certificate {fingerprint}: {problem}"))]
    Unfit { fingerprint: Fingerprint, problem: String },
    #[snafu(display("{problem}"))]
    Generate { problem: &'static str, source: Box<dyn std::error::Error + Send + Sync> },
}

#[derive(Debug, Snafu)]
pub(crate) enum VerifyError {
    /// `why` are the problems of the bundle's first certificates, newest first.
    #[snafu(display("failed to verify a serving certificate: no usable CA in the trust bundle: {why}"))]
    NothingTrusted { why: String },
    #[snafu(display("failed to verify the serving certificate {fingerprint} against the trust bundle"))]
    Chain {
        fingerprint: Fingerprint,
        #[snafu(source(from(webpki::Error, Box::from)))]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    #[snafu(display("failed to verify the serving certificate {fingerprint} for the name {name}"))]
    Name {
        fingerprint: Fingerprint,
        name: String,
        #[snafu(source(from(webpki::Error, Box::from)))]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// A certificate with its private key, as issued by [`CertificateAuthority::issue`].
///
/// The key is kept in the form that aws-lc uses, which aws-lc zeroes on drop. `Debug` shows neither key nor
/// certificate bytes.
///
/// [`CertificateAuthority::issue`]: crate::CertificateAuthority::issue
#[derive(Clone)]
pub struct ServingCertificate {
    pub(crate) certified: Arc<CertifiedKey>,
    leaf: CertificateDer<'static>,
    parsed: Arc<Certificate>,
    /// Issue time, which is later than `not_before` if the certificate is backdated.
    issued_at: SystemTime,
}

impl ServingCertificate {
    /// Loads an externally issued certificate: the PEM certificate followed by its intermediates, if any, and
    /// its key as PKCS#8, SEC1 or PKCS#1. Both arguments may be the same text.
    ///
    /// Validity period and names are not checked; see [`verify_for`](Self::verify_for).
    ///
    /// # Errors
    ///
    /// Returns an error if one of the texts is not PEM or does not parse, or if the key does not match the
    /// certificate.
    pub fn from_pem(certificates: &[u8], key: &[u8]) -> Result<Self, Error> {
        Ok(Self::parse(certificates, key)?)
    }

    /// As [`from_pem`](Self::from_pem), with the kind of the problem.
    pub(crate) fn parse(certificates: &[u8], key: &[u8]) -> Result<Self, PairError> {
        let chain = pem::parse_certificates(certificates).boxed();
        let mut chain = chain.context(CertificateSnafu { problem: "failed to read the certificate" })?;
        let key = pem::parse_private_key(key).boxed();
        let key = key.context(KeySnafu { problem: "failed to read the private key" })?;
        let leaf = chain.remove(0);
        Self::new(leaf, chain, &key, None)
    }

    /// Creates the certificate. An unknown `issued_at` is estimated, see [`Self::renew_at`].
    pub(crate) fn new(
        leaf: CertificateDer<'static>,
        intermediates: Vec<CertificateDer<'static>>,
        key: &PrivateKey,
        issued_at: Option<SystemTime>,
    ) -> Result<Self, PairError> {
        let parsed = parse_chain(&leaf, &intermediates)?;
        let problem = "failed to use the private key: expected ECDSA P-256 to P-521, Ed25519 or RSA";
        let key = sign::any_supported_type(key).boxed().context(KeySnafu { problem })?;
        let chain = [leaf.clone()].into_iter().chain(intermediates).collect();
        let certified = CertifiedKey::new(chain, key);
        let mismatch = MismatchSnafu { kind: "certificate", fingerprint: Fingerprint::of(&leaf) };
        ensure!(certified.keys_match().is_ok(), mismatch);
        let issued_at = issued_at.unwrap_or_else(|| parsed.validity.estimated_issue_time());
        Ok(Self { certified: Arc::new(certified), leaf, parsed: Arc::new(parsed), issued_at })
    }

    /// Returns the certificate as DER.
    #[must_use]
    pub fn certificate(&self) -> &CertificateDer<'static> {
        &self.leaf
    }

    /// Returns the intermediates that are sent after the certificate. A certificate of our own CA has none,
    /// because that CA is in the trust bundle.
    #[must_use]
    pub(crate) fn intermediates(&self) -> &[CertificateDer<'static>] {
        self.certified.cert.get(1..).unwrap_or_default()
    }

    /// Returns the validity period.
    #[must_use]
    pub fn validity(&self) -> Validity {
        self.parsed.validity
    }

    /// Returns when to request the next certificate: after two thirds of its lifetime, counted from its issue
    /// time. An externally issued certificate is assumed to be backdated by an hour if
    /// its validity period is longer than that.
    #[must_use]
    pub fn renew_at(&self) -> SystemTime {
        let left = self.parsed.validity.not_after.duration_since(self.issued_at).unwrap_or_default();
        self.issued_at + left / 3 * 2
    }

    /// Returns the fingerprint, which identifies the certificate in logs.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.leaf)
    }

    /// Verifies the certificate as a client does that trusts `bundle`, for each name: chain, validity period,
    /// extended key usage, name constraints of the CA, and the name itself.
    ///
    /// # Errors
    ///
    /// Returns the first rule that is broken.
    pub fn verify_for(
        &self,
        names: &ServingNames,
        bundle: &TrustBundle,
        now: SystemTime,
    ) -> Result<(), Error> {
        self.verify_chain(bundle, now)?;
        let fingerprint = self.fingerprint();
        let leaf = EndEntityCert::try_from(&self.leaf).context(ChainSnafu { fingerprint })?;
        for name in names.server_names() {
            leaf.verify_is_valid_for_subject_name(&name)
                .context(NameSnafu { fingerprint, name: name.to_str() })?;
        }
        Ok(())
    }

    /// As [`verify_for`](Self::verify_for), without the names.
    pub(crate) fn verify_chain(&self, bundle: &TrustBundle, now: SystemTime) -> Result<(), VerifyError> {
        verify_chain(&self.leaf, &self.parsed, self.intermediates(), bundle, now)
    }

    /// Returns the names by which API servers call and for which the certificate is not valid.
    pub(crate) fn missing_names(&self, names: &ServingNames) -> Vec<String> {
        let leaf = EndEntityCert::try_from(&self.leaf);
        let is_for =
            |name| leaf.as_ref().is_ok_and(|leaf| leaf.verify_is_valid_for_subject_name(name).is_ok());
        names.called().filter(|name| !is_for(name)).map(|name| name.to_str().into_owned()).collect()
    }
}

impl TrustBundle {
    /// Verifies a certificate chain presented by a server, as a client does that trusts this bundle and calls the
    /// server by `name`, a DNS name or IP address. The server's own certificate comes first in `chain`,
    /// intermediates follow.
    ///
    /// Intended for external checks of a server; a server checks its own certificate with
    /// [`ServingCertificate::verify_for`]. Returns the validity period of the server's certificate.
    ///
    /// # Errors
    ///
    /// Returns the first rule that is broken.
    pub fn verify_chain(
        &self,
        chain: &[CertificateDer<'_>],
        name: &str,
        now: SystemTime,
    ) -> Result<Validity, Error> {
        let nothing = CertificateDer::from_slice(&[]);
        let (leaf, intermediates) = chain.split_first().unwrap_or((&nothing, &[]));
        let invalid = ChainSnafu { fingerprint: Fingerprint::of(leaf) };
        let parsed = EndEntityCert::try_from(leaf).context(invalid)?;
        let certificate = parse_chain(leaf, intermediates)?;
        verify_chain(leaf, &certificate, intermediates, self, now)?;
        ServerName::try_from(name)
            .map_err(|_| webpki::Error::MalformedDnsIdentifier)
            .and_then(|name| parsed.verify_is_valid_for_subject_name(&name))
            .context(NameSnafu { fingerprint: Fingerprint::of(leaf), name })?;
        Ok(certificate.validity)
    }
}

/// Parses a chain as API servers do, which reject it if they cannot parse one of its certificates. Returns the first one.
fn parse_chain(
    leaf: &CertificateDer<'_>,
    intermediates: &[CertificateDer<'_>],
) -> Result<Certificate, PairError> {
    let parse = |position: usize, certificate| {
        let parsed = Certificate::parse(certificate)
            .and_then(|parsed| parsed.extensions.check_below_anchor().map(|()| parsed));
        parsed.boxed().with_context(|_| CertificateSnafu {
            problem: format!("failed to parse certificate {position} of the chain"),
        })
    };
    for (index, intermediate) in intermediates.iter().enumerate() {
        parse(index + 2, intermediate)?;
    }
    parse(1, leaf)
}

fn verify_chain(
    leaf: &CertificateDer<'_>,
    certificate: &Certificate,
    intermediates: &[CertificateDer<'_>],
    bundle: &TrustBundle,
    now: SystemTime,
) -> Result<(), VerifyError> {
    let fingerprint = Fingerprint::of(leaf);
    // Go, whose rules API servers follow, accepts a certificate that is itself in the bundle without further
    // chain, even if it is marked as a CA, as `openssl req -x509` does.
    if bundle.contains(&fingerprint)
        && certificate.validity.contains(now)
        && Purpose::Servers.allowed_by(certificate)
    {
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
        Some(&|path| anchor::check_path(certificate, &anchors, path)),
    )
    .context(chain)?;
    Ok(())
}

/// Formats the first three reasons.
fn reasons(left_out: &[(Fingerprint, &str)]) -> String {
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
            .field("validity", &format_args!("{}", self.parsed.validity))
            .finish_non_exhaustive()
    }
}

impl From<PairError> for Error {
    fn from(error: PairError) -> Self {
        Self(Box::new(error))
    }
}

impl From<VerifyError> for Error {
    fn from(error: VerifyError) -> Self {
        Self(Box::new(error))
    }
}
