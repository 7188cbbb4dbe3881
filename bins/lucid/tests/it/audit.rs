//! `lucid audit` as a process.

use std::fs;
use std::time::Duration;

use lucid_audit::log::Options;
use lucid_audit::note::SigningKey;
use lucid_audit::{Decision, Log};
use lucid_e2e::eventually;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::event::event;
use crate::program::run_command;

/// Returns exit code, standard output and standard error.
fn audit(arguments: &[&str]) -> (i32, String, String) {
    run_command("audit", arguments, "")
}

/// A log of 30 decisions, and the API server's events of them.
struct Fixture {
    folder: TempDir,
    /// Key that verifies the log.
    vkey: String,
    directory: String,
    events: String,
}

impl Fixture {
    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }
}

async fn fixture() -> Fixture {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (directory, audit_log) = (path("log"), path("audit.log"));
    let key = SigningKey::generate("lucid.computing/test/0").unwrap();
    let vkey = key.verifier().to_string();
    let log = Log::open(&folder.path().join("log"), Options::new().with_key(key)).unwrap();
    let mut events = String::new();
    for number in 0..30 {
        let mut decision = Decision::new("validate", format!("u-{number}"));
        decision.kind = "Pod".to_owned();
        decision.namespace = if number % 2 == 0 { "shop" } else { "bank" }.to_owned();
        decision.name = format!("web-{number}");
        decision.allowed = number % 3 > 0;
        let anchor = log.append(serde_json::to_vec(&decision).unwrap()).await.unwrap();
        events += &format!("{}\n", event(number, &decision, anchor, "lucid.computing/test/0"));
    }
    log.close();
    fs::write(&audit_log, events).unwrap();
    Fixture { folder, vkey, directory, events: audit_log }
}

#[tokio::test]
async fn a_pruned_record_is_not_a_fault() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().to_str().unwrap();
    let options = Options::new().with_generated_key("lucid.computing/test/0");
    let log = Log::open(folder.path(), options.with_keep_age(Duration::from_millis(1))).unwrap();
    log.append(serde_json::to_vec(&Decision::new("validate", "u-0")).unwrap()).await.unwrap();
    eventually("the record is pruned", async || log.status().first >= 1).await;
    log.close();
    let anchor = format!(r#"{{"seq":0,"leaf":"{}","size":1}}"#, "0".repeat(64));
    let (code, output, _) = audit(&["verify", directory, "--since", &anchor]);
    assert_eq!(code, 0, "{output}");
    assert!(output.contains("record 0 was pruned and cannot be compared with its anchor"), "{output}");
}

#[tokio::test]
async fn exit_status_distinguishes_intact_changed_and_missing_logs() {
    let logged = fixture().await;
    let Fixture { vkey, directory, events, .. } = &logged;
    let metrics = logged.path("drift.prom");
    let correlate =
        ["correlate", "--log", directory, "--apiserver-audit", events, "--metrics-file", &metrics];

    let (code, output, _) = audit(&["verify", directory, "--key", vkey, "--sealed"]);
    assert_eq!(code, 0, "{output}");
    assert!(
        output.contains(": intact (lucid.computing/test/0)\n  30 records in 1 segments, 30 sealed"),
        "{output}"
    );
    let (code, output, _) = audit(&["verify", directory, directory]);
    assert_eq!((code, output.matches(": intact (").count(), output.matches("set --key").count()), (0, 2, 2));
    let (code, output, _) = audit(&correlate);
    assert_eq!(
        (code, output.contains("no drift: 30 records, 30 events with 30 anchors, 30 match")),
        (0, true),
        "{output}"
    );
    assert!(fs::read_to_string(&metrics).unwrap().contains("lucid_audit_drift_total{class=\"orphan\"} 0\n"));

    // An empty comparison is not a success.
    let others = logged.path("others.log");
    for (text, events) in [("", 0), ("no event\n", 0), ("{\"kind\":\"Event\",\"auditID\":\"a\"}\n", 1)] {
        fs::write(&others, text).unwrap();
        let (code, output, error) = audit(&["correlate", "--log", directory, "--apiserver-audit", &others]);
        assert_eq!((code, output.contains("no drift")), (1, false), "{output}{error}");
        assert!(error.contains(&format!("none of the {events} events in {others} has an anchor")), "{error}");
    }

    let checkpoint = logged.path("checkpoint");
    fs::copy(format!("{directory}/checkpoint"), &checkpoint).unwrap();
    assert_eq!(audit(&["verify", directory, "--since", &checkpoint]).0, 0);

    let segment = format!("{directory}/segments/00000000000000000000.jsonl");
    let text = fs::read_to_string(&segment).unwrap();
    fs::write(&segment, text.replacen("\"name\":\"web-7\"", "\"name\":\"web-8\"", 1)).unwrap();
    let (code, output, _) = audit(&["verify", directory, "--key", vkey, "-ojson"]);
    let json: Value = serde_json::from_str(&output).unwrap();
    let fault = &json["logs"][0]["faults"][0];
    let offset: usize = text.split_inclusive('\n').take(7).map(str::len).sum();
    assert_eq!((code, &fault["class"], &fault["seq"]), (3, &json!("rewritten"), &json!(7)), "{output}");
    assert_eq!(
        (fault["offset"].as_u64(), json["logs"][0]["intact"].as_bool()),
        (Some(offset as u64), Some(false))
    );
    let (code, output, _) = audit(&correlate);
    assert_eq!(code, 3, "{output}");
    assert!(output.contains("rewritten: ") && output.contains(", seq 7: "), "{output}");
    // The output identifies the event, which names the author of the change.
    assert!(output.contains("(auditID a-7)"), "{output}");
    assert!(
        fs::read_to_string(&metrics).unwrap().contains("lucid_audit_drift_total{class=\"rewritten\"} 1\n")
    );

    // A log that cannot be verified does not hide the results of the others.
    let (code, output, error) = audit(&["verify", "/nonexistent", "--log", directory, "--key", vkey]);
    assert_eq!((code, output.contains("rewritten: seq 7, ")), (1, true), "{output}");
    assert!(error.contains("/nonexistent is not there"), "{error}");
    assert_eq!(audit(&["verify", "/nonexistent"]).0, 1);
    let no_record =
        r#"{"seq":5,"leaf":"0000000000000000000000000000000000000000000000000000000000000000","size":0}"#;
    assert_eq!(audit(&["verify", directory, "--since", no_record]).0, 2);
    assert_eq!(audit(&["verify"]).0, 2);
    assert_eq!(audit(&["verify", directory, "--key", "no key"]).0, 2);
    let missing = ["correlate", "--log", directory, "--apiserver-audit", "/nonexistent"];
    assert_eq!(audit(&missing).0, 1);

    let twice =
        ["correlate", "--log", directory, "--log", &format!("{directory}/"), "--apiserver-audit", events];
    let (code, _, error) = audit(&twice);
    assert!(code == 1 && error.contains("twice among --log"), "{error}");
    assert_eq!(audit(&[&correlate[..5], &["--metrics-file", "drift.txt"]].concat()).0, 2);
}

