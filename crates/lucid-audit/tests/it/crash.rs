//! Recovery after kill -9, full disks and other failures.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use lucid_audit::log::{OpenErrorKind, Options};
use lucid_audit::note::SigningKey;
use lucid_audit::verify::verify;
use lucid_audit::{Decision, Log, LogFailurePolicy, Recorder};
use lucid_e2e::Disk;

use crate::support::format::leaf_hash;
use crate::support::{self, decision, fill, key};

const DIRECTORY: &str = "LUCID_TEST_LOG";
const KEY: &str = "LUCID_TEST_KEY";

/// Writes until killed, and prints the records that were kept.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a process that other tests start"]
async fn writer() {
    let Some(directory) = std::env::var_os(DIRECTORY) else { return };
    let key = std::env::var(KEY).unwrap().parse::<SigningKey>().unwrap();
    // Rotate and seal frequently.
    let options =
        Options::new().with_key(key).with_segment_bytes(40_000).with_seal_interval(Duration::from_millis(2));
    let recorder = Arc::new(Recorder::new(100).with_patience(Duration::from_secs(60)));
    recorder.open_log(Path::new(&directory), options).unwrap();
    let tasks: Vec<_> = (0..32)
        .map(|task| {
            let recorder = Arc::clone(&recorder);
            tokio::spawn(async move {
                for number in 0_u64.. {
                    let uid = format!("{}-{task}-{number}", std::process::id());
                    let mut decision = decision(&uid);
                    decision.message = "x".repeat(usize::try_from(number % 7 * 100).unwrap());
                    let anchor = recorder.record(decision).await.unwrap().unwrap();
                    // One write per line, so that only the last line can be torn.
                    let leaf = serde_json::json!(anchor)["leaf"].as_str().unwrap().to_owned();
                    let line = format!("\nkept {} {leaf} {uid}\n", anchor.seq);
                    std::io::stdout().lock().write_all(line.as_bytes()).unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
}

/// Starts the writer and kills it after `life`. Returns the records it reported as kept: sequence number, leaf hash and UID.
fn write_and_kill(directory: &Path, key: &SigningKey, life: Duration) -> Vec<(usize, String, String)> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "crash::writer", "--ignored", "--nocapture"])
        .env(DIRECTORY, directory)
        .env(KEY, &*key.to_secret())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let stdout = BufReader::new(child.stdout.take().unwrap());
    let (started, starts) = std::sync::mpsc::channel();
    let reader = thread::spawn(move || {
        let mut kept = Vec::new();
        for line in stdout.split(b'\n') {
            let Ok(line) = String::from_utf8(line.unwrap()) else { continue };
            let mut words = line.split(' ');
            if words.next() == Some("kept")
                && let (Some(seq), Some(leaf), Some(uid)) = (words.next(), words.next(), words.next())
            {
                kept.push((seq.parse().unwrap(), leaf.to_owned(), uid.to_owned()));
                let _ = started.send(());
            }
        }
        kept
    });
    // Wait for the process to start.
    starts.recv_timeout(Duration::from_secs(60)).unwrap();
    thread::sleep(life);
    child.kill().unwrap();
    child.wait().unwrap();
    let mut kept = reader.join().unwrap();
    // The last line may be torn.
    kept.pop();
    kept
}

fn random(most: u64) -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0) % most
}

fn survives(rounds: usize) {
    let key = key();
    let folder = tempfile::tempdir().unwrap();
    let mut kept = Vec::new();
    let mut torn = 0;
    for round in 0..rounds {
        let life = Duration::from_micros(random(120_000));
        kept.extend(write_and_kill(folder.path(), &key, life));
        // All kept records are in the log after recovery.
        drop(support::open(folder.path(), &key));
        let lines = support::verify(folder.path(), key.verifier());
        let mut expected = support::expected(key.verifier());
        expected.sealed = true;
        let report = verify(folder.path(), &expected).unwrap();
        assert!(report.is_intact(), "round {round}: {:?}", report.faults);
        for (seq, leaf, uid) in &kept {
            let line = lines.get(*seq).unwrap_or_else(|| panic!("round {round}: record {seq} is lost"));
            assert_eq!(&leaf_hash(line).to_string(), leaf, "round {round}: record {seq} is another");
            let decision: Decision = serde_json::from_slice(line).unwrap();
            assert_eq!(&decision.uid, uid);
        }
        let last: serde_json::Value = serde_json::from_slice(lines.last().unwrap()).unwrap();
        torn += usize::from(last["event"] == "recovered");
        let uids: BTreeSet<_> = lines.iter().collect();
        assert_eq!(uids.len(), lines.len(), "a record is there twice");
        if lines.len() > 20_000 {
            fs::remove_dir_all(folder.path()).unwrap();
            fs::create_dir(folder.path()).unwrap();
            kept.clear();
        }
    }
    eprintln!("{rounds} rounds, a torn end in {torn}");
}

#[test]
fn sigkill_does_not_lose_acknowledged_records() {
    survives(8);
}

#[test]
#[ignore = "slow"]
fn slow_forty_kills_do_not_lose_acknowledged_records() {
    survives(40);
}

#[tokio::test]
async fn a_full_disk_is_handled_according_to_the_policy() {
    let Some(disk) = Disk::mount(1 << 20) else { return };
    let recorder = |name: &str, policy| {
        let recorder = Recorder::new(10).with_on_failure(policy);
        recorder.open_log(&disk.path().join(name), Options::new()).unwrap();
        recorder
    };
    let deny = recorder("deny", LogFailurePolicy::Deny);
    let serve = recorder("serve", LogFailurePolicy::ServeAndAlarm);
    fill(&disk, 0);
    let mut long = decision("long");
    long.message = "x".repeat(10_000);
    let error = deny.record(long.clone()).await.unwrap_err();
    assert!(error.to_string().contains("the disk is full"), "{error}");
    assert_eq!(serve.record(long).await.unwrap(), None);
    assert_eq!((deny.latest().len(), serve.latest().len()), (0, 1));
    let error = Log::open(&disk.path().join("new"), Options::new().with_key(key())).unwrap_err();
    assert!(error.to_string().contains("No space left on device"), "{error}");
    assert_eq!(error.kind(), OpenErrorKind::Transient, "{error}");
}
