//! Connections, from the first to the last.

use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;

use axum::extract::ConnectInfo;
use axum::serve::Listener;
use axum::{Extension, Router};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;

/// How long the head of a request may take to arrive, and a connection may wait for its next request: who says nothing must
/// neither keep a place for ever nor hold up the end.
const HEAD_LIMIT: Duration = Duration::from_secs(20);

/// Serves on `listener` until `end`, then lets requests in progress come to their end.
pub async fn serve<L>(mut listener: L, router: Router, end: impl Future<Output = ()>)
where
    L: Listener<Addr = SocketAddr>,
{
    let mut server = auto::Builder::new(TokioExecutor::new());
    server.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_LIMIT);
    server.http2().timer(TokioTimer::new()).keep_alive_interval(HEAD_LIMIT);
    let connections = GracefulShutdown::new();
    let mut end = pin!(end);
    loop {
        let (connection, peer) = tokio::select! {
            () = &mut end => break,
            accepted = listener.accept() => accepted,
        };
        let service = TowerToHyperService::new(router.clone().layer(Extension(ConnectInfo(peer))));
        let connection = server.serve_connection(TokioIo::new(connection), service).into_owned();
        let connection = connections.watch(connection);
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%peer, error, "a connection broke off");
            }
        });
    }
    drop(listener);
    connections.shutdown().await;
}
