//! The ring and the log of a recorder.

use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use lucid_audit::log::{AppendError, Options};
use lucid_audit::{Decision, ImageVerdict, LogFailurePolicy, Recorder};
use prometheus_client::registry::Registry;

use crate::support::format::leaf_hash;
use crate::support::{self, again, bytes, decision, key};

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_decisions_read_back_after_reopening() {
    let (folder, key) = (tempfile::tempdir().unwrap(), key());
    let mut whole = decision("whole");
    whole.message = "two\nlines \"quoted\" é".into();
    whole.images = vec![ImageVerdict::new("a", "b", "missing digest")];
    for round in 0..2 {
        let recorder = Arc::new(Recorder::new(1000));
        let options = Options::new().with_key(again(&key)).with_segment_bytes(20_000);
        recorder.open_log(folder.path(), options).unwrap();
        let tasks = (0..8).map(|task| {
            let (recorder, whole) = (Arc::clone(&recorder), whole.clone());
            tokio::spawn(async move {
                for number in 0..50 {
                    let mut decision = whole.clone();
                    decision.uid = format!("{round}-{task}-{number}");
                    recorder.record(decision).await.unwrap().unwrap();
                }
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await.unwrap();
        }
        assert_eq!(recorder.latest().len(), 400);
        // Sealing does not require closing the log.
        support::until(recorder.log().unwrap(), |status| status.sealed_size >= status.size).await;
        let lines = support::verify(folder.path(), key.verifier());
        assert_eq!(lines.len(), 400 * (round + 1));
        for entry in recorder.latest() {
            let anchor = entry.anchor.unwrap();
            let line = &lines[usize::try_from(anchor.seq).unwrap()];
            assert_eq!(serde_json::json!(anchor)["leaf"], leaf_hash(line).to_string());
            assert!(anchor.seq < anchor.size);
            assert_eq!(serde_json::from_slice::<Decision>(line).unwrap(), entry.decision());
        }
    }
    assert!(support::segments(folder.path()).len() > 3);
}

#[tokio::test]
async fn a_decision_that_is_too_long_is_cut_and_kept() {
    let folder = tempfile::tempdir().unwrap();
    let key = key();
    let recorder = Recorder::new(10);
    recorder.open_log(folder.path(), Options::new().with_key(again(&key))).unwrap();
    let mut long = decision("long");
    long.user = "u".repeat(6 << 20);
    long.warnings = vec!["\u{1}".repeat(4096); 64];
    recorder.record(long.clone()).await.unwrap();
    recorder.remember(long);
    recorder.close();
    let lines = support::verify(folder.path(), key.verifier());
    let read: Decision = serde_json::from_slice(&lines[0]).unwrap();
    assert!(
        lines[0].ends_with(b"\"cut\":true}") && read.uid == "long" && lines[0].len() < 2_000,
        "{}",
        lines[0].len()
    );
    for entry in recorder.latest() {
        assert_eq!(entry.decision(), read);
    }
}

#[tokio::test]
async fn unauthenticated_callers_do_not_evict_other_decisions() {
    let folder = tempfile::tempdir().unwrap();
    let recorder = Recorder::new(3).with_budget(0, 2_000);
    recorder.open_log(folder.path(), Options::new()).unwrap();
    let mut known = decision("known");
    known.authenticated = true;
    recorder.record(known.clone()).await.unwrap().unwrap();
    let mut refused = 0;
    for number in 0..50 {
        if let Err(unrecorded) = recorder.record(decision(number)).await {
            assert!(matches!(unrecorded.source, AppendError::Budget), "{unrecorded}");
            recorder.remember(*unrecorded.decision);
            refused += 1;
        }
    }
    assert!((1..50).contains(&refused), "{refused}");
    recorder.record(known).await.unwrap().unwrap();
    let uids: Vec<_> = recorder.latest().iter().map(|entry| entry.decision().uid).collect();
    assert_eq!(uids, ["known", "47", "48", "49", "known"]);
    let in_memory = Recorder::new(3).with_budget(0, 0);
    assert!(in_memory.record(decision(1)).await.is_ok(), "memory is bounded anyway");
}

#[tokio::test]
async fn unauthenticated_callers_are_charged_what_reaches_the_disk() {
    const ROOM: u64 = 300_000;
    for sealed in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let recorder = Recorder::new(0).with_budget(0, ROOM);
        let options = if sealed { Options::new().with_key(key()) } else { Options::new() };
        recorder.open_log(folder.path(), options).unwrap();
        while recorder.record(decision("short")).await.is_ok() {}
        recorder.close();
        let [segments, tiles] = ["segments", "tile"].map(|name| bytes(&folder.path().join(name)));
        // Entries of the partial bundle exist at most twice.
        let again = if sealed { bytes(&folder.path().join("tile/entries/002.p")) } else { 0 };
        let found = segments + tiles;
        assert!((ROOM * 9 / 10..=ROOM + again).contains(&found), "{segments} and {tiles}");
    }
}

#[tokio::test]
async fn unloggable_decisions_are_denied_or_kept_in_memory() {
    let deny = Recorder::new(10);
    let reason = unavailable(&deny);
    let error = deny.record(decision(1)).await.unwrap_err();
    assert_eq!(error.to_string(), format!("failed to keep the decision in the log: {reason}"));
    assert!(deny.latest().is_empty());
    deny.remember(decision(1));
    assert_eq!(deny.latest().len(), 1);
    assert_eq!(deny.log_status(), Err(reason));

    let serve = Recorder::new(10).with_on_failure(LogFailurePolicy::ServeAndAlarm);
    unavailable(&serve);
    assert_eq!(serve.record(decision(1)).await.unwrap(), None);
    assert_eq!(serve.latest()[0].anchor, None);
}

/// Opens a log that cannot exist. Returns the reason.
fn unavailable(recorder: &Recorder) -> String {
    recorder.open_log(Path::new("/dev/null/log"), Options::new()).unwrap_err().to_string()
}

#[test]
fn an_unavailable_log_shows_in_the_metrics() {
    let state = |with: &dyn Fn(Recorder, &mut Registry) -> Recorder| {
        let mut registry = Registry::default();
        let _recorder = with(Recorder::new(10), &mut registry);
        support::metric(&registry, "audit_state{state=\"unavailable\"}")
    };
    let opened = |recorder: Recorder| {
        unavailable(&recorder);
        recorder
    };
    assert_eq!(state(&|it, registry| opened(it.with_metrics(registry))), "1");
    assert_eq!(state(&|it, registry| opened(it).with_metrics(registry)), "1");
    assert_eq!(state(&|it, registry| it.with_metrics(registry)), "0");
}

#[tokio::test]
async fn decisions_do_not_wait_for_slow_logs() {
    let folder = tempfile::tempdir().unwrap();
    let recorder = Recorder::new(10).with_patience(Duration::ZERO);
    recorder.open_log(folder.path(), Options::new()).unwrap();
    // A fast disk may occasionally be in time.
    let mut recorded = 0;
    let error = loop {
        recorded += 1;
        assert!(recorded < 10_000, "the disk is always there");
        if let Err(error) = recorder.record(decision(recorded)).await {
            break error;
        }
    };
    assert!(error.to_string().contains("the disk took longer than 0 ms"), "{error}");
    // The record may still be kept.
    recorder.close();
    assert_eq!(support::lines(folder.path()).len() as u64, recorded);
    let error = recorder.record(decision(2)).await.unwrap_err();
    assert!(!error.to_string().is_empty());
}

#[tokio::test]
async fn a_decision_whose_caller_is_gone_is_in_the_ring() {
    let folder = tempfile::tempdir().unwrap();
    let recorder = Recorder::new(10);
    recorder.open_log(folder.path(), Options::new()).unwrap();
    let mut record = Box::pin(recorder.record(decision(1)));
    assert!(record.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    drop(record);
    assert_eq!(recorder.latest()[0].decision().uid, "1");
}
