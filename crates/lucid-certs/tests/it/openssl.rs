//! Interoperability with openssl: CAs created by openssl, and verification of our certificates. Skipped if
//! openssl is not installed.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
    sync::Arc,
    time::SystemTime,
};

use crate::common::{
    certificate_pem,
    handshake::{client, connect},
    names,
};
use lucid_certs::{
    CertificateAuthority, ServerTls, ServingCertificate, ServingCertificateResolver, ServingNames,
    TrustBundle,
};
use lucid_testbed::has_program;
use rustls::{
    DigitallySignedStruct, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{WebPkiSupportedAlgorithms, aws_lc_rs, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime},
    version,
};

fn is_installed() -> bool {
    has_program("openssl")
}

fn run(folder: &Path, arguments: &str) -> Output {
    Command::new("openssl").args(arguments.split_whitespace()).current_dir(folder).output().unwrap()
}

fn openssl(folder: &Path, arguments: &str) {
    let output = run(folder, arguments);
    assert!(output.status.success(), "{arguments}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Commands to create keys, and the PEM labels of their files.
const KINDS: [(&str, &str); 8] = [
    ("ecparam -name prime256v1 -genkey -out key.pem", "EC PRIVATE KEY"),
    ("ecparam -name prime256v1 -genkey -noout -out key.pem", "BEGIN EC PRIVATE KEY"),
    ("ecparam -name secp384r1 -genkey -out key.pem", "EC PRIVATE KEY"),
    ("genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out key.pem", "BEGIN PRIVATE KEY"),
    ("genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-521 -out key.pem", "BEGIN PRIVATE KEY"),
    ("genpkey -algorithm ED25519 -out key.pem", "BEGIN PRIVATE KEY"),
    ("genrsa -out key.pem 2048", "BEGIN PRIVATE KEY"),
    ("genrsa -traditional -out key.pem 2048", "RSA PRIVATE KEY"),
];

#[test]
fn cas_of_openssl_are_accepted() {
    if !is_installed() {
        return;
    }
    for (make_key, label) in KINDS {
        let folder = tempfile::tempdir().unwrap();
        openssl(folder.path(), make_key);
        let request = "req -x509 -new -key key.pem -subj /CN=mine -days 90 -out ca.pem";
        // Accepted without the usage too, but openssl's strict check then rejects issued certificates.
        openssl(folder.path(), request);
        CertificateAuthority::from_pem(
            &fs::read(folder.path().join("ca.pem")).unwrap(),
            &fs::read(folder.path().join("key.pem")).unwrap(),
            SystemTime::now(),
        )
        .unwrap();
        openssl(folder.path(), &format!("{request} -addext keyUsage=critical,keyCertSign"));
        let read = |file| fs::read(folder.path().join(file)).unwrap();
        assert!(String::from_utf8(read("key.pem")).unwrap().contains(label), "{make_key}");

        let ca =
            CertificateAuthority::from_pem(&read("ca.pem"), &read("key.pem"), SystemTime::now()).unwrap();
        let leaf = ca.issue(&names(), SystemTime::now()).unwrap();
        leaf.verify_for(&names(), &ca.trust_bundle(), SystemTime::now()).unwrap();
        fs::write(folder.path().join("leaf.pem"), certificate_pem(leaf.certificate())).unwrap();
        openssl(folder.path(), "verify -x509_strict -purpose sslserver -CAfile ca.pem leaf.pem");

        let again = ca.private_key_pem();
        assert!(again.contains(label), "{make_key}");
        CertificateAuthority::from_pem(&read("ca.pem"), again.as_bytes(), SystemTime::now()).unwrap();
    }
}

#[test]
fn a_ca_of_openssl_without_key_cert_sign_is_rejected() {
    if !is_installed() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    openssl(folder.path(), "ecparam -name prime256v1 -genkey -noout -out key.pem");
    let request = "req -x509 -new -key key.pem -subj /CN=mine -days 90 -out ca.pem";
    openssl(folder.path(), &format!("{request} -addext keyUsage=critical,cRLSign"));
    let read = |file| fs::read(folder.path().join(file)).unwrap();
    let error =
        CertificateAuthority::from_pem(&read("ca.pem"), &read("key.pem"), SystemTime::now()).unwrap_err();
    assert!(error.to_string().starts_with("failed to use the CA certificate"), "{error:?}");
    assert!(error.to_string().contains("keyCertSign"), "{error}");
}

#[test]
fn openssl_verifies_our_chain_for_each_name() {
    if !is_installed() {
        return;
    }
    let (folder, now) = (tempfile::tempdir().unwrap(), SystemTime::now());
    let ca = CertificateAuthority::generate(&names(), now).unwrap();
    let issue = |names: &ServingNames| certificate_pem(ca.issue(names, now).unwrap().certificate());
    let write = |file, text: &str| fs::write(folder.path().join(file), text).unwrap();
    let foreign = names().with_host("example.com").unwrap();
    write("ca.pem", &ca.trust_bundle().to_pem());
    write("leaf.pem", &issue(&names()));
    write("key.pem", &ca.private_key_pem());
    openssl(folder.path(), "pkey -in key.pem -noout");
    write("foreign.pem", &issue(&foreign));

    let verify = "verify -x509_strict -purpose sslserver -CAfile ca.pem";
    for name in names().dns_names() {
        openssl(folder.path(), &format!("{verify} -verify_hostname {name} leaf.pem"));
    }
    openssl(folder.path(), &format!("{verify} -verify_ip 127.0.0.1 leaf.pem"));
    let refused = run(folder.path(), &format!("{verify} foreign.pem"));
    let message = String::from_utf8_lossy(&refused.stderr);
    assert!(message.contains("permitted subtree violation"), "{message}");
}

#[test]
fn a_subordinate_ca_is_rejected_by_the_path_length() {
    if !is_installed() {
        return;
    }
    let (folder, now) = (tempfile::tempdir().unwrap(), SystemTime::now());
    let ca = CertificateAuthority::generate(&names(), now).unwrap();
    let write = |file, text: &str| fs::write(folder.path().join(file), text).unwrap();
    write("ca.pem", &ca.trust_bundle().to_pem());
    write("ca.key", &ca.private_key_pem());
    write("sub.ext", "basicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign\n");
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
    let sign = "-CAcreateserial -days 2";
    openssl(folder.path(), &format!("req -new {key} -keyout sub.key -subj /CN=sub -out sub.csr"));
    openssl(
        folder.path(),
        &format!("x509 -req -in sub.csr -CA ca.pem -CAkey ca.key {sign} -extfile sub.ext -out sub.pem"),
    );
    openssl(folder.path(), &format!("req -new {key} -keyout leaf.key -subj /CN=leaf -out leaf.csr"));
    openssl(
        folder.path(),
        &format!("x509 -req -in leaf.csr -CA sub.pem -CAkey sub.key {sign} -out leaf.pem"),
    );
    let refused = run(folder.path(), "verify -CAfile ca.pem -untrusted sub.pem leaf.pem");
    let message = String::from_utf8_lossy(&refused.stderr);
    assert!(message.contains("path length constraint exceeded"), "{message}");
}

#[test]
fn certificates_made_by_openssl_are_served_with_any_kind_of_key() {
    if !is_installed() {
        return;
    }
    for (make_key, label) in KINDS {
        let folder = tempfile::tempdir().unwrap();
        openssl(folder.path(), make_key);
        let request = "req -x509 -new -key key.pem -subj /CN=mine -days 90 -out tls.pem";
        openssl(folder.path(), &format!("{request} -addext subjectAltName=DNS:mine.example"));
        let read = |file| fs::read(folder.path().join(file)).unwrap();
        assert!(String::from_utf8(read("key.pem")).unwrap().contains(label), "{make_key}");

        let leaf = ServingCertificate::from_pem(&read("tls.pem"), &read("key.pem")).unwrap();
        let names = ServingNames::for_hosts(&["mine.example"]).unwrap();
        let itself = TrustBundle::from_pem(&read("tls.pem")).unwrap();
        leaf.verify_for(&names, &itself, SystemTime::now()).unwrap();
        let resolver = Arc::new(ServingCertificateResolver::default());
        resolver.swap(&leaf);
        let server = Arc::new(ServerTls::new(resolver).build().unwrap());
        for version in [&version::TLS12, &version::TLS13] {
            let mut trusting = (*client(&itself, version)).clone();
            trusting.dangerous().set_certificate_verifier(Arc::new(SelfSigned));
            connect(&Arc::new(trusting), &server, "mine.example").unwrap();
        }
    }
}

/// Verifies only the handshake signature: rustls rejects self-signed server certificates.
#[derive(Debug)]
struct SelfSigned;

impl ServerCertVerifier for SelfSigned {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &schemes())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &schemes())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        schemes().supported_schemes()
    }
}

