//! Any bytes as certificates and keys: read and used, or refused with an error that can be shown; never a panic, and
//! never a bundle that does not read back as itself.

#![no_main]

use std::sync::LazyLock;
use std::time::{Duration, SystemTime};

use base64::{Engine, prelude::BASE64_STANDARD};
use libfuzzer_sys::fuzz_target;
use lucid_certs::{
    CertificateAuthority, ClientCertificates, ServerTls, ServingCertificate, ServingCertificateResolver,
    ServingNames, TrustBundle,
};

static NAMES: LazyLock<ServingNames> =
    LazyLock::new(|| ServingNames::for_services("fuzz", &["server"]).expect("names"));

/// Within the validity of the seeds
const NOW: Duration = Duration::from_secs(1_900_000_000);

fuzz_target!(|data: &[u8]| {
    if data.starts_with(b"-----") {
        read(data);
    } else if let Some((length, rest)) = data.split_first_chunk() {
        // The DER of a certificate, preceded by its length in two bytes, and that of a key.
        let (certificate, key) = rest.split_at(usize::from(u16::from_be_bytes(*length)).min(rest.len()));
        let pem = |label: &str, der: &[u8]| {
            format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", BASE64_STANDARD.encode(der))
        };
        for label in ["PRIVATE KEY", "EC PRIVATE KEY", "RSA PRIVATE KEY"] {
            read((pem("CERTIFICATE", certificate) + &pem(label, key)).as_bytes());
        }
    }
});

fn read(pem: &[u8]) {
    let now = SystemTime::UNIX_EPOCH + NOW;
    let bundle = TrustBundle::from_pem(pem);
    match &bundle {
        Ok(bundle) => {
            assert_eq!(&TrustBundle::from_pem(bundle.to_pem().as_bytes()).expect("it was written"), bundle);
            bundle.validities().for_each(|(_, validity)| drop(validity.to_string()));
        }
        Err(error) => drop(error.to_string()),
    }
    drop(ClientCertificates::required(pem));
    let mut leafs = Vec::new();
    match ServingCertificate::from_pem(pem, pem) {
        Ok(leaf) => leafs.push(leaf),
        Err(error) => drop(error.to_string()),
    }
    match CertificateAuthority::from_pem(pem, pem, now) {
        Ok(ca) => leafs.extend(ca.issue(&NAMES, now)),
        Err(error) => drop(error.to_string()),
    }
    for leaf in &leafs {
        drop((leaf.renew_at(), format!("{leaf:?}")));
        if let Ok(bundle) = &bundle {
            drop(leaf.verify_for(&NAMES, bundle, now).map_err(|error| error.to_string()));
        }
        let resolver = std::sync::Arc::new(ServingCertificateResolver::default());
        resolver.swap(leaf);
        drop(ServerTls::new(resolver).build());
    }
}
