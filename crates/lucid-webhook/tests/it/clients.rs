//! Client certificates.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use lucid_certs::{ClientCertificates, ServerTls};
use rcgen::ExtendedKeyUsagePurpose;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, HandshakeKind};
use tower::service_fn;

use crate::server_under_test::{TestServer, echo};
use crate::wire::{Authority, Http1, Identity};

struct Setup {
    server: TestServer,
    client_ca: Authority,
    clients: ClientCertificates,
}

impl Setup {
    async fn start(clients: impl FnOnce(&[u8]) -> ClientCertificates) -> Self {
        let (server_ca, client_ca) = (Authority::new(), Authority::new());
        let clients = clients(client_ca.pem.as_bytes());
        let config = ServerTls::new(server_ca.localhost()).with_clients(&clients).build().unwrap();
        let server = TestServer::with_tls(server_ca, Some(config.into()), service_fn(echo), |it| it).await;
        Self { server, client_ca, clients }
    }

    fn config(
        &self,
        version: &'static rustls::SupportedProtocolVersion,
        identity: Option<&Identity>,
    ) -> Arc<ClientConfig> {
        Arc::new(self.server.authority.client_config_of("http/1.1", &[version], identity))
    }

    /// The caller as seen by the service, or `None` if it is rejected, with both TLS 1.2 and 1.3.
    async fn seen(&self, identity: Option<&Identity>) -> Option<String> {
        let mut seen = Vec::new();
        for version in [&TLS12, &TLS13] {
            seen.push(call(self.server.address, self.config(version, identity)).await.map(|(seen, _)| seen));
        }
        assert_eq!(seen[0], seen[1]);
        seen.remove(0)
    }
}

async fn call(address: SocketAddr, config: Arc<ClientConfig>) -> Option<(String, HandshakeKind)> {
    let mut client = Http1::connect_as(address, config).await.ok()?;
    // In TLS 1.3 the rejection follows the handshake.
    let answer = client.post("/", "").await.ok()?;
    // Read pending session tickets.
    client.ends_within(Duration::from_millis(10)).await;
    let kind = client.stream.get_ref().1.handshake_kind().unwrap();
    Some((String::from_utf8(answer.body).unwrap(), kind))
}

#[tokio::test]
async fn required_certificates_are_verified_and_passed_to_the_service() {
    let setup = Setup::start(|bundle| ClientCertificates::required(bundle).unwrap()).await;
    let known = setup.client_ca.client("kube-apiserver", &["api.example", "b.example"]);
    let seen = format!("POST / {:x?} ", &*known.chain[0]);
    assert_eq!(setup.seen(Some(&known)).await, Some(seen));
    let stranger = Authority::new().client("kube-apiserver", &[]);
    let server = setup.client_ca.issue(ExtendedKeyUsagePurpose::ServerAuth, "kube-apiserver", &[]);
    for identity in [None, Some(&stranger), Some(&server)] {
        assert_eq!(setup.seen(identity).await, None);
    }
}

#[tokio::test]
async fn optional_certificates_may_be_missing_but_not_invalid() {
    let setup = Setup::start(|bundle| ClientCertificates::optional(bundle).unwrap()).await;
    let known = setup.client_ca.client("kube-apiserver", &[]);
    assert!(setup.seen(Some(&known)).await.is_some_and(|seen| seen != "POST / "));
    assert_eq!(setup.seen(None).await.as_deref(), Some("POST / "));
    assert_eq!(setup.seen(Some(&Authority::new().client("kube-apiserver", &[]))).await, None);
}

#[tokio::test]
async fn allowed_names_are_common_names_and_dns_names() {
    let setup = Setup::start(|bundle| {
        ClientCertificates::required(bundle).unwrap().with_allowed_names(["front-proxy", "api.example"])
    })
    .await;
    for (common_name, dns_names, allowed) in [
        ("front-proxy", &[][..], true),
        ("else", &["x.example", "api.example"], true),
        ("else", &[], false),
        ("Front-Proxy", &[], false),
        ("front-proxy-client", &["www.api.example", "*.example"], false),
        ("", &[], false),
    ] {
        let identity = setup.client_ca.client(common_name, dns_names);
        assert_eq!(setup.seen(Some(&identity)).await.is_some(), allowed, "{common_name} {dns_names:?}");
    }
}

