//! Client certificate authentication.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

use crate::common::{
    DAY,
    handshake::{client, connect, refusal, resolver},
    names, now,
    pairs::Ca,
};
use lucid_certs::{
    CertificateAuthority, ClientCertificates, ServerTls, ServingCertificateResolver, TrustBundle,
};
use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose,
};
use rustls::{
    AlertDescription, ClientConfig, Error, HandshakeKind, ServerConfig,
    crypto::aws_lc_rs,
    pki_types::{PrivateKeyDer, UnixTime},
    sign::{CertifiedKey, SingleCertAndKey},
    time_provider::TimeProvider,
    version,
};

/// Returns `config` with a certificate of `ca` for these names.
fn identify(ca: &Ca, config: &ClientConfig, common_name: &str, dns_names: &[&str]) -> Arc<ClientConfig> {
    let dns_names: Vec<_> = dns_names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(dns_names).unwrap();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let key = KeyPair::generate().unwrap();
    let chain = vec![params.signed_by(&key, &ca.issuer).unwrap().der().clone()];
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let certified = CertifiedKey::from_der(chain, key, &aws_lc_rs::default_provider()).unwrap();
    let mut config = config.clone();
    config.client_auth_cert_resolver = Arc::new(SingleCertAndKey::from(certified));
    Arc::new(config)
}

fn server() -> (Arc<ServingCertificateResolver>, TrustBundle) {
    let ca = CertificateAuthority::generate(&names(), now()).unwrap();
    let leaf = ca.issue(&names(), now()).unwrap();
    (resolver(&leaf), ca.trust_bundle())
}

fn accepts(server: &Arc<ServerConfig>, client: &Arc<ClientConfig>) -> bool {
    connect(client, server, "lucid-operator").is_ok()
}

#[test]
fn client_certificates_are_required_or_optional() {
    let ((resolver, bundle), clients, others) = (server(), Ca::new(|_| ()), Ca::new(|_| ()));
    for (required, clients_ca) in [
        (true, ClientCertificates::required(clients.pem.as_bytes()).unwrap()),
        (false, ClientCertificates::optional(clients.pem.as_bytes()).unwrap()),
    ] {
        let server =
            Arc::new(ServerTls::new(Arc::clone(&resolver) as _).with_clients(&clients_ca).build().unwrap());
        for version in [&version::TLS12, &version::TLS13] {
            let anonymous = client(&bundle, version);
            assert_eq!(accepts(&server, &anonymous), !required);
            assert!(accepts(&server, &identify(&clients, &anonymous, "jane", &[])));
            assert!(!accepts(&server, &identify(&others, &anonymous, "jane", &[])));
        }
    }
}

#[test]
fn allowed_names_are_the_common_name_and_the_dns_names() {
    let ((resolver, bundle), ca) = (server(), Ca::new(|_| ()));
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
        let client = identify(&ca, &anonymous, common_name, dns_names);
        assert_eq!(accepts(&server, &client), allowed, "{common_name} {dns_names:?}");
    }
    let error = refusal(&identify(&ca, &anonymous, "else", &[]), &server, "lucid-operator");
    assert_eq!(error, Error::AlertReceived(AlertDescription::AccessDenied));
}

#[test]
fn a_replaced_client_ca_affects_the_next_handshake() {
    let ((resolver, bundle), old, new) = (server(), Ca::new(|_| ()), Ca::new(|_| ()));
    let clients = ClientCertificates::required(old.pem.as_bytes()).unwrap();
    let server = Arc::new(ServerTls::new(resolver).with_clients(&clients).build().unwrap());
    for version in [&version::TLS12, &version::TLS13] {
        clients.replace(old.pem.as_bytes()).unwrap();
        let anonymous = client(&bundle, version);
        let (of_old, of_new) =
            (identify(&old, &anonymous, "jane", &[]), identify(&new, &anonymous, "jane", &[]));
        for _ in 0..3 {
            let (client, _) = connect(&of_old, &server, "lucid-operator").unwrap();
            assert_ne!(client.handshake_kind(), Some(HandshakeKind::Resumed));
        }
        assert!(!accepts(&server, &of_new));

        clients.replace(b"nothing").unwrap_err();
        assert!(accepts(&server, &of_old), "an invalid bundle changes nothing");

        clients.replace(new.pem.as_bytes()).unwrap();
        assert!(!accepts(&server, &of_old) && accepts(&server, &of_new));
    }
}

