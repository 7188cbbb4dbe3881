//! Servers for the API server to call: this crate's, and faulty ones.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use lucid_webhook::{Router, Server};
use rustls::ServerConfig;
use serde_json::Value;
use tokio::net::{TcpListener, TcpSocket};
use tokio_rustls::TlsAcceptor;

use super::pending;
use crate::wire::Authority;

static AUTHORITY: LazyLock<Authority> = LazyLock::new(Authority::new);

pub(super) static CA_BUNDLE: LazyLock<String> = LazyLock::new(|| STANDARD.encode(&AUTHORITY.pem));

/// Configuration without ALPN: the API server then uses HTTP/1.1, as for Services.
fn tls(authority: &Authority) -> Arc<ServerConfig> {
    let mut config = (*authority.server_config_for("127.0.0.1")).clone();
    config.alpn_protocols.clear();
    Arc::new(config)
}

fn url(address: SocketAddr) -> String {
    format!("https://{address}")
}

/// Serves until the process ends, and returns the URL.
pub(super) async fn serve(router: Router) -> String {
    serve_as(&AUTHORITY, router).await
}

pub(super) async fn serve_untrusted(router: Router) -> String {
    serve_as(&Authority::new(), router).await
}

async fn serve_as(authority: &Authority, router: Router) -> String {
    let server = Server::bind(([127, 0, 0, 1], 0).into()).await.unwrap();
    let address = server.local_addr();
    tokio::spawn(server.serve(tls(authority), router, pending()));
    url(address)
}

/// Reserves a port without a listener, for as long as the socket lives.
pub(super) fn refusing() -> (TcpSocket, String) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
    let address = socket.local_addr().unwrap();
    (socket, url(address))
}

/// Response of a faulty server to a review; `None` for no response.
pub(super) type Raw = fn(path: &str, review: &Value) -> Option<(u16, String)>;

/// A server that bypasses this crate.
pub(super) async fn serve_raw(answer: Raw) -> String {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let tls = TlsAcceptor::from(tls(&AUTHORITY));
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let tls = tls.clone();
            tokio::spawn(async move {
                let Ok(stream) = tls.accept(stream).await else { return };
                let service = service_fn(|request: Request<Incoming>| async move {
                    let path = request.uri().path().to_owned();
                    let body = request.into_body().collect().await.unwrap().to_bytes();
                    let Some((status, body)) = answer(&path, &serde_json::from_slice(&body).unwrap()) else {
                        return pending().await;
                    };
                    let response = Response::builder().status(status).header("content-type", "text/plain");
                    Ok::<_, Infallible>(response.body(Full::new(Bytes::from(body))).unwrap())
                });
                // The API server may disconnect before the response.
                let _ = auto::Builder::new(TokioExecutor::new())
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
            });
        }
    });
    url(address)
}
