//! The set a trust bundle is

mod common;

use common::{DAY, chain, names, now};
use lucid_certs::{CertificateAuthority, TrustBundle};

#[test]
fn merging_keeps_order_and_drops_duplicates() {
    let now = now();
    let [a, b, c] = [0; 3].map(|_| CertificateAuthority::generate(&names(), now).unwrap().trust_bundle());
    let order = |bundle: &TrustBundle| bundle.fingerprints().collect::<Vec<_>>();
    let of = |bundles: &[&TrustBundle]| bundles.iter().flat_map(|bundle| order(bundle)).collect::<Vec<_>>();

    let ba = b.merge(&a);
    assert_eq!(order(&ba), of(&[&b, &a]));
    assert_eq!(order(&ba.merge(&b).merge(&a)), of(&[&b, &a]));
    assert_eq!(order(&c.merge(&ba)), of(&[&c, &b, &a]));
    assert_ne!(ba, a.merge(&b));
}

#[test]
fn pem_goes_there_and_back() {
    let now = now();
    let [a, b] = [0; 2].map(|_| CertificateAuthority::generate(&names(), now).unwrap().trust_bundle());
    let both = a.merge(&b);
    assert_eq!(both.to_pem(), a.to_pem() + &b.to_pem());
    assert_eq!(TrustBundle::from_pem(both.to_pem().as_bytes()).unwrap(), both);
    assert_eq!(TrustBundle::from_pem((both.to_pem() + &a.to_pem()).as_bytes()).unwrap(), both);
    let commented = format!("# ours\r\n{}", both.to_pem().replace('\n', "\r\n"));
    assert_eq!(TrustBundle::from_pem(commented.as_bytes()).unwrap(), both);
}

#[test]
fn what_is_empty_or_does_not_parse_is_no_bundle() {
    let ca = CertificateAuthority::generate(&names(), now()).unwrap();
    let garbage = "-----BEGIN CERTIFICATE-----\nAAECAwQ=\n-----END CERTIFICATE-----\n";
    let cases = [
        (String::new(), "failed to find a certificate"),
        ("\n".to_owned(), "failed to find a certificate"),
        (ca.private_key_pem(), "failed to find a certificate"),
        (ca.certificate_pem() + garbage, "failed to read certificate 2 of the trust bundle"),
    ];
    for (pem, expected) in cases {
        let error = TrustBundle::from_pem(pem.as_bytes()).unwrap_err();
        assert!(chain(&error).contains(expected), "{error:?}");
    }
}

#[test]
fn expired_certificates_are_taken_out_but_never_the_last() {
    let now = now();
    let old = CertificateAuthority::generate(&names(), now - 300 * DAY).unwrap().trust_bundle();
    let new = CertificateAuthority::generate(&names(), now).unwrap().trust_bundle();
    let both = new.merge(&old);

    assert_eq!(both.without_expired(now).unwrap(), both);
    assert_eq!(both.without_expired(now + 100 * DAY).unwrap(), new);
    assert_eq!(both.without_expired(now + 400 * DAY), None);
}

#[test]
fn an_expired_authority_in_the_bundle_is_not_trusted() {
    let now = now();
    let ca = CertificateAuthority::generate(&names(), now).unwrap();
    let leaf = ca.issue(&names(), now).unwrap();
    let error = leaf.verify_for(&names(), &ca.trust_bundle(), now + 400 * DAY).unwrap_err();
    assert!(chain(&error).contains("nothing in the trust bundle is valid at 2"), "{error:?}");
}
