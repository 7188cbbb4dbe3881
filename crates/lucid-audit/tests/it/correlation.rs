//! Correlation of a log written by `Log` with events in the format of the API server.

use std::fs;

use jiff::Timestamp;
use lucid_audit::correlate::Correlator;
use lucid_audit::note::SigningKey;
use serde_json::json;

use crate::support::events::{Counts, GRACE, Recorded, annotate, brief, decision, event, feed, time};
use crate::support::format::sign;
use crate::support::{ORIGIN, again, copy};

async fn recorded(count: u64) -> Recorded {
    let mut log = Recorded { segment_bytes: 4096, ..Recorded::new() };
    log.decide(0..count).await;
    log
}

fn edit(log: &Recorded, seq: u64, edit: impl Fn(&str) -> String) {
    for path in crate::support::segments(log.path()) {
        let text = fs::read_to_string(&path).unwrap();
        let start = format!("{{\"seq\":{seq},");
        let edited = |line: &str| if line.starts_with(&start) { edit(line) } else { line.to_owned() };
        fs::write(path, text.split_inclusive('\n').map(edited).collect::<String>()).unwrap();
    }
}

#[tokio::test]
async fn two_records_of_the_same_decisions_have_no_drift() {
    let pair = recorded(40).await;
    assert!(crate::support::segments(pair.path()).len() > 2);
    let (drifts, tally) = pair.correlate();
    assert_eq!((tally.events, tally.records, tally.matched), (40, 40, 40));
    assert_eq!((tally.explained, tally.uncovered, tally.pending), (0, 0, 0));
    assert_eq!(drifts, Vec::<String>::new());
}

#[tokio::test]
async fn edited_deleted_and_repeated_records_are_named() {
    type Edit = fn(&str) -> String;
    let deny: Edit = |line| line.replace("\"allowed\":true", "\"allowed\":false");
    for (seqs, change, drifts) in [
        (17..18, deny, &["fork 39", "rewritten 17"][..]),
        (17..18, |_| String::new(), &["gap 17", "missing 17"]),
        (38..40, |_| String::new(), &["shrink 38 to 39"]),
        (17..18, |line| line.repeat(2), &["duplicate 17"]),
    ] {
        let pair = recorded(40).await;
        seqs.for_each(|seq| edit(&pair, seq, change));
        assert_eq!(pair.drifts(), drifts);
    }
    // An anchor that is repeated.
    let mut pair = recorded(40).await;
    let mut replayed = event(41);
    annotate(&mut replayed, &pair.anchors[3]);
    pair.events.push(replayed);
    assert_eq!(pair.drifts(), ["duplicate 3"]);
}

#[tokio::test]
async fn a_log_that_was_rolled_back_and_continued_is_rewritten() {
    let mut pair = recorded(40).await;
    let earlier = tempfile::tempdir().unwrap();
    copy(pair.path(), earlier.path());
    pair.decide(40..50).await;
    // Restore the earlier directory, from which the log continues differently.
    fs::remove_dir_all(pair.path()).unwrap();
    copy(earlier.path(), pair.path());
    assert_eq!(pair.drifts(), ["shrink 40 to 49"]);
    let told = pair.events.split_off(40);
    pair.decide(60..75).await;
    pair.events.extend(told);
    pair.events.extend([event(90)]);
    let drifts = pair.drifts();
    // For each of these numbers, two requests have anchors of different records.
    assert_eq!(drifts, (40..50).map(|seq| format!("fork {seq}")).collect::<Vec<_>>());
}

#[tokio::test]
async fn appended_records_become_orphans() {
    let mut pair = recorded(40).await;
    let mut forged = decision(40);
    forged.user = "mallory".to_owned();
    pair.append(&forged).await;
    assert_eq!(pair.drifts(), Vec::<String>::new(), "its event may be on its way");
    pair.events.push(event(43));
    assert_eq!(pair.drifts(), ["orphan 40"]);
}

#[tokio::test]
async fn records_without_requests_are_not_orphans() {
    let mut pair = recorded(40).await;
    let mut switched = decision(40);
    (switched.webhook, switched.uid) = ("mode".to_owned(), String::new());
    pair.append(&switched).await;
    pair.events.push(event(43));
    assert_eq!(pair.drifts(), Vec::<String>::new());
}

