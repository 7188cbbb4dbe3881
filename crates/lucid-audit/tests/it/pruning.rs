//! Logs that keep their latest records only, and generated keys.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use lucid_audit::log::{OpenErrorKind, Options};
use lucid_audit::note::{Note, SigningKey};
use lucid_audit::proof::Proof;
use lucid_audit::verify::{Expectations, Report, Since, verify};
use lucid_audit::{Anchor, Log, Recorder};

use prometheus_client::registry::Registry;

use crate::support::format::{
    self, CHECKPOINT, Checkpoint, Hash, KEY, MINIMUM, SEGMENTS, TILES, leaf_hash, root, segment, sign,
};
use crate::support::{
    ORIGIN, again, append, bytes, checkpoint, copy, count, expected, key, metric, segments, until,
};

const KEEP: u64 = 256 << 10;

fn options(key: &SigningKey) -> Options {
    Options::new().with_key(again(key)).with_keep_bytes(KEEP).with_seal_interval(Duration::ZERO)
}

fn faults(directory: &Path, expected: &Expectations) -> Vec<String> {
    let Report { faults, .. } = verify(directory, expected).unwrap();
    faults
        .iter()
        .map(|fault| {
            let json = serde_json::json!(fault);
            format!("{} {}", json["class"].as_str().unwrap(), json["file"].as_str().unwrap())
        })
        .collect()
}

fn classes(directory: &Path, key: &SigningKey) -> Vec<String> {
    let faults = faults(directory, &expected(key.verifier()));
    let mut classes: Vec<_> = faults.iter().map(|it| it.split(' ').next().unwrap().to_owned()).collect();
    classes.dedup();
    classes
}

fn replace(file: &Path, from: &str, to: &str) {
    let text = fs::read_to_string(file).unwrap();
    fs::write(file, text.replacen(from, to, 1)).unwrap();
}

async fn pruned() -> (tempfile::TempDir, SigningKey, u64) {
    let (folder, key) = (tempfile::tempdir().unwrap(), key());
    let log = Log::open(folder.path(), options(&key)).unwrap();
    append(&log, 0..2500).await;
    let first = until(&log, |status| status.first > 1000).await.first;
    log.close();
    (folder, key, first.max(log.status().first))
}

#[tokio::test]
async fn a_pruned_log_stays_within_its_limit_and_verifies() {
    let (folder, key) = (tempfile::tempdir().unwrap(), key());
    let path = folder.path();
    let mut first = 0;
    for round in 0..4 {
        let log = Log::open(path, options(&key)).unwrap();
        append(&log, round * 1000..(round + 1) * 1000).await;
        log.close();
        let status = log.status();
        assert!(status.first > first, "{status:?}");
        first = status.first;
        let report = verify(path, &expected(key.verifier())).unwrap();
        assert!(report.is_intact(), "{report:?}");
        let records = u64::from(round + 1) * 1000 - first;
        assert_eq!((count(&report, "first"), count(&report, "records")), (Some(first), Some(records)));
        // The records that remain use most of the limit. Tiles above level 0 and partial ones are small.
        let used = bytes(path);
        assert!((KEEP / 2..KEEP + 64_000).contains(&used), "{used}");
    }
    assert!(!path.join("tile/entries/000").exists() && !path.join("tile/0/000").exists());
    let proof = Proof::of(path, first).unwrap();
    assert!(proof.check(&[key.verifier().clone()], None).is_ok());
    let error = Proof::of(path, first - 1).unwrap_err().to_string();
    assert!(error.contains(&format!("pruned; the log begins with record {first}")), "{error}");
}

