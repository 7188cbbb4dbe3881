//! Keys and certificates created by the openssl command. Skipped if openssl is not installed.

use std::{fs, time::SystemTime};

use lucid_certs::source::{Files, Trust};

use crate::{
    common::{following::ask, names},
    openssl::{is_installed, openssl},
};

#[tokio::test]
async fn keys_of_each_algorithm_and_format_are_served() {
    if !is_installed() {
        return;
    }
    for (make_key, label) in [
        // With parameters first, as written by openssl.
        ("ecparam -name prime256v1 -genkey -out tls.key", "BEGIN EC PARAMETERS"),
        ("ecparam -name prime256v1 -genkey -noout -out tls.key", "BEGIN EC PRIVATE KEY"),
        ("ecparam -name secp384r1 -genkey -noout -out tls.key", "BEGIN EC PRIVATE KEY"),
        ("genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out tls.key", "BEGIN PRIVATE KEY"),
        ("genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-521 -out tls.key", "BEGIN PRIVATE KEY"),
        ("genrsa -traditional -out tls.key 2048", "BEGIN RSA PRIVATE KEY"),
        ("genrsa -out tls.key 2048", "BEGIN PRIVATE KEY"),
        ("genpkey -algorithm ED25519 -out tls.key", "BEGIN PRIVATE KEY"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let openssl = |arguments: &str| openssl(folder.path(), arguments);
        let alternatives: Vec<_> = names().dns_names().map(|name| format!("DNS:{name}")).collect();
        let alternatives = alternatives.join(",") + ",IP:127.0.0.1";
        openssl(make_key);
        openssl("ecparam -name prime256v1 -genkey -noout -out ca.key");
        openssl("req -x509 -new -key ca.key -subj /CN=mine -days 90 -out ca.crt");
        openssl(&format!(
            "req -x509 -new -key tls.key -CA ca.crt -CAkey ca.key -subj /CN=webhook -days 30 -out tls.crt \
             -addext subjectAltName={alternatives} -addext basicConstraints=critical,CA:FALSE"
        ));
        assert!(fs::read_to_string(folder.path().join("tls.key")).unwrap().contains(label), "{make_key}");

        let offer = ask(&mut Files::in_directory(folder.path()).with_publishing()).await.unwrap();
        let Trust::AtLeast(bundle) = &offer.trust else { panic!("{offer:?}") };
        offer.certificate.unwrap().verify_for(&names(), bundle, SystemTime::now()).unwrap();
    }
}

#[tokio::test]
async fn self_signed_certificates_are_supported() {
    if !is_installed() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let name = "lucid-operator.lucid-system.svc";
    let request = "req -x509 -newkey rsa:2048 -nodes -keyout tls.key -out tls.crt -days 30";
    openssl(folder.path(), &format!("{request} -subj /CN={name} -addext subjectAltName=DNS:{name}"));
    fs::copy(folder.path().join("tls.crt"), folder.path().join("ca.crt")).unwrap();
    ask(&mut Files::in_directory(folder.path())).await.unwrap();
}
