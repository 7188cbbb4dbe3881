//! TLS handshakes through the resolver.

use std::sync::Arc;

use crate::common::{
    handshake::{client, client_with, connect, refusal, resolver},
    names, now,
    pairs::{ALGORITHMS, Pair},
};
use lucid_certs::{
    CertificateAuthority, ServerTls, ServingCertificate, ServingCertificateResolver, TlsVersion,
};
use rustls::{
    AlertDescription, Error, NamedGroup, ProtocolVersion,
    crypto::{
        CryptoProvider,
        aws_lc_rs::{default_provider, kx_group},
    },
    version,
};

/// Returns a CA, and a resolver with a certificate that it issued.
fn serving() -> (CertificateAuthority, Arc<ServingCertificateResolver>) {
    let ca = CertificateAuthority::generate(&names(), now()).unwrap();
    let leaf = ca.issue(&names(), now()).unwrap();
    (ca, resolver(&leaf))
}

#[test]
fn a_swap_affects_the_next_handshake() {
    let now = now();
    let [old, new] = [0; 2].map(|_| CertificateAuthority::generate(&names(), now).unwrap());
    let [old_leaf, new_leaf] = [&old, &new].map(|ca| ca.issue(&names(), now).unwrap());
    let resolver = resolver(&old_leaf);
    let server = Arc::new(ServerTls::new(Arc::clone(&resolver) as _).build().unwrap());
    let name = "lucid-operator.lucid-system.svc";

    let trusts_old = client(&old.trust_bundle(), &version::TLS13);
    let trusts_both = client(&new.trust_bundle().merge(&old.trust_bundle()), &version::TLS13);
    let trusts_new = client(&new.trust_bundle(), &version::TLS13);
    let shown = |client| {
        let (client, _) = connect(client, &server, name).ok()?;
        Some(client.peer_certificates().unwrap()[0].clone())
    };
    let [old_leaf, new_der] = [&old_leaf, &new_leaf].map(|leaf| Some(leaf.certificate().clone()));
    assert_eq!([&trusts_old, &trusts_both, &trusts_new].map(shown), [old_leaf.clone(), old_leaf, None]);

    resolver.swap(&new_leaf);
    // A new client per handshake, because an old one may hold a session ticket.
    let trusts_old = client(&old.trust_bundle(), &version::TLS13);
    let trusts_both = client(&new.trust_bundle().merge(&old.trust_bundle()), &version::TLS13);
    assert_eq!([&trusts_old, &trusts_both, &trusts_new].map(shown), [None, new_der.clone(), new_der]);
}

#[test]
fn tls_1_2_and_1_3_are_supported_for_each_name_with_alpn() {
    let (ca, resolver) = serving();
    let server = Arc::new(ServerTls::new(resolver).build().unwrap());
    assert_eq!(server.alpn_protocols, [b"h2".to_vec(), b"http/1.1".to_vec()]);

    let versions = [(&version::TLS12, ProtocolVersion::TLSv1_2), (&version::TLS13, ProtocolVersion::TLSv1_3)];
    for (version, negotiated) in versions {
        let trusting = client(&ca.trust_bundle(), version);
        for name in ["lucid-operator", "lucid-operator-webhook.lucid-system.svc", "127.0.0.1"] {
            let (client, _) = connect(&trusting, &server, name).unwrap();
            assert_eq!(client.protocol_version(), Some(negotiated));
            assert_eq!(client.alpn_protocol(), Some(&b"http/1.1"[..]));
        }
        connect(&trusting, &server, "example.com").unwrap_err();
    }
}

#[test]
fn handshakes_without_a_certificate_fail_with_an_alert() {
    let now = now();
    let ca = CertificateAuthority::generate(&names(), now).unwrap();
    let resolver = Arc::new(ServingCertificateResolver::default());
    let server = Arc::new(ServerTls::new(Arc::clone(&resolver) as _).build().unwrap());
    for version in [&version::TLS12, &version::TLS13] {
        let client = client(&ca.trust_bundle(), version);
        let error = refusal(&client, &server, "lucid-operator");
        assert_eq!(error, Error::AlertReceived(AlertDescription::AccessDenied));
    }
    resolver.swap(&ca.issue(&names(), now).unwrap());
    for version in [&version::TLS12, &version::TLS13] {
        connect(&client(&ca.trust_bundle(), version), &server, "lucid-operator").unwrap();
    }
}

