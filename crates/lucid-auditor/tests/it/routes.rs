//! Several ports, each with its own next hop.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use lucid_auditor::{Auditor, Metrics, Stage};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::{NOBODY, Phrase, client, get, post, serve, within};

/// An auditor with a listener in front of each of several models.
struct Routes {
    ports: Vec<SocketAddr>,
    metrics: Metrics,
    stage: watch::Sender<Stage>,
    servers: JoinSet<()>,
}

async fn routes(models: &[SocketAddr]) -> Routes {
    let mut listeners = Vec::new();
    for _ in models {
        listeners.push(TcpListener::bind("127.0.0.1:0").await.unwrap());
    }
    let ports: Vec<_> = listeners.iter().map(|listener| listener.local_addr().unwrap()).collect();
    let pairs = ports.iter().zip(models).map(|(own, next)| format!("{}={}", own.port(), next.port()));
    let routes = pairs.collect::<Vec<_>>().join(",");
    let auditor = Auditor::from_variables(|name| match name {
        "LUCID_CHAIN_NEXT" => Some(format!("http://{}", models[0])),
        "LUCID_AUDITOR_PORT" => Some(ports[0].port().to_string()),
        "LUCID_ROUTES" => Some(routes.clone()),
        "LUCID_PROBE_PATHS" => Some("/health".to_owned()),
        _ => None,
    });
    let auditor = Arc::new(auditor.unwrap().judge(Phrase("secret word")));
    let (stage, stages) = watch::channel(Stage::Serving);
    let servers = listeners
        .into_iter()
        .map(|listener| lucid_auditor::serve_on(listener, Arc::clone(&auditor), stages.clone()))
        .collect();
    Routes { ports, metrics: auditor.metrics(), stage, servers }
}

async fn model(name: &'static str) -> SocketAddr {
    serve(Router::new().fallback(move || async move { name })).await
}

#[tokio::test]
async fn each_port_forwards_to_its_own_next_hop() {
    let models = [model("generator").await, model("transformer").await, model("the secret word").await];
    let Routes { ports, metrics, stage: _stage, servers: _servers } = routes(&models).await;
    for _ in 0..2 {
        for (port, name) in [(ports[0], "generator"), (ports[1], "transformer")] {
            assert_eq!(get(port).await.text().await.unwrap(), name);
            assert_eq!(post(port, "hello").await.text().await.unwrap(), name);
            assert_eq!(post(port, "the secret word").await.status(), 403);
        }
        assert_eq!(get(ports[2]).await.status(), 403, "answers are judged as well");
    }
    let requests: u64 = metrics
        .encode()
        .lines()
        .filter(|line| line.starts_with("lucid_auditor_requests_total"))
        .map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap())
        .sum();
    assert_eq!(requests, 14, "{}", metrics.encode());
}

#[tokio::test]
async fn the_auditor_itself_responds_on_every_port() {
    // Without a model, requests that are forwarded fail.
    let models: [SocketAddr; 2] = [NOBODY.parse().unwrap(), "127.0.0.1:2".parse().unwrap()];
    let Routes { ports, stage: _stage, servers: _servers, .. } = routes(&models).await;
    for (port, model) in ports.into_iter().zip(models) {
        let url = |path: &str| format!("http://{port}{path}");
        let health = within(client().get(url("/health")).send()).await.unwrap();
        assert_eq!(
            (health.status().as_u16(), health.text().await.unwrap()),
            (200, r#"{"status":"ok"}"#.into())
        );
        for (text, allowed) in [("hello", true), ("the secret word", false)] {
            let verdict = within(client().post(url("/audit")).body(text).send()).await.unwrap();
            let verdict: Value = verdict.json().await.unwrap();
            assert_eq!(verdict["allowed"], json!(allowed), "{port} {text}");
        }
        let probe = client().get(url("/health")).header("host", "10.0.0.7:5001");
        let told: Value = within(probe.send()).await.unwrap().json().await.unwrap();
        let message = told["error"]["message"].as_str().unwrap();
        let next = format!(":{}: ", model.port());
        assert!(message.contains(&next), "the probe of the model is forwarded to {next}{message}");
    }
}

#[tokio::test]
async fn shutdown_completes_requests_on_every_port() {
    let (begun, mut waiting) = tokio::sync::mpsc::unbounded_channel();
    let (finish, finished) = watch::channel(false);
    let slow = move || {
        let (begun, mut finished) = (begun.clone(), finished.clone());
        async move {
            begun.send(()).unwrap();
            finished.wait_for(|finished| *finished).await.unwrap();
            "done"
        }
    };
    let models =
        [serve(Router::new().fallback(slow.clone())).await, serve(Router::new().fallback(slow)).await];
    let Routes { ports, stage, mut servers, .. } = routes(&models).await;
    let mut open = JoinSet::new();
    for port in ports.clone() {
        open.spawn(async move { get(port).await.text().await.unwrap() });
        within(waiting.recv()).await.unwrap();
    }
    stage.send_replace(Stage::Draining);
    for port in ports {
        within(async { while TcpStream::connect(port).await.is_ok() {} }).await;
    }
    assert!(servers.try_join_next().is_none(), "a server ended before its request");
    finish.send_replace(true);
    assert_eq!(within(open.join_all()).await, ["done", "done"]);
    within(servers.join_all()).await;
}
