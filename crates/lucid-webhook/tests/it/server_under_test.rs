//! A real server with a real certificate, and its clients.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Body;
use lucid_webhook::{BoxError, PeerCertificate, RequestBody, Router, Server, Tls};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tower::{Service, service_fn};

use crate::wire::{Authority, Http1, Http2};

/// Responds with the method, the path, the caller and the body. A path such as `/millis/300` takes that long.
pub(crate) async fn echo(request: Request<RequestBody>) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map_or_else(|error| error.to_string().into(), |body| body.to_bytes());
    if let Some(millis) = head.uri.path().strip_prefix("/millis/") {
        tokio::time::sleep(Duration::from_millis(millis.parse().unwrap())).await;
    }
    let peer = head.extensions.get::<PeerCertificate>();
    let peer = peer.map_or_else(String::new, |peer| format!(" {:x?}", &**peer.der()));
    let text = format!("{} {}{peer} {}", head.method, head.uri.path(), String::from_utf8_lossy(&body));
    Ok(Response::new(Full::new(text.into())))
}

pub(crate) struct TestServer {
    pub(crate) address: SocketAddr,
    pub(crate) authority: Authority,
    shutdown: Option<oneshot::Sender<()>>,
    pub(crate) serving: JoinHandle<()>,
}

impl TestServer {
    pub(crate) async fn start(router: Router) -> Self {
        Self::with_tls(Authority::new(), None, router, |server| server).await
    }

    pub(crate) async fn echo(configure: impl FnOnce(Server) -> Server) -> Self {
        Self::with_tls(Authority::new(), None, service_fn(echo), configure).await
    }

    /// A server with a certificate of `authority` for localhost, unless `tls` is given.
    pub(crate) async fn with_tls<S, B>(
        authority: Authority,
        tls: Option<Tls>,
        service: S,
        configure: impl FnOnce(Server) -> Server,
    ) -> Self
    where
        S: Service<Request<RequestBody>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
        S::Future: Send + 'static,
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let server = configure(Server::bind(([127, 0, 0, 1], 0).into()).await.unwrap());
        let address = server.local_addr();
        let (shutdown, signal) = oneshot::channel();
        let tls = tls.unwrap_or_else(|| authority.server_config().into());
        let serving = tokio::spawn(server.serve(tls, service, async {
            signal.await.ok();
        }));
        Self { address, authority, shutdown: Some(shutdown), serving }
    }

    pub(crate) fn leave(&mut self) {
        self.shutdown.take().unwrap().send(()).unwrap();
    }

    pub(crate) async fn http1(&self) -> Http1 {
        Http1::connect(self.address, &self.authority).await.unwrap()
    }

    pub(crate) async fn http2(&self) -> Http2 {
        Http2::connect(self.address, &self.authority).await.unwrap()
    }

    pub(crate) fn client(&self) -> reqwest::Client {
        let root = reqwest::Certificate::from_der(&self.authority.der).unwrap();
        let client = reqwest::Client::builder().tls_certs_only([root]).timeout(Duration::from_secs(30));
        client.resolve("localhost", self.address).no_proxy().build().unwrap()
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("https://localhost:{}{path}", self.address.port())
    }
}
