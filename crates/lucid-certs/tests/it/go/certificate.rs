//! Certificates from their fields, of which each can be malformed.

use std::sync::LazyLock;

use rcgen::{KeyPair, PublicKeyData, SigningKey};

use super::{Expected, Vector};
use crate::common::certificate_pem;

/// Name by which API servers call.
pub(super) const NAME: &str = "lucid-operator.lucid-system.svc";

/// Keys of the CA, the intermediate and the leaf.
static KEYS: LazyLock<[KeyPair; 3]> = LazyLock::new(|| [(); 3].map(|()| KeyPair::generate().unwrap()));

const ECDSA_WITH_SHA256: &[u8] = &[6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Leaf,
    Intermediate,
    Ca,
}

#[derive(Debug, Clone)]
pub(super) struct Certificate {
    version: Vec<u8>,
    serial_number: Vec<u8>,
    signature: Vec<u8>,
    issuer: Vec<u8>,
    validity: Vec<u8>,
    subject: Vec<u8>,
    public_key: Vec<u8>,
    /// After the public key.
    unique_ids: Vec<u8>,
    extensions: Vec<Vec<u8>>,
    /// After the extensions.
    rest: Vec<u8>,
    signature_algorithm: Vec<u8>,
    /// After the signature.
    trailing: Vec<u8>,
}

pub(super) type Change = Box<dyn Fn(&mut Certificate)>;

pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) expected: Expected,
    pub(super) roles: &'static [Role],
    pub(super) change: Change,
}

fn der(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = content.len();
    let header = match length {
        0..=127 => vec![tag, length as u8],
        128..=255 => vec![tag, 0x81, length as u8],
        _ => vec![tag, 0x82, (length >> 8) as u8, length as u8],
    };
    [header, content.to_vec()].concat()
}

fn sequence(parts: &[&[u8]]) -> Vec<u8> {
    der(0x30, &parts.concat())
}

fn name_of(tag: u8, text: &[u8]) -> Vec<u8> {
    sequence(&[&der(0x31, &sequence(&[&[6, 3, 0x55, 4, 3], &der(tag, text)]))])
}

/// 2.5.29.`number`.
fn extension(number: u8, is_critical: bool, value: &[u8]) -> Vec<u8> {
    extension_of(&[0x55, 0x1d, number], is_critical, value)
}

fn extension_of(kind: &[u8], is_critical: bool, value: &[u8]) -> Vec<u8> {
    let critical: &[u8] = if is_critical { &[1, 1, 0xff] } else { &[] };
    sequence(&[&der(6, kind), critical, &der(4, value)])
}

fn validity(not_before: &[u8], not_after: &[u8]) -> Vec<u8> {
    sequence(&[not_before, not_after])
}

fn key_pem() -> String {
    KEYS[2].serialize_pem()
}

impl Certificate {
    fn new(role: Role) -> Self {
        let (subject, issuer, key) = match role {
            Role::Ca => (b"ca", b"ca", &KEYS[0]),
            Role::Intermediate => (b"im", b"ca", &KEYS[1]),
            Role::Leaf => (b"lf", b"im", &KEYS[2]),
        };
        let extensions = if role == Role::Leaf {
            vec![
                extension(17, false, &sequence(&[&der(0x82, NAME.as_bytes())])),
                extension(37, false, &sequence(&[&[6, 8, 0x2b, 6, 1, 5, 5, 7, 3, 1]])),
                extension(35, false, &sequence(&[&[0x80, 1, 7]])),
            ]
        } else {
            vec![
                extension(19, true, &sequence(&[&[1, 1, 0xff]])),
                extension(15, true, &[3, 2, 2, 4]),
                extension(14, false, &[4, 1, 7]),
            ]
        };
        Self {
            version: der(0xa0, &[2, 1, 2]),
            serial_number: vec![2, 1, 5],
            signature: sequence(&[ECDSA_WITH_SHA256]),
            issuer: name_of(12, issuer),
            validity: validity(&der(23, b"250101000000Z"), &der(24, b"21250101000000Z")),
            subject: name_of(12, subject),
            public_key: key.subject_public_key_info(),
            unique_ids: Vec::new(),
            extensions,
            rest: Vec::new(),
            signature_algorithm: sequence(&[ECDSA_WITH_SHA256]),
            trailing: Vec::new(),
        }
    }

