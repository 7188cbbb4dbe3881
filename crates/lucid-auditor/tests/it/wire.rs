//! Malformed messages, byte by byte.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use bytes::Bytes;
use futures::channel::mpsc::{self, UnboundedSender};
use futures::{StreamExt as _, stream};
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Frame;
use hyper::header::{HeaderMap, HeaderValue};
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::{NOBODY, auditor, chain, counting_model, get, post, serve, within};

const MODES: [&str; 2] = ["enforce", "observe"];

async fn exchange(address: SocketAddr, bytes: &[u8]) -> String {
    let mut connection = TcpStream::connect(address).await.unwrap();
    // The peer may close before it has read everything.
    let _ = connection.write_all(bytes).await;
    let mut answer = Vec::new();
    let _ = within(connection.read_to_end(&mut answer)).await;
    String::from_utf8_lossy(&answer).into_owned()
}

fn asked(answer: &str) -> Value {
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
}

/// Serves `bytes` in response to the first bytes of each connection, then closes it.
async fn saying(bytes: impl Into<String>) -> SocketAddr {
    let bytes = bytes.into();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut connection, _) = listener.accept().await.unwrap();
            let _ = connection.read(&mut [0; 1024]).await;
            connection.write_all(bytes.as_bytes()).await.unwrap();
        }
    });
    address
}

#[tokio::test]
async fn chunked_bodies_are_forwarded_for_every_method() {
    let model = serve(example_model::router()).await;
    for mode in MODES {
        let first = chain(model, &[("LUCID_AUDIT_MODE", mode)]).await;
        for claimed in ["", "Content-Length: 3\r\n"] {
            for method in ["POST", "GET", "DELETE"] {
                let request = format!(
                    "{method} / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{claimed}Transfer-Encoding: chunked\r\n\r\n\
                     5\r\nhello\r\n6;x=y\r\n there\r\n0\r\n\r\n"
                );
                let asked = asked(&exchange(first, request.as_bytes()).await);
                assert_eq!(asked["body"], "hello there", "{mode} {method} {claimed}");
                assert_ne!(asked["headers"]["content-length"], json!(["3"]), "{mode} {method}");
            }
        }
    }
}

