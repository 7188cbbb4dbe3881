//! Certificate authorities: issued certificates and rejected CAs.

use std::{
    collections::HashSet,
    error::Error,
    time::{Duration, SystemTime},
};

use crate::common::{
    DAY, HOUR, certificate_pem, chain, names, now,
    pairs::{ALGORITHMS, Pair},
};
use lucid_certs::{CertificateAuthority, ServingCertificate, ServingNames, Validity};
use x509_parser::{
    extensions::ParsedExtension,
    prelude::{FromDer, X509Certificate},
};

const BACKDATE: Duration = HOUR;
const CA_LIFETIME: Duration = Duration::from_hours(365 * 24);
const SERVING_LIFETIME: Duration = Duration::from_hours(7 * 24);

fn generate(now: SystemTime) -> CertificateAuthority {
    CertificateAuthority::generate(&names(), now).unwrap()
}

fn validity(ca: &CertificateAuthority) -> Validity {
    ca.trust_bundle().validities().next().unwrap().1
}

fn assert_unfit<T: std::fmt::Debug>(
    result: Result<T, lucid_certs::Error>,
    ca: &CertificateAuthority,
    expected: &str,
) {
    let error = result.unwrap_err();
    let fingerprint = ca.trust_bundle().validities().next().unwrap().0;
    let expected = format!("failed to use the CA certificate {fingerprint}: {expected}");
    assert!(error.to_string().starts_with(&expected), "{error:?}");
}

#[test]
fn generated_cas_have_the_documented_extensions() {
    let ca = generate(now());
    let bundle = ca.trust_bundle();
    let (_, certificate) = X509Certificate::from_der(bundle.certificates().next().unwrap()).unwrap();

    assert_eq!(certificate.subject().to_string(), "CN=lucid-operator CA");
    let constraints = certificate.basic_constraints().unwrap().unwrap();
    assert!(constraints.critical && constraints.value.ca);
    assert_eq!(constraints.value.path_len_constraint, Some(0));
    let usage = certificate.key_usage().unwrap().unwrap();
    assert!(usage.critical);
    assert_eq!(usage.value.to_string(), "Key Cert Sign, CRL Sign");
    assert!(certificate.name_constraints().unwrap().unwrap().critical);
    let (subject, authority) = key_identifiers(&certificate);
    assert_eq!(subject, authority);
    let leaf = ca.issue(&names(), now()).unwrap();
    let (leaf_subject, leaf_authority) =
        key_identifiers(&X509Certificate::from_der(leaf.certificate()).unwrap().1);
    assert_eq!(leaf_authority, authority);
    assert_ne!(leaf_subject, authority);
}

fn key_identifiers(certificate: &X509Certificate<'_>) -> (Vec<u8>, Vec<u8>) {
    let (mut subject, mut authority) = (None, None);
    for extension in certificate.extensions() {
        match extension.parsed_extension() {
            ParsedExtension::SubjectKeyIdentifier(id) => subject = Some(id.0.to_vec()),
            ParsedExtension::AuthorityKeyIdentifier(id) => {
                authority = id.key_identifier.as_ref().map(|id| id.0.to_vec());
            }
            _ => {}
        }
    }
    (subject.unwrap(), authority.unwrap())
}

#[test]
fn generated_keys_are_ecdsa_on_p256_below_every_kind_of_ca() {
    let kind = |certificate: &[u8]| {
        let (_, certificate) = X509Certificate::from_der(certificate).unwrap();
        let key = certificate.public_key().algorithm.clone();
        let curve = key.parameters.map(|parameters| parameters.as_oid().unwrap().to_id_string());
        (key.algorithm.to_id_string(), curve.unwrap_or_default())
    };
    let p256 = ("1.2.840.10045.2.1".to_owned(), "1.2.840.10045.3.1.7".to_owned());
    let generated = generate(now()).trust_bundle();
    assert_eq!(kind(generated.certificates().next().unwrap()), p256);
    for algorithm in ALGORITHMS {
        let pair = Pair::with(algorithm, &[]);
        let ca = CertificateAuthority::from_pem(pair.ca.as_bytes(), pair.ca_key.as_bytes(), now()).unwrap();
        let leaf = ca.issue(&names(), now()).unwrap();
        assert_eq!(kind(leaf.certificate()), p256);
        leaf.verify_for(&names(), &pair.bundle(), now()).unwrap();
    }
}

