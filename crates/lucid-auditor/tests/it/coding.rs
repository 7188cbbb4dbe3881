//! Compressed bodies.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::{Arc, Mutex},
};

use async_compression::tokio::write::{BrotliEncoder, DeflateEncoder, GzipEncoder, ZlibEncoder, ZstdEncoder};
use async_compression::{Level, zstd::CParameter};
use axum::{
    Router,
    body::Body,
    extract::Request,
    http::{HeaderMap, Response, StatusCode},
};
use futures::{StreamExt as _, channel::mpsc};
use http_body_util::BodyExt as _;
use lucid_auditor::{Auditor, Metrics};
use serde_json::{Value, json};
use tokio::io::{AsyncWrite, AsyncWriteExt as _};

use crate::protocols::{CARD, both};
use crate::{auditor_with, client, serve, within};

#[derive(Clone, Default)]
struct Output(Arc<Mutex<Vec<u8>>>);

impl AsyncWrite for Output {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
        data: &[u8],
    ) -> std::task::Poll<std::io::Result<usize>> {
        self.0.lock().unwrap().extend_from_slice(data);
        std::task::Poll::Ready(Ok(data.len()))
    }

    fn poll_flush(
        self: Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn poll_shutdown(
        self: Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        std::task::Poll::Ready(Ok(()))
    }
}

/// Encodes pieces, so that each can be decoded at once. `raw` is deflate without the frame of zlib.
async fn encoded_pieces(coding: &str, pieces: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let output = Output::default();
    let inner = output.clone();
    let mut encoder: Pin<Box<dyn AsyncWrite>> = match coding {
        "gzip" | "x-gzip" | "GZIP" => Box::pin(GzipEncoder::new(inner)),
        "deflate" => Box::pin(ZlibEncoder::new(inner)),
        "raw" => Box::pin(DeflateEncoder::new(inner)),
        "br" => Box::pin(BrotliEncoder::with_quality(inner, Level::Fastest)),
        "zstd" | "Zstd" => Box::pin(ZstdEncoder::new(inner)),
        "wide" => {
            let wide = [CParameter::window_log(24), CParameter::content_size_flag(false)];
            Box::pin(ZstdEncoder::with_quality_and_params(inner, Level::Default, &wide))
        }
        _ => unreachable!("{coding}"),
    };
    let take = || std::mem::take(&mut *output.0.lock().unwrap());
    let mut encoded = Vec::new();
    for piece in pieces {
        encoder.write_all(piece).await.unwrap();
        encoder.flush().await.unwrap();
        encoded.push(take());
    }
    encoder.shutdown().await.unwrap();
    encoded.push(take());
    encoded
}

async fn encoded(codings: &str, body: impl Into<Vec<u8>>) -> Vec<u8> {
    let mut body = body.into();
    for coding in codings.split(',').map(str::trim).filter(|coding| *coding != "identity") {
        body = encoded_pieces(coding, &[body]).await.concat();
    }
    body
}

fn named(codings: &str) -> String {
    codings.replace("raw", "deflate").replace("wide", "zstd")
}

/// A model that answers with the body that it gets, and in headers with its length and coding.
async fn echo() -> std::net::SocketAddr {
    let model = Router::new().fallback(|request: Request| async move {
        let header = |name: &str| request.headers().get(name).cloned();
        let (length, coding) = (header("content-length"), header("content-encoding"));
        let mut response = Response::new(Body::empty());
        for (name, value) in [("x-length", length), ("x-coding", coding)] {
            if let Some(value) = value {
                response.headers_mut().insert(name, value);
            }
        }
        response.headers_mut().insert("content-type", "application/octet-stream".parse().unwrap());
        *response.body_mut() = request.into_body();
        response
    });
    serve(model).await
}

async fn post(
    address: std::net::SocketAddr,
    path: &str,
    coding: &str,
    body: impl Into<reqwest::Body>,
) -> (u16, HeaderMap, Vec<u8>) {
    let request = client().post(format!("http://{address}{path}")).header("content-type", "application/json");
    let answer = within(request.header("content-encoding", coding).body(body).send()).await.unwrap();
    let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
    (status, headers, within(answer.bytes()).await.unwrap().to_vec())
}

fn text(body: &[u8]) -> String {
    String::from_utf8_lossy(body).into_owned()
}

