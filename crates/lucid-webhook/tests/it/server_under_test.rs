//! A real server with a real certificate, and its clients.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use lucid_webhook::{Router, Server};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

pub(crate) struct TestServer {
    pub(crate) address: SocketAddr,
    pub(crate) certificate: CertificateDer<'static>,
    shutdown: Option<oneshot::Sender<()>>,
    serving: JoinHandle<()>,
}

impl TestServer {
    pub(crate) async fn start(router: Router) -> Self {
        let key = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let certificate = key.cert.der().clone();
        let tls = rustls::ServerConfig::builder_with_provider(Arc::new(
            rustls::crypto::aws_lc_rs::default_provider(),
        ))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.clone()],
            PrivateKeyDer::try_from(key.signing_key.serialize_der()).unwrap(),
        )
        .unwrap();
        let server = Server::bind(([127, 0, 0, 1], 0).into()).await.unwrap();
        let server = server.with_lame_duck(Duration::from_millis(500)).with_drain(Duration::from_secs(5));
        let address = server.local_addr();
        let (shutdown, signal) = oneshot::channel();
        let serving = tokio::spawn(server.serve(Arc::new(tls), router, async {
            signal.await.ok();
        }));
        Self { address, certificate, shutdown: Some(shutdown), serving }
    }

    pub(crate) fn client(&self) -> reqwest::Client {
        let root = reqwest::Certificate::from_der(&self.certificate).unwrap();
        reqwest::Client::builder()
            .tls_certs_only([root])
            .resolve("localhost", self.address)
            .no_proxy()
            .timeout(Duration::from_secs(30))
            .build()
            .unwrap()
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("https://localhost:{}{path}", self.address.port())
    }

    /// Starts the shutdown; see [`Self::ended`].
    pub(crate) fn begin_shutdown(&mut self) {
        self.shutdown.take().unwrap().send(()).unwrap();
    }

    pub(crate) async fn ended(self) {
        tokio::time::timeout(Duration::from_secs(10), self.serving).await.expect("the server hangs").unwrap();
    }
}
