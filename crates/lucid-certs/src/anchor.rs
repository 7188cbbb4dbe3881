//! Which CAs of a bundle may vouch for others.
//!
//! rustls-webpki takes an anchor as it is and looks at nothing in it but the name constraints. Go, whose rules an API
//! server follows, looks at everything else too, which is therefore done here.

use std::{fmt, time::SystemTime};

use rustls::pki_types::{CertificateDer, TrustAnchor};
use webpki::VerifiedPath;
use x509_parser::{certificate::X509Certificate, error::X509Error, x509::X509Version};

use crate::validity::{self, Validity};

/// Whose certificates are verified
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Servers,
    #[cfg(feature = "runtime")]
    Clients,
}

impl Purpose {
    /// Whether the extended key usage (RFC 5280, section 4.2.1.12) of a certificate, if it has any, allows it
    pub(crate) fn is_that_of(self, certificate: &X509Certificate<'_>) -> Result<bool, X509Error> {
        let usage = certificate.extended_key_usage()?;
        Ok(usage.is_none_or(|usage| {
            let allowed = match self {
                Self::Servers => usage.value.server_auth,
                #[cfg(feature = "runtime")]
                Self::Clients => usage.value.client_auth,
            };
            allowed || usage.value.any
        }))
    }
}

impl fmt::Display for Purpose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Servers => "servers",
            #[cfg(feature = "runtime")]
            Self::Clients => "clients",
        })
    }
}

/// Why a certificate vouches for nobody
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unfit {
    Unreadable,
    NotACa,
    MayNotSign,
    NotFor(Purpose),
    Expired,
    NotYetValid,
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable => f.write_str("does not parse"),
            Self::NotACa => f.write_str("is no CA"),
            Self::MayNotSign => f.write_str("lacks keyCertSign in its key usage"),
            Self::NotFor(purpose) => write!(f, "is not for {purpose} by its extended key usage"),
            Self::Expired => f.write_str("is expired"),
            Self::NotYetValid => f.write_str("is not valid yet"),
        }
    }
}

/// A certificate that may vouch for others while it is valid
#[derive(Debug)]
pub(crate) struct Anchor<'a> {
    pub(crate) trusted: TrustAnchor<'a>,
    pub(crate) validity: Validity,
    /// How many intermediates there may be below it (RFC 5280, section 4.2.1.9)
    path_length: Option<u32>,
}

impl<'a> Anchor<'a> {
    pub(crate) fn of(certificate: &'a CertificateDer<'_>, purpose: Purpose) -> Result<Self, Unfit> {
        let unreadable = |_| Unfit::Unreadable;
        let parsed = validity::parse(certificate).map_err(unreadable)?;
        let constraints = parsed.basic_constraints().map_err(unreadable)?.map(|extension| extension.value);
        // Those of version 1 cannot say that they are CAs.
        if !constraints.map_or(parsed.version() == X509Version::V1, |constraints| constraints.ca) {
            return Err(Unfit::NotACa);
        }
        if !may_sign(&parsed).map_err(unreadable)? {
            return Err(Unfit::MayNotSign);
        }
        if !purpose.is_that_of(&parsed).map_err(unreadable)? {
            return Err(Unfit::NotFor(purpose));
        }
        Ok(Self {
            trusted: webpki::anchor_from_trusted_cert(certificate).map_err(|_| Unfit::Unreadable)?,
            validity: Validity::of(&parsed),
            path_length: constraints.and_then(|constraints| constraints.path_len_constraint),
        })
    }

    pub(crate) fn valid_at(self, now: SystemTime) -> Result<Self, Unfit> {
        if self.validity.is_over(now) {
            Err(Unfit::Expired)
        } else if !self.validity.contains(now) {
            Err(Unfit::NotYetValid)
        } else {
            Ok(self)
        }
    }
}

/// Whether the key usage (RFC 5280, section 4.2.1.3), if there is any, has keyCertSign
pub(crate) fn may_sign(certificate: &X509Certificate<'_>) -> Result<bool, X509Error> {
    Ok(certificate.key_usage()?.is_none_or(|usage| usage.value.key_cert_sign()))
}

/// Checks what rustls-webpki does not look at in a path to one of `anchors`: how long it is, and whether those on it
/// may sign. What the server sends beyond the path does not count.
pub(crate) fn check_path(anchors: &[Anchor<'_>], path: &VerifiedPath<'_>) -> Result<(), webpki::Error> {
    let mut length = 0;
    for intermediate in path.intermediate_certificates() {
        length += 1;
        let der = intermediate.der();
        if !validity::parse(&der).and_then(|parsed| may_sign(&parsed)).unwrap_or(false) {
            return Err(webpki::Error::EndEntityUsedAsCa);
        }
    }
    // Several may be of one name and key.
    let reaches = |anchor: &Anchor<'_>| {
        anchor.trusted == *path.anchor() && anchor.path_length.is_none_or(|limit| length <= limit)
    };
    if anchors.iter().any(reaches) { Ok(()) } else { Err(webpki::Error::PathLenConstraintViolated) }
}
