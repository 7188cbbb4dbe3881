//! Certificates (RFC 5280), as far as rustls-webpki does not parse them. Object identifiers are compared as encoded: yasna
//! does not decode all of them.

use std::time::SystemTime;

use rcgen::{CertificateParams, DistinguishedName, DnType, DnValue, KeyIdMethod, string};
use rustls::pki_types::CertificateDer;
use yasna::models::TaggedDerValue;
use yasna::tags::{
    TAG_BMPSTRING, TAG_GENERALIZEDTIME, TAG_IA5STRING, TAG_NUMERICSTRING, TAG_OID, TAG_PRINTABLESTRING,
    TAG_TELETEXSTRING, TAG_UNIVERSALSTRING, TAG_UTF8STRING, TAG_VISIBLESTRING,
};
use yasna::{ASN1Error, ASN1ErrorKind, ASN1Result, BERReader, Tag, parse_der};

use crate::validity::Validity;

// 2.5.4.3 and 2.5.29.x.
const COMMON_NAME: &[u8] = &[0x55, 4, 3];
const SUBJECT_KEY_IDENTIFIER: &[u8] = &[0x55, 0x1d, 14];
const KEY_USAGE: &[u8] = &[0x55, 0x1d, 15];
const SUBJECT_ALTERNATIVE_NAME: &[u8] = &[0x55, 0x1d, 17];
const BASIC_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 19];
const EXTENDED_KEY_USAGE: &[u8] = &[0x55, 0x1d, 37];

/// 2.5.29.37.0.
const ANY_USAGE: &[u8] = &[0x55, 0x1d, 37, 0];
/// 1.3.6.1.5.5.7.3.1.
pub(crate) const SERVER_AUTH: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 1];
/// 1.3.6.1.5.5.7.3.2.
pub(crate) const CLIENT_AUTH: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 2];

/// A parsed certificate. Extensions are parsed when they are used.
#[derive(Debug)]
pub(crate) struct Certificate {
    pub(crate) is_version_1: bool,
    pub(crate) validity: Validity,
    /// `SubjectPublicKeyInfo` in DER.
    pub(crate) public_key_info: Vec<u8>,
    /// In DER.
    subject: Vec<u8>,
    /// Object identifiers and values.
    extensions: Vec<(Vec<u8>, Vec<u8>)>,
}

/// Attribute of a name.
#[derive(Debug)]
struct Attribute {
    kind: Vec<u8>,
    value: TaggedDerValue,
}

/// Basic constraints (RFC 5280, section 4.2.1.9).
#[derive(Debug, Clone, Copy)]
pub(crate) struct BasicConstraints {
    pub(crate) is_ca: bool,
    pub(crate) path_length: Option<u32>,
}

/// Subject alternative names (RFC 5280, section 4.2.1.6).
#[derive(Debug, Default)]
pub(crate) struct AlternativeNames {
    pub(crate) dns_names: Vec<String>,
    /// In network byte order.
    pub(crate) ip_addresses: Vec<Vec<u8>>,
}

impl Certificate {
    pub(crate) fn parse(der: &CertificateDer<'_>) -> ASN1Result<Self> {
        parse(der, |reader| {
            reader.read_sequence(|reader| {
                let certificate = reader.next().read_sequence(|reader| {
                    let version = reader
                        .read_optional(|reader| reader.read_tagged(Tag::context(0), |it| it.read_u8()))?;
                    // Serial number, signature algorithm, issuer.
                    for _ in 0..3 {
                        reader.next().read_der()?;
                    }
                    let validity = reader.next().read_sequence(|reader| {
                        Ok(Validity { not_before: time(reader.next())?, not_after: time(reader.next())? })
                    })?;
                    let subject = reader.next().read_der()?;
                    let public_key_info = reader.next().read_der()?;
                    // Unique identifiers of the issuer and the subject.
                    for tag in [1, 2] {
                        reader.read_optional(|reader| {
                            reader.read_tagged_implicit(Tag::context(tag), |it| it.read_bitvec_bytes())
                        })?;
                    }
                    let extensions = reader.read_optional(|reader| {
                        reader.read_tagged(Tag::context(3), |reader| reader.collect_sequence_of(extension))
                    })?;
                    Ok(Self {
                        is_version_1: version.unwrap_or_default() == 0,
                        validity,
                        public_key_info,
                        subject,
                        extensions: extensions.unwrap_or_default(),
                    })
                })?;
                // Signature algorithm and signature.
                reader.next().read_der()?;
                reader.next().read_der()?;
                Ok(certificate)
            })
        })
    }

