//! Untrusted input never causes a panic.

use std::{sync::LazyLock, time::SystemTime};

use crate::common::{
    names, now,
    pairs::{ALGORITHMS, Pair},
};
use lucid_certs::{CertificateAuthority, ClientCertificates, ServingCertificate, TrustBundle};
use proptest::{collection::vec, prelude::*, sample::Index};

/// A CA and an issued certificate in PEM form, for each key algorithm.
static VALID: LazyLock<[[String; 4]; 3]> = LazyLock::new(|| {
    ALGORITHMS.map(|algorithm| {
        let pair = Pair::with(algorithm, &["lucid-operator"]);
        [pair.ca, pair.ca_key, pair.certificate, pair.key]
    })
});

#[derive(Debug, Clone)]
enum Change {
    Set(Index, u8),
    Remove(Index),
    Insert(Index, u8),
    Cut(Index),
    Double(Index),
}

impl Change {
    fn any() -> impl Strategy<Value = Self> {
        prop_oneof![
            6 => (any::<Index>(), any::<u8>()).prop_map(|(at, byte)| Self::Set(at, byte)),
            1 => any::<Index>().prop_map(Self::Remove),
            1 => (any::<Index>(), any::<u8>()).prop_map(|(at, byte)| Self::Insert(at, byte)),
            1 => any::<Index>().prop_map(Self::Cut),
            1 => any::<Index>().prop_map(Self::Double),
        ]
    }

    fn apply(&self, bytes: &mut Vec<u8>) {
        let length = bytes.len();
        if length == 0 {
            return;
        }
        match self {
            Self::Set(at, byte) => bytes[at.index(length)] = *byte,
            Self::Remove(at) => drop(bytes.remove(at.index(length))),
            Self::Insert(at, byte) => bytes.insert(at.index(length), *byte),
            Self::Cut(at) => bytes.truncate(at.index(length)),
            Self::Double(at) => bytes.extend_from_within(at.index(length)..),
        }
    }
}

fn changed(pem: &str, in_der: bool, changes: &[Change]) -> Vec<u8> {
    let mut bytes = pem.as_bytes().to_vec();
    if !in_der {
        changes.iter().for_each(|change| change.apply(&mut bytes));
        return bytes;
    }
    use base64::{Engine, prelude::BASE64_STANDARD};
    let lines: Vec<_> = pem.lines().collect();
    let (first, last) = (lines[0], lines[lines.len() - 1]);
    let mut der = BASE64_STANDARD.decode(lines[1..lines.len() - 1].concat()).unwrap();
    changes.iter().for_each(|change| change.apply(&mut der));
    format!("{first}\n{}\n{last}\n", BASE64_STANDARD.encode(der)).into_bytes()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn mutated_certificates_and_keys_are_parsed_or_rejected(
        kind in 0..3usize,
        which in 0..4usize,
        in_der: bool,
        changes in vec(Change::any(), 1..4),
    ) {
        let mut texts = VALID[kind].clone().map(String::into_bytes);
        texts[which] = changed(&VALID[kind][which], in_der, &changes);
        read(&texts, now());
    }

    #[test]
    fn arbitrary_bytes_are_parsed_or_rejected(text: Vec<u8>) {
        read(&[text.clone(), text.clone(), text.clone(), text], now());
    }
}

/// Passes the input to every parser.
fn read([ca, ca_key, leaf, leaf_key]: &[Vec<u8>; 4], now: SystemTime) {
    let bundle = TrustBundle::from_pem(ca);
    drop(ClientCertificates::required(ca));
    drop(CertificateAuthority::from_pem(leaf, leaf_key, now));
    let mut leafs = vec![ServingCertificate::from_pem(leaf, leaf_key)];
    match CertificateAuthority::from_pem(ca, ca_key, now) {
        Ok(ca) => {
            drop(ca.issue(&names(), now).map(|leaf| leaf.verify_for(&names(), &ca.trust_bundle(), now)));
        }
        Err(error) => drop(error.to_string()),
    }
    leafs.push(ServingCertificate::from_pem(ca, ca_key));
    let bundles = [bundle, TrustBundle::from_pem(leaf)];
    for leaf in leafs.iter().flatten() {
        drop((leaf.renew_at(), leaf.validity().to_string()));
        for bundle in bundles.iter().flatten() {
            drop(leaf.verify_for(&names(), bundle, now));
        }
    }
}
