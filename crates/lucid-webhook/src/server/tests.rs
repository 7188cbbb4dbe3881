//! Timeouts, tested with short periods.

#![allow(clippy::panic, reason = "helpers of tests")]

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};
use tower::service_fn;

use super::activity::Periods;
use super::*;

#[allow(dead_code, clippy::unwrap_used, reason = "what the integration tests use as well")]
#[path = "../../tests/it/wire.rs"]
mod wire;

use wire::{Authority, Http1, Http2};

/// Larger than the socket buffers.
const LARGE: usize = 64 * 1024 * 1024;

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

async fn serve(request: Request<RequestBody>) -> Result<Response<Full<Bytes>>, Infallible> {
    let path = request.uri().path().to_owned();
    let body = match path.as_str() {
        "/large" => Bytes::from(vec![b'x'; LARGE]),
        "/slow" => {
            sleep(millis(1200)).await;
            Bytes::from_static(b"slow")
        }
        "/heedless" => Bytes::from_static(b"heedless"),
        "/panic" => panic!("on purpose"),
        _ => request.into_body().collect().await.map_or_else(|_| Bytes::new(), |body| body.to_bytes()),
    };
    Ok(Response::new(Full::new(body)))
}

async fn start(periods: Periods) -> (SocketAddr, Authority) {
    let authority = Authority::new();
    let server = Server::bind(([127, 0, 0, 1], 0).into()).await.unwrap().with_periods(periods);
    let address = server.local_addr();
    tokio::spawn(server.serve(authority.server_config(), service_fn(serve), std::future::pending()));
    (address, authority)
}

fn periods() -> Periods {
    Periods { headers: millis(400), ..Periods::default() }
}

#[tokio::test]
async fn slow_headers_time_out_and_idle_connections_do_not() {
    let (address, authority) = start(periods()).await;
    let connect = || Http1::connect(address, &authority);
    let (mut used, mut fresh) = (connect().await.unwrap(), connect().await.unwrap());
    assert_eq!(used.post("/", "a").await.unwrap().body, b"a");
    for first in [true, false] {
        let mut attacker = connect().await.unwrap();
        if !first {
            assert_eq!(attacker.post("/", "a").await.unwrap().status, 200);
        }
        let begin = Instant::now();
        for byte in b"POST / HTTP/1.1\r\nhost: localhost\r\nx-long: ".iter().chain([b'a'].iter().cycle()) {
            if attacker.send([*byte]).await.is_err() || attacker.ends_within(millis(20)).await {
                break;
            }
        }
        assert!((millis(350)..millis(60_000)).contains(&begin.elapsed()), "{:?}", begin.elapsed());
    }
    assert_eq!(used.post("/", "b").await.unwrap().body, b"b");
    assert_eq!(fresh.post("/", "c").await.unwrap().body, b"c", "it had not sent a request yet");
}

#[tokio::test]
async fn stalled_handshakes_time_out() {
    let (address, _) = start(Periods { handshake: millis(400), ..periods() }).await;
    for sent in [&b""[..], b"\x16\x03\x01\x02\x00\x01"] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(sent).await.unwrap();
        let begin = Instant::now();
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).await.ok();
        assert!((millis(350)..millis(60_000)).contains(&begin.elapsed()), "{:?}", begin.elapsed());
    }
}

#[tokio::test]
async fn idle_connections_time_out() {
    let (address, authority) = start(Periods { idle: millis(3000), ..periods() }).await;
    let mut http1 = Http1::connect(address, &authority).await.unwrap();
    let mut http2 = Http2::connect(address, &authority).await.unwrap();
    for _ in 0..3 {
        assert_eq!(http1.post("/", "").await.unwrap().status, 200);
        assert_eq!(http2.post("/", "").await.unwrap().0, 200);
        sleep(millis(1100)).await;
    }
    assert!(http1.ends_within(millis(20_000)).await);
    assert!(http2.ends_within(millis(20_000)).await);
}