#[test]
fn the_minimum_version_is_enforced() {
    let (ca, resolver) = serving();
    let [tls12, tls13] =
        [&version::TLS12, &version::TLS13].map(|version| client(&ca.trust_bundle(), version));
    // (minimum version, whether a TLS 1.2 client is accepted)
    for (min_version, served) in [(TlsVersion::Tls12, true), (TlsVersion::Tls13, false)] {
        assert_eq!(min_version.to_string().parse::<TlsVersion>().unwrap(), min_version);
        let config = ServerTls::new(Arc::clone(&resolver) as _).with_min_version(min_version).build();
        let server = Arc::new(config.unwrap());
        connect(&tls13, &server, "lucid-operator").unwrap();
        let old = connect(&tls12, &server, "lucid-operator");
        assert_eq!(old.is_ok(), served);
        if !served {
            let error = refusal(&tls12, &server, "lucid-operator");
            assert_eq!(error, Error::AlertReceived(AlertDescription::ProtocolVersion));
        }
    }
    let error = "1.1".parse::<TlsVersion>().unwrap_err().to_string();
    assert!(error.contains("\"1.1\"") && error.contains("expected 1.2 or 1.3"), "{error}");
}

#[test]
fn only_configured_protocols_are_negotiated() {
    let (ca, resolver) = serving();
    let client = client(&ca.trust_bundle(), &version::TLS13);
    let server = |protocols: &[&str]| {
        Arc::new(ServerTls::new(Arc::clone(&resolver) as _).with_alpn(protocols.to_vec()).build().unwrap())
    };
    let (connection, _) = connect(&client, &server(&["http/1.1"]), "lucid-operator").unwrap();
    assert_eq!(connection.alpn_protocol(), Some(&b"http/1.1"[..]));
    let error = refusal(&client, &server(&["h2"]), "lucid-operator");
    assert_eq!(error, Error::AlertReceived(AlertDescription::NoApplicationProtocol));
}

#[test]
fn key_exchange_follows_the_preference_of_the_client() {
    let (ca, resolver) = serving();
    let server = Arc::new(ServerTls::new(resolver).build().unwrap());
    let hybrid = kx_group::X25519MLKEM768;
    // (groups offered by the client, negotiated group), kube-apiserver first
    let cases = [
        (vec![hybrid, kx_group::X25519, kx_group::SECP256R1], NamedGroup::X25519MLKEM768),
        (vec![kx_group::SECP256R1, kx_group::X25519, hybrid], NamedGroup::secp256r1),
        (vec![kx_group::X25519], NamedGroup::X25519),
        (vec![kx_group::SECP256R1], NamedGroup::secp256r1),
    ];
    for (offered, used) in cases {
        let provider = CryptoProvider { kx_groups: offered, ..default_provider() };
        let client = client_with(provider, &ca.trust_bundle(), &version::TLS13);
        let (client, server) = connect(&client, &server, "lucid-operator").unwrap();
        assert_eq!(client.negotiated_key_exchange_group().unwrap().name(), used);
        assert_eq!(server.negotiated_key_exchange_group().unwrap().name(), used);
    }
}

#[test]
fn chains_of_every_key_algorithm_are_served() {
    for algorithm in ALGORITHMS {
        let pair = Pair::with(algorithm, &["lucid-operator"]);
        let leaf = ServingCertificate::from_pem(pair.certificate.as_bytes(), pair.key.as_bytes()).unwrap();
        let server = Arc::new(ServerTls::new(resolver(&leaf)).build().unwrap());
        for version in [&version::TLS12, &version::TLS13] {
            connect(&client(&pair.bundle(), version), &server, "lucid-operator").unwrap();
        }
    }
}