#[tokio::test]
async fn replacing_the_ca_rejects_its_clients_and_their_sessions() {
    let setup = Setup::start(|bundle| ClientCertificates::required(bundle).unwrap()).await;
    let next_ca = Authority::new();
    let (old, new) = (setup.client_ca.client("old", &[]), next_ca.client("new", &[]));
    // One configuration per version, as it holds the sessions.
    let before = [&TLS12, &TLS13].map(|version| setup.config(version, Some(&old)));
    for config in &before {
        for _ in 0..3 {
            let (_, kind) = call(setup.server.address, Arc::clone(config)).await.unwrap();
            assert!(!matches!(kind, HandshakeKind::Resumed), "a resumed session shows no certificate");
        }
    }
    assert_eq!(setup.seen(Some(&new)).await, None);

    let both = format!("{}{}", setup.client_ca.pem, next_ca.pem);
    setup.clients.replace(both.as_bytes()).unwrap();
    assert!(setup.seen(Some(&new)).await.is_some() && setup.seen(Some(&old)).await.is_some());

    setup.clients.replace(next_ca.pem.as_bytes()).unwrap();
    for config in &before {
        assert!(call(setup.server.address, Arc::clone(config)).await.is_none());
    }
    assert!(setup.seen(Some(&new)).await.is_some());
    assert_eq!(setup.seen(Some(&old)).await, None);
}

#[tokio::test]
async fn an_invalid_bundle_is_an_error_and_changes_nothing() {
    let setup = Setup::start(|bundle| ClientCertificates::required(bundle).unwrap()).await;
    let known = setup.client_ca.client("known", &[]);
    let pem = |body: &str| format!("-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n");
    let cases = [
        (String::new(), "failed to find a certificate"),
        ("not PEM at all".to_owned(), "failed to find a certificate"),
        (rcgen::KeyPair::generate().unwrap().serialize_pem(), "failed to find a certificate"),
        (pem("!!!"), "failed to read PEM"),
        (setup.client_ca.pem.replace("-----END", "-----"), "failed to read PEM"),
        (pem("AAAA"), "failed to read certificate 1 of"),
        (format!("{}{}", Authority::new().pem, pem("AAAA")), "failed to read certificate 2 of"),
    ];
    for (bundle, says) in cases {
        let error = setup.clients.replace(bundle.as_bytes()).unwrap_err();
        let causes = std::iter::successors(Some(&error as &dyn std::error::Error), |error| error.source());
        let message: Vec<_> = causes.map(ToString::to_string).collect();
        assert!(message.join(": ").contains(says), "{message:?}");
        assert!(ClientCertificates::optional(bundle.as_bytes()).is_err());
    }
    assert!(setup.seen(Some(&known)).await.is_some());
}

#[tokio::test]
async fn replacing_the_ca_closes_connections_after_requests_in_flight() {
    let clients = ClientCertificates::optional(Authority::new().pem.as_bytes()).unwrap();
    let authority = Authority::new();
    let tls = ServerTls::new(authority.localhost()).with_clients(&clients).watch().unwrap();
    let server = TestServer::with_tls(authority, Some(tls.into()), service_fn(echo), |it| it).await;
    let (mut idle, mut busy, mut http2) = (server.http1().await, server.http1().await, server.http2().await);
    assert!(!idle.post("/", "").await.unwrap().closes());
    assert_eq!(http2.post("/", "").await.unwrap().0, 200);
    busy.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\na").await.unwrap();
    let in_flight = tokio::spawn({
        let mut http2 = http2.clone();
        async move { http2.post("/millis/700", "").await }
    });
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(clients.replace(b"nothing").is_err());
    assert!(!idle.post("/", "").await.unwrap().closes(), "nothing has changed");
    clients.replace(Authority::new().pem.as_bytes()).unwrap();
    assert!(idle.post("/", "").await.unwrap().closes());
    busy.send("b").await.unwrap();
    assert!(busy.answer().await.unwrap().closes());
    assert_eq!(in_flight.await.unwrap().unwrap().0, 200);
    assert!(http2.ends_within(Duration::from_secs(1)).await);
    let (mut http1, mut http2) = (server.http1().await, server.http2().await);
    for _ in 0..2 {
        assert!(!http1.post("/", "").await.unwrap().closes());
        assert_eq!(http2.post("/", "").await.unwrap().0, 200);
    }
}
