//! Real auditors in front of a real model, on connections of this machine.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "what fails in a helper fails the test")]

mod chain;
mod process;
mod streaming;
mod verdicts;
mod wire;

use std::net::SocketAddr;

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

/// An auditor in front of `next`, with `variables` as its environment besides.
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

/// Two auditors, one after the other, in front of `model`; gives the first.
async fn chain(model: SocketAddr, variables: &[(&str, &str)]) -> SocketAddr {
    let second = auditor(model, variables).await;
    auditor(second, variables).await
}

fn client() -> reqwest::Client {
    reqwest::Client::builder().no_proxy().build().unwrap()
}

/// A future that is done only when the test has hung.
async fn within<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(std::time::Duration::from_secs(60), future).await.expect("nothing came")
}
