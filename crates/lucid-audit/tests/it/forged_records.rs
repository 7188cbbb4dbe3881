//! Records that an attacker with the signing key adds to a log.

use std::fs;

use jiff::Timestamp;
use lucid_audit::correlate::Correlator;
use serde_json::{Value, json};

use crate::support::events::{self, Counts, Recorded, brief, feed, time};

fn decision(number: u64) -> Value {
    serde_json::to_value(events::decision(number)).unwrap()
}

fn assert_each_record_is_accounted_for(tally: Counts) {
    let Counts { records, matched, explained, uncovered, own, orphans, pending, .. } = tally;
    assert_eq!(records, matched + explained + uncovered + own + orphans + pending, "{tally:?}");
}

/// Returns forgeries of record 20, with what was changed.
fn forgeries() -> Vec<(Value, Value)> {
    let (past, future) = ("2020-01-01T00:00:00Z", "2099-01-01T00:00:00Z");
    let changes = [
        json!({"user": "mallory"}),
        json!({"time": past}),
        json!({"time": past, "user": "mallory"}),
        json!({"time": future}),
        json!({"time": future, "user": "mallory"}),
        json!({"time": Timestamp::MIN.to_string()}),
        json!({"time": Timestamp::MAX.to_string()}),
        json!({"time": null}),
        json!({"kind": "Deployment"}),
        json!({"kind": "Teapot"}),
        json!({"kind": ""}),
        json!({"name": ""}),
        json!({"name": "web-"}),
        json!({"webhook": ""}),
        json!({"webhook": "other"}),
        json!({"webhook": "", "user": "mallory"}),
        json!({"webhook": "", "event": "recovered", "bytes": 1}),
        json!({"user": ""}),
        json!({"namespace": "bank"}),
    ];
    let forged = changes.map(|changes| {
        let mut record = decision(20);
        let fields = record.as_object_mut().unwrap();
        fields.extend(changes.as_object().unwrap().clone());
        fields.retain(|_, value| !value.is_null());
        (changes, record)
    });
    forged.into_iter().chain([(json!("nothing that is known"), json!({"a": 1}))]).collect()
}

#[tokio::test]
async fn a_forged_record_is_an_orphan_at_any_position() {
    for (what, record) in forgeries() {
        let mut log = Recorded::new();
        log.decide(0..=20).await;
        log.append(&record).await;
        // The last record of the log.
        log.decide([]).await;
        let mut at_the_end = Recorded { events: log.events.clone(), ..log };
        at_the_end.events.push(json!({
            "kind": "Event", "auditID": "a-other", "user": {"username": "bob"}, "objectRef": {"resource": "configmaps"},
            "requestReceivedTimestamp": time(40).to_string(), "stageTimestamp": time(40).to_string(),
        }));
        let (drifts, tally) = at_the_end.correlate();
        assert_eq!(drifts, ["orphan 21"], "{what}, at the end: {tally:?}");
        assert_each_record_is_accounted_for(tally);
        at_the_end.decide(50..60).await;
        let (drifts, tally) = at_the_end.correlate();
        assert_eq!(drifts, ["orphan 21"], "{what}, between others: {tally:?}");
        assert_each_record_is_accounted_for(tally);
    }
}

#[tokio::test]
async fn forged_records_do_not_stop_following_a_log() {
    for (what, record) in forgeries() {
        let mut log = Recorded::new();
        log.decide(0..=20).await;
        let mut correlator = log.correlator();
        let mut passed = 0;
        let mut follow = |log: &Recorded, correlator: &mut Correlator, now| {
            feed(correlator, &log.events[passed..]);
            passed = log.events.len();
            correlator.read().unwrap();
            brief(&correlator.settle(now))
        };
        assert!(follow(&log, &mut correlator, time(21)).is_empty());
        log.append(&record).await;
        let mut found = follow(&log, &mut correlator, time(21));
        let mut second = decision(22);
        second["user"] = json!("mallory");
        log.append(&second).await;
        for number in 23..40 {
            log.decide([number]).await;
            found.extend(follow(&log, &mut correlator, time(number)));
        }
        found.sort();
        assert_eq!(found, ["orphan 21", "orphan 22"], "{what}");
        assert_each_record_is_accounted_for(Counts::of(&correlator));
        assert_eq!(Counts::of(&correlator).pending, 0, "{what}");
    }
}

#[tokio::test]
async fn a_request_without_a_name_explains_records_of_its_own_object() {
    for (name, drifts) in
        [("web-20", &[][..]), ("web-20abcde", &[]), ("web-2", &["orphan 21"]), ("db", &["orphan 21"])]
    {
        let mut log = Recorded::new();
        log.decide(0..=20).await;
        log.events[20]["objectRef"].as_object_mut().unwrap().remove("name");
        let mut second = decision(20);
        second["name"] = json!(name);
        log.append(&second).await;
        log.decide(21..30).await;
        let (found, tally) = log.correlate();
        assert_eq!(found, drifts, "{name}");
        assert_each_record_is_accounted_for(tally);
    }
}

/// Returns an event without an anchor: a request of alice, completed at the time of record 20.
fn request(changes: Value) -> Value {
    let mut event = json!({
        "kind": "Event", "auditID": "a-request", "stage": "ResponseComplete", "user": {"username": "alice"},
        "objectRef": {"resource": "pods", "namespace": "shop"}, "annotations": {},
        "requestReceivedTimestamp": time(20).to_string(), "stageTimestamp": time(20).to_string(),
    });
    event.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
    event
}

