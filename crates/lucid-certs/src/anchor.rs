//! Trust anchors: CAs of a bundle that may issue certificates.
//!
//! rustls-webpki checks nothing in an anchor but its name constraints. Go, whose rules API servers follow,
//! also checks the rest, which this module implements.

use std::{fmt, time::SystemTime};

use rustls::pki_types::{CertificateDer, TrustAnchor};
use webpki::VerifiedPath;
use x509_parser::{certificate::X509Certificate, error::X509Error, x509::X509Version};

use crate::validity::{self, Validity};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Servers,
    Clients,
}

impl Purpose {
    /// Returns `true` if the certificate's extended key usage (RFC 5280, section 4.2.1.12), if any, allows
    /// the purpose.
    pub(crate) fn allowed_by(self, certificate: &X509Certificate<'_>) -> Result<bool, X509Error> {
        let usage = certificate.extended_key_usage()?;
        Ok(usage.is_none_or(|usage| {
            let allowed = match self {
                Self::Servers => usage.value.server_auth,
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
            Self::Clients => "clients",
        })
    }
}

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
            Self::NotACa => f.write_str("is not a CA"),
            Self::MayNotSign => f.write_str("lacks keyCertSign in its key usage"),
            Self::NotFor(purpose) => write!(f, "is not for {purpose} by its extended key usage"),
            Self::Expired => f.write_str("is expired"),
            Self::NotYetValid => f.write_str("is not valid yet"),
        }
    }
}

/// A certificate that is a trust anchor while it is valid.
#[derive(Debug)]
pub(crate) struct Anchor<'a> {
    pub(crate) trusted: TrustAnchor<'a>,
    pub(crate) validity: Validity,
    /// Maximum number of intermediates below it (RFC 5280, section 4.2.1.9).
    path_length: Option<u32>,
}

impl<'a> Anchor<'a> {
    pub(crate) fn of(certificate: &'a CertificateDer<'_>, purpose: Purpose) -> Result<Self, Unfit> {
        let unreadable = |_| Unfit::Unreadable;
        let parsed = validity::parse(certificate).map_err(unreadable)?;
        let constraints = parsed.basic_constraints().map_err(unreadable)?.map(|extension| extension.value);
        // Version 1 certificates have no basic constraints.
        if !constraints.map_or(parsed.version() == X509Version::V1, |constraints| constraints.ca) {
            return Err(Unfit::NotACa);
        }
        if !may_sign(&parsed).map_err(unreadable)? {
            return Err(Unfit::MayNotSign);
        }
        if !purpose.allowed_by(&parsed).map_err(unreadable)? {
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

/// Returns `true` if the key usage (RFC 5280, section 4.2.1.3), if any, includes keyCertSign.
pub(crate) fn may_sign(certificate: &X509Certificate<'_>) -> Result<bool, X509Error> {
    Ok(certificate.key_usage()?.is_none_or(|usage| usage.value.key_cert_sign()))
}

/// Checks what rustls-webpki does not check in a path to one of `anchors`: its length, and the key usage of
/// its certificates. Certificates that the server sends beyond the path do not count.
pub(crate) fn check_path(anchors: &[Anchor<'_>], path: &VerifiedPath<'_>) -> Result<(), webpki::Error> {
    let mut length = 0;
    for intermediate in path.intermediate_certificates() {
        length += 1;
        let der = intermediate.der();
        if !validity::parse(&der).and_then(|parsed| may_sign(&parsed)).unwrap_or(false) {
            return Err(webpki::Error::EndEntityUsedAsCa);
        }
    }
    // Several anchors may share a name and key.
    let reaches = |anchor: &Anchor<'_>| {
        anchor.trusted == *path.anchor() && anchor.path_length.is_none_or(|limit| length <= limit)
    };
    if anchors.iter().any(reaches) { Ok(()) } else { Err(webpki::Error::PathLenConstraintViolated) }
}