#[tokio::test]
async fn a_proof_is_checked_without_the_log() {
    let logged = fixture().await;
    let Fixture { folder, vkey, directory, .. } = &logged;
    let (code, proof, _) = audit(&["proof", "7", "--log", directory]);
    assert!(code == 0 && proof.starts_with("c2sp.org/tlog-proof@v1\nextra "), "{proof}");
    let file = logged.path("record.tlog-proof");
    fs::write(&file, &proof).unwrap();
    let (code, output, _) = audit(&["proof", "--check", &file, "--key", vkey]);
    assert_eq!((code, output.contains("proven: record 7 of lucid.computing/test/0")), (0, true), "{output}");
    let line = output.lines().nth(1).unwrap().to_owned();
    assert_eq!(audit(&["proof", "--check", &file, "--key", vkey, "--record", &line]).0, 0);
    assert_eq!(audit(&["proof", "--check", &file, "--key", vkey, "--record", "{}"]).0, 3);
    let other = SigningKey::generate("lucid.computing/test/0").unwrap().verifier().to_string();
    assert_eq!(audit(&["proof", "--check", &file, "--key", &other]).0, 3);
    assert_eq!(audit(&["proof", "--check", &file]).0, 2, "whom to trust is to be said");
    assert_eq!(audit(&["proof", "30", "--log", directory]).0, 1);
    let (code, _, error) = audit(&["proof", "abc", "--log", directory]);
    assert!(code == 2 && error.contains("expected the seq of a record"), "{error}");
    assert_eq!(audit(&["proof", "7", "--log", directory, "-ojson"]).0, 2);

    // Among several logs, the one with such a record, or the one of `--origin`, is used.
    let other = folder.path().join("other");
    let key = SigningKey::generate("lucid.computing/test/1").unwrap();
    let log = Log::open(&other, Options::new().with_key(key)).unwrap();
    for number in 0..5 {
        let record = serde_json::to_vec(&Decision::new("validate", format!("other-{number}"))).unwrap();
        log.append(record).await.unwrap();
    }
    log.close();
    let other = other.display().to_string();
    let of = |seq: &str, more: &[&str]| {
        audit(&[&["proof", seq, "--log", &other, "--log", directory][..], more].concat())
    };
    assert_eq!(of("7", &[]).1, proof);
    let (code, _, error) = of("3", &[]);
    assert!(code == 1 && error.contains("lucid.computing/test/0") && error.contains("--origin"), "{error}");
    let (code, proof, _) = of("3", &["--origin", "lucid.computing/test/1"]);
    assert!(code == 0 && proof.contains("\nlucid.computing/test/1\n5\n"), "{proof}");
    assert_eq!(of("3", &["--origin", "lucid.computing/test/2"]).0, 1);
    assert_eq!(of("30", &[]).0, 1);
}

