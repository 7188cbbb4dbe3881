//! Trust anchors are accepted as by Go, whose rules API servers follow.

use lucid_certs::{Error, ServingCertificate, TrustBundle};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose,
};

use crate::common::{DAY, chain, names, now, pairs::Ca};

type Shape = fn(&mut CertificateParams);

/// Creates a CA signed by `issuer`, or self-signed.
fn ca(name: &str, issuer: Option<&Ca>, shape: Shape) -> Ca {
    Ca::with(KeyPair::generate().unwrap(), issuer, |ca| {
        ca.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        ca.distinguished_name.push(DnType::CommonName, name);
        shape(ca);
    })
}

fn leaf(path: &[&Ca], sent: &[&Ca]) -> ServingCertificate {
    let key = KeyPair::generate().unwrap();
    let called: Vec<_> = names().dns_names().map(str::to_owned).chain(["127.0.0.1".to_owned()]).collect();
    let params = CertificateParams::new(called).unwrap();
    let certificate = params.signed_by(&key, &path.last().unwrap().issuer).unwrap();
    let chain: String = [certificate.pem()].into_iter().chain(sent.iter().map(|ca| ca.pem.clone())).collect();
    ServingCertificate::from_pem(chain.as_bytes(), key.serialize_pem().as_bytes()).unwrap()
}

fn bundle(cas: &[&Ca]) -> TrustBundle {
    TrustBundle::from_pem(cas.iter().map(|ca| ca.pem.as_str()).collect::<String>().as_bytes()).unwrap()
}

fn verify(leaf: &ServingCertificate, trusted: &[&Ca]) -> Result<(), Error> {
    leaf.verify_for(&names(), &bundle(trusted), now())
}

#[test]
fn anchors_are_valid_cas_for_servers_that_may_sign() {
    use ExtendedKeyUsagePurpose::{Any, ClientAuth, CodeSigning, ServerAuth};
    let not_for_servers = Some("is not for servers by its extended key usage");
    // (shape of the CA, expected reason)
    let cases: [(Shape, Option<&str>); 11] = [
        (|_| (), None),
        (|ca| ca.key_usages = Vec::new(), None),
        (|ca| ca.extended_key_usages = vec![ClientAuth, ServerAuth], None),
        (|ca| ca.extended_key_usages = vec![Any], None),
        (|ca| ca.extended_key_usages = vec![ClientAuth], not_for_servers),
        (|ca| ca.extended_key_usages = vec![CodeSigning], not_for_servers),
        (|ca| ca.key_usages = vec![KeyUsagePurpose::CrlSign], Some("lacks keyCertSign in its key usage")),
        (|ca| ca.is_ca = IsCa::ExplicitNoCa, Some("is not a CA")),
        (|ca| ca.is_ca = IsCa::NoCa, Some("is not a CA")),
        (|ca| ca.not_after = (now() - DAY).into(), Some("is expired")),
        (|ca| ca.not_before = (now() + DAY).into(), Some("is not valid yet")),
    ];
    for (shape, expected) in cases {
        let root = ca("root", None, shape);
        let verdict = verify(&leaf(&[&root], &[]), &[&root]).map_err(|error| chain(&error));
        match expected {
            None => verdict.unwrap(),
            Some(why) => {
                let message = verdict.unwrap_err();
                let expected = format!("in the trust bundle: {} {why}", root.fingerprint());
                assert!(message.contains(&expected), "{message}");
            }
        }
        // It is also ignored beside another CA.
        let other = ca("other", None, |_| ());
        assert_eq!(verify(&leaf(&[&root], &[]), &[&root, &other]).is_ok(), expected.is_none());
    }
}

#[test]
fn errors_name_the_first_unfit_cas() {
    let roots: Vec<_> = (0..9).map(|_| ca("root", None, |ca| ca.is_ca = IsCa::NoCa)).collect();
    let roots: Vec<_> = roots.iter().collect();
    let message = chain(&verify(&leaf(&roots, &[]), &roots).unwrap_err());
    assert_eq!(message.matches("is not a CA").count(), 3, "{message}");
    assert!(message.contains("is not a CA and 6 more"), "{message}");
}

#[test]
fn only_the_certificates_of_a_path_count_for_its_length() {
    let root = ca("root", None, |ca| ca.is_ca = IsCa::Ca(BasicConstraints::Constrained(0)));
    let below = ca("below", Some(&root), |_| ());
    let leaf_below = leaf(&[&root, &below], &[&below]);
    verify(&leaf_below, &[&root]).unwrap_err();
    verify(&leaf_below, &[&below]).unwrap();
    verify(&leaf_below, &[&root, &below]).unwrap();
    verify(&leaf(&[&root], &[&root, &below]), &[&root]).unwrap();
}

#[test]
fn the_longest_path_length_of_equal_anchors_counts() {
    let key = KeyPair::generate().unwrap();
    let root = |permitted| {
        let key = KeyPair::from_pem(&key.serialize_pem()).unwrap();
        Ca::with(key, None, |ca| ca.is_ca = IsCa::Ca(permitted))
    };
    let [short, long] = [BasicConstraints::Constrained(0), BasicConstraints::Unconstrained].map(root);
    let below = ca("below", Some(&long), |_| ());
    let leaf = leaf(&[&long, &below], &[&below]);
    verify(&leaf, &[&short]).unwrap_err();
    verify(&leaf, &[&short, &long]).unwrap();
}

#[test]
fn cas_that_may_not_issue_serving_certificates_are_rejected() {
    use ExtendedKeyUsagePurpose::{Any, ClientAuth, ServerAuth};
    let cases: [(Shape, Option<&str>); 4] = [
        (|ca| ca.extended_key_usages = vec![ServerAuth], None),
        (|ca| ca.extended_key_usages = vec![Any], None),
        (|ca| ca.extended_key_usages = vec![ClientAuth], Some("its extended key usage lacks serverAuth")),
        (|ca| ca.key_usages = vec![KeyUsagePurpose::CrlSign], Some("its key usage lacks keyCertSign")),
    ];
    for (shape, expected) in cases {
        let outcome = ca("ca", None, shape).authority();
        let Some(why) = expected else {
            let authority = outcome.unwrap();
            let leaf = authority.issue(&names(), now()).unwrap();
            leaf.verify_for(&names(), &authority.trust_bundle(), now()).unwrap();
            continue;
        };
        let message = outcome.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(
            message.starts_with("failed to use the CA certificate") && message.contains(why),
            "{why}: {message:?}"
        );
    }
}
