//! Liveness, readiness and metrics over HTTP.

use std::net::SocketAddr;
use std::time::Duration;

use lucid_webhook::{AdminServer, Readiness};
use prometheus_client::registry::Registry;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;

const HEALTHZ: &[u8] = b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n";

async fn start() -> (SocketAddr, JoinHandle<std::convert::Infallible>) {
    let server = AdminServer::bind(([127, 0, 0, 1], 0).into()).await.unwrap();
    let address = server.local_addr();
    (address, tokio::spawn(server.serve(Readiness::default(), Registry::default())))
}

async fn ask(stream: &mut TcpStream, sent: &[u8]) -> String {
    stream.write_all(sent).await.unwrap();
    let mut answer = [0; 15];
    stream.read_exact(&mut answer).await.unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn readyz_lists_missing_conditions_independently_of_healthz() {
    let readiness = Readiness::default();
    let certificates = readiness.condition("certificates");
    let synced = readiness.condition("configuration synced");
    let mut registry = Registry::default();
    registry.register("answers", "A counter", prometheus_client::metrics::counter::Counter::<u64>::default());
    let server = AdminServer::bind(([127, 0, 0, 1], 0).into()).await.unwrap();
    let base = format!("http://{}", server.local_addr());
    tokio::spawn(server.serve(readiness, registry));
    let get = async |path: &str| {
        let response = reqwest::get(format!("{base}{path}")).await.unwrap();
        (response.status().as_u16(), response.text().await.unwrap())
    };
    assert_eq!(get("/healthz").await, (200, "ok\n".into()));
    assert_eq!(get("/readyz").await, (503, "not ready: certificates, configuration synced\n".into()));
    synced.set(true);
    assert_eq!(get("/readyz").await, (503, "not ready: certificates\n".into()));
    certificates.set(true);
    assert_eq!(get("/readyz").await, (200, "ok\n".into()));
    certificates.set(false);
    assert_eq!(get("/readyz").await.0, 503);
    let (status, text) = get("/metrics").await;
    assert!(status == 200 && text.contains("answers_total 0\n") && text.ends_with("# EOF\n"), "{text}");
    assert_eq!(get("/").await.0, 404);
}

#[tokio::test]
async fn a_condition_follows_its_source_until_it_ends() {
    let readiness = Readiness::default();
    let certificates = readiness.condition("certificates");
    let (knows, source) = tokio::sync::watch::channel(true);
    let following = tokio::spawn(certificates.clone().follow(source));
    certificates.wait().await;
    assert!(readiness.missing().is_empty());
    drop(knows);
    following.await.unwrap();
    assert_eq!(readiness.missing(), ["certificates"]);
}

#[tokio::test]
async fn connections_end_with_the_server() {
    let (address, serving) = start().await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    assert_eq!(ask(&mut stream, HEALTHZ).await, "HTTP/1.1 200 OK");
    serving.abort();
    let mut rest = Vec::new();
    timeout(Duration::from_secs(2), stream.read_to_end(&mut rest)).await.expect("it stays").ok();
}
