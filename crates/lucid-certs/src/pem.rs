//! Conversion between PEM text (RFC 7468) and DER.
//!
//! Text of which Go's `encoding/pem`, by which API servers read it, would skip a section is rejected.
//!
//! Errors never quote the input: a private key without line breaks looks like one long section label.

use base64::{Engine, prelude::BASE64_STANDARD};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls_pemfile::Item;
use snafu::{OptionExt, Snafu, ensure};
use zeroize::Zeroizing;

use crate::{error::Error, key::PrivateKey};

#[derive(Debug, Snafu)]
#[snafu(display("{problem}"))]
pub(crate) struct PemError {
    problem: String,
}

/// Returns the certificates of PEM text in order. Private keys, certificate requests, revocation lists and parameters are
/// skipped, and the DER content is not checked.
///
/// # Errors
///
/// Returns an error if there is no certificate, or if a section cannot be read, such as one that follows another without a line
/// break.
pub fn certificates_from_pem(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, Error> {
    parse_certificates(pem).map_err(|error| Error::new(error.problem))
}

/// As [`certificates_from_pem`].
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

/// Returns the sections with a certificate that Go reads from text that may have others.
pub(crate) fn certificate_sections(pem: &[u8]) -> Vec<&[u8]> {
    let (mut sections, mut begin, mut end) = (Vec::new(), None, 0);
    for line in pem.split_inclusive(|byte| *byte == b'\n') {
        let start = end;
        end += line.len();
        match Line::of(line) {
            Line::Begin(b"CERTIFICATE") => begin = Some(start),
            Line::End(b"CERTIFICATE") => sections.extend(begin.take().map(|begin| &pem[begin..end])),
            _ => {}
        }
    }
    sections
}

enum Line<'a> {
    /// With the label of the section.
    Begin(&'a [u8]),
    /// With the label of the section.
    End(&'a [u8]),
    /// A BEGIN or END line that Go does not recognize, with the reason.
    Stray(&'static str),
    Other(&'a [u8]),
}

impl<'a> Line<'a> {
    fn of(line: &'a [u8]) -> Self {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let mut line = line.strip_suffix(b"\r").unwrap_or(line);
        while let [rest @ .., b' ' | b'\t'] = line {
            line = rest;
        }
        let count = |text: &[u8]| line.windows(text.len()).filter(|found| *found == text).count();
        let boundaries = count(b"-BEGIN ") + count(b"-END ");
        if boundaries + count(b"BEGIN CERTIFICATE") + count(b"END CERTIFICATE") == 0 {
            return Self::Other(line);
        }
        let label = |start: &[u8]| {
            let label = line.strip_prefix(start)?.strip_suffix(b"-----")?;
            (boundaries == 1 && !label.starts_with(b"-") && !label.ends_with(b"-")).then_some(label)
        };
        if let Some(label) = label(b"-----BEGIN ") {
            return Self::Begin(label);
        }
        if let Some(label) = label(b"-----END ") {
            return Self::End(label);
        }
        Self::Stray(if line.starts_with(b"\xef\xbb\xbf") {
            "expected a BEGIN line, found a byte order mark before it"
        } else if line.contains(&b'\r') {
            "expected lines that end with LF or CR LF, found CR alone"
        } else if count(b"\\n") > 0 {
            "expected line breaks, found escaped ones"
        } else if boundaries > 1 {
            "expected a line for each BEGIN and END, found two of them on one line"
        } else if line.starts_with(b" ") || line.starts_with(b"\t") {
            "expected BEGIN and END at the start of a line, found white space before them"
        } else {
            "expected a line such as -----BEGIN CERTIFICATE-----, found other text on it"
        })
    }
}

/// Fails unless Go finds each section, and each section that may hold certificates is a CERTIFICATE.
fn check_layout(pem: &[u8]) -> Result<(), PemError> {
    let mut open = None;
    let fail = |problem: &str| PemSnafu { problem: format!("failed to read PEM: {problem}") }.fail();
    for (number, line) in (1..).zip(pem.split_inclusive(|byte| *byte == b'\n')) {
        let at = |problem: &str| fail(&format!("line {number}: {problem}"));
        if line.contains(&0) {
            return at("expected text, found a zero byte, as in DER and UTF-16");
        }
        match (Line::of(line), open) {
            (Line::Begin(label), None) if holds_certificates(label) && label != b"CERTIFICATE" => {
                return at("expected a CERTIFICATE section, found another that holds certificates");
            }
            (Line::Begin(label), None) => open = Some(label),
            (Line::Begin(_), Some(_)) => return at("expected the END line of a section, found a BEGIN line"),
            (Line::End(label), Some(begun)) if label == begun => open = None,
            (Line::End(_), _) => return at("expected the BEGIN line of a section, found an END line"),
            (Line::Stray(problem), _) => return at(problem),
            (Line::Other(line), Some(label))
                if label == b"CERTIFICATE" || label.ends_with(b"PRIVATE KEY") =>
            {
                let is_base64 = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/= \t\r".contains(byte);
                if line.contains(&b':') {
                    return at("expected base64, found a header, as of an encrypted key");
                }
                if !line.iter().all(is_base64) {
                    return at("a section is not base64");
                }
            }
            (Line::Other(_), _) => {}
        }
    }
    if open.is_some() { fail("a section has no END line") } else { Ok(()) }
}

fn holds_certificates(label: &[u8]) -> bool {
    let label = label.to_ascii_uppercase();
    let has = |text: &[u8]| label.windows(text.len()).any(|found| found == text);
    (has(b"CERTIFICATE") && !has(b"REQUEST")) || has(b"PKCS7") || has(b"PKCS #7") || label == b"CMS"
}

fn items(mut pem: &[u8]) -> Result<Vec<Item>, PemError> {
    check_layout(pem)?;
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
                    rustls_pemfile::Error::MissingSectionEnd { .. } => "a section has no END line",
                    rustls_pemfile::Error::IllegalSectionStart { .. } => {
                        "a BEGIN line does not end in five dashes"
                    }
                    rustls_pemfile::Error::Base64Decode(_) => "a section is not base64",
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
