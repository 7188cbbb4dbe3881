//! A real server with a real certificate, and its clients.

use std::net::SocketAddr;
use std::time::Duration;

use lucid_webhook::{Router, Server};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::wire::Authority;

pub(crate) struct TestServer {
    pub(crate) address: SocketAddr,
    authority: Authority,
    shutdown: Option<oneshot::Sender<()>>,
    serving: JoinHandle<()>,
}

impl TestServer {
    pub(crate) async fn start(router: Router) -> Self {
        let authority = Authority::new();
        let server = Server::bind(([127, 0, 0, 1], 0).into()).await.unwrap();
        let server = server.with_lame_duck(Duration::from_millis(500)).with_drain(Duration::from_secs(5));
        let address = server.local_addr();
        let (shutdown, signal) = oneshot::channel();
        let serving = tokio::spawn(server.serve(authority.server_config(), router, async {
            signal.await.ok();
        }));
        Self { address, authority, shutdown: Some(shutdown), serving }
    }

    pub(crate) fn client(&self) -> reqwest::Client {
        self.client_builder().timeout(Duration::from_secs(30)).build().unwrap()
    }

    pub(crate) fn client_builder(&self) -> reqwest::ClientBuilder {
        let root = reqwest::Certificate::from_der(&self.authority.der).unwrap();
        let client = reqwest::Client::builder().tls_certs_only([root]);
        client.resolve("localhost", self.address).no_proxy()
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("https://localhost:{}{path}", self.address.port())
    }

    pub(crate) fn begin_shutdown(&mut self) {
        self.shutdown.take().unwrap().send(()).unwrap();
    }

    pub(crate) async fn ended(self) {
        tokio::time::timeout(Duration::from_secs(10), self.serving).await.expect("the server hangs").unwrap();
    }
}
