//! Conversion between PEM text (RFC 7468) and DER.
//!
//! Errors never quote the input: a private key without line breaks looks like one long section label.

use base64::{Engine, prelude::BASE64_STANDARD};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls_pemfile::{Error, Item};
use snafu::{OptionExt, Snafu, ensure};
use zeroize::Zeroizing;

use crate::key::PrivateKey;

/// Reason why PEM text is rejected.
#[derive(Debug, Snafu)]
#[snafu(display("{problem}"))]
pub(crate) struct PemError {
    problem: String,
}

/// Parses all certificates in order. Other sections are ignored, and the DER content is not checked. Returns an
/// error if there is no certificate.
pub(crate) fn parse_certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, PemError> {
    let mut certificates = Vec::new();
    for item in items(pem)? {
        match item {
            Item::X509Certificate(der) => certificates.push(der),
            other => drop(private_key(other)),
        }
    }
    let problem = "failed to find a certificate: a CERTIFICATE section is expected";
    ensure!(!certificates.is_empty(), PemSnafu { problem });
    Ok(certificates)
}

/// Parses the only private key, which may be PKCS#8, SEC1 or PKCS#1, without a passphrase. Other sections are
/// ignored, and the DER content is not checked.
pub(crate) fn parse_private_key(pem: &[u8]) -> Result<PrivateKey, PemError> {
    let mut keys: Vec<PrivateKey> = items(pem)?.into_iter().filter_map(private_key).collect();
    let several =
        format!("failed to choose a private key: exactly one is expected, {} were found", keys.len());
    ensure!(keys.len() <= 1, PemSnafu { problem: several });
    let problem = "failed to find a private key: one section PRIVATE KEY (PKCS#8), EC PRIVATE KEY (SEC1) or \
                   RSA PRIVATE KEY (PKCS#1) without a passphrase is expected";
    keys.pop().context(PemSnafu { problem })
}

/// Returns the private key, if the item is one. It is zeroed on drop.
fn private_key(item: Item) -> Option<PrivateKey> {
    match item {
        Item::Pkcs8Key(der) => Some(Zeroizing::new(der.into())),
        Item::Sec1Key(der) => Some(Zeroizing::new(der.into())),
        Item::Pkcs1Key(der) => Some(Zeroizing::new(der.into())),
        _ => None,
    }
}

fn items(mut pem: &[u8]) -> Result<Vec<Item>, PemError> {
    let mut items = Vec::new();
    loop {
        match rustls_pemfile::read_one_from_slice(pem) {
            Ok(Some((item, rest))) => {
                items.push(item);
                pem = rest;
            }
            Ok(None) => return Ok(items),
            Err(error) => {
                let problem = match error {
                    Error::MissingSectionEnd { .. } => "a section has no END line",
                    Error::IllegalSectionStart { .. } => "a BEGIN line does not end in five dashes",
                    Error::Base64Decode(_) => "a section is not base64",
                };
                return PemSnafu { problem: format!("failed to read PEM: {problem}") }.fail();
            }
        }
    }
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