#[tokio::test]
async fn ambiguous_requests_do_not_reach_the_model() {
    let (model, count) = counting_model().await;
    for mode in MODES {
        let first = auditor(model, &[("LUCID_AUDIT_MODE", mode)]).await;
        for lines in [
            "Content-Length: 5\r\nContent-Length: 6",
            "Content-Length: 5, 6",
            "Content-Length: +5",
            "Content-Length: 0x5",
            "Transfer-Encoding: chunked, identity",
            "Transfer-Encoding: identity",
            "Transfer-Encoding : chunked",
            "Transfer-Encoding: chunked\r\n Content-Length: 5",
            "X: a\0b",
            "X: a\rb",
        ] {
            let request = format!("POST / HTTP/1.1\r\nHost: a\r\n{lines}\r\n\r\nhello");
            let answer = exchange(first, request.as_bytes()).await;
            assert!(answer.starts_with("HTTP/1.1 400"), "{mode} {lines}: {answer}");
        }
        // HTTP/1.0 has no transfer codings.
        let answer =
            exchange(first, b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n");
        assert!(answer.await.contains(" 400 "), "{mode}");
    }
    assert_eq!(count.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn unsupported_codings_are_refused_in_both_directions() {
    let model = serve(Router::new().fallback(|| async { "answered" })).await;
    for mode in MODES {
        for path in ["/", "/audit"] {
            for lines in ["gzip, chunked", "gzip\r\nTransfer-Encoding: chunked", "chunked, chunked"] {
                let first = auditor(model, &[("LUCID_AUDIT_MODE", mode)]).await;
                let request = format!(
                    "POST {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: {lines}\r\n\r\n\
                     5\r\nhello\r\n0\r\n\r\n"
                );
                let answer = exchange(first, request.as_bytes()).await;
                assert!(answer.starts_with("HTTP/1.1 501"), "{mode} {path} {lines}: {answer}");
            }
        }
        for said in [
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nhello",
        ] {
            let first = auditor(saying(said).await, &[("LUCID_AUDIT_MODE", mode)]).await;
            let answer = get(first).await;
            assert_eq!(answer.status(), 502, "{mode} {said}");
        }
    }
}

#[tokio::test]
async fn the_rest_of_an_oversized_body_is_not_the_next_request() {
    let (model, count) = counting_model().await;
    let first = auditor(model, &[("MAX_BODY_BYTES", "16")]).await;
    let hidden = "GET /hidden HTTP/1.1\r\nHost: a\r\n\r\n";
    let request = format!(
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{}{hidden}\
         GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        100_000,
        "x".repeat(100_000 - hidden.len())
    );
    let answer = exchange(first, request.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 413") && answer.ends_with("answered"), "{answer}");
    assert_eq!(count.load(Ordering::SeqCst), 1, "{answer}");
}

/// Sends a POST request that continues with `rest`. Returns the status once all is sent.
async fn status_after_post(address: SocketAddr, rest: &str) -> String {
    status_of(address, &format!("POST / HTTP/1.1\r\nHost: a\r\n{rest}")).await
}

/// Sends a request. Returns the status once all is sent.
pub(crate) async fn status_of(address: SocketAddr, request: &str) -> String {
    let mut connection = TcpStream::connect(address).await.unwrap();
    within(connection.write_all(request.as_bytes())).await.unwrap();
    let mut status = [0; 12];
    within(connection.read_exact(&mut status)).await.unwrap();
    String::from_utf8_lossy(&status).strip_prefix("HTTP/1.1 ").unwrap().to_owned()
}

#[tokio::test]
async fn refused_callers_get_the_reason() {
    let first = auditor(NOBODY.parse().unwrap(), &[]).await;
    let large = "x".repeat(20_000_000);
    let known = format!("Content-Length: {}\r\n\r\n{large}", large.len());
    let chunks = format!("\r\n{:x}\r\n{large}\r\n0\r\n\r\n", large.len());
    for (rest, status) in [
        (known.clone(), "413"),
        (format!("Content-Encoding: compress\r\n{known}"), "415"),
        (format!("Transfer-Encoding: chunked\r\n{chunks}"), "413"),
        (format!("Transfer-Encoding: gzip, chunked\r\n{chunks}"), "501"),
    ] {
        assert_eq!(status_after_post(first, &rest).await, status);
    }
    // A waiting client has sent nothing; an interrupted one never completes its body.
    let coding = "Transfer-Encoding: gzip, chunked\r\n\r\n";
    let begin = Instant::now();
    for (rest, status) in [
        ("Expect: 100-continue\r\nContent-Length: 20000000\r\n\r\n", "413"),
        ("Expect: 100-continue\r\nContent-Encoding: compress\r\nContent-Length: 5\r\n\r\n", "415"),
        (&format!("Expect: 100-continue\r\n{coding}"), "501"),
    ] {
        assert_eq!(status_after_post(first, rest).await, status);
    }
    assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
    assert_eq!(status_after_post(first, &format!("{coding}5\r\nhel")).await, "501");
    assert!(begin.elapsed() < Duration::from_mins(1), "{:?}", begin.elapsed());
}

#[tokio::test]
async fn http_1_0_callers_get_a_complete_response_or_none() {
    let request = b"POST / HTTP/1.0\r\n\r\n";
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let known = "HTTP/1.1 200 OK\r\nContent-Length: ";
    for (mode, said, status, end) in [
        ("enforce", format!("{chunked}4\r\nhel\n\r\n2\r\nlo\r\n0\r\n\r\n"), 200, "content-length: 6"),
        ("enforce", format!("{chunked}5\r\nhello\r\n0\r\nx-sum: 7\r\n\r\n"), 200, "\r\n\r\nhello"),
        ("enforce", format!("{chunked}8\r\nthe secr\r\n7\r\net word\r\n0\r\n\r\n"), 403, "is refused"),
        ("observe", format!("{chunked}8\r\nthe secr\r\n7\r\net word\r\n0\r\n\r\n"), 200, "the secret word"),
        ("enforce", format!("{chunked}5\r\nhello\r\n"), 502, "incomplete answer"),
        ("enforce", format!("{chunked}21\r\n{}\r\n0\r\n\r\n", "x".repeat(33)), 422, "longer than 32"),
        ("enforce", format!("{known}33\r\n\r\n{}", "x".repeat(33)), 422, "longer than 32"),
        ("enforce", format!("{known}32\r\n\r\n{}", "x".repeat(32)), 200, "xxx"),
    ] {
        let variables = [("LUCID_AUDIT_MODE", mode), ("MAX_BODY_BYTES", "32")];
        let first = auditor(saying(said.clone()).await, &variables).await;
        let answer = exchange(first, request).await;
        assert!(
            answer.starts_with(&format!("HTTP/1.0 {status}")) && answer.contains(end),
            "{said}: {answer}"
        );
    }
}

#[tokio::test]
async fn no_header_is_added_to_a_response() {
    let chunked = "HTTP/1.1 200 OK\r\nX-Model: yes\r\nTransfer-Encoding: chunked\r\n\r\n";
    let empty = format!("{chunked}0\r\n\r\n");
    let known = "HTTP/1.1 200 OK\r\nX-Model: yes\r\nContent-Length: 5\r\n\r\n".to_owned();
    for (line, said, expected) in [
        ("POST /health", empty.clone(), &["x-model", "transfer-encoding"][..]),
        ("GET /audit", empty, &["x-model", "transfer-encoding"]),
        ("HEAD /", chunked.to_owned(), &["x-model"]),
        ("HEAD /", known, &["x-model", "content-length"]),
    ] {
        let first = auditor(saying(said).await, &[]).await;
        let request = format!("{line} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        let answer = exchange(first, request.as_bytes()).await;
        let (head, _) = answer.split_once("\r\n\r\n").unwrap();
        let names = head.lines().skip(1).map(|line| line.split_once(':').unwrap().0);
        // The server's own.
        let names: Vec<_> = names.filter(|name| !["date", "connection"].contains(name)).collect();
        assert_eq!(names, expected, "{line}: {answer}");
    }
}

#[tokio::test]
async fn idle_connections_are_not_reused() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let next = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut connection, _) = listener.accept().await.unwrap();
            // Closes when a second request arrives.
            tokio::spawn(async move {
                let mut request = [0; 1024];
                let _ = connection.read(&mut request).await;
                connection.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await.unwrap();
                let _ = connection.read(&mut request).await;
            });
        }
    });
    let first = auditor(next, &[]).await;
    for _ in 0..2 {
        let answer = get(first).await;
        assert_eq!(answer.status(), 200);
        assert_eq!(answer.text().await.unwrap(), "ok");
        tokio::time::sleep(Duration::from_millis(1500)).await;
    }
}