const CODINGS: [&str; 12] = [
    "gzip",
    "x-gzip",
    "GZIP",
    "deflate",
    "raw",
    "br",
    "zstd",
    "Zstd",
    "gzip, zstd",
    "deflate,br , gzip",
    "identity, gzip",
    "wide",
];

#[tokio::test]
async fn encoded_requests_are_judged_and_forwarded_plainly() {
    let model = echo().await;
    // The answer of the model is not judged.
    for variable in [("LUCID_UNJUDGED", "pass"), ("LUCID_AUDITOR_ID", "a")] {
        let address = auditor_with(model, &[variable], both).await;
        for codings in CODINGS.into_iter().filter(|codings| *codings != "wide") {
            let name = named(codings);
            let fine = json!({"prompt": "hello"}).to_string();
            let (status, headers, body) =
                post(address, "/", &name, encoded(codings, fine.clone()).await).await;
            if variable.1 == "pass" {
                assert_eq!((status, text(&body)), (200, fine.clone()), "{codings}");
                assert_eq!(headers["x-length"], fine.len().to_string(), "{codings}");
                assert!(!headers.contains_key("x-coding"), "{codings}");
                let masked = json!({"prompt": format!("my card is {CARD}.")}).to_string();
                let (status, _, body) = post(address, "/", &name, encoded(codings, masked).await).await;
                assert_eq!((status, text(&body)), (200, r#"{"prompt":"my card is <CARD>."}"#.to_owned()));
            } else {
                assert_eq!(status, 422, "{codings}: the answer is not text");
            }
            let denied = json!({"prompt": "the secret word"}).to_string();
            let denied = encoded(codings, denied).await;
            let (status, _, body) = post(address, "/", &name, denied.clone()).await;
            assert!(status == 403 && text(&body).contains("the text is refused"), "{codings}: {status}");
            let (status, _, body) = post(address, "/audit", &name, denied).await;
            let verdict: Value = serde_json::from_slice(&body).unwrap();
            assert_eq!((status, &verdict["allowed"]), (200, &json!(false)), "{codings}");
        }
    }
}

#[tokio::test]
async fn unknown_codings_are_refused_with_the_known_ones() {
    let model = echo().await;
    let address = auditor_with(model, &[], both).await;
    let other = auditor_with(model, &[("LUCID_UNJUDGED", "pass")], both).await;
    let observer = auditor_with(model, &[("LUCID_AUDIT_MODE", "observe")], both).await;
    for coding in ["compress", "gzip, foo", "foo, gzip", "gzip;q=1", "br, br, br, br", "gzip \u{e9}"] {
        for path in ["/", "/audit"] {
            let (status, headers, body) = post(address, path, coding, "the secret word").await;
            assert!(
                status == 415 && text(&body).contains("expected a body with up to 3 of gzip"),
                "{coding}: {status}"
            );
            assert_eq!(headers["accept-encoding"], "gzip, deflate, br, zstd", "{coding}");
        }
        for address in [other, observer] {
            let encoded = b"the secret word\xff";
            let (status, headers, body) = post(address, "/", coding, encoded.to_vec()).await;
            assert_eq!((status, body.as_ref()), (200, encoded.as_slice()), "{coding}");
            assert_eq!(headers["x-coding"].as_bytes(), coding.as_bytes(), "{coding}");
        }
    }
}

#[tokio::test]
async fn broken_and_truncated_bodies_are_bad_requests() {
    let address = auditor_with(echo().await, &[], both).await;
    for codings in CODINGS {
        let whole = encoded(codings, json!({"prompt": "hello ".repeat(100)}).to_string()).await;
        let mut broken = vec![b"not that coding at all".to_vec(), Vec::new()];
        for length in [1, whole.len() / 2, whole.len() - 1] {
            broken.push(whole[..length].to_vec());
        }
        for body in broken {
            for path in ["/", "/audit"].into_iter().take(if codings == "zstd" { 2 } else { 1 }) {
                let pieces = futures::stream::iter([Ok::<_, Infallible>(body.clone())]);
                let chunked = reqwest::Body::wrap_stream(pieces);
                let (status, _, told) = post(address, path, &named(codings), chunked).await;
                let told = text(&told);
                assert!(
                    status == 400 && told.contains("failed to decode"),
                    "{codings} {body:?}: {status} {told}"
                );
            }
        }
    }
    // Windows of 16 MB (zstd) and 1 GB (brotli).
    let wide = encoded("wide", "hello").await;
    for (coding, body, reason) in
        [("zstd", wide, "too much memory"), ("br", vec![0x11, 0x1e, 0, 0, 0, 0], "window is too large")]
    {
        let (status, _, told) = post(address, "/", coding, body).await;
        let told = text(&told);
        assert!(
            status == 400 && told.contains("failed to decode") && told.contains(reason),
            "{status} {told}"
        );
    }
}

#[tokio::test]
async fn bodies_are_decoded_up_to_the_limit() {
    let address = auditor_with(echo().await, &[("MAX_BODY_BYTES", "100000")], both).await;
    let bomb = vec![b' '; 1_000_000];
    for codings in ["gzip", "deflate", "raw", "br", "zstd", "zstd, gzip", "gzip, br, zstd"] {
        let (status, _, told) =
            post(address, "/", &named(codings), encoded(codings, bomb.clone()).await).await;
        assert!(status == 413 && text(&told).contains("at most 100000"), "{codings}: {status}");
        let fits = vec![b' '; 100_000];
        assert_eq!(
            post(address, "/", &named(codings), encoded(codings, fits).await).await.0,
            422,
            "{codings}"
        );
    }
    // Members without content have a length as well.
    let empty = encoded("gzip", "").await.repeat(10_000);
    let pieces = futures::stream::iter([Ok::<_, Infallible>(empty)]);
    let (status, _, _) = post(address, "/", "gzip", reqwest::Body::wrap_stream(pieces)).await;
    assert_eq!(status, 413);
}

#[tokio::test]
async fn observed_bodies_pass_encoded_and_are_judged() {
    let body = json!({"choices": [{"message": {"content": "the secret word"}}]}).to_string();
    for codings in CODINGS.into_iter().filter(|codings| *codings != "wide") {
        let name = named(codings);
        let said = encoded(codings, body.clone()).await;
        let model = Router::new().fallback({
            let (said, name) = (said.clone(), name.clone());
            move |request: Request| async move {
                let coding = request.headers().get("content-encoding").cloned();
                let is_same = coding.is_some_and(|coding| coding == name.as_str())
                    && request.into_body().collect().await.unwrap().to_bytes() == said;
                let status = if is_same { StatusCode::OK } else { StatusCode::CONFLICT };
                (status, [("content-type", "application/json".to_owned()), ("content-encoding", name)], said)
            }
        });
        let mut metrics: Option<Metrics> = None;
        let judges = |auditor: Auditor| {
            metrics = Some(auditor.metrics());
            both(auditor)
        };
        let address = auditor_with(serve(model).await, &[("LUCID_AUDIT_MODE", "observe")], judges).await;
        let (status, headers, passed) = post(address, "/v1/chat/completions", &name, said.clone()).await;
        assert_eq!(
            (status, headers["content-encoding"] == *name, passed == said),
            (200, true, true),
            "{codings}"
        );
        let metrics = metrics.unwrap();
        let denials = || {
            let text = metrics.encode();
            let lines = text.lines().filter(|line| line.contains("phrase") && line.contains("deny"));
            lines.filter(|line| !line.ends_with(" 0")).map(str::to_owned).collect::<Vec<_>>()
        };
        let both_judged = async {
            while denials()
                .iter()
                .filter(|line| line.contains("prompt") || line.contains("completion"))
                .count()
                < 2
            {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        };
        let judged = tokio::time::timeout(std::time::Duration::from_secs(30), both_judged).await;
        assert!(judged.is_ok(), "{codings}: {}", metrics.encode());
    }
}

async fn answered(
    status: u16,
    coding: &str,
    body: Vec<u8>,
    variables: &[(&str, &str)],
) -> (u16, HeaderMap, String) {
    let coding = coding.to_owned();
    let model = Router::new().fallback(move || async move {
        let headers = [
            ("content-type", "application/json".to_owned()),
            ("content-encoding", coding),
            ("retry-after", "7".to_owned()),
        ];
        (StatusCode::from_u16(status).unwrap(), headers, body)
    });
    let address = auditor_with(serve(model).await, variables, both).await;
    let request = client().post(format!("http://{address}/v1/chat/completions")).json(&json!({}));
    let answer = within(request.send()).await.unwrap();
    let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
    (status, headers, text(&within(answer.bytes()).await.unwrap()))
}

#[tokio::test]
async fn encoded_answers_are_judged_and_sent_plainly() {
    let say = |text: &str| json!({"choices": [{"index": 0, "message": {"content": text}}]}).to_string();
    for codings in CODINGS.into_iter().filter(|codings| *codings != "wide") {
        for variables in
            [&[][..], &[("LUCID_UNJUDGED", "pass")]].into_iter().take(if codings == "br" { 2 } else { 1 })
        {
            let name = named(codings);
            let body = encoded(codings, say("hello")).await;
            let (status, headers, told) = answered(200, &name, body, variables).await;
            assert_eq!((status, told), (200, say("hello")), "{codings}");
            assert!(!headers.contains_key("content-encoding"), "{codings}");
            let body = encoded(codings, say(&format!("card {CARD} it"))).await;
            let (status, _, told) = answered(200, &name, body, variables).await;
            assert_eq!((status, told), (200, say("card <CARD> it")), "{codings}");
            let body = encoded(codings, say("the secret word")).await;
            let (status, _, told) = answered(200, &name, body, variables).await;
            assert!(status == 403 && told.contains("the text is refused"), "{codings}: {status} {told}");
            // Errors.
            let body = encoded(codings, "{\"error\":\"overloaded\"}").await;
            let (status, headers, told) = answered(529, &name, body, variables).await;
            assert_eq!((status, told.as_str()), (529, "{\"error\":\"overloaded\"}"), "{codings}");
            assert_eq!(headers["retry-after"], "7", "{codings}");
        }
    }
}

#[tokio::test]
async fn answers_that_cannot_be_decoded_are_refused() {
    let broken = encoded("gzip", "{\"a\":1}").await[..20].to_vec();
    for (coding, body, message) in [
        ("gzip", broken, "failed to decode"),
        ("foo", b"{}".to_vec(), "the answer is encoded as foo and cannot be judged"),
    ] {
        for (status, expected) in [(200, 422), (529, 529), (404, 404)] {
            let (status, headers, told) = answered(status, coding, body.clone(), &[]).await;
            assert!(status == expected && told.contains(message), "{coding}: {status} {told}");
            assert_eq!(headers.contains_key("retry-after"), status != 422, "{coding}");
            assert!(!headers.contains_key("content-encoding"), "{coding}");
        }
    }
    let (status, headers, told) = answered(200, "foo", b"{}".to_vec(), &[("LUCID_UNJUDGED", "pass")]).await;
    assert_eq!((status, told.as_str()), (200, "{}"));
    assert_eq!(headers["content-encoding"], "foo");
}

#[tokio::test]
async fn an_encoded_stream_arrives_event_by_event() {
    let event = |text: &str| {
        let data = json!({"choices": [{"index": 0, "delta": {"content": text}}]});
        format!("data: {data}\n\n").into_bytes()
    };
    let words = ["one ", "two ", "three ", "the secret word "];
    let events: Vec<_> = words.iter().map(|word| event(word)).collect();
    for coding in ["gzip", "deflate", "raw", "br", "zstd", "gzip, zstd", "br, gzip"] {
        let mut pieces = events.clone();
        for coding in coding.split(", ") {
            pieces = encoded_pieces(coding, &pieces).await;
        }
        let mut pieces = pieces.into_iter();
        let (send, receive) = mpsc::unbounded::<Vec<u8>>();
        let receive = Arc::new(Mutex::new(Some(receive)));
        let model = Router::new().fallback(move || {
            let receive = receive.lock().unwrap().take().unwrap();
            let headers =
                [("content-type", "text/event-stream".to_owned()), ("content-encoding", named(coding))];
            async { (headers, Body::from_stream(receive.map(Ok::<_, Infallible>))) }
        });
        let address =
            auditor_with(serve(model).await, &[], |auditor| auditor.judge(crate::Phrase("secret word")));
        let request = client().post(format!("http://{}/v1/chat/completions", address.await)).json(&json!({}));
        let mut answer = within(request.send()).await.unwrap();
        assert!(!answer.headers().contains_key("content-encoding"), "{coding}");
        for event in &events[..3] {
            send.unbounded_send(pieces.next().unwrap()).unwrap();
            let mut received = Vec::new();
            while received.len() < event.len() {
                received.extend(within(answer.chunk()).await.unwrap().unwrap());
            }
            assert_eq!(text(&received), text(event), "{coding}");
        }
        send.unbounded_send(pieces.next().unwrap()).unwrap();
        let mut end = Vec::new();
        while let Ok(Some(piece)) = within(answer.chunk()).await {
            end.extend(piece);
        }
        assert!(text(&end).contains("content_filter") && !text(&end).contains("secret"), "{}", text(&end));
    }
}
