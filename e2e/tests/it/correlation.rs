//! The decision log compared with the API server's audit log.

use std::path::{Path, PathBuf};

use futures::{StreamExt, stream};
use http::Method;
use lucid_e2e::{ClusterExt as _, Operator, eventually, send};
use lucid_testbed::Cluster;
use serde_json::{Value, json};

use crate::cli::{Ran, run};
use crate::common::{cluster, operator, pod, secured, secured_with};
use crate::record::{key, sealed};

/// An operator with a decision log in `folder`, sealed, and with small segments so that there are several.
async fn logging(cluster: &Cluster, folder: &Path) -> Operator {
    const ORIGIN: &str = "lucid.computing/test/0";
    key(folder, ORIGIN);
    let small = |operator| sealed(operator, folder, ORIGIN).flag("--decision-log-segment-bytes", "65536");
    operator(cluster, small).await
}

pub(crate) fn audit(arguments: &[&str]) -> Ran {
    run("lucid", &[&["audit"], arguments].concat())
}

fn correlate(cluster: &Cluster, log: &Path) -> (Option<i32>, Value) {
    let (log, events) = (log.display().to_string(), cluster.audit_log().display().to_string());
    let ran =
        audit(&["correlate", "--grace-seconds=0", "-ojson", "--log", &log, "--apiserver-audit", &events]);
    (ran.status, serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{ran:?}")))
}

/// Creates pods concurrently, as dry runs unless `stored`.
async fn create_all(cluster: &Cluster, count: usize, stored: bool) {
    let client = cluster.client();
    let path =
        if stored { "/api/v1/namespaces/shop/pods" } else { "/api/v1/namespaces/shop/pods?dryRun=All" };
    let create = |number: usize| {
        let client = client.clone();
        async move {
            let mut manifest = match number % 4 {
                0 | 1 => secured("web"),
                2 => pod("web", json!({}), json!({})),
                // The API server rejects it after the webhook calls.
                _ => secured_with("web", json!({"lucid.computing/auditors": "injection"})),
            };
            manifest["metadata"].as_object_mut().unwrap().remove("name");
            manifest["metadata"]["generateName"] = json!(format!("web-{number}-"));
            if number % 4 == 3 {
                manifest["spec"]["containers"][0]["resources"] =
                    json!({"requests": {"cpu": "2"}, "limits": {"cpu": "1"}});
            }
            send(&client, Method::POST, path, "application/json", &manifest).await.unwrap()
        }
    };
    let responses: Vec<_> = stream::iter((0..count).map(create)).buffer_unordered(16).collect().await;
    assert_eq!(responses.len(), count);
}

pub(crate) fn segments(log: &Path) -> Vec<PathBuf> {
    let mut segments: Vec<_> =
        std::fs::read_dir(log.join("segments")).unwrap().map(|entry| entry.unwrap().path()).collect();
    segments.sort();
    segments
}

/// Compares both logs after `count` requests, and after one line is edited.
async fn compare(count: usize) {
    let cluster = cluster().await;
    let log = cluster.folder().join("decisions");
    let mut operator = logging(&cluster, &log).await;
    create_all(&cluster, count / 2, true).await;
    // Across a restart.
    operator.terminate().unwrap();
    operator.restart().await.unwrap();
    create_all(&cluster, count - count / 2, false).await;

    let found = eventually("the logs correlate", async || {
        let (code, found) = correlate(&cluster, &log);
        if code == Some(0) { Ok(found) } else { Err(found) }
    })
    .await;
    let tally = &found["tally"];
    assert!(tally["matched"].as_u64().unwrap() as usize >= count, "{found}");
    assert_eq!(tally["unreadable"], 0, "{found}");

    operator.terminate().unwrap();
    let path = log.display().to_string();
    audit(&["verify", "--sealed", &path]).printed();

    let first = &segments(&log)[0];
    let text = std::fs::read_to_string(first).unwrap();
    let line = text.lines().nth(5).unwrap();
    let edited = line.replace("\"allowed\":true", "\"allowed\":false");
    assert_ne!(line, edited);
    std::fs::write(first, text.replace(line, &edited)).unwrap();
    let (code, found) = correlate(&cluster, &log);
    assert_eq!(code, Some(3), "{found}");
    let drifts = found["drifts"].as_array().unwrap();
    assert!(drifts.iter().any(|it| it["class"] == "rewritten" && it["seq"] == 5), "{found}");
    let ran = audit(&["verify", &path]);
    assert_eq!(ran.status, Some(3), "{ran:?}");
    let found = "rewritten: seq 5, segments/00000000000000000000.jsonl at byte";
    assert!(ran.stdout.contains(found), "{ran:?}");
}

#[tokio::test]
async fn both_audit_logs_agree() {
    compare(150).await;
}

#[tokio::test]
#[ignore = "slow"]
async fn slow_ten_thousand_decisions_have_no_drift() {
    compare(10_000).await;
}
