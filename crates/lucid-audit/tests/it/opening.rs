//! Recovery and checks when a log is opened.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;

use lucid_audit::Log;
use lucid_audit::log::{OpenError, OpenErrorKind, Options};
use lucid_audit::note::{Note, SigningKey};
use serde_json::{Value, json};

use crate::support::format::{self, Hash, leaf_hash, root};
use crate::support::{self, ORIGIN, again, append, key, record};

/// Creates a log of 600 records in three segments.
async fn log(directory: &Path, key: &SigningKey) {
    let options = Options::new().with_key(again(key)).with_segment_bytes(50_000);
    append(&Log::open(directory, options).unwrap(), 0..600).await;
    assert!(support::segments(directory).len() >= 3);
}

async fn sealed() -> (tempfile::TempDir, SigningKey) {
    let (folder, key) = (tempfile::tempdir().unwrap(), key());
    log(folder.path(), &key).await;
    (folder, key)
}

fn adopt(directory: &Path, key: &SigningKey) -> Result<Log, OpenError> {
    Log::open(directory, Options::new().with_key(again(key)).with_adoption(true))
}

/// Opens a sealed log, and checks that it is completely sealed. Returns its lines.
fn reopened(directory: &Path, key: &SigningKey) -> Vec<Vec<u8>> {
    drop(support::open(directory, key));
    support::verify(directory, key.verifier())
}

fn refused(directory: &Path, key: &SigningKey) -> String {
    let checkpoint = fs::read(directory.join(format::CHECKPOINT)).ok();
    let error = Log::open(directory, Options::new().with_key(again(key))).unwrap_err();
    assert_eq!(fs::read(directory.join(format::CHECKPOINT)).ok(), checkpoint, "it was sealed again");
    error.to_string()
}

fn last_segment(directory: &Path) -> std::path::PathBuf {
    support::segments(directory).pop().unwrap()
}

#[tokio::test]
async fn a_torn_end_is_cut_off_and_recorded() {
    for torn in [&b"{"[..], br#"{"seq":600,"prev":"00"#, b"\xff\xfe garbage"] {
        let (folder, key) = sealed().await;
        let before = support::lines(folder.path());
        let mut segment = OpenOptions::new().append(true).open(last_segment(folder.path())).unwrap();
        segment.write_all(torn).unwrap();
        let lines = reopened(folder.path(), &key);
        assert_eq!(lines[..600], before);
        let event: Value = serde_json::from_slice(&lines[600]).unwrap();
        assert_eq!((&event["event"], &event["bytes"]), (&json!("recovered"), &json!(torn.len())));
        assert_eq!(lines.len(), 601);
        // Recovery is recorded only once.
        assert_eq!(reopened(folder.path(), &key).len(), 601);
    }
}

#[tokio::test]
async fn a_torn_first_line_of_a_segment_is_cut_off() {
    let (folder, key) = sealed().await;
    let next = format::segment(folder.path(), 600);
    fs::write(&next, b"{\"seq\":600").unwrap();
    assert_eq!(reopened(folder.path(), &key).len(), 601);
    assert_eq!(last_segment(folder.path()), next);
}

#[tokio::test]
async fn records_that_were_not_sealed_are_sealed() {
    let (folder, key) = sealed().await;
    let sealed = fs::read(folder.path().join(format::CHECKPOINT)).unwrap();
    append(&support::open(folder.path(), &key), 0..300).await;
    // Simulate a crash that leaves the previous checkpoint, whose partial tiles were replaced by full ones.
    fs::write(folder.path().join(format::CHECKPOINT), sealed).unwrap();
    assert_eq!(reopened(folder.path(), &key).len(), 900);
}

#[tokio::test]
async fn lost_and_wrong_tiles_are_rebuilt() {
    let (folder, key) = sealed().await;
    fs::remove_dir_all(folder.path().join(format::TILES)).unwrap();
    reopened(folder.path(), &key);
    for path in ["tile/0/002.p/88", "tile/1/000.p/2", "tile/entries/002.p/88"] {
        let path = folder.path().join(path);
        let length = fs::metadata(&path).unwrap().len();
        fs::write(&path, vec![0; usize::try_from(length).unwrap()]).unwrap();
        reopened(folder.path(), &key);
    }
}

