//! Calls over real TLS.

use std::future::pending;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use lucid_webhook::{AdmissionRequest, AdmissionResponse, Router, Server, Webhook, WebhookKind};
use lucid_webhook_test::{ApiServer, Review};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::register::Register;

const NAME: &str = "team.example.com";
const SERVICE: &str = "webhook.system.svc";

struct Ca(CertifiedIssuer<'static, KeyPair>);

impl Ca {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn pem(&self) -> Vec<u8> {
        self.0.pem().into_bytes()
    }

    /// Issues a certificate with the service as its common name.
    fn issue(&self, names: &[&str], usage: ExtendedKeyUsagePurpose) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name.push(rcgen::DnType::CommonName, SERVICE);
        params.extended_key_usages = vec![usage];
        (params.signed_by(&key, &self.0).unwrap().pem(), key.serialize_pem())
    }

    fn tls(&self, names: &[&str]) -> Arc<rustls::ServerConfig> {
        tls(&self.issue(names, ExtendedKeyUsagePurpose::ServerAuth), None)
    }
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

/// TLS configuration of a server, which requires client certificates if there is a CA `clients`.
fn tls((certificate, key): &(String, String), clients: Option<&Ca>) -> Arc<rustls::ServerConfig> {
    let builder =
        rustls::ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
    let builder = match clients {
        None => builder.unwrap().with_no_client_auth(),
        Some(ca) => {
            let mut roots = rustls::RootCertStore::empty();
            roots.add(CertificateDer::from_pem_slice(&ca.pem()).unwrap()).unwrap();
            let verifier =
                rustls::server::WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider());
            builder.unwrap().with_client_cert_verifier(verifier.build().unwrap())
        }
    };
    let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
    Arc::new(builder.with_single_cert(chain, key).unwrap())
}

async fn serve(tls: Arc<rustls::ServerConfig>) -> (SocketAddr, Arc<AtomicUsize>) {
    let allow =
        async |request: AdmissionRequest| AdmissionResponse::allow().with_warning(request.user_info.username);
    let router = Router::new()
        .webhook("/allow", Webhook::validating("a.example.com", allow))
        .webhook("/hang", Webhook::validating("a.example.com", pending::<AdmissionResponse>));
    let server = Server::bind(([127, 0, 0, 1], 0).into()).await.unwrap();
    let behind = server.local_addr();
    tokio::spawn(server.serve(tls, router, pending()));
    count(behind).await
}

async fn count(behind: SocketAddr) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let connections = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&connections);
    tokio::spawn(async move {
        while let Ok((mut front, _)) = listener.accept().await {
            counter.fetch_add(1, Ordering::SeqCst);
            tokio::spawn(async move {
                let mut back = TcpStream::connect(behind).await.unwrap();
                tokio::io::copy_bidirectional(&mut front, &mut back).await.ok();
            });
        }
    });
    (address, connections)
}

fn review() -> Review {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "shop"}});
    Review::create(&pod).user("jane", ["dev"])
}

fn api_server(address: SocketAddr, ca: &Ca) -> ApiServer {
    ApiServer::for_service("webhook", "system", address, &ca.pem()).unwrap()
}

fn webhook(address: SocketAddr, ca: &Ca, path: &'static str) -> ApiServer {
    api_server(address, ca).validating(NAME, path)
}

fn impatient(address: SocketAddr, ca: &Ca, path: &'static str, seconds: i32) -> ApiServer {
    api_server(address, ca).register(WebhookKind::Validating, [NAME, path], |registration| {
        registration.with_timeout_seconds(seconds)
    })
}

async fn failure(webhook: ApiServer) -> String {
    webhook.review(&review()).await.expect_rejected().message
}