    fn signed(&self) -> Vec<u8> {
        let extensions = if self.extensions.is_empty() {
            Vec::new()
        } else {
            der(0xa3, &der(0x30, &self.extensions.concat()))
        };
        sequence(&[
            &self.version,
            &self.serial_number,
            &self.signature,
            &self.issuer,
            &self.validity,
            &self.subject,
            &self.public_key,
            &self.unique_ids,
            &extensions,
            &self.rest,
        ])
    }

    fn pem(&self, signed: &[u8], issuer: &KeyPair) -> String {
        let signature = der(3, &[&[0], &*issuer.sign(signed).unwrap()].concat());
        let certificate = sequence(&[signed, &self.signature_algorithm, &signature]);
        certificate_pem(&[certificate, self.trailing.clone()].concat())
    }

    fn built(changed: Role, change: impl FnOnce(&mut Self), mutate: impl FnOnce(&mut Vec<u8>)) -> Vector {
        let (mut change, mut mutate) = (Some(change), Some(mutate));
        let mut build = |role, issuer| {
            let mut certificate = Self::new(role);
            if role != changed {
                return certificate.pem(&certificate.signed(), issuer);
            }
            change.take().unwrap()(&mut certificate);
            let mut signed = certificate.signed();
            mutate.take().unwrap()(&mut signed);
            certificate.pem(&signed, issuer)
        };
        let [ca, intermediate, leaf] =
            [build(Role::Ca, &KEYS[0]), build(Role::Intermediate, &KEYS[0]), build(Role::Leaf, &KEYS[1])];
        Vector { ca: ca.into(), chain: (leaf + &intermediate).into(), key: key_pem().into() }
    }

    pub(super) fn vector(role: Role, change: impl FnOnce(&mut Self)) -> Vector {
        Self::built(role, change, |_| ())
    }

    /// As above, with a change of the signed bytes.
    pub(super) fn mutated(role: Role, mutate: impl FnOnce(&mut Vec<u8>)) -> Vector {
        Self::built(role, |_| (), mutate)
    }

    fn add(&mut self, extension: Vec<u8>) {
        self.extensions.push(extension);
    }

    /// Replaces the extension 2.5.29.`number`, or adds it.
    fn set(&mut self, number: u8, is_critical: bool, value: &[u8]) {
        let kind = der(6, &[0x55, 0x1d, number]);
        self.extensions.retain(|it| !it.windows(kind.len()).any(|found| found == kind));
        self.add(extension(number, is_critical, value));
    }

    fn set_names(&mut self, names: &[&[u8]]) {
        let called = der(0x82, NAME.as_bytes());
        self.set(17, false, &sequence(&[&called, &*names.concat()]));
    }
}

use Expected::{Accepted, Rejected, RejectedByUs};

const ALL: &[Role] = &[Role::Leaf, Role::Intermediate, Role::Ca];
const LEAF: &[Role] = &[Role::Leaf];
const ISSUERS: &[Role] = &[Role::Intermediate, Role::Ca];
const INTERMEDIATE: &[Role] = &[Role::Intermediate];
const CA: &[Role] = &[Role::Ca];
const BELOW_ANCHOR: &[Role] = &[Role::Leaf, Role::Intermediate];

/// Name, expected result, roles and change of a case.
type Row = (&'static str, Expected, &'static [Role], fn(&mut Certificate));

