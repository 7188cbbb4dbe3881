//! Limits of connections.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, setrlimit};

use crate::server_under_test::TestServer;
use crate::wire::Http1;

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test]
async fn new_connections_evict_the_longest_idle_ones() {
    let server = TestServer::echo(|it| it.with_connection_limit(3)).await;
    let connect = async || tokio::time::timeout(5 * SECOND, server.http1()).await.expect("it waits");
    let (mut first, mut silent, mut second) = (connect().await, connect().await, connect().await);
    for client in [&mut first, &mut second] {
        assert_eq!(client.post("/", "").await.unwrap().status, 200);
    }
    tokio::time::sleep(SECOND).await;
    let mut third = connect().await;
    assert!(silent.ends_within(5 * SECOND).await);
    assert_eq!(third.post("/", "").await.unwrap().status, 200);
    let mut fourth = connect().await;
    assert!(first.ends_within(5 * SECOND).await);
    for client in [&mut second, &mut third, &mut fourth] {
        assert_eq!(client.post("/", "").await.unwrap().status, 200);
    }
}

#[tokio::test]
async fn connections_with_requests_in_flight_stay() {
    let server = TestServer::echo(|it| it.with_connection_limit(2)).await;
    let (mut one, mut two) = (server.http1().await, server.http1().await);
    let slow = "POST /millis/6000 HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n";
    one.send(slow).await.unwrap();
    two.send(slow).await.unwrap();
    tokio::time::sleep(SECOND / 5).await;
    let begin = tokio::time::Instant::now();
    let mut waiting = server.http1().await;
    assert!(begin.elapsed() > SECOND / 2, "accepted above the limit");
    let (answer, one, two) = tokio::join!(waiting.post("/", ""), one.answer(), two.answer());
    assert_eq!((answer.unwrap().status, one.unwrap().status, two.unwrap().status), (200, 200, 200));
}

#[tokio::test]
async fn connections_without_a_handshake_are_evicted() {
    let server = TestServer::echo(|it| it.with_connection_limit(20)).await;
    let mut silent = Vec::new();
    for _ in 0..100 {
        silent.push(tokio::net::TcpStream::connect(server.address).await.unwrap());
    }
    let call = async { server.http1().await.post("/", "").await.unwrap().status };
    assert_eq!(tokio::time::timeout(5 * SECOND, call).await.expect("locked out"), 200);
}

/// Runs [`serve_with_few_descriptors`] in a separate process.
#[tokio::test]
async fn a_server_without_file_descriptors_evicts_and_continues() {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "limits::serve_with_few_descriptors", "--ignored", "--nocapture"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let line = lines.find(|line| line.starts_with("serving ")).expect("it does not serve");
    let mut words = line.split(' ').skip(1);
    let address = words.next().unwrap().parse().unwrap();
    let der: Vec<u8> = words.map(|byte| byte.parse().unwrap()).collect();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(der.into()).unwrap();
    let config = std::sync::Arc::new(
        rustls::ClientConfig::builder_with_provider(crate::wire::provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth(),
    );
    let mut clients = Vec::new();
    let result = tokio::time::timeout(60 * SECOND, async {
        for _ in 0..150 {
            let mut client = Http1::connect_as(address, std::sync::Arc::clone(&config)).await?;
            assert_eq!(client.post("/", "").await?.status, 200);
            clients.push(client);
        }
        Ok::<_, std::io::Error>(())
    })
    .await;
    child.kill().unwrap();
    child.wait().unwrap();
    result.expect("it does not go on").expect("a call failed");
}

#[tokio::test]
#[ignore = "a process that another test starts"]
async fn serve_with_few_descriptors() {
    let limit = Some(64);
    setrlimit(Resource::Nofile, Rlimit { current: limit, maximum: limit }).unwrap();
    let server = TestServer::echo(|it| it).await;
    let der: Vec<String> = server.authority.der.iter().map(u8::to_string).collect();
    println!("\nserving {} {}", server.address, der.join(" "));
    server.serving.await.unwrap();
}