#[tokio::test]
async fn connections_are_kept_and_each_webhook_has_its_own() {
    let ca = Ca::new();
    let (address, connections) = serve(ca.tls(&[SERVICE])).await;
    let api_server = api_server(address, &ca);
    let first = api_server.validating(NAME, "/allow");
    for _ in 0..20 {
        assert_eq!(first.review(&review()).await.warnings, ["jane"]);
    }
    assert_eq!(connections.load(Ordering::SeqCst), 1);
    drop(first.clone().review(&review()).await.expect_admitted());
    assert_eq!(connections.load(Ordering::SeqCst), 1, "a clone shares the connections");
    drop(api_server.validating("other.example.com", "/allow").review(&review()).await.expect_admitted());
    assert_eq!(connections.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_url_is_called_with_its_host_as_server_name() {
    let ca = Ca::new();
    let (address, _) = serve(ca.tls(&["localhost"])).await;
    let url = format!("https://localhost:{}", address.port());
    let api_server = ApiServer::for_url(&url, &ca.pem()).unwrap();
    drop(api_server.validating(NAME, "/allow").review(&review()).await.expect_admitted());
    let url = format!("https://127.0.0.1:{}/", address.port());
    let by_address = ApiServer::for_url(&url, &ca.pem()).unwrap();
    assert!(failure(by_address.validating(NAME, "/allow")).await.contains("certificate"));
    let renamed = by_address.with_server_name("localhost").unwrap();
    drop(renamed.validating(NAME, "/allow").review(&review()).await.expect_admitted());
    for url in
        ["http://localhost", "https://localhost/path", "https://localhost?q", "localhost", "https://u@h"]
    {
        assert!(ApiServer::for_url(url, &ca.pem()).is_err(), "{url}");
    }
}

#[tokio::test]
async fn only_the_ca_bundle_and_subject_alt_names_are_trusted() {
    let ca = Ca::new();
    for (names, trusted) in [(&[SERVICE][..], &Ca::new()), (&["other.svc"], &ca), (&[], &ca)] {
        let (address, _) = serve(ca.tls(names)).await;
        let message = failure(webhook(address, trusted, "/allow")).await;
        assert!(message.contains("certificate"), "{names:?}: {message}");
    }
    let (address, _) = serve(ca.tls(&[SERVICE])).await;
    for bundle in ["", "no certificate"] {
        assert!(ApiServer::for_service("a", "b", address, bundle.as_bytes()).is_err());
    }
    let both = [Ca::new().pem(), ca.pem()].concat();
    let api_server = ApiServer::for_service("webhook", "system", address, &both).unwrap();
    drop(api_server.validating(NAME, "/allow").review(&review()).await.expect_admitted());
}

#[tokio::test]
async fn a_configured_client_certificate_is_presented() {
    let (ca, clients) = (Ca::new(), Ca::new());
    let server = tls(&ca.issue(&[SERVICE], ExtendedKeyUsagePurpose::ServerAuth), Some(&clients));
    let (address, _) = serve(server).await;
    let message = failure(webhook(address, &ca, "/allow")).await;
    assert!(message.contains("Post \"https://webhook.system.svc:443/allow"), "{message}");
    let (chain, key) = clients.issue(&["apiserver"], ExtendedKeyUsagePurpose::ClientAuth);
    let api_server =
        api_server(address, &ca).with_client_certificate(chain.as_bytes(), key.as_bytes()).unwrap();
    drop(api_server.validating(NAME, "/allow").review(&review()).await.expect_admitted());
}

#[tokio::test]
async fn the_deadline_includes_connecting() {
    let ca = Ca::new();
    // Accepts and never responds.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let started = Instant::now();
    let message = failure(impatient(listener.local_addr().unwrap(), &ca, "/", 1)).await;
    assert!(message.ends_with("?timeout=1s\": context deadline exceeded"), "{message}");
    assert!((1000..1800).contains(&started.elapsed().as_millis()));
    let (address, _) = serve(ca.tls(&[SERVICE])).await;
    let rejection = impatient(address, &ca, "/hang", 1).review(&review()).await.expect_rejected();
    assert_eq!(rejection.code, 504, "the server answers in time: {rejection}");
}

/// A TLS server that reads a request, sends `answer` and closes. Also returns the number of requests.
async fn raw(ca: &Ca, answer: &'static str, keep: bool) -> (SocketAddr, Arc<AtomicUsize>) {
    let acceptor = TlsAcceptor::from(ca.tls(&[SERVICE]));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&asked);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, counter) = (acceptor.clone(), Arc::clone(&counter));
            tokio::spawn(async move {
                let Ok(mut stream) = acceptor.accept(stream).await else { return };
                let mut buffer = vec![0; 64 * 1024];
                while stream.read(&mut buffer).await.is_ok_and(|read| read > 0) {
                    let times = counter.fetch_add(1, Ordering::SeqCst);
                    stream.write_all(answer.as_bytes()).await.ok();
                    stream.flush().await.ok();
                    if !keep || times > 0 {
                        return;
                    }
                }
            });
        }
    });
    (address, asked)
}

#[tokio::test]
async fn a_post_that_was_sent_is_not_sent_again() {
    let ca = Ca::new();
    let (address, asked) = raw(&ca, "", false).await;
    let outcome = webhook(address, &ca, "/").review(&review()).await;
    assert_eq!((outcome.calls[0].attempts, asked.load(Ordering::SeqCst)), (1, 1));
    assert!(outcome.expect_rejected().message.contains("failed to call webhook: Post "));
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let ca = Ca::new();
    let answer = "HTTP/1.1 307 Temporary Redirect\r\nlocation: /other\r\ncontent-length: 0\r\n\r\n";
    let (address, asked) = raw(&ca, answer, true).await;
    assert!(failure(webhook(address, &ca, "/")).await.contains("status code 307"));
    assert_eq!(asked.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn retry_after_reuses_the_connection() {
    let ca = Ca::new();
    let answer = "HTTP/1.1 429 Too Many Requests\r\nretry-after: 1\r\ncontent-length: 4\r\n\r\nbusy";
    let (address, asked) = raw(&ca, answer, true).await;
    let (address, connections) = count(address).await;
    let started = Instant::now();
    let outcome = impatient(address, &ca, "/", 2).review(&review()).await;
    assert_eq!((outcome.calls[0].attempts, asked.load(Ordering::SeqCst)), (2, 2));
    assert_eq!(connections.load(Ordering::SeqCst), 1);
    assert!(started.elapsed() >= Duration::from_secs(2));
    assert!(outcome.expect_rejected().message.ends_with("context deadline exceeded"));
}

#[tokio::test]
async fn requests_name_the_service_as_host_over_http_1() {
    let ca = Ca::new();
    let mut config = (*ca.tls(&[SERVICE])).clone();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let calling = webhook(listener.local_addr().unwrap(), &ca, "/v");
    let call = tokio::spawn(async move { calling.review(&review()).await });
    let mut stream = acceptor.accept(listener.accept().await.unwrap().0).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(b"http/1.1".as_slice()));
    assert_eq!(stream.get_ref().1.server_name(), Some(SERVICE));
    let mut text = Vec::new();
    while !text.windows(4).any(|part| part == b"\r\n\r\n") {
        assert!(stream.read_buf(&mut text).await.unwrap() > 0);
    }
    let text = String::from_utf8(text).unwrap();
    let (head, _) = text.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("POST /v?timeout=10s HTTP/1.1\r\n"), "{head}");
    assert!(head.contains("\r\nhost: webhook.system.svc:443"), "{head}");
    drop(stream);
    assert!(!call.await.unwrap().is_admitted());
}
