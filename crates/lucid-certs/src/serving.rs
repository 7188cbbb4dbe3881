//! The certificate a server shows

use std::{fmt, sync::Arc, time::SystemTime};

use rustls::{
    pki_types::{CertificateDer, UnixTime},
    sign::CertifiedKey,
};
use snafu::{ResultExt, Snafu, ensure};
use webpki::{ALL_VERIFICATION_ALGS, EndEntityCert, KeyUsage};

use crate::{
    bundle::TrustBundle,
    names::ServingNames,
    validity::{self, Rfc3339, Validity},
};

/// Why a client would refuse a serving certificate
#[derive(Debug, Snafu)]
#[non_exhaustive]
pub enum VerifyError {
    /// Every certificate of the trust bundle is expired or not yet valid
    #[snafu(display(
        "failed to verify a serving certificate: nothing in the trust bundle is valid at {now}"
    ))]
    NothingTrusted {
        /// When it was looked at
        now: String,
    },
    /// No chain leads to the trust bundle, or a name constraint or the validity forbids it
    #[snafu(display("failed to verify the serving certificate {fingerprint} against the trust bundle"))]
    Chain {
        /// SHA-256 of the certificate
        fingerprint: String,
        /// Which rule it breaks
        source: webpki::Error,
    },
    /// The certificate is trusted, but not under this name
    #[snafu(display("failed to verify the serving certificate {fingerprint} for the name {name}"))]
    Name {
        /// SHA-256 of the certificate
        fingerprint: String,
        /// The name it lacks
        name: String,
        /// What the verifier says
        source: webpki::Error,
    },
}

/// A certificate with its private key, as [`CertificateAuthority::issue`] makes it.
///
/// The key stays in memory; `Debug` shows neither key nor certificate bytes.
///
/// [`CertificateAuthority::issue`]: crate::CertificateAuthority::issue
#[derive(Clone)]
pub struct ServingCertificate {
    pub(crate) certified: Arc<CertifiedKey>,
    pub(crate) leaf: CertificateDer<'static>,
    pub(crate) validity: Validity,
}

impl ServingCertificate {
    /// The certificate itself. The issuing CA is in the trust bundle, so nothing else is sent.
    #[must_use]
    pub fn certificate(&self) -> &CertificateDer<'static> {
        &self.leaf
    }

    /// From when to when it is valid
    #[must_use]
    pub fn validity(&self) -> Validity {
        self.validity
    }

    /// When to ask for the next one: two thirds through its life
    #[must_use]
    pub fn renew_at(&self) -> SystemTime {
        self.validity.not_before + self.validity.duration() / 3 * 2
    }

    /// SHA-256 of the certificate in lower-case hex, for logs
    #[must_use]
    pub fn fingerprint(&self) -> String {
        validity::fingerprint(&self.leaf)
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
        let fingerprint = self.fingerprint();
        let anchors = bundle.anchors(now);
        ensure!(!anchors.is_empty(), NothingTrustedSnafu { now: Rfc3339(now).to_string() });

        let chain = ChainSnafu { fingerprint: &fingerprint };
        let leaf = EndEntityCert::try_from(&self.leaf).context(chain)?;
        let unix = UnixTime::since_unix_epoch(now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default());
        leaf.verify_for_usage(
            ALL_VERIFICATION_ALGS,
            &anchors,
            &[],
            unix,
            KeyUsage::server_auth(),
            None,
            None,
        )
        .context(chain)?;
        for name in names.server_names() {
            leaf.verify_is_valid_for_subject_name(&name)
                .context(NameSnafu { fingerprint: &fingerprint, name: name.to_str() })?;
        }
        Ok(())
    }
}

impl fmt::Debug for ServingCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServingCertificate")
            .field("fingerprint", &self.fingerprint())
            .field("validity", &format_args!("{}", self.validity))
            .finish_non_exhaustive()
    }
}
