//! Connections, from the first to the last.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::serve::Listener;
use hyper::header::{CONNECTION, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::Auditor;
use crate::end::{Stage, reached};

/// Timeout of an idle connection and of request headers; hyper counts both as one. Longer than callers keep connections,
/// mostly 60 s or 90 s, because a request that arrives while this side closes is lost.
const HEAD_LIMIT: Duration = Duration::from_secs(120);

/// Serves on `listener` until the last of `stages`, or until there is nothing more to do after [`Stage::Draining`].
pub async fn serve(mut listener: TcpListener, auditor: Auditor, mut stages: watch::Receiver<Stage>) {
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(HEAD_LIMIT);
    let auditor = Arc::new(auditor);
    let connections = GracefulShutdown::new();
    loop {
        let (connection, peer) = tokio::select! {
            () = reached(&mut stages, Stage::Draining) => break,
            // At the connection limit, new connections wait instead of failing.
            accepted = Listener::accept(&mut listener) => accepted,
        };
        // A piece of an answer must not wait for the next one.
        let _ = connection.set_nodelay(true);
        let (auditor, stages) = (Arc::clone(&auditor), stages.clone());
        let service = service_fn(move |request| {
            let (auditor, stages) = (Arc::clone(&auditor), stages.clone());
            async move {
                let mut answer = auditor.answer(peer.ip(), request).await;
                if *stages.borrow() > Stage::Serving {
                    answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                }
                Ok::<_, Infallible>(answer)
            }
        });
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
