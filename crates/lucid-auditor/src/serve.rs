//! Connections and shutdown.

use std::convert::Infallible;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::Duration;

use axum::serve::Listener;
use hyper::header::{CONNECTION, HeaderValue};
use hyper::http::uri::Authority;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::time::sleep;

use crate::{Auditor, Settings};

/// Timeout of an idle connection and of request headers; hyper counts both as one. Longer than callers keep connections,
/// mostly 60 s or 90 s, because a request that arrives while this side closes is lost.
const HEAD_LIMIT: Duration = Duration::from_secs(120);

/// Interval at which an auditor that shuts down checks for the next hop.
const NEXT_HOP_POLL: Duration = Duration::from_millis(500);

/// Stages of a server's shutdown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Serves requests.
    Serving,
    /// Serves requests with `Connection: close` in responses.
    LameDuck,
    /// Accepts no new connections and completes pending requests.
    Draining,
    /// All requests are complete.
    Ended,
}

/// Returns the stages of this process, which signals advance.
///
/// SIGTERM reaches all containers of a pod at once, and callers learn later that the pod ends. An auditor that stopped at
/// once would fail their requests, and those that the auditor before it is still reading. So it serves for the lame-duck
/// period, unless the next hop is gone. SIGINT and a second signal skip that period.
///
/// # Errors
///
/// Returns an error if the signal handlers cannot be installed.
pub fn stages(settings: &Settings) -> io::Result<watch::Receiver<Stage>> {
    // Process 1 of a container receives only signals that it handles.
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let mut next_signal = async move || {
        tokio::select! {
            _ = terminate.recv() => SignalKind::terminate(),
            _ = interrupt.recv() => SignalKind::interrupt(),
        }
    };
    let (next, lame_duck) = (settings.next.clone(), settings.lame_duck);
    let (stage, stages) = watch::channel(Stage::Serving);
    tokio::spawn(async move {
        if next_signal().await == SignalKind::terminate() {
            stage.send_replace(Stage::LameDuck);
            tokio::select! {
                () = sleep(lame_duck) => {}
                () = gone(&next) => {}
                _ = next_signal() => {}
            }
        }
        stage.send_replace(Stage::Draining);
        next_signal().await;
        stage.send_replace(Stage::Ended);
    });
    Ok(stages)
}

/// Waits until `next` refuses connections.
async fn gone(next: &Authority) {
    let is_refused = |error: &io::Error| error.kind() == ErrorKind::ConnectionRefused;
    while !TcpStream::connect(next.as_str()).await.as_ref().is_err_and(is_refused) {
        sleep(NEXT_HOP_POLL).await;
    }
}

/// Waits for `stage` or a later one.
async fn reached(stages: &mut watch::Receiver<Stage>, stage: Stage) {
    // An error means that the sender was dropped, which also ends the server.
    let _ = stages.wait_for(|now| *now >= stage).await;
}

/// Serves on `listener` until [`Stage::Ended`], or until all requests are complete after [`Stage::Draining`].
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
        // Do not delay pieces of a response.
        let _ = connection.set_nodelay(true);
        let (auditor, stages) = (Arc::clone(&auditor), stages.clone());
        let service = service_fn(move |request| {
            let (auditor, stages) = (Arc::clone(&auditor), stages.clone());
            async move {
                let mut response = auditor.respond(peer.ip(), request).await;
                if *stages.borrow() > Stage::Serving {
                    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                }
                Ok::<_, Infallible>(response)
            }
        });
        let connection = server.serve_connection(TokioIo::new(connection), service);
        let connection = connections.watch(connection);
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%peer, %error, "connection failed");
            }
        });
    }
    drop(listener);
    tokio::select! {
        () = connections.shutdown() => {}
        () = reached(&mut stages, Stage::Ended) => {}
    }
}