fn schemes() -> WebPkiSupportedAlgorithms {
    aws_lc_rs::default_provider().signature_verification_algorithms
}

#[test]
fn version_1_cas_are_trusted_as_in_go() {
    if !is_installed() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
    let write = |file, text: &str| fs::write(folder.path().join(file), text).unwrap();
    openssl(folder.path(), &format!("req -new {key} -keyout ca.key -subj /CN=old -out ca.csr"));
    openssl(folder.path(), "x509 -req -in ca.csr -signkey ca.key -days 2 -out ca.pem");
    let names = ServingNames::for_services("ns", &["svc"]).unwrap();
    let listed: Vec<_> = names.dns_names().map(|name| format!("DNS:{name}")).collect();
    write("leaf.ext", &format!("subjectAltName={}\n", listed.join(",")));
    openssl(folder.path(), &format!("req -new {key} -keyout leaf.key -subj /CN=leaf -out leaf.csr"));
    let sign = "-CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile leaf.ext";
    openssl(folder.path(), &format!("x509 -req -in leaf.csr {sign} -out leaf.pem"));
    let read = |file| fs::read(folder.path().join(file)).unwrap();
    let (_, pem) = x509_parser::pem::parse_x509_pem(&read("ca.pem")).unwrap();
    assert_eq!(pem.parse_x509().unwrap().version(), x509_parser::x509::X509Version::V1);

    let leaf = ServingCertificate::from_pem(&read("leaf.pem"), &read("leaf.key")).unwrap();
    let bundle = TrustBundle::from_pem(&read("ca.pem")).unwrap();
    leaf.verify_for(&names, &bundle, SystemTime::now()).unwrap();
}
