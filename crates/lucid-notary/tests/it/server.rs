//! An HTTP server on a free port that acts as a Verifier scripted by each test.

use std::fs;
use std::future::pending;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::CertificateDer;
use rustls::server::{WantsServerCert, WebPkiClientVerifier};
use rustls::{ConfigBuilder, RootCertStore, ServerConfig, WantsVerifier};
use tempfile::NamedTempFile;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

#[derive(Clone)]
pub(crate) enum Reply {
    Response {
        status: u16,
        header: Option<(&'static str, String)>,
        body: String,
    },
    /// Sends the bytes unchanged and closes the connection.
    Raw(&'static [u8]),
    Hang,
    Reset,
    /// Sends the response byte by byte, slower than any timeout.
    Drip,
}

impl Reply {
    pub(crate) fn ok(body: impl Into<String>) -> Self {
        Self::Response { status: 200, header: None, body: body.into() }
    }

    pub(crate) fn notarized(digest: &str, notarized: bool) -> Self {
        Self::ok(format!(r#"{{"digest":"{digest}","notarized":{notarized}}}"#))
    }
}

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    /// Path and query of each request, in order of arrival.
    pub(crate) requests: Arc<Mutex<Vec<String>>>,
    pub(crate) authorizations: Arc<Mutex<Vec<Option<String>>>>,
    pub(crate) peers: Arc<Mutex<Vec<Vec<u8>>>>,
    pub(crate) root: NamedTempFile,
    /// One handle per accepted connection, dropped when the connection closes.
    connections: Arc<Mutex<Vec<Weak<()>>>>,
    task: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    pub(crate) async fn start(script: impl Fn(&str) -> Reply + Send + Sync + 'static) -> Self {
        Self::start_with(script, None, String::new()).await
    }

    /// Starts a TLS server that requires client certificates of this authority, in PEM.
    pub(crate) async fn start_mtls(
        script: impl Fn(&str) -> Reply + Send + Sync + 'static,
        client_ca: &CertificateDer<'static>,
    ) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add(client_ca.clone()).unwrap();
        let provider = Arc::new(aws_lc_rs::default_provider());
        let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
        Self::start_tls_with(script, |config| config.with_client_cert_verifier(clients)).await
    }

    pub(crate) async fn start_tls(script: impl Fn(&str) -> Reply + Send + Sync + 'static) -> Self {
        Self::start_tls_with(script, |config| config.with_no_client_auth()).await
    }

    async fn start_tls_with(
        script: impl Fn(&str) -> Reply + Send + Sync + 'static,
        clients: impl FnOnce(
            ConfigBuilder<ServerConfig, WantsVerifier>,
        ) -> ConfigBuilder<ServerConfig, WantsServerCert>,
    ) -> Self {
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let key = signing_key.serialize_der().try_into().unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap();
        let config = clients(config).with_single_cert(vec![cert.der().clone()], key).unwrap();
        Self::start_with(script, Some(TlsAcceptor::from(Arc::new(config))), cert.pem()).await
    }

    async fn start_with(
        script: impl Fn(&str) -> Reply + Send + Sync + 'static,
        tls: Option<TlsAcceptor>,
        root: String,
    ) -> Self {
        let root_file = NamedTempFile::new().unwrap();
        fs::write(&root_file, root).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let connections = Arc::new(Mutex::new(Vec::new()));
        let authorizations = Arc::new(Mutex::new(Vec::new()));
        let peers = Arc::new(Mutex::new(Vec::new()));
        let log = Log { requests: requests.clone(), authorizations: authorizations.clone() };
        let (script, accepted, shown) = (Arc::new(script), connections.clone(), peers.clone());
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (script, log, tls, shown) = (script.clone(), log.clone(), tls.clone(), shown.clone());
                let open = Arc::new(());
                accepted.lock().unwrap().push(Arc::downgrade(&open));
                tokio::spawn(async move {
                    let _open = open;
                    match tls {
                        None if matches!(script(""), Reply::Reset) => {
                            stream.readable().await.unwrap();
                            stream.set_zero_linger().unwrap();
                        }
                        None => serve(stream, &*script, &log).await,
                        Some(tls) => {
                            let Ok(stream) = tls.accept(stream).await else { return };
                            if let Some([peer, ..]) = stream.get_ref().1.peer_certificates() {
                                shown.lock().unwrap().push(peer.to_vec());
                            }
                            serve(stream, &*script, &log).await;
                        }
                    }
                });
            }
        });
        Self { address, requests, authorizations, peers, root: root_file, connections, task }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn tls_url(&self) -> String {
        format!("https://localhost:{}", self.address.port())
    }

    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.lock().unwrap().len()
    }

    pub(crate) fn open_connections(&self) -> usize {
        self.connections.lock().unwrap().iter().filter(|open| open.strong_count() > 0).count()
    }
}

#[derive(Clone)]
struct Log {
    requests: Arc<Mutex<Vec<String>>>,
    authorizations: Arc<Mutex<Vec<Option<String>>>>,
}

async fn serve(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    script: &(impl Fn(&str) -> Reply + ?Sized),
    log: &Log,
) {
    if matches!(script(""), Reply::Drip) {
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n\r\n";
        stream.write_all(head.as_bytes()).await.unwrap();
        while stream.write_all(b" ").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        return;
    }
    // Raw replies bypass HTTP. Their script returns them for the empty path, before there is a request.
    if let Reply::Raw(bytes) = script("") {
        let mut request = [0; 4096];
        assert!(stream.read(&mut request).await.unwrap() > 0);
        stream.write_all(bytes).await.unwrap();
        return stream.shutdown().await.unwrap();
    }
    let service = service_fn(async |request: Request<Incoming>| {
        let target = request.uri().to_string();
        let authorization = request.headers().get(hyper::header::AUTHORIZATION);
        let authorization = authorization.map(|value| value.to_str().unwrap().to_owned());
        log.authorizations.lock().unwrap().push(authorization);
        log.requests.lock().unwrap().push(target.clone());
        match script(&target) {
            Reply::Response { status, header, body } => {
                let response = Response::builder().status(status);
                let response =
                    header.into_iter().fold(response, |response, (name, value)| response.header(name, value));
                response.body(Full::new(Bytes::from(body)))
            }
            Reply::Raw(_) | Reply::Hang | Reply::Reset | Reply::Drip => pending().await,
        }
    });
    let served =
        hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
    // Clients that time out close the connection, which is not an error of the server.
    if let Err(error) = served {
        assert!(!error.is_user(), "{error}");
    }
}