#[derive(Debug)]
struct Clock(AtomicU64);

impl TimeProvider for Clock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(Duration::from_secs(self.0.load(Ordering::Relaxed))))
    }
}

#[test]
fn client_cas_count_while_they_are_valid() {
    let (start, (resolver, bundle)) = (now(), server());
    let until = |end: SystemTime| Ca::new(|ca| ca.not_after = end.into());
    let later = Ca::new(|ca| ca.not_before = (start + 2 * DAY).into());
    let (expired, short, long) = (until(start - DAY), until(start + DAY), until(start + 9 * DAY));
    let all = [&expired, &short, &long, &later].map(|ca| ca.pem.as_str()).concat();

    for (pem, expected) in [
        // Clients of the expired, short, long and later CA: now, after one day and after two days.
        (all.as_str(), [[false, true, true, false], [false, false, true, false], [false, false, true, true]]),
        (&short.pem, [[false, true, false, false], [false; 4], [false; 4]]),
        (&expired.pem, [[false; 4]; 3]),
    ] {
        let clients = ClientCertificates::required(pem.as_bytes()).unwrap();
        let mut tls = ServerTls::new(Arc::clone(&resolver) as _).with_clients(&clients).build().unwrap();
        let clock = Arc::new(Clock(AtomicU64::new(0)));
        tls.time_provider = Arc::clone(&clock) as _;
        let tls = Arc::new(tls);
        let second = Duration::from_secs(1);
        let moments = [start + DAY, start + DAY + second, start + 2 * DAY];
        for version in [&version::TLS12, &version::TLS13] {
            let anonymous = client(&bundle, version);
            for (moment, expected) in moments.into_iter().zip(expected) {
                let since = moment.duration_since(SystemTime::UNIX_EPOCH).unwrap();
                clock.0.store(since.as_secs(), Ordering::Relaxed);
                let found = [&expired, &short, &long, &later]
                    .map(|ca| accepts(&tls, &identify(ca, &anonymous, "jane", &[])));
                assert_eq!(found, expected);
            }
        }
    }
}

#[test]
fn bundles_of_client_cas_contain_only_cas_for_clients() {
    use ExtendedKeyUsagePurpose::{Any, ClientAuth, ServerAuth};
    type Shape = fn(&mut CertificateParams);
    let good = Ca::new(|ca| ca.not_before = (now() - DAY).into());
    let cases: [(Shape, Option<&str>); 7] = [
        (|ca| ca.key_usages = vec![KeyUsagePurpose::KeyCertSign], None),
        (|ca| ca.extended_key_usages = vec![ClientAuth], None),
        (|ca| ca.extended_key_usages = vec![Any], None),
        (
            |ca| ca.extended_key_usages = vec![ServerAuth],
            Some("is not for clients by its extended key usage"),
        ),
        (|ca| ca.key_usages = vec![KeyUsagePurpose::CrlSign], Some("lacks keyCertSign in its key usage")),
        (|ca| ca.is_ca = IsCa::ExplicitNoCa, Some("is not a CA")),
        (|ca| ca.is_ca = IsCa::NoCa, Some("is not a CA")),
    ];
    for (shape, expected) in cases {
        // Older than the other CA, so it comes second in the bundle.
        let ca = Ca::new(|ca| {
            shape(ca);
            ca.not_before = (now() - 2 * DAY).into();
        });
        let taken = ClientCertificates::required((ca.pem.clone() + &good.pem).as_bytes());
        match expected {
            None => {
                let (resolver, bundle) = server();
                let tls = ServerTls::new(resolver).with_clients(&taken.unwrap()).build().unwrap();
                let jane = identify(&ca, &client(&bundle, &version::TLS13), "jane", &[]);
                assert!(accepts(&Arc::new(tls), &jane));
            }
            Some(why) => {
                let message = taken.unwrap_err().to_string();
                let ca = ca.fingerprint();
                let expected = format!("certificate 2 of the bundle of client CAs: {ca} {why}");
                assert!(message.contains(&expected), "{message}");
            }
        }
    }
}

#[test]
fn configurations_are_sent_again_when_the_client_ca_is_replaced() {
    let ((resolver, _), ca) = (server(), Ca::new(|_| ()));
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
    assert!(config.upgrade().is_none(), "a configuration without receivers is dropped");

    let alone = tls().watch().unwrap();
    assert!(alone.has_changed().is_err(), "without clients nothing is ever sent");
}