#[tokio::test]
async fn requests_recorded_in_an_absent_log_are_missing() {
    let mut pair = recorded(3).await;
    pair.events[1]["annotations"]["validate.lucid.computing/anchor"] = json!("no anchor");
    let changed = json!({"configuration": "lucid", "webhook": "validate.lucid.computing", "mutated": true});
    let mut silent = event(9);
    silent["annotations"]["mutation.webhook.admission.k8s.io/round_0_index_0"] = changed.to_string().into();
    pair.events.push(silent);
    assert_eq!(pair.drifts(), ["missing", "missing"]);
}

#[tokio::test]
async fn foreign_keys_and_unsealed_records_are_reported() {
    let mut pair = recorded(40).await;
    let known = again(&pair.key);
    pair.key = SigningKey::generate(ORIGIN).unwrap();
    assert_eq!(pair.drifts(), ["key-change"]);
    pair.key = known;
    let checkpoint = fs::read(pair.path().join("checkpoint")).unwrap();
    pair.decide(40..50).await;
    fs::write(pair.path().join("checkpoint"), checkpoint).unwrap();
    assert_eq!(pair.drifts(), ["unsealed-tail 40"]);
}

#[tokio::test]
async fn normal_operation_causes_no_drift() {
    let mut pair = recorded(40).await;
    // Further events of the same requests, other requests, and lines that are not events.
    let again: Vec<_> = pair.events.iter().skip(5).take(5).cloned().collect();
    pair.events.extend(again);
    pair.events.insert(7, json!({"kind": "Event", "auditID": "x", "verb": "get"}));
    pair.events.insert(9, json!("torn"));
    // Rotation has removed the first events, so the covered period begins later.
    pair.events.drain(..3);
    // A repeated call within a request, and a call whose response came too late: the events lack their anchors.
    pair.append(&decision(39)).await;
    let mut generated = decision(41);
    generated.name = "web-".to_owned();
    pair.append(&generated).await;
    let mut named = event(41);
    named["objectRef"]["name"] = json!("web-x7k2p");
    pair.events.extend([named, event(45)]);
    // A torn line, then the event recorded after the writer has truncated it.
    let last = crate::support::segments(pair.path()).pop().unwrap();
    let torn = [&fs::read(&last).unwrap()[..], b"{\"seq\":42,\"pre"].concat();
    fs::write(last, torn).unwrap();
    let (drifts, tally) = pair.correlate();
    assert_eq!((tally.explained, tally.unreadable, tally.uncovered), (2, 1, 3), "{tally:?}");
    assert_eq!(drifts, Vec::<String>::new());
    pair.open().close();
    assert_eq!(pair.drifts(), Vec::<String>::new());
}

#[tokio::test]
async fn revoked_records_are_drift_only_with_an_anchor() {
    let mut pair = recorded(40).await;
    // Denied because the disk was late, but written to the log afterwards.
    let late = pair.append(&decision(40)).await;
    pair.append(&decision(41)).await;
    for number in [40, 41] {
        let mut instead = json!(decision(number));
        (instead["allowed"], instead["overrules"]) = (json!(false), json!(number));
        pair.append(&instead).await;
    }
    pair.events.extend([event(40), event(41), event(45)]);
    let (drifts, tally) = pair.correlate();
    assert_eq!((tally.overruled, tally.explained, tally.matched), (2, 4, 40), "{tally:?}");
    assert_eq!(drifts, Vec::<String>::new());
    // The anchor is reported whether event or record arrives first.
    annotate(&mut pair.events[40], &late);
    assert_eq!(pair.drifts(), ["rewritten 40"]);
    let mut correlator = pair.correlator();
    correlator.read().unwrap();
    feed(&mut correlator, &pair.events);
    assert_eq!(brief(&correlator.finish(Timestamp::now())), ["rewritten 40"]);
}

#[tokio::test]
async fn revocations_of_other_calls_are_reported() {
    for (number, of) in [(40, 39), (40, 40), (40, 77)] {
        let mut pair = recorded(40).await;
        let mut instead = json!(decision(number));
        (instead["allowed"], instead["overrules"]) = (json!(false), json!(of));
        pair.append(&instead).await;
        pair.events.push(event(40));
        assert_eq!(pair.drifts(), ["rewritten 40"], "{of}");
    }
}

#[tokio::test]
async fn a_record_that_is_edited_after_it_was_read_is_rewritten() {
    let pair = recorded(40).await;
    let mut correlator = pair.correlator();
    feed(&mut correlator, &pair.events);
    correlator.read().unwrap();
    let again = |correlator: &mut Correlator| {
        correlator.read_again().unwrap();
        brief(&correlator.settle(time(41)))
    };
    assert!(again(&mut correlator).is_empty());
    edit(&pair, 7, |line| line.replace("web-7", "web-8"));
    assert_eq!(again(&mut correlator), ["rewritten 7"]);
    assert!(again(&mut correlator).is_empty(), "each is told once");
    edit(&pair, 20, |_| String::new());
    let found = again(&mut correlator);
    assert_eq!(found[0], "rewritten 20", "{found:?}");
}