#[tokio::test]
async fn trailers_pass_in_both_directions() {
    let model = Router::new().fallback(|request: Request| async {
        let collected = request.into_body().collect().await.unwrap();
        let sum = collected.trailers().and_then(|trailers| trailers.get("x-sum").cloned());
        let mut trailers = HeaderMap::new();
        trailers.insert("x-echo", sum.unwrap_or(HeaderValue::from_static("none")));
        let frames = [Frame::data(collected.to_bytes()), Frame::trailers(trailers)].map(Ok::<_, Infallible>);
        let answer = Response::builder().header("trailer", "x-echo");
        answer.body(Body::new(StreamBody::new(stream::iter(frames)))).unwrap()
    });
    let model = serve(model).await;
    for mode in MODES {
        let first = chain(model, &[("LUCID_AUDIT_MODE", mode)]).await;
        let request = "POST / HTTP/1.1\r\nHost: a\r\nConnection: close, TE\r\nTE: trailers\r\nTrailer: x-sum\r\n\
                       Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX-Sum: 7\r\n\r\n";
        let answer = exchange(first, request.as_bytes()).await;
        assert!(answer.ends_with("\r\n5\r\nhello\r\n0\r\nx-echo: 7\r\n\r\n"), "{mode}: {answer}");
    }
}

