//! The auditor under test between a caller and the scripted model.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;

use super::caller::Caller;
use super::message::{End, Message};
use super::model::{Model, Script};
use super::process::Process;
use super::transcript::Transcript;

/// Result of a check without success.
#[derive(Debug)]
pub(crate) enum Problem {
    /// The requirement is not met; with what was expected.
    Failed(String),
    /// The check does not apply; with the reason.
    Skipped(&'static str),
    /// The check could not run.
    Broken(std::io::Error),
}

impl From<std::io::Error> for Problem {
    fn from(error: std::io::Error) -> Self {
        Self::Broken(error)
    }
}

pub(crate) type Outcome<T = ()> = Result<T, Problem>;

/// Fails with `expected` unless `holds`.
pub(crate) fn ensure(holds: bool, expected: impl Into<String>) -> Outcome {
    if holds { Ok(()) } else { Err(Problem::Failed(expected.into())) }
}

/// Parts of a test that the checks use.
#[derive(Debug)]
pub(crate) struct Bench {
    pub(crate) auditor: SocketAddr,
    pub(crate) model: Model,
    /// Second port of the auditor, if the kit has started it.
    pub(crate) second_auditor: SocketAddr,
    /// The model behind `second_auditor`.
    pub(crate) second_model: Model,
    /// `true` if the auditor has to listen on the second port.
    pub(crate) needs_routes: bool,
    pub(crate) transcript: Transcript,
    /// The auditor, if the kit has started it.
    pub(crate) process: Option<Process>,
    /// Text that the auditor refuses.
    pub(crate) refused: String,
    /// Text that the auditor masks.
    pub(crate) masked: Option<String>,
    pub(crate) patience: Duration,
}

impl Bench {
    /// Begins an exchange with another behaviour of the model.
    pub(crate) async fn play(&mut self, script: Script) -> Outcome {
        self.transcript.clear();
        Ok(self.model.play(script).await?)
    }

    /// Exchanges the two ports and the models behind them.
    pub(crate) fn swap_routes(&mut self) {
        std::mem::swap(&mut self.auditor, &mut self.second_auditor);
        std::mem::swap(&mut self.model, &mut self.second_model);
    }

    /// Connects to the auditor.
    pub(crate) async fn connect(&self) -> Outcome<Caller> {
        self.connect_to(self.auditor).await
    }

    pub(crate) async fn connect_to(&self, address: SocketAddr) -> Outcome<Caller> {
        let connecting = Caller::connect(address, self.transcript.clone(), self.patience).await;
        connecting.map_err(|error| Problem::Failed(format!("a connection to {address}, found: {error}")))
    }

    /// Sends a request on a new connection, and returns the answer.
    pub(crate) async fn exchange(&self, request: impl AsRef<[u8]>) -> Outcome<Message> {
        let mut caller = self.connect().await?;
        caller.send(request).await;
        caller.answer().await.ok_or_else(|| Problem::Failed("an answer".to_owned()))
    }

    /// Sends a request that the model receives. Returns it as received, and the answer.
    pub(crate) async fn pass(&mut self, request: impl AsRef<[u8]>) -> Outcome<(Message, Message)> {
        self.play(Script::Say(answer("application/json", "{}"))).await?;
        let answer = self.exchange(request).await?;
        let received = self.model.requests().into_iter().find(|request| request.end == End::Whole);
        let received = received.ok_or_else(|| Problem::Failed("the request at the model".to_owned()))?;
        ensure(
            answer.status() == 200 && answer.end == End::Whole,
            "the answer of the model, with status 200",
        )?;
        Ok((received, answer))
    }

    /// Sends a request that is to be refused before the model sees any of it.
    pub(crate) async fn refuse(&mut self, request: impl AsRef<[u8]>) -> Outcome {
        self.play(Script::Say(answer("application/json", "{}"))).await?;
        let answer = self.exchange(request).await?;
        ensure(self.model.requests().is_empty(), "no request at the model")?;
        // JSON-RPC has no statuses.
        let is_error =
            serde_json::from_slice::<Value>(&answer.body).is_ok_and(|body| body["error"].is_object());
        let is_refusal = match answer.status() {
            200 => is_error,
            status => (400..500).contains(&status) || status == 501,
        };
        let expected = "a refusal: a complete answer with a status from 400 to 499, or 501";
        ensure(is_refusal && answer.end == End::Whole, expected)
    }

    /// Returns the process of the auditor, or skips the check.
    pub(crate) fn process(&mut self) -> Outcome<&mut Process> {
        self.process.as_mut().ok_or(Problem::Skipped("only with -- COMMAND"))
    }
}

/// Returns a request without a body.
pub(crate) fn get(path: &str, headers: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: model.test:5000\r\nConnection: close\r\n{headers}\r\n")
}

/// Returns a request with a JSON body.
pub(crate) fn post(path: &str, body: impl AsRef<[u8]>) -> Vec<u8> {
    post_with(path, "Content-Type: application/json\r\n", body)
}

/// Returns a request with a body and other headers.
pub(crate) fn post_with(path: &str, headers: &str, body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    let length = body.len();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: model.test:5000\r\nConnection: close\r\n{headers}Content-Length: {length}\r\n\r\n"
    );
    [head.as_bytes(), body].concat()
}

/// Returns an answer of the model.
pub(crate) fn answer(content_type: &str, body: impl AsRef<[u8]>) -> Vec<u8> {
    answer_with(&format!("Content-Type: {content_type}\r\n"), body)
}

/// Returns an answer of the model with other headers.
pub(crate) fn answer_with(headers: &str, body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    let length = body.len();
    let head = format!("HTTP/1.1 200 OK\r\nConnection: close\r\n{headers}Content-Length: {length}\r\n\r\n");
    [head.as_bytes(), body].concat()
}

/// Returns the head of a streamed answer of the model.
pub(crate) fn stream_head(content_type: &str) -> Vec<u8> {
    let head = "HTTP/1.1 200 OK\r\nConnection: close\r\nTransfer-Encoding: chunked\r\nContent-Type: ";
    format!("{head}{content_type}\r\n\r\n").into_bytes()
}

/// Returns a chunk of a body. The empty one is the last.
pub(crate) fn chunk(data: &str) -> Vec<u8> {
    format!("{:x}\r\n{data}\r\n", data.len()).into_bytes()
}
