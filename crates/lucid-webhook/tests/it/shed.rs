//! Load shedding.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use lucid_webhook::Server;
use lucid_webhook::layers::ShedLayer;
use tower::{Layer, Service, ServiceExt, service_fn};

use crate::http::assert_refusal;
use crate::server::echo;
use crate::wire::{Authority, Http1};

#[tokio::test]
async fn requests_above_the_limit_get_429_and_keep_their_connection() {
    let authority = Authority::new();
    let server = Server::bind(([127, 0, 0, 1], 0).into()).await.unwrap();
    let address = server.local_addr();
    let service = ShedLayer::new(2).layer(service_fn(echo));
    tokio::spawn(server.serve(authority.server_config(), service, std::future::pending()));
    let connect = async || Http1::connect(address, &authority).await.unwrap();
    let (mut one, mut two, mut three) = (connect().await, connect().await, connect().await);
    let slow = "POST /millis/1500 HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n";
    one.send(slow).await.unwrap();
    two.send(slow).await.unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    for body in [String::new(), "x".repeat(3_000_000)] {
        let refused = three.post("/", &body).await.unwrap();
        assert_eq!(refused.status, 429);
        assert!(refused.head.contains("\r\nretry-after: 1\r\n") && !refused.closes(), "{}", refused.head);
        let status = serde_json::from_slice(&refused.body).unwrap();
        assert_refusal(&status, 429, "too many concurrent requests");
    }
    assert_eq!(one.answer().await.unwrap().status, 200);
    assert_eq!(two.answer().await.unwrap().status, 200);
    assert_eq!(three.post("/", "a").await.unwrap().body, b"POST / a", "on the same connection");
}

#[tokio::test]
async fn clones_share_the_limit() {
    let never = service_fn(|_: Request<Full<Bytes>>| {
        std::future::pending::<Result<Response<Full<Bytes>>, Infallible>>()
    });
    let request = || Request::new(Full::<Bytes>::default());
    let layer = ShedLayer::new(1);
    let (mut first, second) = (layer.layer(never), layer.clone().layer(never));
    let in_flight = first.call(request());
    for service in [first.clone(), second.clone()] {
        assert_eq!(service.oneshot(request()).await.unwrap().status(), 429);
    }
    drop(in_flight);
    let waits = tokio::time::timeout(Duration::from_millis(50), second.oneshot(request())).await;
    assert!(waits.is_err(), "a cancelled request makes room");
    assert_eq!(ShedLayer::new(0).layer(never).oneshot(request()).await.unwrap().status(), 429);
}
