//! Shutdown without losing requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::server_under_test::TestServer;
use crate::wire::Http1;

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

async fn start(lame_duck: Duration) -> TestServer {
    TestServer::echo(|it| it.with_lame_duck(lame_duck).with_drain(Duration::from_secs(60))).await
}

/// Clients keep their connections, reconnect after `Connection: close`, and never retry.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_is_lost_during_a_takeover() {
    let (mut old, new) = (start(millis(5000)).await, start(millis(5000)).await);
    let configs = [&old, &new].map(|server| Arc::new(server.authority.client_config("http/1.1")));
    let endpoints = Arc::new(std::sync::Mutex::new((old.address, Arc::clone(&configs[0]))));
    let asked_to_go = Arc::new(AtomicUsize::new(0));
    let end = Instant::now() + millis(8000);
    let clients: Vec<_> = (0..32_u64)
        .map(|client| {
            let (endpoints, asked) = (Arc::clone(&endpoints), Arc::clone(&asked_to_go));
            tokio::spawn(async move {
                let mut connection = None;
                let mut calls = 0;
                while Instant::now() < end {
                    let mut http1 = match connection.take() {
                        Some(http1) => http1,
                        None => {
                            let (address, config) = endpoints.lock().unwrap().clone();
                            Http1::connect_as(address, config).await.expect("failed to connect")
                        }
                    };
                    let path = format!("/millis/{}", (client * 7 + calls * 13) % 60);
                    let answer = http1.post(&path, "a body").await.expect("a call was lost");
                    assert_eq!(answer.status, 200);
                    calls += 1;
                    if answer.closes() {
                        asked.fetch_add(1, Ordering::Relaxed);
                    } else {
                        connection = Some(http1);
                    }
                    sleep(millis(client % 5)).await;
                }
                calls
            })
        })
        .collect();
    sleep(millis(700)).await;
    old.leave();
    // The API server observes it a little later.
    sleep(millis(300)).await;
    *endpoints.lock().unwrap() = (new.address, Arc::clone(&configs[1]));
    let mut calls = 0;
    for client in clients {
        calls += client.await.unwrap();
    }
    assert!(calls >= 64, "{calls}");
    assert!(asked_to_go.load(Ordering::Relaxed) >= 32, "everyone has to be asked to go");
    tokio::time::timeout(Duration::from_secs(60), old.serving).await.expect("it hangs").unwrap();
}

#[tokio::test]
async fn requests_in_flight_complete_and_idle_connections_close_last() {
    let mut server = start(millis(500)).await;
    let (mut busy, mut idle, mut half) = (server.http1().await, server.http1().await, server.http1().await);
    let mut http2 = server.http2().await;
    for client in [&mut busy, &mut idle, &mut half] {
        assert!(!client.post("/", "").await.unwrap().closes());
    }
    busy.send("GET /millis/8000 HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    let second = tokio::spawn({
        let mut http2 = http2.clone();
        async move { http2.post("/millis/8000", "").await }
    });
    half.send("POST /half HTTP/1.1\r\nhost: a\r\ncontent-le").await.unwrap();
    sleep(millis(100)).await;
    let address = server.address;
    server.leave();
    sleep(millis(800)).await;
    assert!(tokio::net::TcpStream::connect(address).await.is_err(), "it still takes connections");
    assert!(!idle.ends_within(millis(50)).await, "idle connections close last: a request may be on its way");
    let last = idle.post("/", "last").await.unwrap();
    assert!(last.closes() && last.body == b"POST / last");
    half.send("ngth: 1\r\n\r\n1").await.unwrap();
    let answer = half.answer().await.unwrap();
    assert!(answer.closes() && answer.body == b"POST /half 1");
    let answer = busy.answer().await.unwrap();
    assert!(answer.closes() && answer.status == 200);
    assert_eq!(second.await.unwrap().unwrap().0, 200);
    assert!(http2.ends_within(Duration::from_secs(20)).await);
    tokio::time::timeout(Duration::from_secs(20), server.serving).await.expect("it hangs").unwrap();
}

#[tokio::test]
async fn idle_connections_do_not_delay_shutdown() {
    let mut server = start(millis(500)).await;
    let mut http1 = server.http1().await;
    let mut http2 = server.http2().await;
    assert_eq!(http1.post("/", "").await.unwrap().status, 200);
    assert_eq!(http2.post("/", "").await.unwrap().0, 200);
    let begin = Instant::now();
    server.leave();
    server.serving.await.unwrap();
    assert!((millis(500)..millis(20_000)).contains(&begin.elapsed()), "{:?}", begin.elapsed());
    assert!(http1.ends_within(millis(5000)).await && http2.ends_within(millis(5000)).await);
}

#[tokio::test]
async fn the_wait_for_requests_in_flight_is_bounded() {
    let mut server = TestServer::echo(|it| it.with_lame_duck(Duration::ZERO).with_drain(millis(500))).await;
    let mut client = server.http1().await;
    client.send("GET /millis/60000 HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    sleep(millis(100)).await;
    server.leave();
    tokio::time::timeout(Duration::from_secs(20), server.serving).await.expect("it hangs").unwrap();
    assert!(client.ends_within(Duration::from_secs(20)).await);
}

#[tokio::test]
async fn an_h2_client_gets_goaway_early_and_loses_nothing() {
    let mut server = start(millis(5000)).await;
    let mut old = server.http2().await;
    let in_flight = tokio::spawn({
        let mut old = old.clone();
        async move { old.post("/millis/300", "").await }
    });
    sleep(millis(50)).await;
    server.leave();
    assert_eq!(in_flight.await.unwrap().unwrap().0, 200);
    assert!(old.ends_within(millis(4000)).await, "GOAWAY ends it with its last request");
    let mut new = server.http2().await;
    assert_eq!(new.post("/", "").await.unwrap().0, 200);
    assert_eq!(new.post("/", "").await.unwrap().0, 200);
}
