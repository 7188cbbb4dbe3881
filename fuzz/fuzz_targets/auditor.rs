//! Any bytes as a request, as an answer, or as the words of a stream, through an auditor on real connections. Nothing panics
//! or hangs, what is forwarded unjudged is unchanged, and no text passes that the rules of injection refuse by itself.

#![no_main]

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, LazyLock, Mutex};

use bytes::Bytes;
use futures::FutureExt as _;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use libfuzzer_sys::fuzz_target;
use lucid_auditor::{Auditor, Direction, Judge, Passage, Stage, Verdict};
use lucid_guardrails::{Builtin, EntityOptions, Phrases, PhrasesOptions, Pii, Secrets};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::watch;

const PATHS: [&str; 8] = [
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/v1/messages",
    "/api/chat",
    "/v2/models/m/infer",
    "/generate",
    "/mcp",
];
const TYPES: [&str; 6] =
    ["text/event-stream", "application/x-ndjson", "application/json", "text/plain", "text/xml", ""];
/// Judges look at this part of a stream at least, however it is spelled.
const WINDOW: usize = 1000;

/// Last request of the model, and its next answer.
#[derive(Default)]
struct Model {
    asked: Option<Bytes>,
    content_type: &'static str,
    pieces: Vec<Bytes>,
}

struct World {
    runtime: Runtime,
    auditor: SocketAddr,
    model: Arc<Mutex<Model>>,
}

fn injection() -> Phrases {
    Phrases::new(PhrasesOptions::default().with_builtin(Builtin::Injection)).expect("rules")
}

fn pii() -> Pii {
    Pii::new(EntityOptions::default()).expect("options")
}

fn secrets() -> Secrets {
    Secrets::new(EntityOptions::default()).expect("options")
}

static INJECTION: LazyLock<Phrases> = LazyLock::new(injection);
static PII: LazyLock<Pii> = LazyLock::new(pii);
static SECRETS: LazyLock<Secrets> = LazyLock::new(secrets);

static WORLD: LazyLock<World> = LazyLock::new(|| {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let model = Arc::<Mutex<Model>>::default();
    let auditor = runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let next = format!("http://{}", listener.local_addr().expect("an address"));
        tokio::spawn(serve_model(listener, Arc::clone(&model)));
        let auditor = Auditor::from_variables(|name| (name == "LUCID_CHAIN_NEXT").then(|| next.clone()));
        let auditor = auditor.expect("settings").judge(injection()).judge(pii()).judge(secrets());
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (stage, stages) = watch::channel(Stage::Serving);
        tokio::spawn(async move {
            lucid_auditor::serve_on(listener, auditor, stages).await;
            drop(stage);
        });
        address
    });
    World { runtime, auditor, model }
});

async fn serve_model(listener: TcpListener, model: Arc<Mutex<Model>>) {
    while let Ok((connection, _)) = listener.accept().await {
        let _ = connection.set_nodelay(true);
        let model = Arc::clone(&model);
        let service = service_fn(move |request: Request<Incoming>| {
            let model = Arc::clone(&model);
            async move {
                let asked = request.into_body().collect().await.map(|body| body.to_bytes());
                let mut model = model.lock().expect("no panic");
                model.asked = asked.ok();
                let pieces =
                    model.pieces.clone().into_iter().map(|piece| Ok::<_, Infallible>(Frame::data(piece)));
                let answer = Response::builder().header(CONTENT_TYPE, model.content_type);
                answer.body(StreamBody::new(futures::stream::iter(pieces)))
            }
        });
        tokio::spawn(
            hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(connection), service),
        );
    }
}

/// Sends a request. Returns the status, and what comes of the body, which may be cut.
async fn exchange(path: &str, body: Bytes) -> (StatusCode, Vec<u8>, bool) {
    let connection = TcpStream::connect(WORLD.auditor).await.expect("the auditor listens");
    let _ = connection.set_nodelay(true);
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(connection)).await;
    let (mut sender, connection) = handshake.expect("a handshake");
    tokio::spawn(connection.map(drop));
    let request = Request::post(path).header(HOST, "model").body(Full::new(body)).expect("a request");
    // A refused stream of a protocol without errors is cut, perhaps before its head is sent.
    let Ok(response) = sender.send_request(request).await else {
        return (StatusCode::BAD_GATEWAY, Vec::new(), false);
    };
    let (status, mut body) = (response.status(), response.into_body());
    let mut received = Vec::new();
    while let Some(frame) = body.frame().await {
        match frame {
            Ok(frame) => received.extend_from_slice(&frame.into_data().unwrap_or_default()),
            Err(_) => return (status, received, false),
        }
    }
    (status, received, true)
}

/// Returns `true` if the rules refuse this text.
fn is_refused(text: &str, has_more: bool) -> bool {
    let mut passage = Passage::new(Direction::Completion, text);
    passage.has_more = has_more;
    let verdict = INJECTION.judge(&passage).now_or_never().expect("no waiting").expect("a verdict");
    matches!(verdict, Verdict::Deny { .. })
}

/// Fails if a string of a JSON text is refused.
fn check_strings(value: &Value) {
    match value {
        Value::String(text) => assert!(!is_refused(text, false), "{text:?} passed"),
        Value::Array(values) => values.iter().for_each(check_strings),
        Value::Object(members) => members.iter().for_each(|(name, value)| {
            assert!(!is_refused(name, false), "{name:?} passed");
            check_strings(value);
        }),
        _ => {}
    }
}