#[tokio::test]
async fn every_fault_of_a_pruned_log_is_found() {
    let (folder, key, first) = pruned().await;
    let whole = folder.path();
    let earlier = {
        let (earlier, key) = (tempfile::tempdir().unwrap(), again(&key));
        copy(whole, earlier.path());
        let log = Log::open(whole, options(&key)).unwrap();
        append(&log, 2500..4000).await;
        log.close();
        assert!(log.status().first > first);
        earlier
    };
    let first = count(&verify(whole, &expected(key.verifier())).unwrap(), "first").unwrap();
    let restore = |name: &'static str| {
        move |log: &Path, earlier: &Path| _ = fs::copy(earlier.join(name), log.join(name)).unwrap()
    };
    let remove = |name: &'static str| move |log: &Path, _: &Path| fs::remove_file(log.join(name)).unwrap();
    type Change<'a> = Box<dyn Fn(&Path, &Path) + 'a>;
    let other = SigningKey::generate(ORIGIN).unwrap();
    let move_minimum = |log: &Path, to: u64| {
        replace(&log.join(MINIMUM), &format!("\n{first}\n"), &format!("\n{to}\n"));
    };
    let resign = |log: &Path, signer: &SigningKey, change: &dyn Fn(&mut Checkpoint)| {
        let note: Note = fs::read_to_string(log.join(MINIMUM)).unwrap().parse().unwrap();
        let mut minimum = Checkpoint::parse(note.text());
        change(&mut minimum);
        fs::write(log.join(MINIMUM), sign(&minimum.to_string(), signer).to_string()).unwrap();
    };
    let cases: Vec<(&str, &[&str], Change<'_>)> = vec![
        ("no first segment", &["gap"], Box::new(|log, _| fs::remove_file(&segments(log)[0]).unwrap())),
        ("no second segment", &["gap"], Box::new(|log, _| fs::remove_file(&segments(log)[1]).unwrap())),
        (
            "no last segment",
            &["shrink"],
            Box::new(|log, _| fs::remove_file(segments(log).last().unwrap()).unwrap()),
        ),
        (
            "a changed record",
            &["rewritten"],
            Box::new(|log, _| replace(&segments(log)[0], "\"validate\"", "\"mutate00\"")),
        ),
        ("the minimum is gone", &["gap"], Box::new(remove(MINIMUM))),
        ("an earlier minimum", &["gap"], Box::new(restore(MINIMUM))),
        (
            "a checkpoint as the minimum",
            &["checkpoint", "gap"],
            Box::new(|log, _| _ = fs::copy(log.join(CHECKPOINT), log.join(MINIMUM)).unwrap()),
        ),
        ("an earlier checkpoint", &["fork", "shrink"], Box::new(restore(CHECKPOINT))),
        ("a minimum by another key", &["key-change", "gap"], Box::new(|log, _| resign(log, &other, &|_| ()))),
        ("a changed minimum", &["signature", "gap"], Box::new(|log, _| move_minimum(log, first + 1))),
        (
            "a minimum that skips a segment",
            &["signature", "gap"],
            Box::new(|log, _| {
                fs::remove_file(&segments(log)[0]).unwrap();
                move_minimum(log, format::first(&segments(log)[0]) as u64);
            }),
        ),
        (
            "another history by the key",
            &["tile"],
            Box::new(|log, _| resign(log, &key, &|it| it.root = leaf_hash(b""))),
        ),
        (
            "a damaged tile",
            &["tile"],
            Box::new(|log, _| fs::write(log.join(format!("tile/0/{:03}", first / 256)), b"").unwrap()),
        ),
        (
            "a damaged bundle",
            &["bundle"],
            Box::new(|log, _| fs::write(log.join(format!("tile/entries/{:03}", first / 256)), b"").unwrap()),
        ),
    ];
    for (name, classes_expected, change) in cases {
        let log = tempfile::tempdir().unwrap();
        copy(whole, log.path());
        change(log.path(), earlier.path());
        let mut found = classes(log.path(), &key);
        // The entries and hashes of pruned records are missing as well, if nothing says that they were pruned.
        if classes_expected.contains(&"gap") {
            found.retain(|class| class != "tile" && class != "bundle");
        }
        assert_eq!(found, classes_expected, "{name}: {:?}", faults(log.path(), &expected(key.verifier())));
    }
}

