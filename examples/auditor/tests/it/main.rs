//! The auditor as a process.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "what fails in a helper fails the test")]

mod process;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::serve::ListenerExt as _;
use futures::StreamExt as _;
use futures::channel::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::net::TcpListener;

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

/// A body whose pieces the test sends.
fn pieces() -> (UnboundedSender<&'static str>, UnboundedReceiver<&'static str>) {
    mpsc::unbounded()
}

/// A model that answers one request, with the pieces that are sent.
fn answering(pieces: UnboundedReceiver<&'static str>) -> Router {
    let pieces = Arc::new(Mutex::new(Some(pieces)));
    Router::new().fallback(move || {
        let pieces = pieces.lock().unwrap().take().unwrap();
        async { Body::from_stream(pieces.map(Ok::<_, Infallible>)) }
    })
}

fn client() -> reqwest::Client {
    reqwest::Client::builder().no_proxy().build().unwrap()
}

/// Fails if the future takes longer than any test.
async fn within<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(std::time::Duration::from_secs(60), future).await.expect("nothing came")
}