#[tokio::test]
async fn segments_removed_while_followed_are_losses() {
    let pair = recorded(40).await;
    let mut correlator = pair.correlator();
    feed(&mut correlator, &pair.events);
    correlator.read().unwrap();
    fs::remove_file(super::support::segments(pair.path()).last().unwrap()).unwrap();
    correlator.read().unwrap();
    assert_eq!(brief(&correlator.finish(Timestamp::now())), ["shrink 40"]);
}

#[tokio::test]
async fn replicas_are_distinguished() {
    let one = recorded(30).await;
    let mut other = recorded(0).await;
    other.decide(100..130).await;
    let mut correlator = Correlator::new(GRACE);
    correlator.add_log(one.path(), vec![]);
    correlator.add_log(other.path(), vec![]);
    feed(&mut correlator, &one.events);
    feed(&mut correlator, &other.events);
    correlator.read().unwrap();
    assert_eq!(brief(&correlator.finish(Timestamp::now())), Vec::<String>::new());
    assert_eq!(Counts::of(&correlator).matched, 60);
}

#[tokio::test]
async fn the_order_of_arrival_does_not_matter() {
    let mut pair = Recorded::new();
    let mut correlator = pair.correlator();
    for number in 0..40 {
        pair.decide([number]).await;
        let event = pair.events.last().unwrap().to_string();
        // Every other event arrives late, but within the grace period.
        if number % 2 == 0 {
            correlator.event(event.as_bytes());
        }
        correlator.read().unwrap();
        assert!(correlator.settle(time(number)).is_empty());
        if number % 2 == 1 {
            correlator.event(event.as_bytes());
        }
    }
    assert!(correlator.settle(time(1000)).is_empty());
    assert_eq!((Counts::of(&correlator).matched, Counts::of(&correlator).pending), (40, 0));
    // An anchor whose record never arrives.
    let mut lost = event(50);
    let mut anchor = pair.anchors[39];
    (anchor.seq, anchor.size) = (40, 41);
    annotate(&mut lost, &anchor);
    correlator.event(lost.to_string().as_bytes());
    assert!(correlator.settle(time(51)).is_empty());
    assert_eq!(brief(&correlator.settle(time(60))), ["shrink 40"]);
    assert!(correlator.settle(time(70)).is_empty(), "each is told once");
}

#[tokio::test]
async fn missing_records_are_drift_unless_pruned() {
    let mut recorded = Recorded::new();
    recorded.keep_bytes = 64 << 10;
    let mut correlator = recorded.correlator();
    recorded.decide(0..60).await;
    feed(&mut correlator, &recorded.events);
    correlator.read().unwrap();
    correlator.read_again().unwrap();
    recorded.decide(60..300).await;
    feed(&mut correlator, &recorded.events[60..]);
    correlator.read().unwrap();
    correlator.read_again().unwrap();
    assert_eq!(brief(&correlator.finish(Timestamp::now())), Vec::<String>::new());
    let tally = Counts::of(&correlator);
    assert!(tally.matched > 60 && tally.matched + tally.pruned == 300, "{tally:?}");
    // Another run begins with the records that are left.
    let (drifts, tally) = recorded.correlate();
    assert!(drifts.is_empty() && tally.pruned > 100, "{drifts:?} {tally:?}");
    assert_eq!((tally.matched + tally.pruned, tally.records), (300, tally.matched));
    // A segment that was deleted, although the minimum index does not say so.
    let segments = super::support::segments(recorded.path());
    fs::remove_file(&segments[0]).unwrap();
    correlator.read_again().unwrap();
    assert_eq!(brief(&correlator.finish(Timestamp::now())), [format!("rewritten {}", tally.pruned)]);
    let (drifts, _) = recorded.correlate();
    assert!(drifts.iter().any(|drift| drift.starts_with(&format!("gap {}", tally.pruned))), "{drifts:?}");
    // A minimum index that another key signed does not count.
    let other = SigningKey::generate(ORIGIN).unwrap();
    let note = fs::read_to_string(recorded.path().join("minimum")).unwrap();
    let (text, _) = note.split_once("\n\n").unwrap();
    fs::write(recorded.path().join("minimum"), sign(&format!("{text}\n"), &other).to_string()).unwrap();
    assert!(recorded.drifts().contains(&"key-change".to_owned()));
}
