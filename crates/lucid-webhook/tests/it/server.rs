//! HTTP over TLS.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::{FutureExt, StreamExt, stream};
use http::Response;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Body, Frame};
use lucid_webhook::{BoxError, Server};
use tokio::sync::watch;
use tower::{ServiceBuilder, service_fn};

use crate::server_under_test::{TestServer, echo};
use crate::wire::{self, Authority, Http1, Http2};

#[tokio::test]
async fn an_address_in_use_is_an_error_before_anything_is_served() {
    let first = Server::bind(([127, 0, 0, 1], 0).into()).await.unwrap();
    assert_ne!(first.local_addr().port(), 0);
    let error = Server::bind(first.local_addr()).await.unwrap_err();
    assert!(error.to_string().starts_with(&format!("failed to listen on {}", first.local_addr())));
}

#[tokio::test]
async fn requests_succeed_and_connections_are_kept_alive() {
    let server = TestServer::echo(|it| it).await;
    // Sent bytes, the responses, and `true` if another request may follow.
    let cases: &[(&str, &[&str], bool)] = &[
        ("GET /a HTTP/1.1\r\nhost: a\r\n\r\n", &["GET /a "], true),
        ("\r\nGET /a HTTP/1.1\r\nhost: a\r\n\r\n", &["GET /a "], true),
        ("POST /a HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\n\r\nabc", &["POST /a abc"], true),
        (
            "POST /a HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n",
            &["POST /a abc"],
            true,
        ),
        (
            "POST /a HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\n\r\n1POST /b HTTP/1.1\r\nhost: a\r\n\
             content-length: 1\r\n\r\n2GET /c HTTP/1.1\r\nhost: a\r\n\r\n",
            &["POST /a 1", "POST /b 2", "GET /c "],
            true,
        ),
        ("GET /a HTTP/1.0\r\n\r\n", &["GET /a "], false),
        ("GET /a HTTP/1.0\r\nconnection: keep-alive\r\n\r\n", &["GET /a "], true),
        ("GET /a HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n", &["GET /a "], false),
    ];
    for (sent, answers, kept) in cases {
        let mut client = server.http1().await;
        client.send(sent).await.unwrap();
        for body in *answers {
            let answer = client.answer().await.unwrap();
            assert_eq!((answer.status, &*String::from_utf8_lossy(&answer.body)), (200, *body), "{sent}");
        }
        if *kept {
            assert_eq!(client.post("/again", "").await.unwrap().body, b"POST /again ", "{sent}");
        } else {
            assert!(client.ends_within(Duration::from_secs(5)).await, "{sent}");
        }
    }
    let mut client = server.http1().await;
    client.send("HEAD /a HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    let answer = client.answer_to("HEAD").await.unwrap();
    assert!(answer.head.contains("content-length: 8\r\n") && answer.body.is_empty(), "{answer:?}");
    assert_eq!(client.post("/again", "").await.unwrap().body, b"POST /again ");
}

#[tokio::test]
async fn invalid_http_gets_a_status_and_closes() {
    let server = TestServer::echo(|it| it).await;
    let long = format!("GET / HTTP/1.1\r\nhost: a\r\nx-long: {}\r\n\r\n", "a".repeat(20_000));
    let many = format!("GET / HTTP/1.1\r\nhost: a\r\n{}\r\n", "x: y\r\n".repeat(200));
    let cases = [
        ("nonsense\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nbad header\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: many\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n", 400),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
        (&long, 431),
        (&many, 431),
    ];
    for (sent, status) in cases {
        let mut client = server.http1().await;
        // The server may close before all of it is sent.
        client.send(sent).await.ok();
        let name = &sent[..sent.len().min(60)];
        match client.answer().await {
            Ok(answer) => assert_eq!(answer.status, status, "{name}"),
            Err(error) => assert_eq!(status, 400, "{name}: {error}"),
        }
        assert!(client.ends_within(Duration::from_secs(5)).await, "{name}");
    }
}

#[tokio::test]
async fn expect_100_continue_is_answered() {
    let server = TestServer::echo(|it| it).await;
    let mut client = server.http1().await;
    let head = "POST / HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 3\r\n\r\n";
    client.send(head).await.unwrap();
    assert_eq!(client.answer().await.unwrap().status, 100);
    client.send("abc").await.unwrap();
    assert_eq!(client.answer().await.unwrap().body, b"POST / abc");
    assert_eq!(client.post("/", "").await.unwrap().status, 200);
}

#[tokio::test]
async fn alpn_selects_the_protocol() {
    let server = TestServer::echo(|it| it).await;
    for alpn in ["", "http/1.1"] {
        let mut client =
            Http1::connect_as(server.address, server.authority.client_config(alpn)).await.unwrap();
        assert_eq!(client.post("/", "a").await.unwrap().body, b"POST / a", "{alpn:?}");
    }
    let mut client = server.http2().await;
    assert_eq!(client.post("/", "a").await.unwrap(), (200, "POST / a".into()));
    let error = wire::connect(server.address, server.authority.client_config("spdy/3")).await.unwrap_err();
    assert!(error.to_string().contains("NoApplicationProtocol"), "{error}");
}

#[tokio::test]
async fn an_oversized_h2_head_fails_only_its_own_request() {
    let server = TestServer::echo(|it| it).await;
    let mut client = server.http2().await;
    let long = Http2::request("/").header("x-long", "a".repeat(20_000)).body(()).unwrap();
    match client.send(long, "").await {
        Ok((status, _)) => assert_eq!(status, 431),
        Err(error) => assert!(error.is_reset(), "{error}"),
    }
    assert_eq!(client.post("/", "a").await.unwrap().0, 200);
}

#[tokio::test]
async fn an_h2_response_to_head_has_a_length_and_no_body() {
    let server = TestServer::echo(|it| it).await;
    let mut client = server.http2().await;
    let (mut length, mut bodies) = (Vec::new(), Vec::new());
    for method in ["GET", "HEAD"] {
        let request = Http2::request("/a").method(method).body(()).unwrap();
        let (head, body) = client.exchange(request, "").await.unwrap();
        assert_eq!(head.status, 200, "{method}");
        length.push(head.headers["content-length"].to_str().unwrap().parse::<usize>().unwrap());
        bodies.push(body.len());
    }
    // Each body starts with its method.
    assert_eq!((length[0], bodies[0]), ("GET /a ".len(), "GET /a ".len()));
    assert_eq!((length[1], bodies[1]), ("HEAD /a ".len(), 0));
    assert_eq!(client.post("/", "a").await.unwrap(), (200, "POST / a".into()));
}

/// Replaces the body of a response like a layer would: another type of unknown length, sent in pieces, which fails if
/// the response says so.
fn in_pieces(
    response: Response<Full<Bytes>>,
) -> Response<impl Body<Data = Bytes, Error = BoxError> + Send + 'static> {
    response.map(|body| {
        let text = body.collect().now_or_never().unwrap().unwrap().to_bytes();
        let failure = text.ends_with(b"fail").then(|| Err(BoxError::from("the disk is full")));
        let pieces: Vec<_> = text.chunks(3).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
        let pieces = stream::iter(pieces.into_iter().chain(failure));
        StreamBody::new(pieces.then(async |piece| {
            tokio::task::yield_now().await;
            piece.map(Frame::data)
        }))
    })
}