#[tokio::test]
async fn the_trailers_token_is_forwarded_per_hop() {
    let first = chain(serve(example_model::router()).await, &[]).await;
    for (said, heard) in [
        ("TE: trailers, deflate", json!([["trailers"], ["TE"]])),
        ("TE: deflate;q=0.5\r\nTE: Trailers", json!([["trailers"], ["TE"]])),
        ("TE: deflate", json!([null, null])),
    ] {
        let request = format!(
            "GET / HTTP/1.1\r\nHost: a\r\nConnection: close, TE\r\nProxy-Connection: keep-alive\r\n{said}\r\n\r\n"
        );
        let asked = asked(&exchange(first, request.as_bytes()).await);
        let headers = &asked["headers"];
        assert_eq!(json!([headers["te"], headers["connection"]]), heard, "{said}");
        assert_eq!(headers["proxy-connection"], Value::Null);
    }
}

#[tokio::test]
async fn buffered_bodies_do_not_exceed_their_memory() {
    let model = serve(Router::new().fallback(|| async { "answered" })).await;
    let first = auditor(model, &[("MAX_BODY_BYTES", "16")]).await;
    let answers = async |status: u16| {
        within(async { while post(first, "x".repeat(16)).await.status() != status {} }).await;
    };
    // Each lacks a byte.
    let mut begun = Vec::new();
    for _ in 0..34 {
        let mut connection = TcpStream::connect(first).await.unwrap();
        let most = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 16\r\n\r\n{}", "x".repeat(15));
        connection.write_all(most.as_bytes()).await.unwrap();
        begun.push(connection);
    }
    answers(503).await;
    drop(begun);
    answers(200).await;
}

