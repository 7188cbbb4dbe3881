//! Runs the commands of docs/audit-log.md in order and compares their output with the page.

use std::fs;
use std::path::Path;

use jiff::{SignedDuration, Timestamp};
use lucid_audit::log::Options;
use lucid_audit::note::SigningKey;
use lucid_audit::{Decision, Log};
use lucid_e2e::page::{Page, commands};
use regex::Regex;

use crate::event::event;

const ORIGIN: &str = "lucid.computing/prod/lucid-operator-0";

/// Makes 700 decisions with the key from the page, and writes the API server's events of them.
async fn decide(folder: &Path) {
    let key = fs::read_to_string(folder.join("decisions.key")).unwrap().parse::<SigningKey>().unwrap();
    assert_eq!(key.verifier().name(), ORIGIN);
    let log = Log::open(&folder.join("decisions"), Options::new().with_key(key).with_segment_bytes(65_536))
        .unwrap();
    let mut events = String::new();
    let begin: Timestamp = "2026-11-22T14:00:00Z".parse().unwrap();
    for number in 0..700_u64 {
        let mut decision = Decision::new("validate", format!("705ab4f5-6393-11e8-b7cc-{number:012}"));
        decision.time = begin + SignedDuration::from_secs(number.try_into().unwrap());
        decision.operation = "CREATE".to_owned();
        decision.kind = "Pod".to_owned();
        decision.namespace = if number % 2 == 0 { "shop" } else { "bank" }.to_owned();
        decision.name = format!("web-{number}");
        decision.user = "alice".to_owned();
        decision.mode = "enforce".to_owned();
        decision.allowed = number % 19 > 0;
        if !decision.allowed {
            decision.message = "container guard: missing digest".to_owned();
        }
        let anchor = log.append(serde_json::to_vec(&decision).unwrap()).await.unwrap();
        events += &format!("{}\n", event(number, &decision, anchor, ORIGIN));
    }
    log.close();
    fs::write(folder.join("audit.log"), events).unwrap();
}

/// Runs a command in a shell with lucid on its PATH. Returns standard output and standard error.
fn run(folder: &Path, command: &str) -> String {
    let program = Path::new(env!("CARGO_BIN_EXE_lucid"));
    let path = std::env::var("PATH").unwrap_or_default();
    let output = std::process::Command::new("sh")
        .args(["-c", &format!("exec 2>&1\n{command}")])
        .current_dir(folder)
        .env("PATH", format!("{}:{path}", program.parent().unwrap().display()))
        .env("LUCID_LOG", "off")
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test]
async fn the_log_behaves_as_its_page_says() {
    let page = Page::read("docs/audit-log.md").unwrap();
    let folder = tempfile::tempdir().unwrap();
    // Keys and values derived from them vary, as do times with a fraction.
    let differing = r"\+[0-9a-f]{8}\b|[A-Za-z0-9+/]{40,}=*|\b[0-9a-f]{64}\b|\d{4}-\d\d-\d\dT[\d:]{8}\.\d+Z";
    let differing = Regex::new(differing).unwrap();
    let same = |one: &str, other: &str| differing.replace_all(one, "…") == differing.replace_all(other, "…");
    // The page with the actual output.
    let mut right = page.text().to_owned();
    let mut ran = 0;
    for (language, session) in page.blocks() {
        assert_ne!(language, "sh", "nothing is said of what it prints");
        if language != "console" {
            continue;
        }
        let mut played = String::new();
        for (command, said) in commands(session) {
            let printed = run(folder.path(), &command);
            let printed = if same(&said, &printed) { said } else { printed };
            played += &format!("$ {command}{printed}");
            ran += 1;
            if !folder.path().join("decisions").exists() && folder.path().join("decisions.key").exists() {
                decide(folder.path()).await;
            }
        }
        right = right.replace(session, &played);
        page.ran(session);
    }
    assert!(ran > 15, "{ran} commands");
    let instead = Path::new(env!("CARGO_TARGET_TMPDIR")).join("audit-log.md");
    fs::write(&instead, &right).unwrap();
    assert!(right == page.text(), "the page does not say what is printed; {} does", instead.display());
}
