//! Set operations of trust bundles.

use crate::common::{DAY, chain, names, now};
use lucid_certs::{CertificateAuthority, TrustBundle};

#[test]
fn equal_sets_have_equal_bytes_newest_first() {
    let now = now();
    let [a, b, c] = [2, 1, 0]
        .map(|days| CertificateAuthority::generate(&names(), now - days * DAY).unwrap().trust_bundle());
    let cba = [&c, &b, &a].map(TrustBundle::to_pem).concat();
    for bundle in [a.merge(&b).merge(&c), c.merge(&b).merge(&a), b.merge(&c.merge(&a)).merge(&b)] {
        assert_eq!(bundle.to_pem(), cba);
    }
    let [d, e] = [0; 2].map(|_| CertificateAuthority::generate(&names(), now).unwrap().trust_bundle());
    assert_eq!(d.merge(&e).to_pem(), e.merge(&d).to_pem(), "two of the same second");
}

#[test]
fn pem_round_trips() {
    let now = now();
    let [a, b] =
        [1, 0].map(|days| CertificateAuthority::generate(&names(), now - days * DAY).unwrap().trust_bundle());
    let both = a.merge(&b);
    assert_eq!(TrustBundle::from_pem(both.to_pem().as_bytes()).unwrap(), both);
    assert_eq!(TrustBundle::from_pem((a.to_pem() + &b.to_pem() + &a.to_pem()).as_bytes()).unwrap(), both);
    let commented = format!("# ours\r\n{}", both.to_pem().replace('\n', "\r\n"));
    assert_eq!(TrustBundle::from_pem(commented.as_bytes()).unwrap(), both);
}

#[test]
fn empty_and_unparsable_bundles_are_rejected() {
    let ca = CertificateAuthority::generate(&names(), now()).unwrap();
    let garbage = "-----BEGIN CERTIFICATE-----\nAAECAwQ=\n-----END CERTIFICATE-----\n";
    let cases = [
        (String::new(), "failed to find a certificate"),
        ("\n".to_owned(), "failed to find a certificate"),
        (ca.private_key_pem().to_string(), "failed to find a certificate"),
        (ca.trust_bundle().to_pem() + garbage, "failed to read certificate 2 of the trust bundle"),
    ];
    for (pem, expected) in cases {
        let error = TrustBundle::from_pem(pem.as_bytes()).unwrap_err();
        assert!(chain(&error).contains(expected), "{error:?}");
    }
}

#[test]
fn an_expired_authority_in_the_bundle_is_not_trusted() {
    let now = now();
    let ca = CertificateAuthority::generate(&names(), now).unwrap();
    let leaf = ca.issue(&names(), now).unwrap();
    let error = leaf.verify_for(&names(), &ca.trust_bundle(), now + 400 * DAY).unwrap_err();
    assert!(
        chain(&error).contains("no usable CA in the trust bundle") && chain(&error).contains("is expired"),
        "{error:?}"
    );
}