#[tokio::test]
async fn a_layer_may_change_the_body_of_a_response() {
    let service = ServiceBuilder::new().map_response(in_pieces).service_fn(echo);
    let server = TestServer::with_tls(Authority::new(), None, service, |it| it).await;
    let (mut http1, mut http2) = (server.http1().await, server.http2().await);
    for (sent, status, says) in [("abcdef", 200, "POST /a abcdef"), ("fail", 500, "the disk is full")] {
        let (one, two) = (http1.post("/a", sent).await.unwrap(), http2.post("/a", sent).await.unwrap());
        assert_eq!((one.status, two.0), (status, status), "{sent}");
        for body in [&one.body[..], &two.1] {
            assert!(String::from_utf8_lossy(body).contains(says), "{sent}: {body:?}");
        }
    }
    http1.send("HEAD /a HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    let answer = http1.answer_to("HEAD").await.unwrap();
    assert!(answer.head.contains("content-length: 8\r\n") && answer.body.is_empty(), "{answer:?}");
    assert_eq!(http1.post("/a", "").await.unwrap().body, b"POST /a ");
}

#[tokio::test]
async fn h2_requests_are_handled_concurrently() {
    let server = TestServer::echo(|it| it).await;
    let client = server.http2().await;
    let begin = tokio::time::Instant::now();
    let calls = (0..50).map(|_| {
        let mut client = client.clone();
        async move { client.post("/millis/500", "").await.unwrap().0 }
    });
    assert_eq!(futures::future::join_all(calls).await, [200; 50]);
    // Sequentially they would take 25 s.
    assert!(begin.elapsed() < Duration::from_secs(12));
}

#[tokio::test]
async fn a_new_tls_configuration_applies_to_new_connections() {
    let (old, new) = (Authority::new(), Authority::new());
    let (sender, receiver) = watch::channel(old.server_config());
    let server =
        TestServer::with_tls(Authority::new(), Some(receiver.into()), service_fn(echo), |it| it).await;
    let mut before = Http1::connect(server.address, &old).await.unwrap();
    assert!(Http1::connect(server.address, &new).await.is_err());
    sender.send_replace(new.server_config());
    let mut after = Http1::connect(server.address, &new).await.unwrap();
    assert!(Http1::connect(server.address, &old).await.is_err());
    let answer = before.post("/", "").await.unwrap();
    assert!(answer.status == 200 && answer.closes(), "{answer:?}");
    drop(sender);
    let answer = after.post("/", "").await.unwrap();
    assert!(answer.status == 200 && !answer.closes(), "{answer:?}");
    assert!(Http1::connect(server.address, &new).await.is_ok(), "the last one stays");
}

#[tokio::test]
async fn failed_handshakes_do_not_affect_the_server() {
    use tokio::io::AsyncWriteExt;
    let server = TestServer::echo(|it| it).await;
    let stranger = Arc::new(Authority::new().client_config("http/1.1"));
    for _ in 0..20 {
        assert!(wire::connect(server.address, Arc::clone(&stranger)).await.is_err());
        let mut plain = tokio::net::TcpStream::connect(server.address).await.unwrap();
        plain.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
        drop(tokio::net::TcpStream::connect(server.address).await.unwrap());
    }
    let mut client = server.http1().await;
    assert_eq!(client.post("/", "").await.unwrap().status, 200);
}

#[tokio::test]
async fn dropping_the_server_ends_its_connections() {
    let server = TestServer::echo(|it| it).await;
    let mut client = server.http1().await;
    assert_eq!(client.post("/", "").await.unwrap().status, 200);
    server.serving.abort();
    assert!(client.ends_within(Duration::from_secs(5)).await);
}