/// The rules of Go's `crypto/x509`.
pub(super) fn cases() -> Vec<Case> {
    let cases: Vec<Row> = vec![
        ("nothing changed", Accepted, ALL, |_| ()),
        ("trailing data", Rejected("Certificate: expected"), ALL, |it| it.trailing = vec![5, 0]),
        ("version 1", Accepted, CA, |it| {
            it.version.clear();
            it.extensions.clear();
        }),
        ("version 4", Rejected("version"), ALL, |it| it.version = der(0xa0, &[2, 1, 3])),
        ("a negative version", Rejected("version"), ALL, |it| it.version = der(0xa0, &[2, 1, 0xff])),
        ("serial number 0", Accepted, ALL, |it| it.serial_number = vec![2, 1, 0]),
        ("a serial number of 30 bytes", Accepted, ALL, |it| it.serial_number = der(2, &[1; 30])),
        ("a negative serial number", Rejected("serialNumber: expected zero or a positive"), ALL, |it| {
            it.serial_number = vec![2, 1, 0x85];
        }),
        ("a long negative serial number", Rejected("serialNumber"), ALL, |it| {
            it.serial_number = der(2, &[0x85; 16]);
        }),
        ("a padded serial number", Rejected("serialNumber"), ALL, |it| it.serial_number = vec![2, 2, 0, 5]),
        ("an empty serial number", Rejected("serialNumber"), ALL, |it| it.serial_number = vec![2, 0]),
        ("another outer algorithm", Rejected("signatureAlgorithm"), ALL, |it| {
            it.signature_algorithm = sequence(&[ECDSA_WITH_SHA256, &[5, 0]]);
        }),
        ("SHA-1 in the name of the algorithm", Rejected(""), BELOW_ANCHOR, |it| {
            it.signature = sequence(&[&[6, 7, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 1]]);
            it.signature_algorithm.clone_from(&it.signature);
        }),
        ("a subject with a wildcard in a PrintableString", Accepted, LEAF, |it| {
            it.subject = name_of(19, b"*.a & b");
        }),
        ("a subject with Latin-1 in a TeletexString", Accepted, LEAF, |it| it.subject = name_of(20, &[0xe4])),
        ("an empty subject", Accepted, LEAF, |it| it.subject = vec![0x30, 0]),
        ("an attribute type with 32 bits", Rejected("subject"), LEAF, |it| {
            let kind = der(6, &[0x2a, 0x90, 0x80, 0x80, 0x80, 0]);
            it.subject = sequence(&[&der(0x31, &sequence(&[&kind, &der(12, b"a")]))]);
        }),
        ("an issuer that is a UniversalString", Rejected("issuer"), CA, |it| {
            it.issuer = name_of(28, &[0, 0, 0, b'a']);
        }),
        ("a GeneralizedTime before 2050", Accepted, ALL, |it| {
            it.validity = validity(&der(24, b"20250101000000Z"), &der(24, b"20490101000000Z"));
        }),
        ("the year 1950", Accepted, CA, |it| {
            it.validity = validity(&der(23, b"500101000000Z"), &der(24, b"99991231235959Z"));
        }),
        ("the year 0", Accepted, CA, |it| {
            it.validity = validity(&der(24, b"00000101000000Z"), &der(24, b"99991231235959Z"));
        }),
        ("unique identifiers", RejectedByUs(""), CA, |it| it.unique_ids = vec![0x81, 2, 0, 1, 0x82, 2, 0, 1]),
        ("a key on another curve", Rejected("subjectPublicKeyInfo: expected the curve"), CA, |it| {
            it.public_key = elliptic(&[0x2b, 0x81, 4, 0, 10], &[4; 65]);
        }),
        ("no extension", Rejected(""), ALL, |it| it.extensions.clear()),
        ("an unknown extension", Accepted, ALL, |it| it.add(extension(99, false, b"x"))),
        ("an unknown critical extension", Rejected(""), ALL, |it| it.add(extension(99, true, b"x"))),
        ("an extension twice", Rejected("extension 2.5.29.99: expected it once"), ALL, |it| {
            it.add(extension(99, false, b"x"));
            it.add(extension(99, false, b"x"));
        }),
        ("basicConstraints twice", Rejected("basicConstraints: expected it once"), ISSUERS, |it| {
            it.add(it.extensions[0].clone());
        }),
        ("an extension with a criticality of 1", Rejected("extensions"), ALL, |it| {
            it.add(sequence(&[&[6, 3, 0x55, 0x1d, 99], &[1, 1, 1], &[4, 0]]));
        }),
        ("an extension type with 15 bits", Accepted, ALL, |it| {
            it.add(extension_of(&[0x2a, 0x81, 0x80, 0], false, b"x"));
        }),
        ("an extension type with 32 bits", Rejected("extensions"), ALL, |it| {
            it.add(extension_of(&[0x2a, 0x90, 0x80, 0x80, 0x80, 0], false, b"x"));
        }),
        ("a malformed keyUsage", Rejected("keyUsage"), ALL, |it| it.set(15, true, &[4, 1, 0])),
        ("a keyUsage with unused bits set", Rejected("keyUsage"), ALL, |it| it.set(15, true, &[3, 2, 3, 4])),
        ("a keyUsage with 8 unused bits", Rejected("keyUsage"), ALL, |it| it.set(15, true, &[3, 2, 8, 0])),
        ("a keyUsage without keyCertSign", Rejected(""), ISSUERS, |it| it.set(15, true, &[3, 2, 7, 0x80])),
        ("basicConstraints without CA", Rejected(""), ISSUERS, |it| it.set(19, true, &[0x30, 0])),
        ("malformed basicConstraints", Rejected("basicConstraints"), ALL, |it| it.set(19, true, &[4, 0])),
        ("basicConstraints with a CA of 1", Rejected("basicConstraints"), ALL, |it| {
            it.set(19, true, &sequence(&[&[1, 1, 1]]));
        }),
        ("no subjectAltName", Rejected(""), LEAF, |it| {
            it.set(17, false, &[0x30, 0]);
        }),
        ("a malformed subjectAltName", Rejected("subjectAltName"), ALL, |it| it.set(17, false, &[4, 0])),
        ("an empty IP address", Rejected("subjectAltName"), ALL, |it| it.set_names(&[&[0x87, 0]])),
        ("URIs", Accepted, LEAF, |it| {
            it.set_names(&[
                &der(0x86, b"spiffe://cluster.local/ns/a/sa/b"),
                &der(0x86, b"urn:uuid:f81d4fae-7dec-11d0-a765-00a0c91e6bf6"),
                &der(0x86, b"https://[::1]:443/a?b#c"),
                &der(0x86, b"https://a_b.example:8443/%20"),
            ]);
        }),
        ("other kinds of names", Accepted, LEAF, |it| {
            it.set_names(&[&der(0x81, b"a@example.com"), &[0x88, 1, 0x2a], &der(0x87, &[127, 0, 0, 1])]);
        }),
        ("a critical subjectAltName", Accepted, LEAF, |it| {
            it.set(17, true, &sequence(&[&der(0x82, NAME.as_bytes())]));
        }),
        ("a critical subjectAltName with a directory name only", Rejected(""), ISSUERS, |it| {
            it.set(17, true, &sequence(&[&der(0xa4, &name_of(12, b"x"))]));
        }),
        ("malformed nameConstraints", Rejected("nameConstraints"), CA, |it| it.set(30, true, &[4, 0])),
        ("empty nameConstraints", Rejected("nameConstraints"), CA, |it| it.set(30, true, &[0x30, 0])),
        ("nameConstraints that permit the name", Accepted, ISSUERS, |it| {
            it.set(30, true, &permitted(0x82, b"lucid-system.svc"));
        }),
        ("nameConstraints that do not permit the name", Rejected(""), ISSUERS, |it| {
            it.set(30, true, &permitted(0x82, b"other.svc"));
        }),
        ("nameConstraints with a leading dot", Accepted, ISSUERS, |it| {
            it.set(30, true, &permitted(0x82, b".svc"))
        }),
        ("critical nameConstraints on directory names", Rejected(""), ISSUERS, |it| {
            it.set(30, true, &permitted(0xa4, &[0x30, 0]));
        }),
        ("malformed cRLDistributionPoints", Rejected("cRLDistributionPoints"), ALL, |it| {
            it.set(31, false, &[4, 0]);
        }),
        ("a cRLDistributionPoints relative to the issuer", Rejected("cRLDistributionPoints"), ALL, |it| {
            it.set(31, false, &sequence(&[&sequence(&[&der(0xa0, &[0xa1, 0])])]));
        }),
        ("cRLDistributionPoints", Accepted, ALL, |it| {
            let uri = der(0x86, b"http://a/crl");
            it.set(31, false, &sequence(&[&sequence(&[&der(0xa0, &der(0xa0, &uri))])]));
        }),
        ("malformed certificatePolicies", Rejected("certificatePolicies"), ALL, |it| {
            it.set(32, false, &[4, 0])
        }),
        ("a policy twice", Rejected("certificatePolicies"), ALL, |it| {
            it.set(32, false, &sequence(&[&sequence(&[&[6, 1, 42]]), &sequence(&[&[6, 1, 42]])]));
        }),
        ("certificatePolicies", Accepted, ALL, |it| {
            it.set(32, false, &sequence(&[&sequence(&[&[6, 1, 42]]), &sequence(&[&[6, 1, 43], &[0x30, 0]])]));
        }),
        ("malformed policyMappings", Rejected("policyMappings"), ALL, |it| it.set(33, false, &[4, 0])),
        ("policyMappings from any policy", Rejected("policyMappings"), INTERMEDIATE, |it| {
            it.set(32, false, &sequence(&[&sequence(&[&[6, 4, 0x55, 0x1d, 32, 0]])]));
            it.set(33, false, &sequence(&[&sequence(&[&[6, 4, 0x55, 0x1d, 32, 0], &[6, 1, 42]])]));
        }),
        ("a critical authorityKeyIdentifier", Rejected("authorityKeyIdentifier: expected"), ALL, |it| {
            it.set(35, true, &sequence(&[&[0x80, 1, 7]]));
        }),
        ("a malformed authorityKeyIdentifier", Rejected("authorityKeyIdentifier"), ALL, |it| {
            it.set(35, false, &[4, 0]);
        }),
        ("an authorityKeyIdentifier with issuer and serial number", Accepted, ALL, |it| {
            let issuer = der(0xa1, &der(0xa4, &name_of(12, b"ca")));
            it.set(35, false, &sequence(&[&[0x80, 1, 7], &issuer, &[0x82, 1, 5]]));
        }),
        ("malformed policyConstraints", Rejected("policyConstraints"), ALL, |it| it.set(36, false, &[4, 0])),
        ("policyConstraints that require a policy", Rejected("policyConstraints"), BELOW_ANCHOR, |it| {
            it.set(36, false, &sequence(&[&[0x80, 1, 0]]));
        }),
        ("malformed extKeyUsage", Rejected("extKeyUsage"), ALL, |it| it.set(37, false, &[4, 0])),
        ("an extKeyUsage with 15 bits", Rejected(""), ALL, |it| {
            it.set(37, false, &sequence(&[&[6, 4, 0x2a, 0x81, 0x80, 0]]));
        }),
        ("an extKeyUsage with 32 bits", Rejected("extKeyUsage"), ALL, |it| {
            it.set(37, false, &sequence(&[&[6, 6, 0x2a, 0x90, 0x80, 0x80, 0x80, 0]]));
        }),
        ("an extKeyUsage for clients", Rejected(""), ALL, |it| {
            it.set(37, false, &sequence(&[&[6, 8, 0x2b, 6, 1, 5, 5, 7, 3, 2]]));
        }),
        ("a critical subjectKeyIdentifier", Rejected("subjectKeyIdentifier: expected"), ALL, |it| {
            it.set(14, true, &[4, 1, 7]);
        }),
        ("a malformed subjectKeyIdentifier", Rejected("subjectKeyIdentifier"), ALL, |it| {
            it.set(14, false, &[5, 0])
        }),
        ("a malformed inhibitAnyPolicy", Rejected("inhibitAnyPolicy"), ALL, |it| it.set(54, false, &[5, 0])),
        ("a critical authorityInfoAccess", Rejected("authorityInfoAccess: expected"), ALL, |it| {
            it.add(extension_of(&[0x2b, 6, 1, 5, 5, 7, 1, 1], true, &[0x30, 0]));
        }),
        ("a malformed authorityInfoAccess", Rejected("authorityInfoAccess"), ALL, |it| {
            it.add(extension_of(&[0x2b, 6, 1, 5, 5, 7, 1, 1], false, &[4, 0]));
        }),
        ("data after the extensions", RejectedByUs("tbsCertificate"), ALL, |it| it.rest = vec![5, 0]),
    ];
    let mut cases: Vec<_> = cases
        .into_iter()
        .map(|(name, expected, roles, change)| Case { name, expected, roles, change: Box::new(change) })
        .collect();
    let mut add = |name, expected, roles, change: Change| cases.push(Case { name, expected, roles, change });
    for (name, tag, text) in [
        ("a subject that is a UniversalString", 28, &[0, 0, 0, b'a'][..]),
        ("a subject that is a VisibleString", 26, b"a"),
        ("a subject that is a BIT STRING", 3, &[0, 1]),
        ("a subject with invalid UTF-8", 12, &[0xff]),
        ("a subject with an underscore in a PrintableString", 19, b"a_b"),
        ("a subject with an at sign in a PrintableString", 19, b"a@b"),
        ("a subject with Latin-1 in an IA5String", 22, &[0xe4]),
        ("a subject with letters in a NumericString", 18, b"1a"),
        ("a subject with a surrogate in a BMPString", 30, &[0xd8, 0]),
        ("a subject with half a character in a BMPString", 30, &[0, 97, 0]),
    ] {
        add(name, Rejected("subject"), LEAF, Box::new(move |it| it.subject = name_of(tag, text)));
    }
    let malformed = Rejected("validity");
    for (name, expected, tag, not_before) in [
        ("a UTCTime without seconds", RejectedByUs("validity"), 23, &b"2501010000Z"[..]),
        ("a UTCTime with an offset", RejectedByUs("validity"), 23, b"250101000000+0100"),
        ("a GeneralizedTime with an offset", malformed, 24, b"20250101000000+0000"),
        ("a GeneralizedTime with fractions", malformed, 24, b"20250101000000.5Z"),
        ("a leap second", malformed, 23, b"250101000060Z"),
        ("the 30th of February", malformed, 23, b"250230000000Z"),
        ("hour 24", malformed, 23, b"250101240000Z"),
        ("a GeneralizedTime with a year only", malformed, 24, b"2025Z"),
        ("a time that is text", malformed, 12, b"250101000000Z"),
    ] {
        let validity = validity(&der(tag, not_before), &der(23, b"490101000000Z"));
        add(name, expected, ALL, Box::new(move |it| it.validity.clone_from(&validity)));
    }
    let p256 = [0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7];
    let compressed = [&[2], &KEYS[0].der_bytes()[1..33]].concat();
    let ed25519 = |parameters: &[u8], key: &[u8]| {
        sequence(&[&sequence(&[&[6, 3, 0x2b, 0x65, 0x70], parameters]), &der(3, &[&[0], key].concat())])
    };
    for (name, key) in [
        ("a compressed point", elliptic(&p256, &compressed)),
        ("a point that is not on the curve", elliptic(&p256, &[4; 65])),
        ("an Ed25519 key of 31 bytes", ed25519(&[], &[0; 31])),
        ("an Ed25519 key with parameters", ed25519(&[5, 0], &[0; 32])),
        ("an RSA key without NULL", rsa(&[], &[0x55; 256], &[1, 0, 1])),
        ("an RSA key with a negative modulus", rsa(&[5, 0], &[0x95; 256], &[1, 0, 1])),
        ("an RSA key with the modulus 0", rsa(&[5, 0], &[0], &[1, 0, 1])),
        ("an RSA key with the exponent 0", rsa(&[5, 0], &[0x55; 256], &[0])),
        ("an RSA key with a negative exponent", rsa(&[5, 0], &[0x55; 256], &[0xff])),
        ("an RSA key with a huge exponent", rsa(&[5, 0], &[0x55; 256], &[1; 20])),
        ("an RSA key with an exponent of 33 bits", rsa(&[5, 0], &[0x55; 256], &[1, 0, 0, 0, 1])),
    ] {
        add(name, Rejected("subjectPublicKeyInfo"), CA, Box::new(move |it| it.public_key.clone_from(&key)));
    }
    let malformed = Rejected("basicConstraints");
    for (name, expected, roles, path_length) in [
        ("a negative path length", malformed, ALL, &[2, 1, 0xff][..]),
        ("a padded path length", malformed, ALL, &[2, 2, 0, 1]),
        ("a path length of 64 bits", malformed, ALL, &[2, 9, 0, 0xff, 1, 1, 1, 1, 1, 1, 1]),
        ("a path length of 0", Rejected(""), CA, &[2, 1, 0]),
        ("a path length of 1", Accepted, ISSUERS, &[2, 1, 1]),
    ] {
        let value = sequence(&[&[1, 1, 0xff], path_length]);
        add(name, expected, roles, Box::new(move |it| it.set(19, true, &value)));
    }
    for (name, tag, value) in [
        ("a dNSName that is not ASCII", 0x82, "ä.example".as_bytes()),
        ("an rfc822Name that is not ASCII", 0x81, "ä@example.com".as_bytes()),
        ("an IP address of 5 bytes", 0x87, &[1; 5]),
        ("a URI with a space in its host", 0x86, b"https://a b/"),
        ("a URI that is not ASCII", 0x86, "https://ä/".as_bytes()),
        ("a URI with an invalid escape", 0x86, b"https://a/%zz"),
        ("a URI with a port that is not a number", 0x86, b"https://a:b/"),
        ("a URI whose host ends with a dot", 0x86, b"https://a./"),
        ("a URI without a scheme", 0x86, b":a"),
    ] {
        add(name, Rejected("subjectAltName"), ALL, Box::new(move |it| it.set_names(&[&der(tag, value)])));
    }
    for (name, tag, value) in [
        ("nameConstraints on a name that ends with a dot", 0x82, &b"svc."[..]),
        ("nameConstraints on a name with an empty label", 0x82, b"a..svc"),
        ("nameConstraints on an address of 5 bytes", 0x87, &[1; 5]),
        ("nameConstraints with a mask with a hole", 0x87, &[127, 0, 0, 0, 0xff, 0, 0xff, 0]),
        ("nameConstraints on a URI that is an address", 0x86, b"127.0.0.1"),
        ("nameConstraints on a malformed mailbox", 0x81, b"@"),
    ] {
        let change = move |it: &mut Certificate| it.set(30, true, &permitted(tag, value));
        add(name, Rejected("nameConstraints"), CA, Box::new(change));
    }
    cases
}

fn permitted(tag: u8, name: &[u8]) -> Vec<u8> {
    sequence(&[&der(0xa0, &sequence(&[&der(tag, name)]))])
}

fn rsa(parameters: &[u8], modulus: &[u8], exponent: &[u8]) -> Vec<u8> {
    let algorithm = sequence(&[&[6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 1], parameters]);
    let key = sequence(&[&der(2, modulus), &der(2, exponent)]);
    sequence(&[&algorithm, &der(3, &[vec![0], key].concat())])
}

fn elliptic(curve: &[u8], point: &[u8]) -> Vec<u8> {
    let algorithm = sequence(&[&[6, 7, 0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1], &der(6, curve)]);
    sequence(&[&algorithm, &der(3, &[&[0], point].concat())])
}