#[tokio::test]
async fn missing_and_unreadable_seals_are_reported() {
    let logged = fixture().await;
    let Fixture { vkey, directory, events, .. } = &logged;
    let checkpoint = logged.path("log/checkpoint");
    let correlate = |more: &[&str]| {
        audit(&[&["correlate", "--log", directory, "--apiserver-audit", events][..], more].concat())
    };
    fs::remove_file(&checkpoint).unwrap();
    let (code, output, _) = correlate(&["--key", vkey]);
    assert!(code == 3 && output.contains("key-change: ") && output.contains("no checkpoint"), "{output}");
    assert_eq!(correlate(&[]).0, 0, "it may be one that is not sealed");
    assert!(std::process::Command::new("mkfifo").arg(&checkpoint).status().unwrap().success());
    let (code, output, _) = correlate(&[]);
    assert!(code == 3 && output.contains("it is not a regular file"), "{output}");
    assert_eq!(audit(&["proof", "7", "--log", directory]).0, 1);

    for name in ["checkpoint", "vkey"] {
        fs::remove_file(logged.path(&format!("log/{name}"))).unwrap();
    }
    fs::remove_dir_all(logged.path("log/tile")).unwrap();
    let (code, output, _) = audit(&["verify", directory]);
    assert!(code == 0 && output.contains("the log is not sealed: only prev was checked"), "{output}");
    assert_eq!(audit(&["verify", directory, "--key", vkey]).0, 3);
}

#[tokio::test]
async fn tail_prints_the_latest_matching_decisions() {
    let Fixture { folder: _folder, directory, .. } = &fixture().await;
    let (_, output, _) = audit(&["tail", directory, "-n2"]);
    assert!(output.lines().count() == 2 && output.contains("bank/web-29"), "{output}");
    let (_, output, _) = audit(&["tail", directory, "--namespace=shop", "--decision=denied", "-ojson"]);
    let names: Vec<Value> =
        output.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["name"].clone()).collect();
    assert_eq!(names, ["web-0", "web-6", "web-12", "web-18", "web-24"]);
    assert_eq!(audit(&["tail", "/nonexistent"]).0, 1);
}

#[tokio::test]
async fn a_key_is_changed_under_the_name_that_the_log_has() {
    let logged = fixture().await;
    let Fixture { folder, vkey: old, directory, .. } = &logged;
    let path = |name: &str| logged.path(name);
    let key = path("new.key");
    // The name of the log takes precedence over that of the key.
    assert_eq!(audit(&["key", "--out", &key, "--origin", "lucid.computing/elsewhere"]).0, 0);
    let (code, _, error) = audit(&["seal", directory, "--key", &key, "--origin", "lucid.computing/other"]);
    assert!(code == 1 && error.contains("the name of another log"), "{error}");
    let (code, new, error) = audit(&["seal", directory, "--key", &key]);
    assert!(code == 0 && new.starts_with("lucid.computing/test/0+"), "{new}{error}");
    let (code, output, _) = audit(&["verify", directory, "--key", new.trim()]);
    assert!(code == 0 && output.contains("intact (lucid.computing/test/0)"), "{output}");
    assert_eq!(audit(&["verify", directory, "--key", old]).0, 3);

    // Sealing does not create a log, and a log that was never sealed needs a name.
    let (code, _, error) = audit(&["seal", &path("lgo"), "--key", &key]);
    assert!(code == 1 && error.contains("is not a log"), "{error}");
    assert!(!folder.path().join("lgo").exists());
    let plain = folder.path().join("plain");
    Log::open(&plain, Options::new()).unwrap().close();
    let (code, _, error) = audit(&["seal", &path("plain"), "--key", &key]);
    assert!(code == 1 && error.contains("--origin"), "{error}");
    let (code, output, _) =
        audit(&["seal", &path("plain"), "--key", &key, "--origin", "lucid.computing/plain"]);
    assert!(code == 0 && output.starts_with("lucid.computing/plain+"), "{output}");
}

#[tokio::test]
async fn alert_tokens_are_sent_to_the_alert_url_only() {
    let logged = fixture().await;
    let Fixture { directory, events, .. } = &logged;
    let token = logged.path("token");
    fs::write(&token, "t".repeat(40)).unwrap();
    let correlate = |url: &str| {
        let to = ["--alert-url", url, "--alert-token-file", &token];
        audit(&[&["correlate", "--log", directory, "--apiserver-audit", events][..], &to].concat())
    };
    let (code, _, error) = correlate("http://alerts.example/hook");
    assert!(code == 1 && error.contains("to alerts.example in the clear"), "{error}");
    // Without drift no request is sent.
    for url in ["http://127.0.0.1:1/", "http://[::1]:1/", "http://localhost:1/", "https://alerts.example/"] {
        assert_eq!(correlate(url).0, 0, "{url}");
    }
}
