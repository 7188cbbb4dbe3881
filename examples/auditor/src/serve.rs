//! Connections, from the first to the last.

use std::time::Duration;

use axum::extract::ConnectInfo;
use axum::middleware::map_response;
use axum::response::Response;
use axum::serve::Listener;
use axum::{Extension, Router};
use hyper::header::{CONNECTION, HeaderValue};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::end::{Stage, reached};

/// How long the head of a request may take to arrive, and a connection may wait for its next request: who says nothing must
/// neither keep a place for ever nor hold up the end.
const HEAD_LIMIT: Duration = Duration::from_secs(20);

/// Serves on `listener` until the last of `stages`, or until there is nothing more to do after [`Stage::Draining`].
pub async fn serve(mut listener: TcpListener, router: Router, mut stages: watch::Receiver<Stage>) {
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(HEAD_LIMIT);
    let now = stages.clone();
    let router = router.layer(map_response(move |mut answer: Response| {
        if *now.borrow() > Stage::Serving {
            answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        async { answer }
    }));
    let connections = GracefulShutdown::new();
    loop {
        let (connection, peer) = tokio::select! {
            () = reached(&mut stages, Stage::Draining) => break,
            // Where there is no place for one more, this one waits, and does not fail.
            accepted = Listener::accept(&mut listener) => accepted,
        };
        // A piece of an answer must not wait for the next one.
        let _ = connection.set_nodelay(true);
        let service = TowerToHyperService::new(router.clone().layer(Extension(ConnectInfo(peer))));
        let connection = server.serve_connection(TokioIo::new(connection), service);
        let connection = connections.watch(connection);
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%peer, %error, "a connection broke off");
            }
        });
    }
    drop(listener);
    tokio::select! {
        () = connections.shutdown() => {}
        () = reached(&mut stages, Stage::Ended) => {}
    }
}
