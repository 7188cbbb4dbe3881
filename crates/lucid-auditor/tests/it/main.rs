//! Auditors in front of a model, on real connections.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "what fails in a helper fails the test")]

mod chain;
mod process;
mod streaming;
mod verdicts;
mod wire;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::serve::ListenerExt as _;
use example_auditor::{Auditor, Settings, Stage};
use tokio::net::TcpListener;
use tokio::sync::watch;

/// An address without a listener.
const NOBODY: &str = "127.0.0.1:1";

/// Serves a model on a free port, until the test ends.
async fn serve(router: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let listener = listener.tap_io(|connection| drop(connection.set_nodelay(true)));
    let service = router.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async { axum::serve(listener, service).await });
    address
}

/// Serves an auditor in front of `next`, with the environment `variables`.
async fn auditor(next: SocketAddr, variables: &[(&str, &str)]) -> SocketAddr {
    let url = format!("http://{next}");
    let settings = Settings::from(|name| {
        let mut all = [("LUCID_CHAIN_NEXT", url.as_str()), ("BLOCKED_PHRASES", "secret word")].into_iter();
        let own = variables.iter().copied().find(|(known, _)| *known == name);
        own.or_else(|| all.find(|(known, _)| *known == name)).map(|(_, value)| value.to_owned())
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stage, stages) = watch::channel(Stage::Serving);
    tokio::spawn(async move {
        example_auditor::serve(listener, Auditor::new(settings.unwrap()), stages).await;
        drop(stage);
    });
    address
}

/// Serves two auditors in front of `model`. Returns the address of the first.
async fn chain(model: SocketAddr, variables: &[(&str, &str)]) -> SocketAddr {
    let second = auditor(model, variables).await;
    auditor(second, variables).await
}

/// Serves a model that counts its requests.
async fn counting_model() -> (SocketAddr, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    let model = Router::new().fallback(move || {
        counted.fetch_add(1, Ordering::SeqCst);
        async { "answered" }
    });
    (serve(model).await, count)
}

/// Sends `GET /` to `address`.
async fn get(address: SocketAddr) -> reqwest::Response {
    within(client().get(format!("http://{address}/")).send()).await.unwrap()
}

/// Sends `POST /` to `address`.
async fn post(address: SocketAddr, body: impl Into<reqwest::Body>) -> reqwest::Response {
    within(client().post(format!("http://{address}/")).body(body).send()).await.unwrap()
}

fn client() -> reqwest::Client {
    reqwest::Client::builder().no_proxy().build().unwrap()
}

/// Fails if the future takes longer than any test.
async fn within<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(std::time::Duration::from_secs(60), future).await.expect("nothing came")
}