#[tokio::test]
async fn a_log_with_fewer_records_than_were_sealed_is_not_opened() {
    let (folder, key) = sealed().await;
    let path = last_segment(folder.path());
    let text = fs::read_to_string(&path).unwrap();
    let end = text[..text.len() - 1].rfind('\n').unwrap() + 1;
    fs::write(&path, &text[..end]).unwrap();
    let error = refused(folder.path(), &key);
    assert!(error.starts_with("600 records were sealed") && error.contains("there are 599"), "{error}");
    fs::remove_file(&path).unwrap();
    let error = refused(folder.path(), &key);
    assert!(error.starts_with("600 records were sealed"), "{error}");
}

#[tokio::test]
async fn a_changed_record_of_the_last_segment_is_found() {
    let (folder, key) = sealed().await;
    let path = last_segment(folder.path());
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replacen("\"allowed\":true", "\"allowed\":null", 1)).unwrap();
    let error = refused(folder.path(), &key);
    assert!(error.contains("a line was changed, added or removed"), "{error}");
    // The very last record, which no other record refers to.
    let at = text.rfind("\"allowed\":true").unwrap();
    fs::write(&path, format!("{}\"allowed\":null{}", &text[..at], &text[at + 14..])).unwrap();
    let error = refused(folder.path(), &key);
    assert!(error.contains("record 599 is not the one that was sealed"), "{error}");
    // A record that others follow.
    fs::write(&path, &text).unwrap();
    fs::write(&path, text.replacen("\"uid\":\"", "\"uid\":\"x", 1)).unwrap();
    assert!(refused(folder.path(), &key).contains("seq"));
}

#[tokio::test]
async fn a_rewritten_log_is_not_opened() {
    let (folder, key) = sealed().await;
    // A forger has the records and creates everything but the signature.
    let forged = tempfile::tempdir().unwrap();
    let other = support::key();
    log(forged.path(), &other).await;
    fs::copy(folder.path().join(format::CHECKPOINT), forged.path().join(format::CHECKPOINT)).unwrap();
    let error = refused(forged.path(), &key);
    assert!(error.contains("are not those that were sealed"), "{error}");
}

#[tokio::test]
async fn a_missing_segment_is_named() {
    let (folder, key) = sealed().await;
    let segments = support::segments(folder.path());
    fs::remove_file(&segments[segments.len() - 2]).unwrap();
    let error = refused(folder.path(), &key);
    assert!(error.contains("the segment with record"), "{error}");
    // Older segments are not read completely, but must exist.
    for missing in [0, 1] {
        let folder = tempfile::tempdir().unwrap();
        let options = Options::new().with_key(again(&key)).with_segment_bytes(4096);
        append(&Log::open(folder.path(), options).unwrap(), 0..300).await;
        let segments = support::segments(folder.path());
        assert!(segments.len() > 4);
        let first = format::first(&segments[missing]);
        let whole = fs::read(&segments[missing]).unwrap();
        fs::remove_file(&segments[missing]).unwrap();
        let error = refused(folder.path(), &key);
        assert!(error.contains(&format!("the segment with record {first} is missing")), "{error}");
        // Only the last segment may be torn.
        let text = fs::read(&segments[2]).unwrap();
        fs::write(&segments[2], &text[..text.len() - 1]).unwrap();
        fs::write(&segments[missing], whole).unwrap();
        assert!(refused(folder.path(), &key).contains("the line does not begin with seq"));
    }
}

#[tokio::test]
async fn a_missing_or_invalid_checkpoint_is_named() {
    let (folder, key) = sealed().await;
    let path = folder.path().join(format::CHECKPOINT);
    let text = fs::read_to_string(&path).unwrap();
    fs::remove_file(&path).unwrap();
    assert!(refused(folder.path(), &key).contains("its checkpoint is gone"));
    fs::write(&path, "").unwrap();
    assert!(refused(folder.path(), &key).contains("a signed note is"));
    fs::write(&path, text.replacen("600", "599", 1)).unwrap();
    assert!(refused(folder.path(), &key).contains("is not one of this text"));
}

#[tokio::test]
async fn logs_without_their_key_are_not_extended() {
    let (folder, key) = sealed().await;
    let error = Log::open(folder.path(), Options::new()).unwrap_err();
    assert!(error.to_string().contains(&key.verifier().to_string()), "{error}");
}

