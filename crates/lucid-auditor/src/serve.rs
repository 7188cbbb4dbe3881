//! Connections and shutdown.

use std::{
    convert::Infallible,
    io::{self, ErrorKind},
    net::SocketAddr,
    sync::Arc,
    time::Duration,
};

use hyper::{
    Request, Version,
    body::Incoming,
    header::{CONNECTION, CONTENT_TYPE, HeaderValue},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::{conn::auto, graceful::GracefulShutdown},
};
use rustix::net::sockopt::set_tcp_user_timeout;
use snafu::{ResultExt as _, Snafu};
use tokio::{
    net::{TcpListener, TcpStream},
    signal::unix::{SignalKind, signal},
    sync::watch,
    task::JoinSet,
    time::{sleep, timeout},
};
use tracing_subscriber::EnvFilter;

use crate::{Auditor, Route, Settings, body::full, telemetry::Metrics};

/// Timeout of an idle connection and of request headers; hyper counts both as one. Longer than callers keep connections,
/// mostly 60 s or 90 s, because a request that arrives while this side closes is lost.
const HEAD_LIMIT: Duration = Duration::from_secs(120);

/// Time in milliseconds after which a connection is closed whose peer reads nothing.
const UNREAD_LIMIT: u32 = 120_000;

/// Interval at which an auditor that shuts down checks for the next hops.
const NEXT_HOP_POLL: Duration = Duration::from_millis(500);

/// Pause after a failure to accept a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Maximum number of requests in progress on a connection of HTTP/2.
const MAX_STREAMS: u32 = 100;

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

fn stages(settings: &Settings) -> io::Result<watch::Receiver<Stage>> {
    // Process 1 of a container receives only signals that it handles.
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let mut next_signal = async move || {
        tokio::select! {
            _ = terminate.recv() => SignalKind::terminate(),
            _ = interrupt.recv() => SignalKind::interrupt(),
        }
    };
    let (routes, lame_duck) = (settings.routes.clone(), settings.lame_duck);
    let (stage, stages) = watch::channel(Stage::Serving);
    tokio::spawn(async move {
        if next_signal().await == SignalKind::terminate() {
            stage.send_replace(Stage::LameDuck);
            tokio::select! {
                () = sleep(lame_duck) => {}
                () = gone(&routes) => {}
                _ = next_signal() => {}
            }
        }
        stage.send_replace(Stage::Draining);
        next_signal().await;
        stage.send_replace(Stage::Ended);
    });
    Ok(stages)
}

/// Waits until all next hops refuse connections.
async fn gone(routes: &[Route]) {
    let is_refused = |error: &io::Error| error.kind() == ErrorKind::ConnectionRefused;
    for Route { next, .. } in routes {
        while !TcpStream::connect(next.as_str()).await.as_ref().is_err_and(is_refused) {
            sleep(NEXT_HOP_POLL).await;
        }
    }
}

async fn reached(stages: &mut watch::Receiver<Stage>, stage: Stage) {
    // An error means that the sender was dropped, which also ends the server.
    let _ = stages.wait_for(|now| *now >= stage).await;
}

/// The auditor cannot serve.
#[derive(Debug, Snafu)]
#[non_exhaustive]
pub enum ServeError {
    /// A port is not available.
    #[snafu(display("failed to listen on port {port}"))]
    Listen {
        /// The port.
        port: u16,
        /// Cause.
        source: io::Error,
    },
    /// Signal handlers cannot be installed.
    #[snafu(display("failed to install signal handlers"))]
    Signals {
        /// Cause.
        source: io::Error,
    },
}

/// Serves an auditor and its metrics until a signal ends the process, as Lucid's pods need it. Log lines are JSON on standard
/// output, unless the program has a subscriber of its own.
///
/// SIGTERM reaches all containers of a pod at once, and callers learn later that the pod ends. An auditor that stopped at
/// once would fail their requests, and those that the auditor before it is still reading. So it serves for the lame-duck
/// period, unless all next hops are gone. SIGINT and a second signal skip that period.
///
/// # Errors
///
/// Returns [`ServeError`] if a port is not available.
pub async fn serve(auditor: Auditor) -> Result<(), ServeError> {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    // The program's own subscriber has precedence.
    let _ = tracing_subscriber::fmt().json().with_env_filter(filter).try_init();
    let settings = auditor.settings().clone();
    let mut listeners = Vec::new();
    for route in &settings.routes {
        listeners.push(listen(route.port).await?);
    }
    if let Some(port) = settings.metrics_port {
        let metrics = listen(port.get()).await?;
        tokio::spawn(serve_metrics(metrics, auditor.metrics()));
    }
    let stages = stages(&settings).context(SignalsSnafu)?;
    let Settings { id, routes, mode, metrics_port, .. } = &settings;
    for Route { port, next } in routes {
        tracing::info!(id, port, %next, ?mode, metrics_port, "ready");
    }
    let auditor = Arc::new(auditor);
    let serve_on = |listener| serve_on(listener, Arc::clone(&auditor), stages.clone());
    let servers: JoinSet<()> = listeners.into_iter().map(serve_on).collect();
    servers.join_all().await;
    Ok(())
}

