//! Authorities made by openssl, and what openssl says about ours; skipped where it is not installed

use std::{
    fs,
    path::Path,
    process::{Command, Output, Stdio},
    time::SystemTime,
};

use crate::common::{certificate_pem, names};
use lucid_certs::{CaError, CertificateAuthority};

/// Says so when openssl is not installed
pub(crate) fn is_installed() -> bool {
    let found = Command::new("openssl").arg("version").stdout(Stdio::null()).status().is_ok();
    if !found {
        eprintln!("SKIPPED: openssl is not installed");
    }
    found
}

fn run(folder: &Path, arguments: &str) -> Output {
    Command::new("openssl").args(arguments.split_whitespace()).current_dir(folder).output().unwrap()
}

pub(crate) fn openssl(folder: &Path, arguments: &str) {
    let output = run(folder, arguments);
    assert!(output.status.success(), "{arguments}: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn authorities_made_by_openssl_are_accepted() {
    if !is_installed() {
        return;
    }
    let kinds = [
        ("ecparam -name prime256v1 -genkey -out key.pem", "EC PRIVATE KEY"),
        ("ecparam -name secp384r1 -genkey -out key.pem", "EC PRIVATE KEY"),
        ("genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out key.pem", "BEGIN PRIVATE KEY"),
        ("genpkey -algorithm ED25519 -out key.pem", "BEGIN PRIVATE KEY"),
        ("genrsa -out key.pem 2048", "BEGIN PRIVATE KEY"),
        ("genrsa -traditional -out key.pem 2048", "RSA PRIVATE KEY"),
    ];
    for (make_key, label) in kinds {
        let folder = tempfile::tempdir().unwrap();
        openssl(folder.path(), make_key);
        openssl(folder.path(), "req -x509 -new -key key.pem -subj /CN=mine -days 90 -out ca.pem");
        let read = |file| fs::read(folder.path().join(file)).unwrap();
        assert!(String::from_utf8(read("key.pem")).unwrap().contains(label), "{make_key}");

        let ca =
            CertificateAuthority::from_pem(&read("ca.pem"), &read("key.pem"), SystemTime::now()).unwrap();
        let leaf = ca.issue(&names(), SystemTime::now()).unwrap();
        leaf.verify_for(&names(), &ca.trust_bundle(), SystemTime::now()).unwrap();

        let again = ca.private_key_pem();
        assert!(again.contains(label), "{make_key}");
        CertificateAuthority::from_pem(&read("ca.pem"), again.as_bytes(), SystemTime::now()).unwrap();
    }
}

#[test]
fn an_authority_of_openssl_that_may_not_sign_is_refused() {
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
    assert!(matches!(error, CaError::MayNotSign { .. }), "{error:?}");
}

#[test]
fn openssl_accepts_our_chain_for_each_name_and_refuses_a_foreign_one() {
    if !is_installed() {
        return;
    }
    let (folder, now) = (tempfile::tempdir().unwrap(), SystemTime::now());
    let ca = CertificateAuthority::generate(&names(), now).unwrap();
    let write = |file, text: &str| fs::write(folder.path().join(file), text).unwrap();
    write("ca.pem", &ca.certificate_pem());
    write("leaf.pem", &certificate_pem(ca.issue(&names(), now).unwrap().certificate()));
    let foreign = names().with_host("example.com").unwrap();
    write("foreign.pem", &certificate_pem(ca.issue(&foreign, now).unwrap().certificate()));

    let verify = "verify -x509_strict -purpose sslserver -CAfile ca.pem";
    for name in names().dns_names() {
        openssl(folder.path(), &format!("{verify} -verify_hostname {name} leaf.pem"));
    }
    openssl(folder.path(), &format!("{verify} -verify_ip 127.0.0.1 leaf.pem"));
    let refused = run(folder.path(), &format!("{verify} foreign.pem"));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("permitted subtree violation"), "{refused:?}");
}