#[tokio::test]
async fn another_key_is_adopted_only_on_request_and_recorded() {
    let ((folder, old), new) = (sealed().await, key());
    let error = refused(folder.path(), &new);
    assert!(error.contains("is not signed by") && error.contains("by Options::with_adoption"), "{error}");
    drop(adopt(folder.path(), &new).unwrap());
    let lines = support::verify(folder.path(), new.verifier());
    let event: Value = serde_json::from_slice(&lines[600]).unwrap();
    let expected = [json!("key-changed"), json!(old.verifier()), json!(new.verifier())];
    assert_eq!(["event", "from", "to"].map(|key| event[key].clone()), expected);
    assert!(refused(folder.path(), &old).contains("is not signed by"));
    assert_eq!(reopened(folder.path(), &new).len(), 601);
}

#[tokio::test]
async fn opening_does_not_launder_changes() {
    let ((folder, _), new) = (sealed().await, key());
    fs::remove_file(last_segment(folder.path())).unwrap();
    let error = adopt(folder.path(), &new).unwrap_err();
    assert!(error.kind() == OpenErrorKind::Damaged && error.to_string().contains("were sealed"), "{error}");
}

#[tokio::test]
async fn opening_does_not_reseal_a_log_without_its_checkpoint() {
    for witness in [format::VKEY, format::TILES, format::COSIGNED] {
        let (folder, key) = sealed().await;
        let path = |name| folder.path().join(name);
        fs::rename(path(format::CHECKPOINT), path(format::COSIGNED)).unwrap();
        // Each remaining file proves that there was a checkpoint.
        for name in [format::VKEY, format::COSIGNED].into_iter().filter(|name| *name != witness) {
            fs::remove_file(path(name)).unwrap();
        }
        if witness != format::TILES {
            fs::remove_dir_all(path(format::TILES)).unwrap();
        }
        let error = adopt(folder.path(), &key).unwrap_err();
        assert!(error.to_string().contains("its checkpoint is gone"), "{witness}: {error}");
    }
}

#[tokio::test]
async fn opening_does_not_rename_the_log() {
    let folder = tempfile::tempdir().unwrap();
    assert!(lucid_audit::log::origin(folder.path()).unwrap_err().to_string().contains("is not a log"));
    drop(Log::open(folder.path(), Options::new()).unwrap());
    assert_eq!(lucid_audit::log::origin(folder.path()).unwrap(), None);
    let key = key();
    log(folder.path(), &key).await;
    let other = SigningKey::generate("lucid.computing/test/other").unwrap();
    let error = Log::open(folder.path(), Options::new().with_key(other).with_adoption(true)).unwrap_err();
    assert_eq!(error.kind(), OpenErrorKind::Conflict, "{error}");
    assert!(error.to_string().contains(ORIGIN), "{error}");
    let origin = || lucid_audit::log::origin(folder.path()).unwrap();
    assert_eq!(origin().as_deref(), Some(ORIGIN));
    fs::remove_file(folder.path().join(format::CHECKPOINT)).unwrap();
    assert_eq!(origin().as_deref(), Some(ORIGIN), "by its key");
}

#[tokio::test]
async fn unsealed_logs_are_sealed_only_on_request() {
    let folder = tempfile::tempdir().unwrap();
    let log = Log::open(folder.path(), Options::new()).unwrap();
    log.append(record(1)).await.unwrap();
    drop(log);
    let key = key();
    let error = refused(folder.path(), &key);
    assert!(error.contains("the 1 records in"), "{error}");
    drop(adopt(folder.path(), &key).unwrap());
    let lines = support::verify(folder.path(), key.verifier());
    let event: Value = serde_json::from_slice(&lines[1]).unwrap();
    assert_eq!((&event["event"], event.get("from")), (&json!("key-changed"), None));
}

/// Creates a cosignature (C2SP tlog-cosignature) with a third-party Ed25519 implementation.
fn cosign(seed: u8, name: &str, text: &str, time: u64) -> (String, String) {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    use ed25519_dalek::Signer;
    use sha2::Digest;
    let key = ed25519_dalek::SigningKey::from_bytes(&[seed; 32]);
    let public = [&[4], &key.verifying_key().to_bytes()[..]].concat();
    let hash = sha2::Sha256::new().chain_update(name).chain_update("\n").chain_update(&public).finalize();
    let id = u32::from_be_bytes([hash[0], hash[1], hash[2], hash[3]]);
    let vkey = format!("{name}+{id:08x}+{}", STANDARD.encode(public));
    let message = format!("cosignature/v1\ntime {time}\n{text}");
    let signature = [&time.to_be_bytes()[..], &key.sign(message.as_bytes()).to_bytes()].concat();
    let line = format!("\u{2014} {name} {}\n", STANDARD.encode([&id.to_be_bytes()[..], &signature].concat()));
    (vkey, line)
}

