//! Conversion between PEM text (RFC 7468) and DER.
//!
//! Errors never quote the input: a private key without line breaks looks like one long section label.

use std::mem;

use base64::{Engine, prelude::BASE64_STANDARD};
use rustls::pki_types::{
    CertificateDer, PrivateKeyDer, PrivatePkcs1KeyDer, PrivatePkcs8KeyDer, PrivateSec1KeyDer,
    pem::{Error, PemObject, SectionKind},
};
use snafu::{OptionExt, Snafu, ensure};
use zeroize::Zeroizing;

use crate::key::PrivateKey;

/// Reason why PEM text is rejected.
#[derive(Debug, Snafu, PartialEq, Eq)]
#[non_exhaustive]
pub enum PemError {
    /// The text is not PEM.
    #[snafu(display("failed to read PEM: {problem}"))]
    Malformed {
        /// Problem found.
        problem: &'static str,
    },
    /// The text holds no certificate.
    #[snafu(display("failed to find a certificate: a CERTIFICATE section is expected"))]
    NoCertificate,
    /// The text holds no unencrypted private key.
    #[snafu(display(
        "failed to find a private key: one section PRIVATE KEY (PKCS#8), EC PRIVATE KEY (SEC1) or \
         RSA PRIVATE KEY (PKCS#1) without a passphrase is expected"
    ))]
    NoPrivateKey,
    /// The text holds more than one private key.
    #[snafu(display("failed to choose a private key: exactly one is expected, {count} were found"))]
    SeveralPrivateKeys {
        /// Number of keys found.
        count: usize,
    },
}

/// Parses all certificates in order. Other sections are ignored.
///
/// # Errors
///
/// Returns an error if the text is not PEM or holds no certificate. The DER content is not checked.
pub fn parse_certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, PemError> {
    let sections = sections(pem)?.into_iter();
    let certificates = sections.filter(|(kind, _)| *kind == SectionKind::Certificate);
    let certificates: Vec<_> = certificates.map(|(_, mut der)| mem::take(&mut *der).into()).collect();
    ensure!(!certificates.is_empty(), NoCertificateSnafu);
    Ok(certificates)
}

/// Parses the only private key, which may be PKCS#8, SEC1 or PKCS#1. Other sections are ignored.
///
/// # Errors
///
/// Returns an error if the text is not PEM or does not hold exactly one unencrypted private key. The DER
/// content is not checked.
pub fn parse_private_key(pem: &[u8]) -> Result<Zeroizing<PrivateKeyDer<'static>>, PemError> {
    let mut keys: Vec<PrivateKey> = sections(pem)?.into_iter().filter_map(private_key).collect();
    ensure!(keys.len() <= 1, SeveralPrivateKeysSnafu { count: keys.len() });
    keys.pop().context(NoPrivateKeySnafu)
}

type Section = (SectionKind, Zeroizing<Vec<u8>>);

fn private_key((kind, mut der): Section) -> Option<PrivateKey> {
    let der = mem::take(&mut *der);
    match kind {
        SectionKind::PrivateKey => Some(Zeroizing::new(PrivatePkcs8KeyDer::from(der).into())),
        SectionKind::EcPrivateKey => Some(Zeroizing::new(PrivateSec1KeyDer::from(der).into())),
        SectionKind::RsaPrivateKey => Some(Zeroizing::new(PrivatePkcs1KeyDer::from(der).into())),
        _ => None,
    }
}

fn sections(pem: &[u8]) -> Result<Vec<Section>, PemError> {
    let read = |section: Result<(SectionKind, Vec<u8>), Error>| match section {
        Ok((kind, der)) => Ok((kind, Zeroizing::new(der))),
        Err(error) => {
            let problem = match error {
                Error::MissingSectionEnd { .. } => "a section has no END line",
                Error::IllegalSectionStart { .. } => "a BEGIN line does not end in five dashes",
                Error::Base64Decode(_) => "a section is not base64",
                _ => "a section is malformed",
            };
            MalformedSnafu { problem }.fail()
        }
    };
    <(SectionKind, Vec<u8>)>::pem_slice_iter(pem).map(read).collect()
}

pub(crate) fn encode_certificate(der: &CertificateDer<'_>) -> String {
    encode("CERTIFICATE", der)
}

pub(crate) fn encode_private_key(key: &PrivateKeyDer<'_>) -> Zeroizing<String> {
    let label = match key {
        PrivateKeyDer::Pkcs1(_) => "RSA PRIVATE KEY",
        PrivateKeyDer::Sec1(_) => "EC PRIVATE KEY",
        _ => "PRIVATE KEY",
    };
    Zeroizing::new(encode(label, key.secret_der()))
}

/// Encodes into a single allocation: growing would leave partial copies of a key behind.
fn encode(label: &str, der: &[u8]) -> String {
    let mut pem = String::with_capacity(size(label, der));
    pem.extend(["-----BEGIN ", label, "-----\n"]);
    // 48 bytes encode to one RFC 7468 line of 64 characters.
    for line in der.chunks(48) {
        BASE64_STANDARD.encode_string(line, &mut pem);
        pem.push('\n');
    }
    pem.extend(["-----END ", label, "-----\n"]);
    pem
}

/// Upper bound of the encoded size.
fn size(label: &str, der: &[u8]) -> usize {
    let lines = der.len().div_ceil(48) * 65;
    lines + "-----BEGIN -----\n-----END -----\n".len() + 2 * label.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoded_text_fits_its_capacity() {
        for length in 0..200 {
            let der = vec![0xff; length];
            let pem = encode("PRIVATE KEY", &der);
            assert!(pem.len() <= size("PRIVATE KEY", &der), "{length}");
        }
    }
}
