//! Replicas that cannot write their decision log: a full disk, a deleted log, a log held by another process.

use std::fs;
use std::path::Path;

use lucid_e2e::{Disk, Operator, eventually};

use super::{key, read, sealed};
use crate::common::{cluster, create, operator, secured, until, until_ready_is};
use crate::correlation::audit;

const ORIGIN: &str = "lucid.computing/test/0";

const NOT_READY: (u16, &str) = (503, "not ready: decision log");
const READY: (u16, &str) = (200, "ok");

fn assert_intact(log: &Path, vkey: &str) {
    audit(&["verify", log.to_str().unwrap(), "--key", vkey, "--sealed"]).printed();
}

#[tokio::test]
async fn a_replica_with_a_full_disk_is_not_ready() {
    let cluster = cluster().await;
    let Some(disk) = Disk::mount(8 << 20) else { return };
    let log = disk.path().join("decisions");
    let vkey = key(&cluster.folder().join("decisions"), ORIGIN);
    let key = cluster.folder().join("decisions.key").display().to_string();
    let mut operator = operator(&cluster, |operator| {
        let operator = operator.env("LUCID_DECISION_LOG", log.display().to_string());
        operator.env("LUCID_DECISION_LOG_KEY", key).flag("--decision-log-origin", ORIGIN)
    })
    .await;
    create(&cluster, "shop", &secured("before")).await.stored().unwrap();
    let ballast = disk.path().join("ballast");
    fs::write(&ballast, vec![0; 9 << 20]).unwrap_err();
    // The last page of the log has room for a few records.
    let refused = until(&cluster, "shop", secured, |response| response.result.is_err()).await;
    let refusal = refused.refusal();
    assert!(refusal.contains("the disk is full") && refusal.contains("cannot be recorded"), "{refusal}");
    until_ready_is(&operator, NOT_READY).await;
    fs::remove_file(&ballast).unwrap();
    until_ready_is(&operator, READY).await;
    create(&cluster, "shop", &secured("after")).await.stored().unwrap();
    assert!(operator.terminate().unwrap().success());
    assert_intact(&log, &vkey);
}

#[tokio::test]
async fn a_replica_without_its_log_denies_and_is_not_ready() {
    let cluster = cluster().await;
    let log = cluster.folder().join("decisions");
    key(&log, ORIGIN);
    let mut operator = operator(&cluster, |operator| sealed(operator, &log, ORIGIN)).await;
    create(&cluster, "shop", &secured("before")).await.stored().unwrap();
    // All records are sealed, so that nothing more is written.
    eventually("a checkpoint of two records", async || {
        let checkpoint = read(&log.join("checkpoint"));
        if checkpoint.lines().nth(1) == Some("2") { Ok(()) } else { Err(checkpoint) }
    })
    .await;
    fs::remove_dir_all(&log).unwrap();
    let refused = create(&cluster, "shop", &secured("refused")).await;
    assert!(refused.refusal().contains("is not as this process left it"), "{refused:?}");
    until_ready_is(&operator, NOT_READY).await;
    assert!(!log.exists());
    operator.restart().await.unwrap();
    create(&cluster, "shop", &secured("after")).await.stored().unwrap();
}

#[tokio::test]
async fn a_replica_waits_for_the_lock_of_its_log() {
    let cluster = cluster().await;
    let log = cluster.folder().join("decisions");
    let vkey = key(&log, ORIGIN);
    let mut first = operator(&cluster, |operator| sealed(operator, &log, ORIGIN)).await;
    create(&cluster, "shop", &secured("first")).await.stored().unwrap();
    let mut second = sealed(Operator::builder(&cluster), &log, ORIGIN).named("second").spawn().unwrap();
    until_ready_is(&second, NOT_READY).await;
    assert!(first.terminate().unwrap().success());
    second.ready().await.unwrap();
    until(&cluster, "shop", secured, |response| response.result.is_ok()).await;
    assert!(second.terminate().unwrap().success());
    let said = read(&second.log());
    assert_eq!(said.matches("waiting for the process that holds the log").count(), 1, "{said}");
    assert_intact(&log, &vkey);
}
