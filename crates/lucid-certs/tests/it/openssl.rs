//! Interoperability with openssl: CAs created by openssl, and verification of our certificates. Skipped if
//! openssl is not installed.

use std::{
    fs,
    process::{Command, Output},
    sync::Arc,
    time::SystemTime,
};

use lucid_certs::{CertificateAuthority, ServerTls, ServingCertificate, ServingNames, TrustBundle};
use lucid_e2e::has_program;
use rustls::version;
use tempfile::TempDir;

use crate::common::{
    certificate_pem,
    handshake::{client, connect, resolver},
    names,
};

/// A folder in which openssl runs.
struct Folder(TempDir);

impl Folder {
    fn new() -> Option<Self> {
        has_program("openssl").then(|| Self(tempfile::tempdir().unwrap()))
    }

    fn run(&self, arguments: &str) -> Output {
        let mut openssl = Command::new("openssl");
        openssl.args(arguments.split_whitespace()).current_dir(self.0.path()).output().unwrap()
    }

    fn openssl(&self, arguments: &str) {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments}: {}", String::from_utf8_lossy(&output.stderr));
    }

    fn refuses(&self, arguments: &str, says: &str) {
        let message = String::from_utf8(self.run(arguments).stderr).unwrap();
        assert!(message.contains(says), "{arguments}: {message}");
    }

    fn read(&self, file: &str) -> Vec<u8> {
        fs::read(self.0.path().join(file)).unwrap()
    }

    fn write(&self, file: &str, text: &str) {
        fs::write(self.0.path().join(file), text).unwrap();
    }
}

/// Returns a folder with `key.pem` for each kind of key, with the PEM label of the file.
fn keys() -> impl Iterator<Item = (Folder, &'static str)> {
    let keys = [
        ("ecparam -name prime256v1 -genkey -out key.pem", "EC PRIVATE KEY"),
        ("ecparam -name prime256v1 -genkey -noout -out key.pem", "BEGIN EC PRIVATE KEY"),
        ("ecparam -name secp384r1 -genkey -out key.pem", "EC PRIVATE KEY"),
        ("genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out key.pem", "BEGIN PRIVATE KEY"),
        ("genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-521 -out key.pem", "BEGIN PRIVATE KEY"),
        ("genpkey -algorithm ED25519 -out key.pem", "BEGIN PRIVATE KEY"),
        ("genrsa -out key.pem 2048", "BEGIN PRIVATE KEY"),
        ("genrsa -traditional -out key.pem 2048", "RSA PRIVATE KEY"),
    ];
    keys.into_iter().filter_map(|(command, label)| {
        let folder = Folder::new()?;
        folder.openssl(command);
        assert!(String::from_utf8(folder.read("key.pem")).unwrap().contains(label), "{command}");
        Some((folder, label))
    })
}

const SELF_SIGNED: &str = "req -x509 -new -key key.pem -subj /CN=mine -days 90 -out mine.pem";

#[test]
fn cas_of_openssl_are_accepted() {
    for (folder, label) in keys() {
        let read = || {
            let key = folder.read("key.pem");
            CertificateAuthority::from_pem(&folder.read("mine.pem"), &key, SystemTime::now()).unwrap()
        };
        // Accepted without the usage too, but openssl's strict check then rejects issued certificates.
        folder.openssl(SELF_SIGNED);
        read();
        folder.openssl(&format!("{SELF_SIGNED} -addext keyUsage=critical,keyCertSign"));
        let ca = read();
        let leaf = ca.issue(&names(), SystemTime::now()).unwrap();
        leaf.verify_for(&names(), &ca.trust_bundle(), SystemTime::now()).unwrap();
        folder.write("leaf.pem", &certificate_pem(leaf.certificate()));
        folder.openssl("verify -x509_strict -purpose sslserver -CAfile mine.pem leaf.pem");

        let again = ca.private_key_pem();
        assert!(again.contains(label), "{label}");
        folder.write("key.pem", &again);
        read();
    }
}

#[test]
fn openssl_verifies_our_chain_for_each_name() {
    let Some(folder) = Folder::new() else { return };
    let now = SystemTime::now();
    let ca = CertificateAuthority::generate(&names(), now).unwrap();
    let issue = |names: &ServingNames| certificate_pem(ca.issue(names, now).unwrap().certificate());
    folder.write("ca.pem", &ca.trust_bundle().to_pem());
    folder.write("leaf.pem", &issue(&names()));
    folder.write("key.pem", &ca.private_key_pem());
    folder.write("foreign.pem", &issue(&names().with_host("example.com").unwrap()));
    folder.openssl("pkey -in key.pem -noout");

    let verify = "verify -x509_strict -purpose sslserver -CAfile ca.pem";
    for name in names().dns_names() {
        folder.openssl(&format!("{verify} -verify_hostname {name} leaf.pem"));
    }
    folder.openssl(&format!("{verify} -verify_ip 127.0.0.1 leaf.pem"));
    folder.refuses(&format!("{verify} foreign.pem"), "permitted subtree violation");
}

#[test]
fn a_subordinate_ca_is_rejected_by_the_path_length() {
    let Some(folder) = Folder::new() else { return };
    let ca = CertificateAuthority::generate(&names(), SystemTime::now()).unwrap();
    folder.write("ca.pem", &ca.trust_bundle().to_pem());
    folder.write("ca.key", &ca.private_key_pem());
    folder.write("sub.ext", "basicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign\n");
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
    for (name, issuer, extensions) in [("sub", "ca", "-extfile sub.ext"), ("leaf", "sub", "")] {
        folder.openssl(&format!("req -new {key} -keyout {name}.key -subj /CN={name} -out {name}.csr"));
        let sign = format!("-CA {issuer}.pem -CAkey {issuer}.key -CAcreateserial -days 2 {extensions}");
        folder.openssl(&format!("x509 -req -in {name}.csr {sign} -out {name}.pem"));
    }
    folder.refuses("verify -CAfile ca.pem -untrusted sub.pem leaf.pem", "path length constraint exceeded");
}

#[test]
fn certificates_made_by_openssl_are_served_with_any_kind_of_key() {
    for (folder, label) in keys() {
        // rustls rejects CAs as server certificates.
        let extensions = "-addext subjectAltName=DNS:mine.example -addext basicConstraints=critical,CA:FALSE";
        folder.openssl(&format!("{SELF_SIGNED} {extensions}"));
        let certificate = folder.read("mine.pem");
        let leaf = ServingCertificate::from_pem(&certificate, &folder.read("key.pem")).unwrap();
        let names = ServingNames::for_hosts(&["mine.example"]).unwrap();
        let itself = TrustBundle::from_pem(&certificate).unwrap();
        leaf.verify_for(&names, &itself, SystemTime::now()).unwrap();
        let server = Arc::new(ServerTls::new(resolver(&leaf)).build().unwrap());
        for version in [&version::TLS12, &version::TLS13] {
            let outcome = connect(&client(&itself, version), &server, "mine.example");
            outcome.unwrap_or_else(|error| panic!("{label}: {error}"));
        }
    }
}