#[tokio::test]
async fn upgrades_and_tunnels_are_refused() {
    let first = chain(serve(example_model::router()).await, &[]).await;
    let upgrade = "GET /chat HTTP/1.1\r\nHost: a\r\nConnection: close, Upgrade\r\nUpgrade: websocket\r\n\
                   Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n";
    let answer = exchange(first, upgrade.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 501") && answer.contains("upgrade to websocket"), "{answer}");

    let tunnel = "CONNECT localhost:5000 HTTP/1.1\r\nHost: localhost:5000\r\nConnection: close\r\n\r\n";
    let answer = exchange(first, tunnel.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 405"), "{answer}");

    // A model that changes the protocol without a request.
    let rude =
        saying("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nhi")
            .await;
    for mode in MODES {
        let first = auditor(rude, &[("LUCID_AUDIT_MODE", mode)]).await;
        let answer = exchange(first, b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await;
        assert!(answer.starts_with("HTTP/1.1 502"), "{mode}: {answer}");
    }
}

#[tokio::test]
async fn websockets_are_connected_where_unjudged_content_passes() {
    for variable in [("LUCID_AUDIT_MODE", "observe"), ("LUCID_UNJUDGED", "pass")] {
        let model =
            saying("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nhi");
        let first = auditor(model.await, &[variable]).await;
        let upgrade = "GET /chat HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
        let answer = exchange(first, upgrade.as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 101") && answer.ends_with("hi"), "{variable:?}: {answer}");
    }
}

#[tokio::test]
async fn http2_without_tls_is_judged_too() {
    let model = Router::new().fallback(|request: Request| async move {
        let version = format!("{:?}", request.version());
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", HeaderValue::from_static("0"));
        let frames = [Frame::data(Bytes::from(version)), Frame::trailers(trailers)].map(Ok::<_, Infallible>);
        Response::new(Body::new(StreamBody::new(stream::iter(frames))))
    });
    let model = serve(model).await;
    let client = Client::builder(TokioExecutor::new()).http2_only(true).build_http::<Full<Bytes>>();
    for (unjudged, content_type, body, status, answer) in [
        ("refuse", "text/plain", "hello", 200, "HTTP/1.1"),
        ("refuse", "text/plain", "the secret word", 403, "is refused"),
        ("refuse", "application/grpc", "hello", 415, "found gRPC"),
        ("pass", "application/grpc+proto", "hello", 200, "HTTP/2.0"),
        ("pass", "application/grpc+JSON", r#"{"prompt":"hello"}"#, 415, "expected gRPC with protobuf"),
    ] {
        let first = auditor(model, &[("LUCID_UNJUDGED", unjudged)]).await;
        let request = hyper::Request::post(format!("http://{first}/")).header("content-type", content_type);
        let response = within(client.request(request.body(Full::from(body)).unwrap())).await.unwrap();
        assert_eq!(response.status(), status, "{content_type} {body}");
        let is_grpc = status == 200 && content_type.starts_with("application/grpc");
        let collected = within(response.into_body().collect()).await.unwrap();
        assert_eq!(collected.trailers().is_some_and(|trailers| trailers["grpc-status"] == "0"), is_grpc);
        let told = String::from_utf8(collected.to_bytes().to_vec()).unwrap();
        assert!(told.contains(answer), "{content_type} {body}: {told}");
    }
}

#[tokio::test]
async fn every_form_of_a_target_reaches_the_model() {
    let first = chain(serve(example_model::router()).await, &[]).await;
    for (line, uri, host) in [
        ("GET http://user:pass@model.test:81/a?b HTTP/1.1", "/a?b", "model.test:81"),
        ("GET http://model.test HTTP/1.1", "/", "model.test"),
        ("OPTIONS * HTTP/1.1", "*", "other.test"),
        ("GET //a/../b?? HTTP/1.1", "//a/../b??", "other.test"),
    ] {
        let request = format!("{line}\r\nHost: other.test\r\nConnection: close\r\n\r\n");
        let asked = asked(&exchange(first, request.as_bytes()).await);
        assert_eq!((&asked["uri"], &asked["headers"]["host"]), (&json!(uri), &json!([host])), "{line}");
    }
}

#[tokio::test]
async fn truncated_answers_do_not_look_complete() {
    for (said, status) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf", 502),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n", 200),
        ("HTTP/1.1 200 OK\r\nContent-", 502),
        ("nothing of HTTP\r\n\r\n", 502),
        ("", 502),
    ] {
        let first = auditor(saying(said).await, &[]).await;
        let answer = get(first).await;
        assert_eq!(answer.status(), status, "{said}");
        let body = within(answer.bytes()).await;
        assert_eq!(body.is_ok(), status == 502, "{said}: {body:?}");
    }
    for said in [
        // It ends with the connection.
        "HTTP/1.0 200 OK\r\n\r\nwhole",
        // The chunks take precedence over the length.
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nwhole\r\n0\r\n\r\n",
    ] {
        let first = auditor(saying(said).await, &[]).await;
        assert_eq!(within(get(first).await.text()).await.unwrap(), "whole", "{said}");
    }
}

#[tokio::test]
async fn large_bodies_are_streamed_in_both_directions() {
    const PIECES: usize = 256;
    let model =
        serve(Router::new().fallback(|request: Request| async { Response::new(request.into_body()) })).await;
    let first = chain(model, &[("LUCID_AUDIT_MODE", "observe"), ("MAX_BODY_BYTES", "1000")]).await;
    let piece = Bytes::from(vec![b'x'; 64 * 1024]);
    let pieces = stream::iter(vec![piece; PIECES]).map(|piece| Ok::<_, Infallible>(Frame::data(piece)));
    let body = reqwest::Body::wrap(StreamBody::new(pieces));
    let mut answer = post(first, body).await;
    let mut length = 0;
    while let Some(piece) = within(answer.chunk()).await.unwrap() {
        length += piece.len();
    }
    assert_eq!(length, PIECES * 64 * 1024);
}

struct OnDrop(UnboundedSender<()>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        let _ = self.0.unbounded_send(());
    }
}

#[tokio::test]
async fn disconnects_of_callers_reach_the_model() {
    let (tell, mut gone) = mpsc::unbounded();
    let model = Router::new().fallback(move || {
        let on_drop = OnDrop(tell.clone());
        async move {
            Body::from_stream(stream::repeat(()).then(move |()| {
                let _ = &on_drop;
                async {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    Ok::<_, Infallible>("piece")
                }
            }))
        }
    });
    let first = chain(serve(model).await, &[]).await;
    let mut answer = get(first).await;
    assert!(within(answer.chunk()).await.unwrap().is_some());
    drop(answer);
    within(gone.next()).await.unwrap();
}