    /// Value of an extension. Two of a kind are an error.
    fn extension<T>(
        &self,
        kind: &[u8],
        read: impl for<'a, 'b> FnOnce(BERReader<'a, 'b>) -> ASN1Result<T>,
    ) -> ASN1Result<Option<T>> {
        let mut found = self.extensions.iter().filter(|(found, _)| found == kind).map(|(_, value)| value);
        let value = found.next();
        if found.next().is_some() {
            return Err(invalid());
        }
        value.map(|value| parse(value, read)).transpose()
    }

    pub(crate) fn basic_constraints(&self) -> ASN1Result<Option<BasicConstraints>> {
        self.extension(BASIC_CONSTRAINTS, |reader| {
            reader.read_sequence(|reader| {
                let is_ca = reader.read_optional(|it| it.read_bool())?.unwrap_or_default();
                Ok(BasicConstraints { is_ca, path_length: reader.read_optional(|it| it.read_u32())? })
            })
        })
    }

    /// Returns `true` if the key usage (section 4.2.1.3), if any, includes keyCertSign, which is its bit 5.
    pub(crate) fn may_sign(&self) -> ASN1Result<bool> {
        let usage = self.extension(KEY_USAGE, |it| it.read_bitvec_bytes())?;
        Ok(usage.is_none_or(|(bytes, _)| bytes.first().is_some_and(|bits| bits & 0b0000_0100 != 0)))
    }

    /// Returns `true` if the extended key usage (section 4.2.1.12), if any, includes `purpose` or any purpose.
    pub(crate) fn is_for(&self, purpose: &[u8]) -> ASN1Result<bool> {
        let usages =
            self.extension(EXTENDED_KEY_USAGE, |reader| reader.collect_sequence_of(object_identifier))?;
        Ok(usages.is_none_or(|usages| usages.iter().any(|usage| [purpose, ANY_USAGE].contains(&&**usage))))
    }

    pub(crate) fn alternative_names(&self) -> ASN1Result<AlternativeNames> {
        let names = self.extension(SUBJECT_ALTERNATIVE_NAME, |reader| {
            reader.collect_sequence_of(|it| it.read_tagged_der())
        })?;
        let mut all = AlternativeNames::default();
        for name in names.into_iter().flatten() {
            if name.tag() == Tag::context(2) {
                all.dns_names.push(String::from_utf8(name.value().to_vec()).map_err(|_| invalid())?);
            } else if name.tag() == Tag::context(7) {
                all.ip_addresses.push(name.value().to_vec());
            }
        }
        Ok(all)
    }

    fn subject(&self) -> ASN1Result<Vec<Vec<Attribute>>> {
        parse(&self.subject, |reader| reader.collect_sequence_of(|reader| reader.collect_set_of(attribute)))
    }

    /// First common name of the subject, if it is text.
    pub(crate) fn common_name(&self) -> Option<String> {
        let subject = self.subject().ok()?;
        let name = subject.into_iter().flatten().find(|attribute| attribute.kind == COMMON_NAME)?;
        let tags = [TAG_UTF8STRING, TAG_PRINTABLESTRING, TAG_IA5STRING, TAG_NUMERICSTRING, TAG_VISIBLESTRING];
        tags.contains(&name.value.tag()).then(|| String::from_utf8(name.value.value().to_vec()).ok())?
    }

