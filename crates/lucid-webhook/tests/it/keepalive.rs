//! Idle connections in real time.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::server_under_test::TestServer;

/// Takes minutes: run with `cargo test -p lucid-webhook --test it -- --ignored slow`.
mod slow {
    use super::*;

    /// The API server keeps an idle connection for 90 s. Another request on it after 96 s must succeed, while a client
    /// that never completes its headers was disconnected long before.
    #[tokio::test]
    #[ignore = "takes 96 s"]
    async fn idle_connections_live_96_s_and_slow_headers_time_out() {
        let server = TestServer::echo(|it| it).await;
        let (mut http1, mut unused) = (server.http1().await, server.http1().await);
        let mut http2 = server.http2().await;
        assert_eq!(http1.post("/", "1").await.unwrap().body, b"POST / 1");
        assert_eq!(http2.post("/", "1").await.unwrap().1, "POST / 1");
        let mut attacker = server.http1().await;
        let attack = tokio::spawn(async move {
            let begin = Instant::now();
            attacker.send("POST / HTTP/1.1\r\nhost: localhost\r\nx-long: ").await.unwrap();
            while !attacker.ends_within(Duration::from_secs(1)).await {
                if attacker.send("a").await.is_err() {
                    break;
                }
            }
            begin.elapsed()
        });
        sleep(Duration::from_secs(96)).await;
        assert_eq!(http1.post("/", "2").await.unwrap().body, b"POST / 2");
        assert_eq!(http2.post("/", "2").await.unwrap().1, "POST / 2");
        assert_eq!(unused.post("/", "2").await.unwrap().body, b"POST / 2", "connected ahead of its need");
        let lasted = attack.await.unwrap().as_secs_f64();
        assert!((9.5..13.0).contains(&lasted), "{lasted} s");
    }
}
