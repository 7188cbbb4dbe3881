//! Certificates (RFC 5280), as far as rustls-webpki does not parse them. The rules are those of Go's `crypto/x509`, by which
//! API servers parse the certificates of webhooks and of their bundles.

mod extensions;
mod public_key;
mod reader;
mod uri;

use std::time::{Duration, SystemTime};

use jiff::civil::DateTime;
use rcgen::{CertificateParams, DistinguishedName, DnType, DnValue, KeyIdMethod, string};
use rustls::pki_types::CertificateDer;
use snafu::Snafu;

use crate::validity::Validity;
pub(crate) use extensions::AlternativeNames;
use extensions::Extensions;
use reader::{INTEGER, Reader, SEQUENCE, SET, components, constructed, context, whole};

/// 2.5.4.3.
const COMMON_NAME: &[u8] = &[0x55, 4, 3];
/// 1.3.6.1.5.5.7.3.1.
pub(crate) const SERVER_AUTH: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 1];
/// 1.3.6.1.5.5.7.3.2.
pub(crate) const CLIENT_AUTH: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 2];

// String types.
const UTF8: u8 = 12;
const NUMERIC: u8 = 18;
const PRINTABLE: u8 = 19;
const TELETEX: u8 = 20;
const IA5: u8 = 22;
const BMP: u8 = 30;

/// A certificate that Go parses.
#[derive(Debug)]
pub(crate) struct Certificate {
    pub(crate) is_version_1: bool,
    pub(crate) validity: Validity,
    /// `SubjectPublicKeyInfo` in DER.
    pub(crate) public_key_info: Vec<u8>,
    pub(crate) extensions: Extensions,
    subject: Name,
}

#[derive(Debug, Snafu)]
#[snafu(display("{field}: {problem}"))]
pub(crate) struct Invalid {
    /// Name in RFC 5280.
    field: String,
    problem: &'static str,
}

impl Invalid {
    fn new(field: impl Into<String>, problem: &'static str) -> Self {
        Self { field: field.into(), problem }
    }
}

fn malformed(field: impl Into<String>) -> Invalid {
    Invalid::new(field, "expected the DER encoding of RFC 5280, found malformed content")
}

type Name = Vec<Vec<Attribute>>;

#[derive(Debug)]
struct Attribute {
    kind: Vec<u8>,
    tag: u8,
    value: Vec<u8>,
}

impl Certificate {
    pub(crate) fn parse(der: &CertificateDer<'_>) -> Result<Self, Invalid> {
        let parts = whole(der, |reader| {
            reader.nested(SEQUENCE, |reader| {
                let parts = [reader.read(SEQUENCE)?, reader.read(SEQUENCE)?];
                reader.bit_string().map(|_| parts)
            })
        });
        let [certificate, signature] = parts.ok_or_else(|| malformed("Certificate"))?;
        // Errors of fields are more specific than that of what follows the last one.
        let mut parsed = Err(malformed("tbsCertificate"));
        let end = whole(certificate, |reader| {
            parsed = Self::read(reader, signature);
            if parsed.is_err() {
                reader.skip_rest();
            }
            Some(())
        });
        end.ok_or_else(|| malformed("tbsCertificate")).and(parsed)
    }

    fn read(reader: &mut Reader<'_>, signature: &[u8]) -> Result<Self, Invalid> {
        fn field<T>(name: &'static str, found: Option<T>) -> Result<T, Invalid> {
            found.ok_or_else(|| malformed(name))
        }
        let version = match field("version", reader.optional(constructed(0)))? {
            None => 0,
            Some(version) => field("version", whole(version, |it| extensions::unsigned(it.read(INTEGER)?)))?,
        };
        if version > 2 {
            return Err(Invalid::new("version", "expected version 1, 2 or 3, found a later one"));
        }
        let serial_number = field("serialNumber", reader.integer())?;
        if serial_number.first().is_some_and(|first| *first >= 0x80) {
            let problem = "expected zero or a positive number, found a negative one";
            return Err(Invalid::new("serialNumber", problem));
        }
        let algorithm = field("signature", reader.read(SEQUENCE))?;
        if algorithm != signature {
            let problem = "expected the algorithm of the field signature, found another";
            return Err(Invalid::new("signatureAlgorithm", problem));
        }
        field("signature", algorithm_identifier(algorithm))?;
        field("issuer", name(reader))?;
        let validity = field(
            "validity",
            reader.nested(SEQUENCE, |reader| {
                Some(Validity { not_before: time(reader)?, not_after: time(reader)? })
            }),
        )?;
        let subject = field("subject", name(reader))?;
        let public_key_info = field("subjectPublicKeyInfo", reader.element())?;
        public_key::check(public_key_info)?;
        if version > 0 {
            for (field, tag) in [("issuerUniqueID", context(1)), ("subjectUniqueID", context(2))] {
                reader.optional(tag).ok_or_else(|| malformed(field))?;
            }
        }
        let extensions = match reader.next_tag() {
            Some(tag) if tag == constructed(3) && version == 2 => {
                let value = field("extensions", reader.read(tag))?;
                let mut reader = Reader::new(value);
                Extensions::read(&mut reader)?
            }
            _ => Extensions::default(),
        };
        Ok(Self {
            is_version_1: version == 0,
            validity,
            public_key_info: public_key_info.der.to_vec(),
            extensions,
            subject,
        })
    }

    /// First common name of the subject, if it is text.
    pub(crate) fn common_name(&self) -> Option<String> {
        let name = self.subject.iter().flatten().find(|attribute| attribute.kind == COMMON_NAME)?;
        let is_text = [UTF8, PRINTABLE, IA5, NUMERIC].contains(&name.tag);
        is_text.then(|| String::from_utf8(name.value.clone()).ok())?
    }