/// Returns `true` if the event explains a record of alice that creates the pod `name`.
async fn explains(event: Value, name: &str) -> bool {
    let mut log = Recorded::new();
    log.decide(0..=19).await;
    let mut record = decision(20);
    record["name"] = json!(name);
    log.append(&record).await;
    log.decide(21..30).await;
    log.events.push(event);
    let (drifts, tally) = log.correlate();
    assert_each_record_is_accounted_for(tally);
    assert!(drifts.is_empty() || drifts == ["orphan 20"], "{drifts:?}");
    drifts.is_empty()
}

#[tokio::test]
async fn requests_without_a_known_name_do_not_explain_records() {
    let failed = json!({"code": 500, "message": "Internal error occurred: failed calling webhook"});
    let forbidden = json!({"code": 403, "message": "pods is forbidden: User \"alice\" cannot create"});
    for status in [forbidden, json!({"code": 400}), json!({"code": 201}), failed] {
        for name in ["evil", "web-", ""] {
            assert!(!explains(request(json!({"responseStatus": status})), name).await, "{status} {name}");
        }
    }
}

#[tokio::test]
async fn known_generate_names_explain_their_records() {
    let cases = [("web-", true), ("web-x7k2p", true), ("web-x7k2pq", false), ("evil", false), ("", false)];
    for (name, expected) in cases {
        let shown = json!({
            "responseStatus": {"code": 201}, "requestObject": {"kind": "Pod", "metadata": {"generateName": "web-"}},
        });
        assert_eq!(explains(request(shown), name).await, expected, "{name}");
    }
    for odd in [json!(null), json!([{"op": "add"}]), json!("x"), json!({"metadata": null})] {
        assert!(!explains(request(json!({"requestObject": odd})), "web-").await, "{odd}");
    }
}

#[tokio::test]
async fn requests_refused_before_admission_do_not_explain_records() {
    let named = json!({"resource": "pods", "namespace": "shop", "name": "web"});
    let forbidden = "pods \"web\" is forbidden: User \"alice\" cannot update";
    let denied = "admission webhook \"validate.lucid.computing\" denied the request: container guard";
    let round = "mutation.webhook.admission.k8s.io/round_0_index_0";
    let open = "failed-open.validation.webhook.admission.k8s.io/round_0_index_0";
    for (code, message, annotation, expected) in [
        (403, forbidden, None, false),
        (401, "Unauthorized", None, false),
        (403, denied, None, true),
        (403, forbidden, Some(round), true),
        (403, forbidden, Some(open), true),
        (503, "the disk took longer", None, true),
        (201, "", None, true),
    ] {
        let mut event =
            request(json!({"objectRef": named, "responseStatus": {"code": code, "message": message}}));
        if let Some(annotation) = annotation {
            event["annotations"][annotation] = json!("{}");
        }
        assert_eq!(explains(event, "web").await, expected, "{code} {message} {annotation:?}");
    }
    let mut received = request(json!({"objectRef": named}));
    received["stage"] = json!("RequestReceived");
    assert!(!explains(received, "web").await);
}

#[tokio::test]
async fn a_record_of_the_log_about_itself_has_a_plausible_time() {
    // Between other records, before all others, and at the end.
    for (at, own, expected) in [
        (20, time(20), None),
        (20, "2020-01-01T00:00:00Z".parse().unwrap(), Some("orphan 20")),
        (20, "2099-01-01T00:00:00Z".parse().unwrap(), Some("orphan 20")),
        (20, time(18), None),
        (20, time(23), Some("orphan 20")),
        (0, "2099-01-01T00:00:00Z".parse().unwrap(), Some("orphan 0")),
        (30, "2099-01-01T00:00:00Z".parse().unwrap(), Some("orphan 30")),
        (30, "2020-01-01T00:00:00Z".parse().unwrap(), Some("orphan 30")),
        (30, time(60), None),
    ] {
        let mut log = Recorded::new();
        log.decide(0..at).await;
        let event = format!(r#"{{"event":"recovered","time":"{own}","bytes":14}}"#);
        log.open().append(event.into_bytes()).await.unwrap();
        log.decide(at + 1..30).await;
        let (drifts, tally) = log.correlate();
        assert_eq!(drifts, Vec::from_iter(expected), "{own} at {at}");
        assert_each_record_is_accounted_for(tally);
        assert_eq!(tally.own, u64::from(expected.is_none()), "{own} at {at}");
    }
}

#[tokio::test]
async fn records_of_the_log_about_itself_are_counted() {
    let mut log = Recorded::new();
    // Recovery happens at the present time, so the other records must be recent.
    let now = (Timestamp::now().duration_since(time(0)).as_secs() / 20).cast_unsigned();
    log.decide(now - 20..=now).await;
    let segment = crate::support::format::segment(log.directory.path(), 0);
    let torn = [&fs::read(&segment).unwrap()[..], b"{\"seq\":21,"].concat();
    fs::write(&segment, torn).unwrap();
    log.decide(now + 1..now + 10).await;
    let (drifts, tally) = log.correlate();
    assert!(drifts.is_empty() && tally.own == 1, "{drifts:?} {tally:?}");
    assert_each_record_is_accounted_for(tally);
}