#[test]
fn a_leaf_verifies_for_each_of_its_names_and_is_for_servers() {
    let now = now();
    let names = names().with_host("::1").unwrap().with_host("webhook.example.com").unwrap();
    let ca = CertificateAuthority::generate(&names, now).unwrap();
    let leaf = ca.issue(&names, now).unwrap();
    leaf.verify_for(&names, &ca.trust_bundle(), now).unwrap();

    let (_, certificate) = X509Certificate::from_der(leaf.certificate()).unwrap();
    assert_eq!(certificate.subject().to_string(), "CN=lucid-operator");
    assert_eq!(certificate.subject_alternative_name().unwrap().unwrap().value.general_names.len(), 11);
    assert!(certificate.extended_key_usage().unwrap().unwrap().value.server_auth);
    assert!(!certificate.is_ca());
}

#[test]
fn every_ca_permits_loopback() {
    let now = now();
    let ca =
        CertificateAuthority::generate(&ServingNames::for_services("ns", &["svc"]).unwrap(), now).unwrap();
    for host in ["localhost", "127.0.0.1", "::1"] {
        let names = ServingNames::for_services("ns", &["svc"]).unwrap().with_host(host).unwrap();
        ca.issue(&names, now).unwrap().verify_for(&names, &ca.trust_bundle(), now).unwrap();
    }
}

#[test]
fn name_constraints_reject_foreign_names() {
    let now = now();
    let ca = generate(now);
    let foreign = [
        ServingNames::for_services("kube-system", &["lucid-operator"]).unwrap(),
        ServingNames::for_services("lucid-system", &["metrics-server"]).unwrap(),
        names().with_host("example.com").unwrap(),
        names().with_host("10.0.0.1").unwrap(),
        names().with_host("127.0.0.2").unwrap(),
        names().with_host("::2").unwrap(),
    ];
    for names in foreign {
        let leaf = ca.issue(&names, now).unwrap();
        let error = leaf.verify_for(&names, &ca.trust_bundle(), now).unwrap_err();
        assert!(error.to_string().ends_with("against the trust bundle"), "{names:?}: {error:?}");
        let cause = error.source().and_then(|cause| cause.downcast_ref());
        assert_eq!(cause, Some(&webpki::Error::NameConstraintViolation), "{names:?}");
    }
}

#[test]
fn a_leaf_is_rejected_for_other_names_and_by_other_bundles() {
    let now = now();
    let (ca, other) = (generate(now), generate(now));
    let leaf = ca.issue(&names(), now).unwrap();

    let more = names().with_host("localhost").unwrap();
    let error = leaf.verify_for(&more, &ca.trust_bundle(), now).unwrap_err();
    assert!(error.to_string().ends_with("for the name localhost"), "{error:?}");

    let error = leaf.verify_for(&names(), &other.trust_bundle(), now).unwrap_err();
    assert!(error.to_string().ends_with("against the trust bundle"), "{error:?}");
    leaf.verify_for(&names(), &other.trust_bundle().merge(&ca.trust_bundle()), now).unwrap();
}

#[test]
fn leaves_are_backdated_and_never_outlive_their_authority() {
    let now = now();
    let ca = generate(now);
    assert_eq!(validity(&ca).not_before, now - BACKDATE);
    assert_eq!(validity(&ca).not_after, now + CA_LIFETIME);

    // (time of issue, validity period)
    let end = validity(&ca).not_after;
    let cases = [
        (now, now - BACKDATE, now + SERVING_LIFETIME),
        (now - HOUR / 2, now - BACKDATE, now - HOUR / 2 + SERVING_LIFETIME),
        (now + 30 * DAY, now + 30 * DAY - BACKDATE, now + 30 * DAY + SERVING_LIFETIME),
        (end - DAY, end - DAY - BACKDATE, end),
    ];
    for (at, not_before, not_after) in cases {
        let leaf = ca.issue(&names(), at).unwrap();
        assert_eq!((leaf.validity().not_before, leaf.validity().not_after), (not_before, not_after));
        let life = |end: SystemTime| end.duration_since(at).unwrap().as_secs();
        assert_eq!(life(leaf.renew_at()), life(not_after) * 2 / 3);
        leaf.verify_for(&names(), &ca.trust_bundle(), at).unwrap();
        leaf.verify_for(&names(), &ca.trust_bundle(), not_after + HOUR).unwrap_err();
    }
    assert_unfit(ca.issue(&names(), end + HOUR), &ca, "expired");
    assert_unfit(ca.issue(&names(), now - 2 * HOUR), &ca, "not valid yet");
}

