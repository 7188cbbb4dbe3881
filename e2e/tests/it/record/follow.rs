//! `audit correlate --follow` beside an API server that writes and rotates its audit log.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::sync::{Arc, Mutex};

use http::Method;
use lucid_e2e::{ClusterExt as _, Operator, eventually, send};
use lucid_testbed::Cluster;
use serde_json::Value;

use super::{authorities, key, read, sealed, start, status};
use crate::common::{PATIENCE, pod, prepare};
use crate::correlation::segments;

/// Creates pods with long URIs, so that the events fill the API server's audit log.
async fn fill(cluster: &Cluster, count: usize) {
    let filling = "x".repeat(6000);
    let path = format!("/api/v1/namespaces/shop/pods?dryRun=All&filling={filling}");
    let mut manifest = pod("web", serde_json::json!({"lucid.io/secured": "true"}), serde_json::json!({}));
    manifest["metadata"].as_object_mut().unwrap().remove("name");
    manifest["metadata"]["generateName"] = "web-".into();
    for _ in 0..count {
        let response =
            send(&cluster.client(), Method::POST, &path, "application/json", &manifest).await.unwrap();
        assert!(response.result.is_ok(), "{response:?}");
    }
}

fn rotated(cluster: &Cluster) -> usize {
    let names = std::fs::read_dir(cluster.folder()).unwrap().map(|entry| entry.unwrap().file_name());
    names.filter(|name| name.to_str().is_some_and(|name| name.starts_with("audit-2"))).count()
}

/// A third-party receiver of alerts, with the posted requests.
fn receiver() -> (String, Arc<Mutex<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let posted = Arc::new(Mutex::new(String::new()));
    let kept = Arc::clone(&posted);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = Vec::new();
            let mut piece = [0; 4096];
            // The body is one object.
            while !request.ends_with(b"]}") {
                let count = stream.read(&mut piece).unwrap();
                request.extend(&piece[..count]);
            }
            kept.lock().unwrap().push_str(&String::from_utf8_lossy(&request));
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").unwrap();
        }
    });
    (url, posted)
}

fn metric(text: &str, series: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(series)?.trim().parse().ok())
}

/// Waits until each anchor in the API server's log was found in a decision log, at least `least` of them.
async fn caught_up(metrics: &Path, least: u64) {
    eventually("all anchors match", async || {
        let text = read(metrics);
        let of = |series| metric(&text, &format!("lucid_audit_correlate_{series}"));
        let (anchors, matched) = (of("anchors_total"), of("matched_total"));
        let all = anchors.is_some_and(|anchors| anchors >= least) && anchors == matched;
        if all { Ok(()) } else { Err(format!("{anchors:?} anchors, {matched:?} match")) }
    })
    .await;
}

/// Changes a word of a sealed record, without changing its length.
fn edit(log: &Path) {
    let first = segments(log).remove(0);
    let text = std::fs::read_to_string(&first).unwrap();
    let line = text.lines().nth(3).unwrap();
    let edited = line.replacen("\"operation\":\"CREATE\"", "\"operation\":\"DELETE\"", 1);
    assert_ne!(line, edited);
    // In place, like an attacker with file access: other processes have it open.
    let at = text.find(line).unwrap() as u64;
    let file = std::fs::OpenOptions::new().write(true).open(&first).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, edited.as_bytes(), at).unwrap();
}

#[tokio::test]
async fn followers_alert_on_drift_only() {
    let cluster = Cluster::builder().api_server_args(["--audit-log-maxsize=1"]).start().await.unwrap();
    let cluster = prepare(cluster).await;
    let (one, other) = (cluster.folder().join("mutations"), cluster.folder().join("validations"));
    key(&one, "lucid.computing/test/0");
    key(&other, "lucid.computing/test/1");
    let builder = Operator::builder(&cluster).env("LUCID_VALIDATE", "false");
    let small = ("--decision-log-segment-bytes", "65536");
    let mut operator =
        sealed(builder, &one, "lucid.computing/test/0").flag(small.0, small.1).start().await.unwrap();
    let builder = sealed(Operator::validator(&cluster), &other, "lucid.computing/test/1");
    let mut validator = builder.flag(small.0, small.1).start().await.unwrap();
    let ca = authorities(&cluster, "lucid-validator").await;
    let token = super::alert_token(cluster.folder());
    fill(&cluster, 1).await;

    let (one_path, other_path) = (one.display().to_string(), other.display().to_string());
    let events = cluster.audit_log().display().to_string();
    let follow =
        ["correlate", "--follow", "--log", &one_path, "--log", &other_path, "--apiserver-audit", &events];
    let metrics = cluster.folder().join("drift.prom");
    let metrics_file = ["-ojson", "--metrics-file", metrics.to_str().unwrap()];
    let alerts = format!("{}/audit/alerts", validator.url());
    let to_validator = ["--alert-url", &alerts, "--alert-token-file", &token, "--alert-ca", &ca];
    let (first, said) = start(&cluster, "follow", &[&follow[..], &metrics_file, &to_validator].concat());
    let (hook, posted) = receiver();
    let (second, said_as_text) =
        start(&cluster, "follow-hook", &[&follow[..], &["--alert-url", &hook]].concat());
    let (third, quiet) = start(&cluster, "follow-quiet", &follow);

    // Across a rotation, a crash with a torn end, and an orderly restart.
    fill(&cluster, 80).await;
    operator.kill();
    let last = segments(&one).pop().unwrap();
    let file = std::fs::OpenOptions::new().append(true).open(last).unwrap();
    (&file).write_all(b"{\"seq\":9999,\"prev\":\"00").unwrap();
    operator.restart().await.unwrap();
    fill(&cluster, 80).await;
    assert!(validator.terminate().unwrap().success());
    validator.restart().await.unwrap();
    while rotated(&cluster) < 2 {
        fill(&cluster, 20).await;
    }
    assert!(segments(&one).len() > 1 && segments(&other).len() > 1);
    caught_up(&metrics, 320).await;
    assert_eq!(read(&said), "");
    let alerts = status(&validator, &ca).await["alerts"].clone();
    assert_eq!(alerts, serde_json::json!([]));
    let ended = third.terminate(PATIENCE).unwrap();
    assert_eq!(ended.code(), Some(0), "{}", read(&quiet));
    assert!(read(&quiet).starts_with("no drift: "), "{}", read(&quiet));

    edit(&other);
    eventually("the alert is reported", async || {
        let alerts = status(&validator, &ca).await["alerts"].clone();
        let is_reported = alerts[0]["class"] == "rewritten" && posted.lock().unwrap().contains("rewritten");
        if is_reported { Ok(()) } else { Err(format!("{alerts}; {}", read(&said))) }
    })
    .await;
    let alert = &status(&validator, &ca).await["alerts"][0];
    assert_eq!(
        (&alert["seq"], &alert["log"], &alert["count"]),
        (&3.into(), &other_path.as_str().into(), &1.into())
    );
    let drift: Value = serde_json::from_str(read(&said).trim()).unwrap();
    assert_eq!((&drift["class"], &drift["seq"]), (&"rewritten".into(), &3.into()));
    assert_eq!(metric(&read(&metrics), "lucid_audit_drift_total{class=\"rewritten\"}"), Some(1));
    assert_eq!(first.terminate(PATIENCE).unwrap().code(), Some(3));
    assert_eq!(second.terminate(PATIENCE).unwrap().code(), Some(3));
    let said = read(&said_as_text);
    assert!(said.starts_with(&format!("rewritten: {other_path}, seq 3: ")), "{said}");
    assert!(said.contains("\n1 drift: "), "{said}");
}
