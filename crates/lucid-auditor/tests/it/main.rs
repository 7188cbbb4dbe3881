//! Auditors in front of a model, on real connections.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "what fails in a helper fails the test")]

mod chain;
mod coding;
mod cors;
mod faithful;
mod policies;
mod protocols;
mod routes;
mod settings;
mod streaming;
mod streams;
mod tool_calls;
mod unjudged;
mod verdicts;
mod wire;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::serve::ListenerExt as _;
use lucid_auditor::{Auditor, Judge, JudgeError, Passage, Stage, Verdict};
use tokio::net::TcpListener;
use tokio::sync::watch;

/// An address without a listener.
const NOBODY: &str = "127.0.0.1:1";

async fn serve(router: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let listener = listener.tap_io(|connection| drop(connection.set_nodelay(true)));
    let service = router.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async { axum::serve(listener, service).await });
    address
}

/// Refuses texts with a phrase, in any case.
pub(crate) struct Phrase(pub(crate) &'static str);

impl Judge for Phrase {
    async fn judge(&self, passage: &Passage<'_>) -> Result<Verdict, JudgeError> {
        Ok(match passage.text.to_lowercase().contains(self.0) {
            true => Verdict::deny("phrase", "the text is refused"),
            false => Verdict::Allow,
        })
    }

    // The piece that completes the phrase is not released.
    fn undecided(&self, _text: &str) -> usize {
        0
    }
}

/// Serves an auditor in front of `next`, with the environment `variables`.
async fn auditor(next: SocketAddr, variables: &[(&str, &str)]) -> SocketAddr {
    auditor_with(next, variables, |auditor| auditor.judge(Phrase("secret word"))).await
}

async fn auditor_with(
    next: SocketAddr,
    variables: &[(&str, &str)],
    judges: impl FnOnce(Auditor) -> Auditor,
) -> SocketAddr {
    let url = format!("http://{next}");
    let auditor = Auditor::from_variables(|name| {
        let own = variables.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
        own.or((name == "LUCID_CHAIN_NEXT").then_some(url.as_str())).map(str::to_owned)
    });
    let auditor = judges(auditor.unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stage, stages) = watch::channel(Stage::Serving);
    tokio::spawn(async move {
        lucid_auditor::serve_on(listener, auditor, stages).await;
        drop(stage);
    });
    address
}

async fn auditor_with_metrics(
    next: SocketAddr,
    judges: impl FnOnce(Auditor) -> Auditor,
) -> (SocketAddr, impl Fn() -> String) {
    let mut metrics = None;
    let address = auditor_with(next, &[], |auditor| {
        metrics = Some(auditor.metrics());
        judges(auditor)
    });
    let address = address.await;
    let metrics = metrics.unwrap();
    (address, move || metrics.encode())
}

async fn chain(model: SocketAddr, variables: &[(&str, &str)]) -> SocketAddr {
    let second = auditor(model, variables).await;
    auditor(second, variables).await
}

async fn counting_model() -> (SocketAddr, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    let model = Router::new().fallback(move || {
        counted.fetch_add(1, Ordering::SeqCst);
        async { "answered" }
    });
    (serve(model).await, count)
}

async fn get(address: SocketAddr) -> reqwest::Response {
    within(client().get(format!("http://{address}/")).send()).await.unwrap()
}

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
