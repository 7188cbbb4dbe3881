//! The judge `http` against real servers.

mod api;
mod client;
mod failures;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use lucid_auditor::{Direction, Judge as _, JudgeError, Passage, Verdict};
use lucid_guardrails::{Http, HttpOptions, OptionsError};
use serde_json::{Value, json};
use tokio::net::TcpListener;

#[derive(Debug, Clone)]
struct Received {
    path: String,
    headers: HeaderMap,
    body: Value,
}

#[derive(Clone)]
struct Remote {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<Received>>>,
}

impl Remote {
    /// Serves responses until the test ends. `answer` gets the index of the request.
    async fn start(answer: impl Fn(usize) -> Response + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let router = router(Arc::clone(&requests), answer);
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { address, requests }
    }

    async fn answering(answer: Value) -> Self {
        Self::start(move |_| axum::Json(answer.clone()).into_response()).await
    }

    async fn with_status(status: StatusCode) -> Self {
        Self::start(move |_| status.into_response()).await
    }

    /// Creates a judge that calls this service. `options` lacks the URL.
    fn judge(&self, mut options: Value) -> Http {
        options["url"] = json!(format!("http://{}", self.address));
        judge(options).unwrap()
    }

    fn requests(&self) -> Vec<Received> {
        self.requests.lock().unwrap().clone()
    }

    fn calls(&self) -> usize {
        self.requests.lock().unwrap().len()
    }
}

fn router(
    requests: Arc<Mutex<Vec<Received>>>,
    answer: impl Fn(usize) -> Response + Send + Sync + 'static,
) -> Router {
    let answer = Arc::new(answer);
    Router::new().fallback(async move |request: Request| {
        let (head, body) = request.into_parts();
        let body: Bytes = axum::body::to_bytes(body, usize::MAX).await.unwrap();
        let body = serde_json::from_slice(&body).unwrap();
        let index = {
            let mut requests = requests.lock().unwrap();
            requests.push(Received { path: head.uri.path().to_owned(), headers: head.headers, body });
            requests.len() - 1
        };
        answer(index)
    })
}

fn judge(options: Value) -> Result<Http, OptionsError> {
    let options: HttpOptions = serde_json::from_value(options).unwrap();
    Http::new(options)
}

async fn ask(judge: &Http, text: &str) -> Result<Verdict, JudgeError> {
    judge.judge(&Passage::new(Direction::Prompt, text)).await
}

async fn error(judge: &Http, text: &str) -> String {
    ask(judge, text).await.unwrap_err().to_string()
}