async fn listen(port: u16) -> Result<TcpListener, ServeError> {
    lucid_proxy::listen(port).await.context(ListenSnafu { port })
}

/// Accepts a connection. Without file descriptors, new connections wait instead of failing.
async fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok(accepted) => return accepted,
            Err(error) => {
                tracing::warn!(%error, "failed to accept a connection");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn serve_metrics(listener: TcpListener, metrics: Metrics) {
    loop {
        let (connection, _) = accept(&listener).await;
        let metrics = metrics.clone();
        let service = service_fn(move |request: Request<Incoming>| {
            let mut response = hyper::Response::new(full(metrics.encode()));
            let content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
            if request.uri().path() != "/metrics" {
                response = hyper::Response::new(full(""));
                *response.status_mut() = hyper::StatusCode::NOT_FOUND;
            }
            async { Ok::<_, Infallible>(response) }
        });
        let mut server = http1::Builder::new();
        server.timer(TokioTimer::new()).header_read_timeout(HEAD_LIMIT);
        tokio::spawn(server.serve_connection(TokioIo::new(connection), service));
    }
}

/// Serves an auditor on `listener` until [`Stage::Ended`], or until all requests are complete after [`Stage::Draining`].
///
/// Requests are forwarded to the next hop of the [route](Settings::routes) whose port `listener` has; of the first route, if
/// none has it. Several listeners share an auditor in an [`Arc`].
pub async fn serve_on(
    listener: TcpListener,
    auditor: impl Into<Arc<Auditor>>,
    mut stages: watch::Receiver<Stage>,
) {
    let auditor = auditor.into();
    let port = listener.local_addr().ok().map(|address| address.port());
    let next = auditor.settings.next_hop(port).clone();
    let mut server = auto::Builder::new(TokioExecutor::new());
    server.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_LIMIT);
    let mut http2 = server.http2();
    http2.timer(TokioTimer::new()).keep_alive_interval(HEAD_LIMIT).max_concurrent_streams(MAX_STREAMS);
    let connections = GracefulShutdown::new();
    loop {
        let (connection, peer) = tokio::select! {
            () = reached(&mut stages, Stage::Draining) => break,
            accepted = accept(&listener) => accepted,
        };
        // Do not delay pieces of a response, and do not hold one for a caller who reads nothing.
        let _ = connection.set_nodelay(true);
        let _ = set_tcp_user_timeout(&connection, UNREAD_LIMIT);
        let (auditor, next, served) = (Arc::clone(&auditor), next.clone(), stages.clone());
        let service = service_fn(move |request: Request<Incoming>| {
            let (auditor, next, stages) = (Arc::clone(&auditor), next.clone(), served.clone());
            async move {
                let version = request.version();
                let mut response = auditor.respond(peer.ip(), &next, request).await;
                if *stages.borrow() > Stage::Serving && version != Version::HTTP_2 {
                    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                }
                Ok::<_, Infallible>(response)
            }
        });
        let (server, watcher) = (server.clone(), connections.watcher());
        tokio::spawn(async move {
            // Until the first byte shows the version of HTTP, the server has no timeout.
            if !matches!(timeout(HEAD_LIMIT, connection.readable()).await, Ok(Ok(()))) {
                return;
            }
            let connection = server.serve_connection_with_upgrades(TokioIo::new(connection), service);
            if let Err(error) = watcher.watch(connection.into_owned()).await {
                tracing::debug!(%peer, error, "connection failed");
            }
        });
    }
    drop(listener);
    tokio::select! {
        () = connections.shutdown() => {}
        () = reached(&mut stages, Stage::Ended) => {}
    }
}
