//! Trust anchors: CAs of a bundle that may issue certificates.
//!
//! rustls-webpki checks nothing in an anchor but its name constraints. Go, whose rules API servers follow,
//! also checks the rest, which this module implements.

use std::time::SystemTime;

use rustls::pki_types::{CertificateDer, TrustAnchor};
use webpki::VerifiedPath;

use crate::validity::Validity;
use crate::x509::{CLIENT_AUTH, Certificate, SERVER_AUTH};

#[derive(Debug, Clone, Copy)]
pub(crate) enum Purpose {
    Servers,
    Clients,
}

impl Purpose {
    /// Returns `true` if the certificate's extended key usage, if any, allows the purpose.
    pub(crate) fn allowed_by(self, certificate: &Certificate) -> bool {
        certificate.extensions.is_for(match self {
            Self::Servers => SERVER_AUTH,
            Self::Clients => CLIENT_AUTH,
        })
    }
}

#[derive(Debug)]
pub(crate) struct Anchor<'a> {
    pub(crate) trusted: TrustAnchor<'a>,
    pub(crate) validity: Validity,
    /// Maximum number of intermediates below it (RFC 5280, section 4.2.1.9).
    path_length: Option<u64>,
}

impl<'a> Anchor<'a> {
    /// Returns the anchor, or why the certificate is not one.
    pub(crate) fn of(certificate: &'a CertificateDer<'_>, purpose: Purpose) -> Result<Self, &'static str> {
        let parsed = Certificate::parse(certificate).map_err(|_| "does not parse")?;
        let constraints = parsed.extensions.basic_constraints;
        // Version 1 certificates have no basic constraints.
        if !constraints.map_or(parsed.is_version_1, |constraints| constraints.is_ca) {
            return Err("is not a CA");
        }
        if !parsed.extensions.may_sign() {
            return Err("lacks keyCertSign in its key usage");
        }
        if !purpose.allowed_by(&parsed) {
            return Err(match purpose {
                Purpose::Servers => "is not for servers by its extended key usage",
                Purpose::Clients => "is not for clients by its extended key usage",
            });
        }
        if matches!(purpose, Purpose::Servers) && parsed.extensions.check_critical().is_err() {
            return Err("has a critical extension that API servers do not support");
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

/// Checks what rustls-webpki does not check in a path to one of `anchors`: its length, the key usage of its certificates,
/// and their names if they are constrained. Certificates that the server sends beyond the path do not count.
pub(crate) fn check_path(
    leaf: &Certificate,
    anchors: &[Anchor<'_>],
    path: &VerifiedPath<'_>,
) -> Result<(), webpki::Error> {
    let mut length = 0;
    let mut is_constrained = path.anchor().name_constraints.is_some();
    let mut has_unmatchable = leaf.extensions.alternative_names.has_unmatchable;
    for intermediate in path.intermediate_certificates() {
        length += 1;
        let parsed = Certificate::parse(&intermediate.der()).map_err(|_| webpki::Error::BadDer)?;
        if !parsed.extensions.may_sign() {
            return Err(webpki::Error::EndEntityUsedAsCa);
        }
        is_constrained |= parsed.extensions.has_name_constraints;
        has_unmatchable |= parsed.extensions.alternative_names.has_unmatchable;
    }
    if is_constrained && has_unmatchable {
        return Err(webpki::Error::NameConstraintViolation);
    }
    // Several anchors may share a name and key.
    let reaches = |anchor: &Anchor<'_>| {
        anchor.trusted == *path.anchor() && anchor.path_length.is_none_or(|limit| length <= limit)
    };
    if anchors.iter().any(reaches) { Ok(()) } else { Err(webpki::Error::PathLenConstraintViolated) }
}
