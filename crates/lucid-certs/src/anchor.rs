//! Trust anchors: CAs of a bundle that may issue certificates.
//!
//! rustls-webpki checks nothing in an anchor but its name constraints. Go, whose rules API servers follow,
//! also checks the rest, which this module implements.

use std::time::SystemTime;

use rustls::pki_types::{CertificateDer, TrustAnchor};
use webpki::VerifiedPath;
use yasna::ASN1Result;

use crate::validity::Validity;
use crate::x509::{CLIENT_AUTH, Certificate, SERVER_AUTH};

#[derive(Debug, Clone, Copy)]
pub(crate) enum Purpose {
    Servers,
    Clients,
}

impl Purpose {
    /// Returns `true` if the certificate's extended key usage, if any, allows the purpose.
    pub(crate) fn allowed_by(self, certificate: &Certificate) -> ASN1Result<bool> {
        certificate.is_for(match self {
            Self::Servers => SERVER_AUTH,
            Self::Clients => CLIENT_AUTH,
        })
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
        let parsed = Certificate::parse(certificate).map_err(unreadable)?;
        let constraints = parsed.basic_constraints().map_err(unreadable)?;
        // Version 1 certificates have no basic constraints.
        if !constraints.map_or(parsed.is_version_1, |constraints| constraints.is_ca) {
            return Err("is not a CA");
        }
        if !parsed.may_sign().map_err(unreadable)? {
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
            validity: parsed.validity,
            path_length: constraints.and_then(|constraints| constraints.path_length),
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

/// Checks what rustls-webpki does not check in a path to one of `anchors`: its length, and the key usage of
/// its certificates. Certificates that the server sends beyond the path do not count.
pub(crate) fn check_path(anchors: &[Anchor<'_>], path: &VerifiedPath<'_>) -> Result<(), webpki::Error> {
    let mut length = 0;
    for intermediate in path.intermediate_certificates() {
        length += 1;
        let der = intermediate.der();
        if !Certificate::parse(&der).and_then(|parsed| parsed.may_sign()).unwrap_or(false) {
            return Err(webpki::Error::EndEntityUsedAsCa);
        }
    }
    // Several anchors may share a name and key.
    let reaches = |anchor: &Anchor<'_>| {
        anchor.trusted == *path.anchor() && anchor.path_length.is_none_or(|limit| length <= limit)
    };
    if anchors.iter().any(reaches) { Ok(()) } else { Err(webpki::Error::PathLenConstraintViolated) }
}
