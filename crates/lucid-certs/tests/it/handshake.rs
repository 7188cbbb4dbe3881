//! Real handshakes through the resolver

use std::sync::Arc;

use crate::common::{
    handshake::{client, connect},
    names, now,
};
use lucid_certs::{CertificateAuthority, ServingCertificateResolver, server_config};
use rustls::{ProtocolVersion, version};

#[test]
fn a_swap_is_seen_by_the_next_handshake_and_needs_the_new_authority_in_the_bundle() {
    let now = now();
    let [old, new] = [0; 2].map(|_| CertificateAuthority::generate(&names(), now).unwrap());
    let [old_leaf, new_leaf] = [&old, &new].map(|ca| ca.issue(&names(), now).unwrap());
    let resolver = Arc::new(ServingCertificateResolver::new(&old_leaf));
    let server = Arc::new(server_config(Arc::clone(&resolver)).unwrap());
    let name = "lucid-operator.lucid-system.svc";

    let trusts_old = client(&old.trust_bundle(), &version::TLS13);
    let trusts_both = client(&new.trust_bundle().merge(&old.trust_bundle()), &version::TLS13);
    let trusts_new = client(&new.trust_bundle(), &version::TLS13);
    let shown = |client| {
        let (client, _) = connect(client, &server, name).ok()?;
        Some(client.peer_certificates().unwrap()[0].clone())
    };
    let (old_leaf, seen_before) =
        (old_leaf.certificate().clone(), [&trusts_old, &trusts_both, &trusts_new].map(shown));
    assert_eq!(seen_before, [Some(old_leaf.clone()), Some(old_leaf), None]);

    resolver.swap(&new_leaf);
    let new_leaf = new_leaf.certificate().clone();
    // A client of before the swap may hold a session ticket, so each is made anew.
    let trusts_old = client(&old.trust_bundle(), &version::TLS13);
    let trusts_both = client(&new.trust_bundle().merge(&old.trust_bundle()), &version::TLS13);
    assert_eq!(
        [&trusts_old, &trusts_both, &trusts_new].map(shown),
        [None, Some(new_leaf.clone()), Some(new_leaf)]
    );
}

#[test]
fn tls_1_2_and_1_3_are_served_under_each_name_with_alpn() {
    let now = now();
    let ca = CertificateAuthority::generate(&names(), now).unwrap();
    let resolver = Arc::new(ServingCertificateResolver::new(&ca.issue(&names(), now).unwrap()));
    let server = Arc::new(server_config(resolver).unwrap());
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
