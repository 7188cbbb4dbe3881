//! Trust anchors: CAs of a bundle that may issue certificates.
//!
//! rustls-webpki checks nothing in an anchor but its name constraints. Go, whose rules API servers follow,
//! also checks the rest, which this module implements.

use std::time::SystemTime;

use rustls::pki_types::{CertificateDer, TrustAnchor};
use webpki::VerifiedPath;
use x509_parser::{certificate::X509Certificate, error::X509Error, x509::X509Version};

use crate::validity::{self, Validity};

#[derive(Debug, Clone, Copy)]
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

/// A certificate that is a trust anchor while it is valid.
#[derive(Debug)]
pub(crate) struct Anchor<'a> {
    pub(crate) trusted: TrustAnchor<'a>,
    pub(crate) validity: Validity,
    /// Maximum number of intermediates below it (RFC 5280, section 4.2.1.9).
    path_length: Option<u32>,
}

impl<'a> Anchor<'a> {
    /// Returns the anchor, or why the certificate is none.
    pub(crate) fn of(certificate: &'a CertificateDer<'_>, purpose: Purpose) -> Result<Self, &'static str> {
        let unreadable = |_| "does not parse";
        let parsed = validity::parse(certificate).map_err(unreadable)?;
        let constraints = parsed.basic_constraints().map_err(unreadable)?.map(|extension| extension.value);
        // Version 1 certificates have no basic constraints.
        if !constraints.map_or(parsed.version() == X509Version::V1, |constraints| constraints.ca) {
            return Err("is not a CA");
        }
        if !may_sign(&parsed).map_err(unreadable)? {
            return Err("lacks keyCertSign in its key usage");
        }
        if !purpose.allowed_by(&parsed).map_err(unreadable)? {
            return Err(match purpose {
                Purpose::Servers => "is not for servers by its extended key usage",
                Purpose::Clients => "is not for clients by its extended key usage",
            });
        }
        Ok(Self {
            trusted: webpki::anchor_from_trusted_cert(certificate).map_err(|_| "does not parse")?,
            validity: Validity::of(&parsed),
            path_length: constraints.and_then(|constraints| constraints.path_len_constraint),
        })
    }

    pub(crate) fn valid_at(self, now: SystemTime) -> Result<Self, &'static str> {
        if self.validity.is_over(now) {
            Err("is expired")
        } else if !self.validity.contains(now) {
            Err("is not valid yet")
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
