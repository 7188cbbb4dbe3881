//! Which clients are let in

use std::sync::Arc;

use crate::common::{
    handshake::{client, connect, refusal},
    names, now,
};
use lucid_certs::{
    CertificateAuthority, ClientCertificates, ServerTls, ServingCertificateResolver, TrustBundle,
};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair,
};
use rustls::{
    AlertDescription, ClientConfig, Error, HandshakeKind, ServerConfig, crypto::aws_lc_rs,
    pki_types::PrivateKeyDer, version,
};

/// An authority of clients
struct ClientCa {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl ClientCa {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        Self { pem: params.self_signed(&key).unwrap().pem(), issuer: Issuer::new(params, key) }
    }

    /// `config` with a certificate for these names
    fn identify(&self, config: &ClientConfig, common_name: &str, dns_names: &[&str]) -> Arc<ClientConfig> {
        let mut params =
            CertificateParams::new(dns_names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
                .unwrap();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, common_name);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let certified = rustls::sign::CertifiedKey::from_der(
            vec![certificate.der().clone()],
            key,
            &aws_lc_rs::default_provider(),
        );
        let mut config = config.clone();
        config.client_auth_cert_resolver = Arc::new(rustls::sign::SingleCertAndKey::from(certified.unwrap()));
        Arc::new(config)
    }
}

/// A server's resolver and what trusts it
fn server() -> (Arc<ServingCertificateResolver>, TrustBundle) {
    let ca = CertificateAuthority::generate(&names(), now()).unwrap();
    let leaf = ca.issue(&names(), now()).unwrap();
    (Arc::new(ServingCertificateResolver::new(&leaf)), ca.trust_bundle())
}

fn lets_in(server: &Arc<ServerConfig>, client: &Arc<ClientConfig>) -> bool {
    connect(client, server, "lucid-operator").is_ok()
}

#[test]
fn a_certificate_is_required_or_may_be_missing_and_is_one_of_the_ca() {
    let ((resolver, bundle), clients, others) = (server(), ClientCa::new(), ClientCa::new());
    for (required, asked) in [
        (true, ClientCertificates::required(clients.pem.as_bytes()).unwrap()),
        (false, ClientCertificates::optional(clients.pem.as_bytes()).unwrap()),
    ] {
        let server =
            Arc::new(ServerTls::new(Arc::clone(&resolver) as _).with_clients(&asked).build().unwrap());
        for version in [&version::TLS12, &version::TLS13] {
            let anonymous = client(&bundle, version);
            assert_eq!(lets_in(&server, &anonymous), !required);
            assert!(lets_in(&server, &clients.identify(&anonymous, "jane", &[])));
            assert!(!lets_in(&server, &others.identify(&anonymous, "jane", &[])));
        }
    }
}

#[test]
fn allowed_names_are_the_common_name_and_the_dns_names() {
    let ((resolver, bundle), ca) = (server(), ClientCa::new());
    let clients = ClientCertificates::required(ca.pem.as_bytes())
        .unwrap()
        .with_allowed_names(["front-proxy", "api.example"]);
    let server = Arc::new(ServerTls::new(resolver).with_clients(&clients).build().unwrap());
    let anonymous = client(&bundle, &version::TLS13);
    for (common_name, dns_names, allowed) in [
        ("front-proxy", &[][..], true),
        ("else", &["x.example", "api.example"], true),
        ("else", &["x.example"], false),
        ("Front-Proxy", &["*.example"], false),
    ] {
        let client = ca.identify(&anonymous, common_name, dns_names);
        assert_eq!(lets_in(&server, &client), allowed, "{common_name} {dns_names:?}");
    }
    let told = refusal(&ca.identify(&anonymous, "else", &[]), &server, "lucid-operator");
    assert_eq!(told, Error::AlertReceived(AlertDescription::AccessDenied));
}

#[test]
fn a_replaced_ca_holds_for_the_next_handshake_and_sessions_are_not_resumed() {
    let ((resolver, bundle), old, new) = (server(), ClientCa::new(), ClientCa::new());
    let clients = ClientCertificates::required(old.pem.as_bytes()).unwrap();
    let server = Arc::new(ServerTls::new(resolver).with_clients(&clients).build().unwrap());
    for version in [&version::TLS12, &version::TLS13] {
        clients.replace(old.pem.as_bytes()).unwrap();
        let anonymous = client(&bundle, version);
        let (of_old, of_new) = (old.identify(&anonymous, "jane", &[]), new.identify(&anonymous, "jane", &[]));
        for _ in 0..3 {
            let (client, _) = connect(&of_old, &server, "lucid-operator").unwrap();
            assert_ne!(client.handshake_kind(), Some(HandshakeKind::Resumed));
        }
        assert!(!lets_in(&server, &of_new));

        clients.replace(b"nothing").unwrap_err();
        assert!(lets_in(&server, &of_old), "what is no bundle changes nothing");

        clients.replace(new.pem.as_bytes()).unwrap();
        assert!(!lets_in(&server, &of_old) && lets_in(&server, &of_new));
    }
}

#[test]
fn a_configuration_is_sent_again_when_the_ca_is_replaced_and_only_then() {
    let ((resolver, _), ca) = (server(), ClientCa::new());
    let clients = ClientCertificates::required(ca.pem.as_bytes()).unwrap();
    let tls = || ServerTls::new(Arc::clone(&resolver) as _);
    let [mut first, second] = [0; 2].map(|_| tls().with_clients(&clients).watch().unwrap());
    let changed = |receiver: &tokio::sync::watch::Receiver<_>| receiver.has_changed().unwrap();

    clients.replace(b"nothing").unwrap_err();
    assert!(!changed(&first) && !changed(&second));
    clients.replace(ca.pem.as_bytes()).unwrap();
    assert!(changed(&first) && changed(&second));
    first.mark_unchanged();
    assert!(!changed(&first));

    let config = Arc::downgrade(&second.borrow());
    drop(second);
    clients.replace(ca.pem.as_bytes()).unwrap();
    assert!(changed(&first));
    assert!(config.upgrade().is_none(), "what nobody receives any more is dropped");

    let alone = tls().watch().unwrap();
    assert!(alone.has_changed().is_err(), "without clients nothing is ever sent");
}
