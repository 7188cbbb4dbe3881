//! The ring and the file.

use std::sync::Arc;

use lucid_audit::{Decision, ImageVerdict, Recorder};

fn decision(uid: usize) -> Decision {
    Decision::new("validate", uid.to_string())
}

#[test]
fn the_ring_keeps_the_latest_in_order() {
    let recorder = Recorder::new(3);
    for uid in 0..5 {
        recorder.record(decision(uid)).unwrap();
    }
    let uids: Vec<String> = recorder.latest().iter().map(|decision| decision.uid.clone()).collect();
    assert_eq!(uids, ["2", "3", "4"]);
    let none = Recorder::new(0);
    none.record(decision(1)).unwrap();
    assert!(none.latest().is_empty());
}

#[test]
fn every_decision_is_one_line_that_reads_back_also_after_reopening_and_from_many_threads() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("decisions.jsonl");
    let mut whole = decision(0);
    whole.message = "two\nlines \"quoted\" é".into();
    whole.images =
        vec![ImageVerdict { container: "a".into(), image: "b@sha256:c".into(), verdict: "notarized".into() }];
    Recorder::new(1).with_file(&path).unwrap().record(whole.clone()).unwrap();
    let recorder = Arc::new(Recorder::new(1).with_file(&path).unwrap());
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let recorder = &recorder;
            scope.spawn(move || (0..250).for_each(|i| recorder.record(decision(thread * 250 + i)).unwrap()));
        }
    });
    let text = std::fs::read_to_string(&path).unwrap();
    let read: Vec<Decision> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((read.len(), &read[0]), (1001, &whole));
}

#[test]
fn a_folder_that_is_not_there_is_an_error_that_names_the_path() {
    let error = Recorder::new(1).with_file("/nonexistent/decisions.jsonl".as_ref()).unwrap_err();
    assert!(error.to_string().contains("/nonexistent/decisions.jsonl"), "{error}");
}
