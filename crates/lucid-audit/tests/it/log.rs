//! Writing and sealing.

use std::fs;
use std::path::Path;
use std::time::Duration;

use lucid_audit::log::{AppendError, Options};
use lucid_audit::proof::Proof;
use lucid_audit::{Log, Recorder};
use prometheus_client::registry::Registry;

use crate::support::format::{CHECKPOINT, TILES, path};
use crate::support::{self, again, key, record};

async fn sealed(log: &Log) {
    support::until(log, |status| status.sealed_size >= status.size).await;
}

#[tokio::test]
async fn sealing_failures_are_reported_until_they_end() {
    let folder = tempfile::tempdir().unwrap();
    let mut registry = Registry::default();
    let options = Options::new().with_key(key()).with_seal_interval(Duration::from_millis(1));
    let recorder = Recorder::new(0).with_metrics(&mut registry);
    recorder.open_log(folder.path(), options).unwrap();
    let log = recorder.log().unwrap();
    let state = |state: &str| support::metric(&registry, &format!("audit_state{{state=\"{state}\"}}"));
    // A directory in place of the checkpoint makes sealing fail.
    let checkpoint = folder.path().join(CHECKPOINT);
    fs::remove_file(&checkpoint).unwrap();
    fs::create_dir(&checkpoint).unwrap();
    log.append(record(1)).await.unwrap();
    let failed = support::until(log, |status| status.failure().is_some()).await;
    assert!(failed.failure().unwrap().contains("failed to write"));
    // Keeping further records does not clear the failure.
    log.append(record(2)).await.unwrap();
    assert_eq!((state("unsealed"), state("ok"), state("failing")), ("1".into(), "0".into(), "0".into()));
    fs::remove_dir(&checkpoint).unwrap();
    support::until(log, |status| status.failure().is_none() && status.sealed_size == 2).await;
    assert_eq!((state("unsealed"), state("ok")), ("0".into(), "1".into()));
}

#[tokio::test]
async fn logs_without_a_key_consist_of_segments() {
    let folder = tempfile::tempdir().unwrap();
    let log = Log::open(folder.path(), Options::new()).unwrap();
    log.append(record(1)).await.unwrap();
    assert_eq!(log.vkey(), None);
    drop(log);
    let mut names: Vec<_> =
        fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["lock", "segments"]);
    assert_eq!(support::lines(folder.path()).len(), 1);
}

/// Tiles as read by a third-party implementation.
struct Theirs<'a>(&'a Path);

impl tlog_tiles::TileReader for Theirs<'_> {
    fn height(&self) -> u8 {
        8
    }

    fn read_tiles(&self, tiles: &[tlog_tiles::Tile]) -> Result<Vec<Vec<u8>>, tlog_tiles::Error> {
        tiles.iter().map(|tile| Ok(fs::read(self.0.join(path(tile))).unwrap())).collect()
    }

    fn save_tiles(&self, _: &[tlog_tiles::Tile], _: &[Vec<u8>]) {}
}

#[tokio::test]
async fn tlog_tiles_proves_records_from_our_tiles() {
    let folder = tempfile::tempdir().unwrap();
    let key = key();
    let log = support::open(folder.path(), &key);
    support::append(&log, 0..700).await;
    drop(log);
    let lines = support::verify(folder.path(), key.verifier());
    let checkpoint = support::checkpoint(folder.path(), key.verifier());
    let (size, root) = (checkpoint.size, tlog_tiles::Hash(checkpoint.root.0));
    let theirs = Theirs(folder.path());
    let reader = tlog_tiles::TileHashReader::new(size, root, &theirs);
    for index in [0, 255, 256, 699] {
        let line = &lines[index];
        let index = index as u64;
        let proof = tlog_tiles::prove_record(size, index, &reader).unwrap();
        let hash = tlog_tiles::record_hash(line);
        assert!(tlog_tiles::check_record(&proof, size, root, index, hash).is_ok());
        let ours = Proof::of(folder.path(), index).unwrap();
        assert_eq!(
            ours.to_string().split("\n\n").next().unwrap().lines().skip(3).collect::<Vec<_>>(),
            proof.iter().map(ToString::to_string).collect::<Vec<_>>()
        );
        assert!(ours.check(&[key.verifier().clone()], Some(line)).is_ok());
    }
}

#[tokio::test]
async fn a_reader_with_an_older_checkpoint_reads_wider_tiles() {
    let folder = tempfile::tempdir().unwrap();
    let key = key();
    let log =
        Log::open(folder.path(), Options::new().with_key(again(&key)).with_seal_interval(Duration::ZERO))
            .unwrap();
    support::append(&log, 0..248).await;
    let mut older = Vec::new();
    // Covers a partial and a full last tile.
    for number in 248..262 {
        log.append(record(number)).await.unwrap();
        sealed(&log).await;
        older.push(fs::read(folder.path().join(CHECKPOINT)).unwrap());
        let lines = support::lines(folder.path());
        for checkpoint in &older {
            let reader = tempfile::tempdir().unwrap();
            support::copy(&folder.path().join(TILES), &reader.path().join(TILES));
            fs::write(reader.path().join(CHECKPOINT), checkpoint).unwrap();
            let last = support::checkpoint(reader.path(), key.verifier()).size - 1;
            let proof = Proof::of(reader.path(), last).unwrap();
            let line = &lines[last as usize][..];
            let proven = proof.check(&[key.verifier().clone()], None).unwrap().to_string();
            assert_eq!(proven.lines().last().unwrap().as_bytes(), line);
        }
    }
}

#[tokio::test]
async fn only_single_line_json_objects_are_accepted() {
    let folder = tempfile::tempdir().unwrap();
    let log = Log::open(folder.path(), Options::new()).unwrap();
    for bad in [
        &b""[..],
        b"{}",
        b"[1]",
        b"{nonsense}",
        b"{\"a\":\n1}",
        br#"{"a":1}{"b":2}"#,
        &[b'{'; 70_000],
        // Fields that the log adds itself.
        br#"{"seq":9,"a":1}"#,
        br#"{"a":1,"prev":"x"}"#,
        br#"{"seq":null}"#,
        br#"{"s\u0065q":9}"#,
    ] {
        assert!(matches!(log.append(bad.to_vec()).await, Err(AppendError::Unfit { .. })));
    }
    log.append(record(1)).await.unwrap();
    log.close();
    assert!(matches!(log.append(record(2)).await, Err(AppendError::Closed)));
    assert_eq!(support::lines(folder.path()).len(), 1);
}

#[tokio::test]
async fn cancelled_appends_do_not_damage_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let key = key();
    let log = support::open(folder.path(), &key);
    for number in 0..100 {
        let append = log.append(record(number));
        if number % 2 == 0 {
            let _ = tokio::time::timeout(Duration::ZERO, append).await;
        } else {
            append.await.unwrap();
        }
    }
    drop(log);
    support::verify(folder.path(), key.verifier());
}

#[tokio::test]
async fn segments_have_several_records_at_any_limit() {
    let folder = tempfile::tempdir().unwrap();
    let log = Log::open(folder.path(), Options::new().with_segment_bytes(0)).unwrap();
    support::append(&log, 0..5).await;
    log.close();
    assert_eq!(support::segments(folder.path()).len(), 1);
}
