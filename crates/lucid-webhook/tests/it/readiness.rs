//! Connections of a server that is not ready.

use std::time::Duration;

use lucid_webhook::{Condition, Readiness};

use crate::server_under_test::TestServer;

const PATIENCE: Duration = Duration::from_secs(10);

async fn start() -> (TestServer, Condition) {
    let readiness = Readiness::default();
    let synced = readiness.condition("synced");
    (TestServer::echo(|it| it.with_lame_duck(PATIENCE).with_readiness(readiness)).await, synced)
}

#[tokio::test]
async fn an_unready_replica_closes_connections_and_still_responds() {
    let (server, synced) = start().await;
    synced.set(true);
    let (mut idle, mut busy, mut fresh) = (server.http1().await, server.http1().await, server.http1().await);
    let mut http2 = server.http2().await;
    for client in [&mut idle, &mut busy] {
        assert!(!client.post("/", "").await.unwrap().closes(), "ready");
    }
    let head = "POST /busy HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 1\r\n\r\n";
    busy.send(head).await.unwrap();
    assert_eq!(busy.answer().await.unwrap().status, 100);
    let (in_flight, mut body) = http2.open("/busy").await.unwrap();
    assert_eq!(http2.post("/", "").await.unwrap().0, 200, "the one before has come as well");

    synced.set(false);
    assert!(idle.ends_within(PATIENCE).await, "an idle one has nothing to wait for");
    busy.send("1").await.unwrap();
    let answer = busy.answer().await.unwrap();
    assert!(answer.closes() && answer.body == b"POST /busy 1", "{answer:?}");
    let answer = fresh.post("/", "first").await.unwrap();
    assert!(answer.closes() && answer.status == 503, "{answer:?}");
    assert!(answer.head.contains("retry-after: 1\r\n"), "{answer:?}");
    body.send_data("2".into(), true).unwrap();
    assert_eq!(in_flight.await.unwrap().status(), 200);
    assert!(http2.ends_within(PATIENCE).await, "GOAWAY");
    // There may be no other replica.
    while server.http1().await.post("/", "").await.unwrap().status == 503 {}
}

#[tokio::test]
async fn connections_to_unready_replicas_serve_one_request() {
    let (server, synced) = start().await;
    let mut new = server.http1().await;
    assert!(new.post("/", "").await.unwrap().closes());
    let mut new = server.http2().await;
    assert_eq!(new.post("/", "a").await.unwrap(), (200, "POST / a".into()));
    assert!(new.ends_within(PATIENCE).await, "GOAWAY");

    let (mut one, mut two) = (server.http1().await, server.http2().await);
    synced.set(true);
    for _ in 0..2 {
        assert!(!one.post("/", "").await.unwrap().closes(), "ready again");
        assert_eq!(two.post("/", "").await.unwrap().0, 200);
    }
}

#[tokio::test]
async fn readiness_lost_at_shutdown_leaves_idle_connections_open() {
    let (mut server, synced) = start().await;
    synced.set(true);
    let (mut idle, mut other) = (server.http1().await, server.http1().await);
    assert_eq!(idle.post("/", "").await.unwrap().status, 200);
    assert_eq!(other.post("/", "").await.unwrap().status, 200);
    server.leave();
    synced.set(false);
    // The first response that closes its connection shows that the server has observed the change.
    while !other.post("/", "").await.unwrap().closes() {}
    assert!(idle.post("/", "").await.unwrap().closes());
}