#[tokio::test]
async fn a_service_may_take_longer_than_any_timeout() {
    let (address, authority) =
        start(Periods { idle: millis(500), response: millis(500), closing: millis(500), ..periods() }).await;
    let mut http1 = Http1::connect(address, &authority).await.unwrap();
    let mut http2 = Http2::connect(address, &authority).await.unwrap();
    let (one, two) = tokio::join!(http1.post("/slow", ""), http2.post("/slow", ""));
    assert_eq!(one.unwrap().body, b"slow");
    assert_eq!(two.unwrap().1, "slow");
}

#[tokio::test]
async fn clients_that_stop_reading_are_disconnected() {
    let request = "GET /large HTTP/1.1\r\nhost: localhost\r\n\r\n";
    for (pause, stall, complete) in [(0, 60_000, true), (2500, 400, false)] {
        let (address, authority) = start(Periods { stall: millis(stall), ..periods() }).await;
        let mut client = Http1::connect(address, &authority).await.unwrap();
        client.send(request).await.unwrap();
        sleep(millis(pause)).await;
        let answer = client.answer().await;
        assert_eq!(answer.is_ok_and(|answer| answer.body.len() == LARGE), complete, "{pause} ms");
    }
}

#[tokio::test]
async fn a_slowly_read_response_times_out() {
    let (address, authority) = start(Periods { response: millis(600), ..periods() }).await;
    let mut client = Http1::connect(address, &authority).await.unwrap();
    client.send("GET /large HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let mut buffer = vec![0; 1024 * 1024];
    let mut read = 0;
    for _ in 0..LARGE / buffer.len() {
        sleep(millis(50)).await;
        match client.stream.read_exact(&mut buffer).await {
            Ok(_) => read += buffer.len(),
            Err(_) => break,
        }
    }
    assert!(read < LARGE / 2, "{read}");
}

#[tokio::test]
async fn an_unread_h2_response_closes_its_connection() {
    let (address, authority) = start(Periods { response: millis(800), ..periods() }).await;
    // The window takes an empty response and a small one, but not the third.
    let mut settings = h2::client::Builder::new();
    settings.initial_window_size(4);
    let mut client = Http2::connect_as(address, &authority, &settings).await.unwrap();
    for body in ["", "abcd"] {
        assert_eq!(client.post("/", body).await.unwrap().1, body);
        assert!(!client.ends_within(millis(1000)).await);
    }
    let (answer, mut body) = client.open("/").await.unwrap();
    body.reserve_capacity(5);
    body.send_data(Bytes::from_static(b"abcde"), true).unwrap();
    let answer = answer.await.unwrap();
    let begin = Instant::now();
    assert_eq!(answer.status(), 200);
    assert!(client.ends_within(millis(20_000)).await);
    assert!((millis(700)..millis(60_000)).contains(&begin.elapsed()), "{:?}", begin.elapsed());
}

#[tokio::test]
async fn an_unread_body_does_not_count_as_headers() {
    let (address, authority) = start(periods()).await;
    let mut client = Http1::connect(address, &authority).await.unwrap();
    for body in ["x".repeat(10), "x".repeat(20_000)] {
        let answer = client.post("/heedless", &body).await.unwrap();
        sleep(millis(800)).await;
        if answer.closes() || client.ends_within(millis(1)).await {
            client = Http1::connect(address, &authority).await.unwrap();
            assert!(body.len() > 10, "a body that has arrived is not a reason to close");
        }
    }
}

#[tokio::test]
async fn a_panicking_service_fails_only_its_own_request() {
    let (address, authority) = start(periods()).await;
    let mut http1 = Http1::connect(address, &authority).await.unwrap();
    assert!(http1.post("/panic", "").await.is_err());
    let mut http2 = Http2::connect(address, &authority).await.unwrap();
    assert!(http2.post("/panic", "").await.is_err());
    assert_eq!(http2.post("/", "a").await.unwrap().1, "a", "HTTP/2 has other streams");
    let mut http1 = Http1::connect(address, &authority).await.unwrap();
    assert_eq!(http1.post("/", "a").await.unwrap().body, b"a");
}
