//! Trust anchors are accepted as by Go, whose rules API servers follow.

use crate::common::{DAY, chain, names, now};
use lucid_certs::{CertificateAuthority, Error, ServingCertificate, TrustBundle};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

struct Ca {
    pem: String,
    key: String,
    issuer: Issuer<'static, KeyPair>,
}

type Shape = fn(&mut CertificateParams);

/// Creates a CA signed by `issuer`, or self-signed.
fn ca(name: &str, issuer: Option<&Ca>, shape: Shape) -> Ca {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params.distinguished_name.push(DnType::CommonName, name);
    shape(&mut params);
    let key = KeyPair::generate().unwrap();
    let certificate = match issuer {
        Some(issuer) => params.signed_by(&key, &issuer.issuer),
        None => params.self_signed(&key),
    };
    Ca { pem: certificate.unwrap().pem(), key: key.serialize_pem(), issuer: Issuer::new(params, key) }
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
    // (shape of the CA, expected reason)
    let cases: [(Shape, Option<&str>); 11] = [
        (|_| (), None),
        (|ca| ca.key_usages = Vec::new(), None),
        (|ca| ca.extended_key_usages = vec![ClientAuth, ServerAuth], None),
        (|ca| ca.extended_key_usages = vec![Any], None),
        (
            |ca| ca.extended_key_usages = vec![ClientAuth],
            Some("is not for servers by its extended key usage"),
        ),
        (
            |ca| ca.extended_key_usages = vec![CodeSigning],
            Some("is not for servers by its extended key usage"),
        ),
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
                let fingerprint = bundle(&[&root]).validities().map(|(it, _)| it).next().unwrap();
                assert!(message.contains(&format!("in the trust bundle: {fingerprint} {why}")), "{message}");
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
fn path_lengths_are_limited() {
    for (permitted, accepted) in [
        (BasicConstraints::Unconstrained, true),
        (BasicConstraints::Constrained(0), false),
        (BasicConstraints::Constrained(1), true),
    ] {
        let shape: Shape = match permitted {
            BasicConstraints::Unconstrained => |_| (),
            BasicConstraints::Constrained(0) => |ca| ca.is_ca = IsCa::Ca(BasicConstraints::Constrained(0)),
            BasicConstraints::Constrained(_) => |ca| ca.is_ca = IsCa::Ca(BasicConstraints::Constrained(1)),
        };
        let root = ca("root", None, shape);
        let below = ca("below", Some(&root), |_| ());
        let path = [&root, &below];
        assert_eq!(verify(&leaf(&path, &[&below]), &[&root]).is_ok(), accepted, "{permitted:?}");
        // Unused intermediates are not part of the path.
        verify(&leaf(&[&root], &[&root, &below]), &[&root]).unwrap();
        verify(&leaf(&path, &[&below]), &[&below]).unwrap();
        verify(&leaf(&path, &[&below]), &[&root, &below]).unwrap();
    }
}

#[test]
fn an_intermediate_may_sign_too() {
    let root = ca("root", None, |_| ());
    let below = ca("below", Some(&root), |ca| ca.key_usages = vec![KeyUsagePurpose::CrlSign]);
    verify(&leaf(&[&root, &below], &[&below]), &[&root]).unwrap_err();
}

#[test]
fn the_longest_path_length_of_equal_anchors_counts() {
    let key = KeyPair::generate().unwrap();
    let root = |permitted| {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(permitted);
        params.distinguished_name.push(DnType::CommonName, "root");
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let pem = params.self_signed(&key).unwrap().pem();
        let (serialized, again) = (key.serialize_pem(), KeyPair::from_pem(&key.serialize_pem()).unwrap());
        Ca { pem, key: serialized, issuer: Issuer::new(params, again) }
    };
    let [short, long] = [BasicConstraints::Constrained(0), BasicConstraints::Unconstrained].map(root);
    let below = ca("below", Some(&long), |_| ());
    let leaf = leaf(&[&long, &below], &[&below]);
    verify(&leaf, &[&short]).unwrap_err();
    verify(&leaf, &[&short, &long]).unwrap();
}

#[test]
fn a_ca_for_clients_cannot_issue_serving_certificates() {
    let clients = ca("clients", None, |ca| {
        ca.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    });
    let error =
        CertificateAuthority::from_pem(clients.pem.as_bytes(), clients.key.as_bytes(), now()).unwrap_err();
    assert!(error.to_string().starts_with("failed to use the CA certificate"), "{error:?}");
    assert!(error.to_string().contains("its extended key usage lacks serverAuth"), "{error}");
    for usage in [ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::Any] {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.extended_key_usages = vec![usage];
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        let authority =
            CertificateAuthority::from_pem(pem.as_bytes(), key.serialize_pem().as_bytes(), now()).unwrap();
        let leaf = authority.issue(&names(), now()).unwrap();
        leaf.verify_for(&names(), &authority.trust_bundle(), now()).unwrap();
    }
}