#[tokio::test]
async fn earlier_states_of_a_pruned_log_are_compared_if_possible() {
    let (folder, key, first) = pruned().await;
    let path = folder.path();
    let now = checkpoint(path, key.verifier());
    let check = |since: Since| {
        let mut expected = expected(key.verifier());
        expected.since.push(since);
        faults(path, &expected)
    };
    assert_eq!(check(now.since()), Vec::<String>::new());
    // A checkpoint of full tiles can be compared for good.
    let (other, log) = (tempfile::tempdir().unwrap(), options(&key).with_keep_bytes(u64::MAX));
    let log = Log::open(other.path(), log).unwrap();
    append(&log, 0..10).await;
    log.close();
    // The hashes of level 1 are each over 256 records.
    let upper = fs::read(path.join("tile/1/000.p/9")).unwrap();
    let (upper, _) = upper.as_chunks();
    let at_512 = format::checkpoint(ORIGIN, 512, root(&[Hash(upper[0]), Hash(upper[1])]));
    assert!(first > 600);
    let anchor = |seq: u64, size: u64| {
        let leaf = leaf_hash(b"").to_string();
        serde_json::from_value::<Anchor>(serde_json::json!({"seq": seq, "leaf": leaf, "size": size})).unwrap()
    };
    let mut known = expected(key.verifier());
    known.since.push(anchor(5, 6).into());
    let report = verify(path, &known).unwrap();
    assert!(report.is_intact() && report.to_string().contains("\n  record 5 was pruned"), "{report}");
    assert_eq!(check(anchor(first, first + 1).into())[0].split(' ').next(), Some("rewritten"));
    assert_eq!(check(anchor(5, now.size + 1).into())[0].split(' ').next(), Some("shrink"));
    assert_eq!(check(at_512.since()), Vec::<String>::new());
    let mut forged = at_512;
    forged.root = now.root;
    assert_eq!(check(forged.since()), ["fork segments"]);
    let short = checkpoint(other.path(), key.verifier());
    assert_eq!(check(short.since()), ["fork segments"]);
}

#[tokio::test]
async fn a_changed_segment_is_not_pruned() {
    let (folder, key) = (tempfile::tempdir().unwrap(), key());
    let path = folder.path();
    let mut registry = Registry::default();
    let recorder = Recorder::new(0).with_metrics(&mut registry);
    recorder.open_log(path, options(&key)).unwrap();
    let log = recorder.log().unwrap();
    append(log, 0..100).await;
    until(log, |status| status.sealed_size == 100).await;
    let text = fs::read_to_string(segment(path, 0)).unwrap();
    replace(&segment(path, 0), "\"validate\"", "\"mutate00\"");
    append(log, 100..1500).await;
    let status = until(log, |status| status.failure().is_some()).await;
    assert!(status.failure().unwrap().contains("not those that were sealed"));
    log.close();
    let state = |state: &str| metric(&registry, &format!("audit_state{{state=\"{state}\"}}"));
    assert_eq!((state("unpruned"), state("unsealed")), ("1".into(), "0".into()));
    assert_ne!(metric(&registry, "audit_failures_total{kind=\"prune\"}"), "0");
    assert_eq!(metric(&registry, "audit_failures_total{kind=\"seal\"}"), "0");
    assert_eq!((log.status().first, log.status().sealed_size), (0, 1500));
    assert_eq!(classes(path, &key), ["rewritten"]);
    // A segment that is too long is not pruned either.
    fs::write(segment(path, 0), format!("{text}{}", "x".repeat(1 << 20))).unwrap();
    let log = Log::open(path, options(&key)).unwrap_err().to_string();
    assert!(log.contains("segment"), "{log}");
}

