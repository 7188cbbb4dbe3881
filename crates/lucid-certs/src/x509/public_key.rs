//! Public keys (RFC 3279, RFC 5480 and RFC 8410).

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P384_SHA384_ASN1, ECDSA_P521_SHA512_ASN1, EcdsaVerificationAlgorithm,
    ParsedPublicKey,
};

use super::extensions::unsigned;
use super::reader::{Element, SEQUENCE, whole};
use super::{Invalid, algorithm_identifier, malformed};

const FIELD: &str = "subjectPublicKeyInfo";

const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 1];
const ELLIPTIC_CURVE: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1];
const ED25519: &[u8] = &[0x2b, 0x65, 0x70];
const X25519: &[u8] = &[0x2b, 0x65, 0x6e];
const DSA: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x38, 4, 1];

const NULL: &[u8] = &[5, 0];
// Named curves in DER.
const P224: &[u8] = &[6, 5, 0x2b, 0x81, 4, 0, 33];
const P256: &[u8] = &[6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7];
const P384: &[u8] = &[6, 5, 0x2b, 0x81, 4, 0, 34];
const P521: &[u8] = &[6, 5, 0x2b, 0x81, 4, 0, 35];

/// Checks a `SubjectPublicKeyInfo`. Go parses keys of algorithms that it does not know, but nothing verifies with them.
pub(super) fn check(info: Element<'_>) -> Result<(), Invalid> {
    let parts = (info.tag == SEQUENCE).then(|| {
        whole(info.content, |reader| {
            let algorithm = reader.read(SEQUENCE)?;
            algorithm_identifier(algorithm)?;
            let (algorithm, parameters) = whole(algorithm, |reader| {
                let algorithm = reader.object_identifier()?;
                let parameters = if reader.next_tag().is_some() { reader.element()?.der } else { &[] };
                Some((algorithm, parameters))
            })?;
            let (key, unused) = reader.bit_string()?;
            (unused == 0).then_some((algorithm, parameters, key))
        })
    });
    let (algorithm, parameters, key) = parts.flatten().ok_or_else(|| malformed(FIELD))?;
    match algorithm {
        RSA if parameters != NULL => {
            Err(Invalid::new(FIELD, "expected an RSA key with parameters NULL, found others"))
        }
        RSA => check_rsa(key),
        ELLIPTIC_CURVE => check_point(parameters, key),
        ED25519 if !parameters.is_empty() || key.len() != 32 => {
            Err(Invalid::new(FIELD, "expected an Ed25519 key of 32 bytes without parameters, found another"))
        }
        X25519 | DSA => {
            Err(Invalid::new(FIELD, "expected an RSA, ECDSA or Ed25519 key, found an X25519 or DSA key"))
        }
        _ => Ok(()),
    }
}

fn check_rsa(key: &[u8]) -> Result<(), Invalid> {
    let numbers =
        whole(key, |reader| reader.nested(SEQUENCE, |reader| Some((reader.integer()?, reader.integer()?))));
    let (modulus, exponent) = numbers.ok_or_else(|| malformed(FIELD))?;
    let is_positive = modulus.first().is_some_and(|first| *first < 0x80) && modulus != [0];
    // Go verifies with exponents of at most 31 bits.
    let is_exponent = unsigned(exponent).is_some_and(|value| value % 2 == 1 && (3..1 << 31).contains(&value));
    if is_positive && is_exponent {
        return Ok(());
    }
    let problem =
        "expected an RSA key with a positive modulus and an odd exponent from 3 to 2147483647, found another";
    Err(Invalid::new(FIELD, problem))
}

fn check_point(curve: &[u8], point: &[u8]) -> Result<(), Invalid> {
    let algorithm: Option<&'static EcdsaVerificationAlgorithm> = match curve {
        P224 => None,
        P256 => Some(&ECDSA_P256_SHA256_ASN1),
        P384 => Some(&ECDSA_P384_SHA384_ASN1),
        P521 => Some(&ECDSA_P521_SHA512_ASN1),
        _ => {
            let problem = "expected the curve P-224, P-256, P-384 or P-521, found another";
            return Err(Invalid::new(FIELD, problem));
        }
    };
    let is_point = |algorithm| ParsedPublicKey::new(algorithm, point).is_ok();
    let is_valid = match algorithm {
        Some(algorithm) => point.first() == Some(&4) && is_point(algorithm),
        // aws-lc-rs does not have this curve, so nothing verifies with it.
        None => point.len() == 57 && point.first() == Some(&4),
    };
    if is_valid {
        Ok(())
    } else {
        Err(Invalid::new(FIELD, "expected an uncompressed point of the curve, found another"))
    }
}