#[tokio::test]
async fn cosignatures_of_configured_witnesses_are_accepted() {
    let (folder, key) = sealed().await;
    let note: Note = fs::read_to_string(folder.path().join(format::CHECKPOINT)).unwrap().parse().unwrap();
    let (vkey, good) = cosign(1, "witness.example/w1", note.text(), 1_679_315_147);
    let (second, also_good) = cosign(2, "witness.example/w2", note.text(), 1_679_315_148);
    let (_, stranger) = cosign(3, "witness.example/w3", note.text(), 1_679_315_147);
    let (_, wrong) = cosign(1, "witness.example/w1", "another text\n", 1_679_315_147);
    let witnesses = || [vkey.parse().unwrap(), second.parse().unwrap()];
    let open = || {
        Log::open(folder.path(), Options::new().with_key(again(&key)).with_witnesses(witnesses())).unwrap()
    };
    let log = open();
    let with = |signature: &str| format!("{note}{signature}");
    assert!(log.cosign(&note.to_string()).unwrap_err().to_string().contains("none of the signatures"));
    assert!(log.cosign(&with(&stranger)).unwrap_err().to_string().contains("witness.example/w2"));
    assert!(log.cosign(&with(&wrong)).unwrap_err().to_string().contains("is not one of this text"));
    assert_eq!(log.status().cosigned_size, 0);
    assert_eq!(
        log.cosign(&with(&good)).unwrap().to_string(),
        "600 records are cosigned by witness.example/w1"
    );
    // The log grows before the second witness responds to the earlier request.
    log.append(record("later")).await.unwrap();
    let cosigned = log.cosign(&with(&also_good)).unwrap().to_string();
    assert_eq!(cosigned, "600 records are cosigned by witness.example/w1, witness.example/w2");
    assert_eq!(log.status().cosigned_size, 600);
    let kept: Note = fs::read_to_string(folder.path().join(format::COSIGNED)).unwrap().parse().unwrap();
    for witness in witnesses() {
        assert!(kept.verify(&witness).unwrap().is_some());
    }
    assert_eq!(kept.to_string().matches("\n\u{2014} ").count(), 3);
    // A checkpoint that this log never signed.
    let forged = format::sign(&format::checkpoint(ORIGIN, 600, other_root()).to_string(), &key);
    let (_, signature) = cosign(1, "witness.example/w1", forged.text(), 1_679_315_149);
    let forged = format!("{forged}{signature}");
    assert!(log.cosign(&forged).unwrap_err().to_string().contains("in this log they have"));
    drop(log);
    assert_eq!(open().status().cosigned_size, 600);
    // Without a process that has the log open.
    let cosigned =
        |note: &str| lucid_audit::log::cosign(folder.path(), Some(key.verifier()), witnesses(), note);
    let latest: Note = fs::read_to_string(folder.path().join(format::CHECKPOINT)).unwrap().parse().unwrap();
    let (_, signature) = cosign(2, "witness.example/w2", latest.text(), 1_679_315_150);
    let later = format!("{latest}{signature}");
    let found = cosigned(&later).unwrap();
    assert_eq!(found.to_string(), "601 records are cosigned by witness.example/w2");
    assert_eq!(lucid_audit::log::cosign(folder.path(), None, witnesses(), &later).unwrap(), found);
    assert!(cosigned(&forged).unwrap_err().to_string().contains("in this log they have"));
}

#[tokio::test]
async fn logs_that_contradict_their_witnesses_are_not_opened() {
    let (folder, key) = sealed().await;
    let leaves: Vec<_> = support::lines(folder.path()).iter().map(|line| leaf_hash(line)).collect();
    let root = root(&leaves[..500]);
    for (size, root, refused) in [
        (500, root, None),
        (500, other_root(), Some("witnesses have cosigned 500 records")),
        (601, root, Some("the checkpoint is of 600")),
    ] {
        let seen = format::sign(&format::checkpoint(ORIGIN, size, root).to_string(), &key);
        fs::write(folder.path().join(format::COSIGNED), seen.to_string()).unwrap();
        let opened = Log::open(folder.path(), Options::new().with_key(again(&key)));
        match refused {
            None => drop(opened.unwrap()),
            Some(says) => {
                let error = opened.unwrap_err();
                assert!(
                    error.kind() == OpenErrorKind::Damaged && error.to_string().contains(says),
                    "{error}"
                );
            }
        }
    }
}

fn other_root() -> Hash {
    leaf_hash(b"fork")
}