#[tokio::test]
async fn segments_beyond_their_age_are_pruned() {
    let (folder, key) = (tempfile::tempdir().unwrap(), key());
    let options = || {
        let options = Options::new().with_key(again(&key)).with_segment_bytes(4096);
        options.with_keep_age(Duration::from_secs(3600))
    };
    let log = Log::open(folder.path(), options()).unwrap();
    for number in 0..100 {
        let old =
            serde_json::json!({"time": "2020-01-01T00:00:00Z", "number": number, "text": "x".repeat(100)});
        log.append(old.to_string().into_bytes()).await.unwrap();
    }
    log.close();
    let last = format::first(&segments(folder.path()).pop().unwrap()) as u64;
    let log = Log::open(folder.path(), options()).unwrap();
    append(&log, 100..101).await;
    until(&log, |status| status.first == last).await;
    log.close();
    assert!(verify(folder.path(), &expected(key.verifier())).unwrap().is_intact());
}

#[tokio::test]
async fn an_idle_log_is_pruned_by_age() {
    let (folder, key) = (tempfile::tempdir().unwrap(), key());
    let path = folder.path();
    let options = || Options::new().with_key(again(&key)).with_keep_age(Duration::from_millis(100));
    let log = Log::open(path, options()).unwrap();
    append(&log, 0..300).await;
    until(&log, |status| status.first == 300).await;
    log.close();
    let report = verify(path, &expected(key.verifier())).unwrap();
    assert!(
        report.is_intact() && (count(&report, "first"), count(&report, "records")) == (Some(300), Some(0)),
        "{report:?}"
    );

    let log = Log::open(path, options()).unwrap();
    append(&log, 300..301).await;
    assert_eq!(log.status().size, 301);
    until(&log, |status| status.first == 301).await;
    log.close();
    assert!(verify(path, &expected(key.verifier())).unwrap().is_intact());
}

#[tokio::test]
async fn a_change_before_an_empty_segment_is_found_at_start() {
    let (folder, key) = (tempfile::tempdir().unwrap(), key());
    let path = folder.path();
    let log = Log::open(path, Options::new().with_key(again(&key))).unwrap();
    append(&log, 0..3).await;
    log.close();
    fs::write(segment(path, 3), "").unwrap();
    let open = || Log::open(path, Options::new().with_key(again(&key)));
    open().unwrap().close();
    let text = fs::read_to_string(segment(path, 0)).unwrap();
    let (before, last) = text.trim_end().rsplit_once('\n').unwrap();
    let changed = last.replacen("\"validate\"", "\"mutate00\"", 1);
    fs::write(segment(path, 0), format!("{before}\n{changed}\n")).unwrap();
    let error = open().unwrap_err().to_string();
    assert!(error.contains("record 2 is not the one that was sealed"), "{error}");
}

#[tokio::test]
async fn unrelated_files_do_not_count_towards_the_size_limit() {
    let (folder, key) = (tempfile::tempdir().unwrap(), key());
    let options = || Options::new().with_key(again(&key)).with_segment_bytes(4096);
    let log = Log::open(folder.path(), options()).unwrap();
    append(&log, 0..100).await;
    log.close();
    let log = Log::open(folder.path(), options().with_keep_bytes(1 << 20)).unwrap();
    let huge = folder.path().join("segments/18000000000000000000.jsonl");
    fs::File::create(&huge).unwrap().set_len(1 << 40).unwrap();
    append(&log, 100..200).await;
    log.close();
    fs::remove_file(huge).unwrap();
    assert!(segments(folder.path())[0].ends_with("00000000000000000000.jsonl"));
    assert!(verify(folder.path(), &expected(key.verifier())).unwrap().is_intact());
}