    /// Parameters of this certificate as an issuer: its subject and key identifier.
    pub(crate) fn issuer(&self) -> Result<CertificateParams, rcgen::Error> {
        let unsupported = rcgen::Error::CouldNotParseCertificate;
        let mut name = DistinguishedName::new();
        for attributes in self.subject().map_err(|_| unsupported.clone())? {
            // rcgen writes one attribute per set, and each type once.
            let [attribute] = &*attributes else { return Err(unsupported) };
            let kind = DnType::CustomDnType(attribute.type_components().ok_or(unsupported.clone())?);
            if name.get(&kind).is_some() {
                return Err(unsupported);
            }
            name.push(kind, attribute.value()?);
        }
        let mut params = CertificateParams::default();
        params.distinguished_name = name;
        let key_identifier = self.extension(SUBJECT_KEY_IDENTIFIER, |it| it.read_bytes());
        if let Some(identifier) = key_identifier.map_err(|_| unsupported)? {
            params.key_identifier_method = KeyIdMethod::PreSpecified(identifier);
        }
        Ok(params)
    }
}

impl Attribute {
    fn type_components(&self) -> Option<Vec<u64>> {
        let length = u8::try_from(self.kind.len()).ok().filter(|length| *length < 128)?;
        let der = [&[6, length], &*self.kind].concat();
        parse(&der, |it| it.read_oid()).ok().map(|kind| kind.into_components())
    }

    fn value(&self) -> Result<DnValue, rcgen::Error> {
        let bytes = self.value.value();
        let text = std::str::from_utf8(bytes).map_err(|_| rcgen::Error::CouldNotParseCertificate);
        Ok(match self.value.tag() {
            TAG_UTF8STRING => DnValue::Utf8String(text?.to_owned()),
            TAG_PRINTABLESTRING => DnValue::PrintableString(text?.try_into()?),
            TAG_IA5STRING => DnValue::Ia5String(text?.try_into()?),
            TAG_TELETEXSTRING => DnValue::TeletexString(text?.try_into()?),
            TAG_BMPSTRING => DnValue::BmpString(string::BmpString::from_utf16be(bytes.to_vec())?),
            TAG_UNIVERSALSTRING => {
                DnValue::UniversalString(string::UniversalString::from_utf32be(bytes.to_vec())?)
            }
            _ => return Err(rcgen::Error::CouldNotParseCertificate),
        })
    }
}

/// Parses DER. Lengths are checked first, because yasna does not check them for overflow.
fn parse<T>(der: &[u8], read: impl for<'a, 'b> FnOnce(BERReader<'a, 'b>) -> ASN1Result<T>) -> ASN1Result<T> {
    check_lengths(der, 32)?;
    parse_der(der, read)
}

/// Fails unless each element ends within the one that contains it. Constructed elements are at most `depth` levels deep.
fn check_lengths(mut elements: &[u8], depth: usize) -> ASN1Result<()> {
    while let [tag, first, rest @ ..] = elements {
        // Tag numbers above 30 do not occur.
        if tag & 0x1f == 0x1f || depth == 0 {
            return Err(invalid());
        }
        let (length, rest) = match first {
            0..=0x7f => (usize::from(*first), rest),
            0x81..=0x84 => {
                let (octets, rest) = rest.split_at_checked(usize::from(first & 0x7f)).ok_or_else(invalid)?;
                (octets.iter().fold(0, |length, octet| length << 8 | usize::from(*octet)), rest)
            }
            _ => return Err(invalid()),
        };
        let (content, rest) = rest.split_at_checked(length).ok_or_else(invalid)?;
        if tag & 0x20 != 0 {
            check_lengths(content, depth - 1)?;
        }
        elements = rest;
    }
    if elements.is_empty() { Ok(()) } else { Err(invalid()) }
}

fn invalid() -> ASN1Error {
    ASN1Error::new(ASN1ErrorKind::Invalid)
}

fn object_identifier(reader: BERReader<'_, '_>) -> ASN1Result<Vec<u8>> {
    let value = reader.read_tagged_der()?;
    if value.tag() == TAG_OID { Ok(value.value().to_vec()) } else { Err(invalid()) }
}

fn attribute(reader: BERReader<'_, '_>) -> ASN1Result<Attribute> {
    reader.read_sequence(|reader| {
        Ok(Attribute { kind: object_identifier(reader.next())?, value: reader.next().read_tagged_der()? })
    })
}

fn extension(reader: BERReader<'_, '_>) -> ASN1Result<(Vec<u8>, Vec<u8>)> {
    reader.read_sequence(|reader| {
        let kind = object_identifier(reader.next())?;
        reader.read_optional(|it| it.read_bool())?;
        Ok((kind, reader.next().read_bytes()?))
    })
}