    /// Parameters of this certificate as an issuer: its subject and key identifier.
    pub(crate) fn issuer(&self) -> Result<CertificateParams, rcgen::Error> {
        let unsupported = rcgen::Error::CouldNotParseCertificate;
        let mut name = DistinguishedName::new();
        for attributes in &self.subject {
            // rcgen writes one attribute per set, and each type once.
            let [attribute] = &**attributes else { return Err(unsupported) };
            let kind = DnType::CustomDnType(components(&attribute.kind).ok_or(unsupported.clone())?);
            if name.get(&kind).is_some() {
                return Err(unsupported);
            }
            name.push(kind, attribute.value()?);
        }
        let mut params = CertificateParams::default();
        params.distinguished_name = name;
        if let Some(identifier) = &self.extensions.subject_key_identifier {
            params.key_identifier_method = KeyIdMethod::PreSpecified(identifier.clone());
        }
        Ok(params)
    }
}

impl Attribute {
    /// Reads an attribute, whose value has to be a string of a type that Go knows.
    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let (kind, value) = reader.nested(SEQUENCE, |reader| {
            let kind = reader.object_identifier()?;
            let value = reader.element()?;
            Some((kind, value))
        })?;
        let (tag, content) = (value.tag, value.content);
        let is_printable = |byte: &u8| byte.is_ascii_alphanumeric() || b" '()+,-./:=?*&".contains(byte);
        let is_valid = match tag {
            UTF8 => std::str::from_utf8(content).is_ok(),
            NUMERIC => content.iter().all(|byte| byte.is_ascii_digit() || *byte == b' '),
            PRINTABLE => content.iter().all(is_printable),
            TELETEX => true,
            IA5 => content.is_ascii(),
            // Go rejects surrogates and noncharacters.
            BMP => {
                content.len().is_multiple_of(2)
                    && content.chunks_exact(2).all(|unit| {
                        !matches!(unit, [0xd8..=0xdf, _] | [0xff, 0xfe | 0xff] | [0xfd, 0xd0..=0xef])
                    })
            }
            _ => false,
        };
        is_valid.then(|| Self { kind: kind.to_vec(), tag, value: content.to_vec() })
    }

    fn value(&self) -> Result<DnValue, rcgen::Error> {
        let text = std::str::from_utf8(&self.value).map_err(|_| rcgen::Error::CouldNotParseCertificate);
        Ok(match self.tag {
            UTF8 => DnValue::Utf8String(text?.to_owned()),
            PRINTABLE => DnValue::PrintableString(text?.try_into()?),
            IA5 => DnValue::Ia5String(text?.try_into()?),
            TELETEX => DnValue::TeletexString(text?.try_into()?),
            BMP => DnValue::BmpString(string::BmpString::from_utf16be(self.value.clone())?),
            _ => return Err(rcgen::Error::CouldNotParseCertificate),
        })
    }
}

fn name(reader: &mut Reader<'_>) -> Option<Name> {
    reader.each(SEQUENCE, |reader| reader.each(SET, Attribute::read))
}

/// Checks the content of an `AlgorithmIdentifier`.
fn algorithm_identifier(content: &[u8]) -> Option<()> {
    whole(content, |reader| {
        reader.object_identifier()?;
        if reader.next_tag().is_some() { reader.element().map(drop) } else { Some(()) }
    })
}

/// Reads a `Time` (section 4.1.2.5): YYMMDDHHMMSSZ or YYYYMMDDHHMMSSZ.
fn time(reader: &mut Reader<'_>) -> Option<SystemTime> {
    let time = reader.element()?;
    let digits = time.content.strip_suffix(b"Z")?;
    let number = |digits: &[u8]| {
        digits.iter().try_fold(0_i16, |number, digit| {
            digit.is_ascii_digit().then(|| number * 10 + i16::from(digit - b'0'))
        })
    };
    let (year, rest) = match (time.tag, digits.len()) {
        // UTCTime ends with the year 2049.
        (23, 12) => {
            let year = number(&digits[..2])?;
            (if year < 50 { 2000 + year } else { 1900 + year }, &digits[2..])
        }
        // GeneralizedTime.
        (24, 14) => (number(&digits[..4])?, &digits[4..]),
        _ => return None,
    };
    let mut parts = [0_i8; 5];
    for (part, digits) in parts.iter_mut().zip(rest.chunks(2)) {
        *part = i8::try_from(number(digits)?).ok()?;
    }
    let [month, day, hour, minute, second] = parts;
    let time = DateTime::new(year, month, day, hour, minute, second, 0).ok()?;
    let epoch = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);
    let since = time.duration_since(epoch).as_secs();
    let distance = Duration::from_secs(since.unsigned_abs());
    if since < 0 {
        SystemTime::UNIX_EPOCH.checked_sub(distance)
    } else {
        SystemTime::UNIX_EPOCH.checked_add(distance)
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{KeyPair, SanType};

    use super::*;

    #[test]
    fn names_are_read() {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, "system:masters");
        let jane = DnValue::PrintableString("jane".try_into().unwrap());
        params.distinguished_name.push(DnType::CommonName, jane);
        params.subject_alt_names = vec![
            SanType::DnsName("a.example".try_into().unwrap()),
            SanType::IpAddress([192, 0, 2, 1].into()),
        ];
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        let certificate = Certificate::parse(certificate.der()).unwrap();
        assert_eq!(certificate.common_name().as_deref(), Some("jane"));
        let names = &certificate.extensions.alternative_names;
        assert_eq!(names.dns_names, ["a.example"]);
        assert_eq!(names.ip_addresses, [[192, 0, 2, 1]]);
        assert_eq!(certificate.issuer().unwrap().distinguished_name.iter().count(), 2);
    }
}