/// Fails if a text passed that is refused.
fn check(passed: &[u8]) {
    let text = str::from_utf8(passed).expect("what is no text does not pass");
    assert!(text.len() > WINDOW || !is_refused(text, false), "{text:?} passed");
    if let Ok(value) = serde_json::from_str(text) {
        check_strings(&value);
    }
}

/// Spans are in order and within the text.
fn check_judge(judge: &impl Judge, text: &str) {
    for has_more in [false, true] {
        let mut passage = Passage::new(Direction::Prompt, text);
        passage.has_more = has_more;
        let verdict = judge.judge(&passage).now_or_never().expect("no waiting").expect("a verdict");
        let Verdict::Mask(spans) = verdict else { continue };
        let mut at = 0;
        for span in spans {
            assert!(
                at <= span.range.start && span.range.start < span.range.end,
                "{:?} after {at}",
                span.range
            );
            assert!(text.get(span.range.clone()).is_some(), "{:?} of {text:?}", span.range);
            at = span.range.end;
        }
    }
    assert!(judge.undecided(text) <= text.len());
}

/// Cuts data into pieces. The lengths follow from `seed`.
fn cut(mut data: &[u8], seed: u8) -> Vec<&[u8]> {
    let mut pieces = Vec::new();
    let mut length = usize::from(seed);
    while !data.is_empty() {
        length = (length * 7 + 3) % 31 + 1;
        let (piece, rest) = data.split_at(length.min(data.len()));
        pieces.push(piece);
        data = rest;
    }
    pieces
}

/// Sets the answer of the model, and returns what the caller gets.
async fn answer(path: &str, content_type: &'static str, pieces: Vec<Bytes>) -> (StatusCode, Vec<u8>, bool) {
    *WORLD.model.lock().expect("no panic") = Model { asked: None, content_type, pieces };
    exchange(path, Bytes::from_static(b"{\"prompt\":\"Hello\"}")).await
}

/// Streams a text in words of any length. Returns the words that pass, and whether they are all.
async fn stream_words(text: &str, seed: u8) -> (String, bool) {
    let mut events: Vec<u8> = Vec::new();
    let mut rest = text;
    for piece in cut(text.as_bytes(), seed) {
        let (word, following) = rest.split_at(rest.ceil_char_boundary(piece.len().min(rest.len())));
        let event = json!({"choices": [{"index": 0, "delta": {"content": word}}]});
        events.extend_from_slice(format!("data: {event}\n\n").as_bytes());
        rest = following;
    }
    let pieces = cut(&events, seed.wrapping_add(1)).into_iter().map(Bytes::copy_from_slice).collect();
    let (_, passed, is_whole) = answer(PATHS[0], TYPES[0], pieces).await;
    let events: Vec<Value> = String::from_utf8(passed)
        .expect("text")
        .split("\n\n")
        .filter_map(|event| serde_json::from_str(event.strip_prefix("data: ")?).ok())
        .collect();
    let choices = || events.iter().map(|event| &event["choices"][0]);
    let is_refused = choices().any(|choice| choice["finish_reason"] == "content_filter");
    (choices().filter_map(|choice| choice["delta"]["content"].as_str()).collect(), is_whole && !is_refused)
}

async fn run(kind: u8, place: u8, seed: u8, data: &[u8]) {
    let (path, content_type) =
        (PATHS[usize::from(place) % PATHS.len()], TYPES[usize::from(place) % TYPES.len()]);
    match kind % 4 {
        0 => {
            let (status, body, _) = exchange("/audit", Bytes::copy_from_slice(data)).await;
            let verdict: Value = serde_json::from_slice(&body).expect("a verdict");
            match (status, &verdict["allowed"], verdict["text"].as_str()) {
                (StatusCode::OK, Value::Bool(true), masked) => check(masked.map_or(data, str::as_bytes)),
                (StatusCode::OK, Value::Bool(false), None) => {}
                (StatusCode::UNSUPPORTED_MEDIA_TYPE, ..) => {}
                _ => panic!("{status}: {verdict}"),
            }
        }
        1 => {
            *WORLD.model.lock().expect("no panic") =
                Model { content_type: "application/json", ..Model::default() };
            let (status, _, _) = exchange(path, Bytes::copy_from_slice(data)).await;
            let asked = WORLD.model.lock().expect("no panic").asked.take();
            assert_eq!(asked.is_some(), status == StatusCode::OK);
            let Some(asked) = asked else { return };
            if !data.is_empty() {
                check(&asked);
            }
        }
        2 => {
            let pieces = cut(data, seed).into_iter().map(Bytes::copy_from_slice).collect();
            let (status, passed, is_whole) = answer(path, content_type, pieces).await;
            if status == StatusCode::OK && is_whole && content_type != TYPES[0] && content_type != TYPES[1] {
                check(&passed);
            }
        }
        _ => {
            let text = String::from_utf8_lossy(&data[..data.len().min(WINDOW)]).replace('\0', " ");
            let (passed, is_whole) = stream_words(&text, seed).await;
            assert!(!is_refused(&passed, !is_whole), "{passed:?} passed");
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let [kind, place, seed, data @ ..] = data else { return };
    if let Ok(text) = str::from_utf8(data) {
        check_judge(&*INJECTION, text);
        check_judge(&*PII, text);
        check_judge(&*SECRETS, text);
    }
    WORLD.runtime.block_on(run(*kind, *place, *seed, data));
});