/// Reads a `Time` (section 4.1.2.5). The range of X.509 ends with the year 9999.
fn time(reader: BERReader<'_, '_>) -> ASN1Result<SystemTime> {
    Ok(if reader.lookahead_tag()? == TAG_GENERALIZEDTIME {
        let der = reader.read_der()?;
        // YYYYMMDDHHMMSSZ. yasna panics at an offset that leads beyond the year 9999.
        if !matches!(der.as_slice(), [_, 15, .., b'Z']) {
            return Err(invalid());
        }
        (*parse(&der, |it| it.read_generalized_time())?.datetime()).into()
    } else {
        (*reader.read_utctime()?.datetime()).into()
    })
}

#[cfg(test)]
mod tests {
    use rcgen::{CustomExtension, ExtendedKeyUsagePurpose, KeyPair, SanType};

    use super::*;

    fn parsed(shape: impl FnOnce(&mut CertificateParams)) -> Certificate {
        let mut params = CertificateParams::default();
        shape(&mut params);
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        Certificate::parse(certificate.der()).unwrap()
    }

    #[test]
    fn object_identifiers_that_yasna_rejects_are_accepted() {
        // 16384 is encoded as 81 80 00.
        let extension = CustomExtension::from_oid_content(&[1, 3, 6, 1, 4, 1, 16384], vec![5, 0]);
        let certificate = parsed(|params| {
            params.custom_extensions = vec![extension];
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::Other(vec![1, 3, 6, 16384])];
        });
        assert!(!certificate.is_version_1);
        assert!(!certificate.is_for(SERVER_AUTH).unwrap());
    }

    #[test]
    fn names_are_read() {
        let certificate = parsed(|params| {
            params.distinguished_name = DistinguishedName::new();
            params.distinguished_name.push(DnType::OrganizationName, "system:masters");
            params
                .distinguished_name
                .push(DnType::CommonName, DnValue::PrintableString("jane".try_into().unwrap()));
            params.subject_alt_names = vec![
                SanType::DnsName("a.example".try_into().unwrap()),
                SanType::IpAddress([192, 0, 2, 1].into()),
            ];
        });
        assert_eq!(certificate.common_name().as_deref(), Some("jane"));
        let names = certificate.alternative_names().unwrap();
        assert_eq!(
            (names.dns_names, names.ip_addresses),
            (vec!["a.example".to_owned()], vec![vec![192, 0, 2, 1]])
        );
        assert_eq!(certificate.issuer().unwrap().distinguished_name.iter().count(), 2);
    }

    /// A SEQUENCE with this content.
    fn sequence(content: &[u8]) -> Vec<u8> {
        [&[0x30, u8::try_from(content.len()).unwrap()], content].concat()
    }

    #[test]
    fn lengths_beyond_the_certificate_are_an_error() {
        let endless = [&[0x30, 0x88], &[0xff; 8][..]].concat();
        let nested = (0..40).fold(Vec::new(), |inner, _| sequence(&inner));
        for der in [&endless, &sequence(&endless), &sequence(&sequence(&endless)), &nested, &[0x30].to_vec()]
        {
            Certificate::parse(&der.as_slice().into()).unwrap_err();
        }
    }

    #[test]
    fn times_beyond_the_year_9999_are_an_error() {
        for (text, is_valid) in [("99991231235959Z", true), ("99991231235959-2359", false), ("9999Z", false)]
        {
            let der = [&[0x18, u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
            assert_eq!(parse(&der, time).is_ok(), is_valid, "{text}");
        }
    }

    #[test]
    fn an_extension_that_is_there_twice_is_an_error() {
        let usage = || CustomExtension::from_oid_content(&[2, 5, 29, 15], vec![3, 2, 2, 4]);
        let certificate = parsed(|params| params.custom_extensions = vec![usage()]);
        assert!(certificate.may_sign().unwrap());
        let certificate = parsed(|params| params.custom_extensions = vec![usage(), usage()]);
        certificate.may_sign().unwrap_err();
    }
}
