//! Shared helpers that read a log straight from its files.

pub(crate) mod events;
pub(crate) mod forge;
pub(crate) mod format;

use std::fs;
use std::io::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;

use lucid_audit::log::{LogStatus, Options};
use lucid_audit::note::{Note, SigningKey, VerifierKey};
use lucid_audit::verify::{Expectations, Fault, Report};
use lucid_audit::{Decision, Log};
use lucid_e2e::{Disk, eventually};
use prometheus_client::registry::Registry;

use format::{CHECKPOINT, Checkpoint, SEGMENTS, ZERO, leaf_hash, root, tiles};

pub(crate) const ORIGIN: &str = "lucid.computing/test/lucid-operator-0";

pub(crate) fn key() -> SigningKey {
    SigningKey::generate(ORIGIN).unwrap()
}

pub(crate) fn again(key: &SigningKey) -> SigningKey {
    key.named(ORIGIN).unwrap()
}

pub(crate) fn open(directory: &Path, key: &SigningKey) -> Log {
    Log::open(directory, Options::new().with_key(again(key))).unwrap()
}

pub(crate) fn decision(uid: impl ToString) -> Decision {
    Decision::new("validate", uid.to_string())
}

pub(crate) fn record(uid: impl ToString) -> Vec<u8> {
    serde_json::to_vec(&decision(uid)).unwrap()
}

pub(crate) async fn append(log: &Log, numbers: Range<u32>) {
    for number in numbers {
        log.append(record(number)).await.unwrap();
    }
}

/// Returns the encoded value of a metric, given its name and labels.
pub(crate) fn metric(registry: &Registry, name: &str) -> String {
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, registry).unwrap();
    let line =
        text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("{name}: {text}"));
    line.trim().to_owned()
}

pub(crate) fn segments(directory: &Path) -> Vec<PathBuf> {
    let folder = fs::read_dir(directory.join(SEGMENTS)).unwrap();
    let mut segments: Vec<_> = folder.map(|entry| entry.unwrap().path()).collect();
    segments.sort();
    segments
}

/// Returns all lines after checking their order and chain.
pub(crate) fn lines(directory: &Path) -> Vec<Vec<u8>> {
    let mut lines: Vec<Vec<u8>> = Vec::new();
    let mut prev = ZERO;
    for path in segments(directory) {
        assert_eq!(path, format::segment(directory, lines.len()));
        let bytes = fs::read(&path).unwrap();
        assert!(bytes.is_empty() || bytes.ends_with(b"\n"), "{} has a torn end", path.display());
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            let line = &line[..line.len() - 1];
            let expected = format::line(lines.len() as u64, &prev, &format::record(line));
            assert_eq!(line, expected, "its seq or prev is another");
            let json: serde_json::Value = serde_json::from_slice(line).unwrap();
            assert!(json["time"].is_string());
            prev = leaf_hash(line);
            lines.push(line.to_vec());
        }
    }
    lines
}

pub(crate) fn checkpoint(directory: &Path, vkey: &VerifierKey) -> Checkpoint {
    let note: Note = fs::read_to_string(directory.join(CHECKPOINT)).unwrap().parse().unwrap();
    note.verify(vkey).unwrap();
    Checkpoint::parse(note.text())
}

/// Checks that the log is completely sealed and that checkpoint, tiles and entries match the segments. Returns the lines.
pub(crate) fn verify(directory: &Path, vkey: &VerifierKey) -> Vec<Vec<u8>> {
    let lines = lines(directory);
    let leaves: Vec<_> = lines.iter().map(|line| leaf_hash(line)).collect();
    let checkpoint = checkpoint(directory, vkey);
    assert_eq!((checkpoint.size, checkpoint.root), (lines.len() as u64, root(&leaves)));
    for (path, expected) in tiles(&lines) {
        assert!(fs::read(directory.join(&path)).unwrap() == expected, "{path} has other contents");
    }
    lines
}

pub(crate) fn expected(key: &VerifierKey) -> Expectations {
    let mut expected = Expectations::default();
    expected.keys.push(key.clone());
    expected
}

pub(crate) fn count(report: &Report, name: &str) -> Option<u64> {
    serde_json::json!(report)[name].as_u64()
}

pub(crate) fn detail(fault: &Fault) -> String {
    serde_json::json!(fault)["detail"].as_str().unwrap().to_owned()
}

pub(crate) fn copy(from: &Path, to: &Path) {
    let status = Command::new("cp").arg("-aT").args([from, to]).status().unwrap();
    assert!(status.success());
}

/// Returns the total size of the files in a folder in bytes, 0 if the folder is missing.
pub(crate) fn bytes(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().map(|it| it.unwrap());
    let length = |it: fs::DirEntry| {
        let metadata = it.metadata().unwrap();
        if metadata.is_dir() { bytes(&it.path()) } else { metadata.len() }
    };
    entries.map(length).sum()
}

pub(crate) fn fill(disk: &Disk, room: usize) -> PathBuf {
    let path = disk.path().join("ballast");
    let mut file = fs::File::create(&path).unwrap();
    while file.write_all(&[0; 4096]).is_ok() {}
    let length = file.metadata().unwrap().len() - room as u64;
    file.set_len(length).unwrap();
    path
}

/// Waits until `holds` returns `true` for the status of the log.
pub(crate) async fn until(log: &Log, holds: impl Fn(&LogStatus) -> bool) -> LogStatus {
    let attempt = async || Some(log.status()).filter(|status| holds(status)).ok_or_else(|| log.status());
    eventually("the status of the log", attempt).await
}