#[tokio::test]
async fn a_crash_while_pruning_leaves_an_intact_log() {
    let (folder, key) = (tempfile::tempdir().unwrap(), key());
    let path = folder.path();
    let unlimited = || Options::new().with_key(again(&key)).with_segment_bytes(KEEP / 8);
    let log = Log::open(path, unlimited()).unwrap();
    append(&log, 0..2500).await;
    log.close();
    let before = tempfile::tempdir().unwrap();
    copy(path, before.path());
    let log = Log::open(path, options(&key)).unwrap();
    append(&log, 2500..2501).await;
    log.close();
    let first = log.status().first;
    assert!(first > 1000);
    // The minimum index was signed, and nothing was removed yet.
    fs::remove_file(segment(path, 0)).unwrap_err();
    for name in [SEGMENTS, TILES] {
        let from = before.path().join(name).display().to_string() + "/.";
        let status = std::process::Command::new("cp").args(["-an", &from]).arg(path.join(name)).status();
        assert!(status.unwrap().success());
    }
    assert!(path.join("tile/entries/000").exists() && segment(path, 0).exists());
    assert!(verify(path, &expected(key.verifier())).unwrap().is_intact());
    Log::open(path, unlimited()).unwrap().close();
    assert!(!path.join("tile/entries/000").exists() && !segment(path, 0).exists());
    assert!(verify(path, &expected(key.verifier())).unwrap().is_intact());
}

#[tokio::test]
async fn a_pruned_log_can_be_sealed_with_a_new_key() {
    let (folder, key, _) = pruned().await;
    let new = SigningKey::generate(ORIGIN).unwrap();
    let error = Log::open(folder.path(), options(&new)).unwrap_err();
    assert_eq!(error.kind(), OpenErrorKind::Unadopted, "{error}");
    Log::open(folder.path(), options(&new).with_adoption(true)).unwrap().close();
    let report = verify(folder.path(), &expected(new.verifier())).unwrap();
    assert!(report.is_intact() && count(&report, "first") > Some(0), "{report:?}");
    let error = Log::open(folder.path(), options(&key)).unwrap_err();
    assert_eq!(error.kind(), OpenErrorKind::Unadopted, "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_can_be_verified_while_it_is_pruned() {
    let (folder, key) = (tempfile::tempdir().unwrap(), key());
    let log = Log::open(folder.path(), options(&key)).unwrap();
    append(&log, 0..10).await;
    let (path, expected) = (folder.path().to_owned(), expected(key.verifier()));
    let reader = tokio::task::spawn_blocking(move || {
        loop {
            let report = verify(&path, &expected).unwrap();
            assert!(report.is_intact(), "{report:?}");
            if count(&report, "first") > Some(3000) {
                return;
            }
        }
    });
    let mut next = 10;
    while !reader.is_finished() {
        append(&log, next..next + 100).await;
        next += 100;
    }
    reader.await.unwrap();
}

#[tokio::test]
async fn a_missing_key_is_generated_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let unsealed = Log::open(path, Options::new()).unwrap();
    append(&unsealed, 0..3).await;
    unsealed.close();
    let generated = || Log::open(path, Options::new().with_generated_key(ORIGIN));
    let log = generated().unwrap();
    append(&log, 3..5).await;
    log.close();
    let vkey = log.vkey().unwrap().clone();
    assert_eq!(fs::metadata(path.join(KEY)).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(generated().unwrap().vkey(), Some(&vkey));
    let report = verify(path, &expected(&vkey)).unwrap();
    assert!(report.is_intact() && report.sealed == Some(6), "{report:?}");
    // A different or lost key is not replaced silently.
    let given = Log::open(path, Options::new().with_key(key()));
    assert_eq!(given.unwrap_err().kind(), OpenErrorKind::Unadopted);
    fs::remove_file(path.join(KEY)).unwrap();
    let error = generated().unwrap_err().to_string();
    assert!(error.contains("needs its key") && !path.join(KEY).exists(), "{error}");
    fs::write(path.join(KEY), "x").unwrap();
    let error = generated().unwrap_err().to_string();
    assert!(error.contains("expected a signing key"), "{error}");
}