#[test]
fn serial_numbers_are_positive_of_128_bits_and_unique() {
    let now = now();
    let ca = generate(now);
    let mut seen = HashSet::new();
    for n in 0..100 {
        let leaf = ca.issue(&names(), now).unwrap();
        let bundle = generate(now).trust_bundle();
        let authority = bundle.certificates().next().unwrap();
        let certificate = if n % 2 == 0 { leaf.certificate() } else { authority };
        let (_, certificate) = X509Certificate::from_der(certificate).unwrap();
        let serial = certificate.raw_serial().to_vec();
        assert_eq!(serial.len(), 16);
        assert!((1..0x80).contains(&serial[0]), "{serial:?} is negative or shorter than it could be");
        assert!(seen.insert(serial), "a serial number came twice");
    }
}

#[test]
fn invalid_cas_are_rejected_with_the_reason() {
    let now = now();
    let ca = generate(now);
    let leaf = ca.issue(&names(), now).unwrap();
    let (certificate, key) = (ca.trust_bundle().to_pem(), ca.private_key_pem());
    let der = |label: &str| format!("-----BEGIN {label}-----\nAAECAwQ=\n-----END {label}-----\n");
    let truncated = &certificate[..certificate.len() / 2];
    let foreign_key = generate(now).private_key_pem();
    let leaf_pem = certificate_pem(leaf.certificate());
    // The UTF8String of the common name, 2.5.4.3, becomes an OCTET STRING.
    let mut octets = ca.trust_bundle().certificates().next().unwrap().to_vec();
    for at in 0..octets.len() - 4 {
        if octets[at..].starts_with(&[0x55, 4, 3, 0x0c]) {
            octets[at + 3] = 4;
        }
    }
    let unsupported = certificate_pem(&octets);

    let cases: [(&str, &str, &str); 12] = [
        ("", &key, "failed to read the CA certificate: failed to find a certificate"),
        ("hello", &key, "failed to read the CA certificate: failed to find a certificate"),
        (truncated, &key, "failed to read the CA certificate: failed to read PEM: a section has no END line"),
        (&der("CERTIFICATE"), &key, "failed to parse the CA certificate"),
        (&unsupported, &key, "failed to parse the CA certificate: issuer: expected"),
        (&leaf_pem, &key, "its basic constraints do not say CA:TRUE"),
        (&certificate, "", "failed to read the private key of the CA: failed to find a private key"),
        (&certificate, &certificate, "failed to find a private key"),
        (&certificate, &key[..60], "failed to read the private key of the CA: failed to read PEM"),
        (&certificate, &key.repeat(2), "exactly one is expected, 2 were found"),
        (&certificate, &der("PRIVATE KEY"), "failed to parse the private key of the CA"),
        (&certificate, &foreign_key, "failed to match the private key with the CA certificate"),
    ];
    for (certificate, key, expected) in cases {
        let error = CertificateAuthority::from_pem(certificate.as_bytes(), key.as_bytes(), now).unwrap_err();
        assert!(chain(&error).contains(expected), "expected {expected:?} in {:?}", chain(&error));
    }

    let read = |at| CertificateAuthority::from_pem(certificate.as_bytes(), key.as_bytes(), at);
    assert_unfit(read(now + 366 * DAY), &ca, "expired");
    assert_unfit(read(now - DAY), &ca, "not valid yet");
}

#[test]
fn debug_output_and_errors_contain_no_keys() {
    let now = now();
    let ca = generate(now);
    let key = ca.private_key_pem();
    let body = key.lines().nth(1).unwrap();
    for shown in [format!("{ca:?}"), format!("{:?}", ca.issue(&names(), now).unwrap())] {
        assert!(shown.contains("fingerprint") && shown.len() < 300, "{shown}");
    }

    // Without line breaks, the key looks like a section label.
    for broken in [key.replace('\n', " "), key.replace("-----\n", "\n"), key.replace("-----END", "END")] {
        let error =
            CertificateAuthority::from_pem(ca.trust_bundle().to_pem().as_bytes(), broken.as_bytes(), now)
                .unwrap_err();
        assert!(!format!("{error:?} {}", chain(&error)).contains(&body[..16]), "{error:?}");
        let error = ServingCertificate::from_pem(ca.trust_bundle().to_pem().as_bytes(), broken.as_bytes())
            .unwrap_err();
        assert!(!format!("{error:?} {}", chain(&error)).contains(&body[..16]), "{error:?}");
    }
}
