//! Logs assembled from their parts, as by an attacker with write access and knowledge of the format.

use std::fs;
use std::path::Path;

use lucid_audit::note::SigningKey;

use super::format::{
    CHECKPOINT, Checkpoint, SEGMENTS, TILES, VKEY, ZERO, leaf_hash, line, root, segment, sign, tiles,
};

/// Lines of a log, without newlines.
pub(crate) type Lines = Vec<Vec<u8>>;

pub(crate) fn lines(count: u64) -> Lines {
    let records = (0..count).map(|number| {
        format!(r#"{{"time":"2026-01-01T00:00:00Z","webhook":"validate","uid":"u-{number}","allowed":true}}"#)
    });
    chained(records)
}

/// Adds sequence numbers and hashes to records.
pub(crate) fn chained(records: impl IntoIterator<Item = String>) -> Lines {
    let mut prev = ZERO;
    let line = |(seq, record): (u64, String)| {
        let line = line(seq, &prev, &record);
        prev = leaf_hash(&line);
        line
    };
    (0..).zip(records).map(line).collect()
}

pub(crate) fn write(directory: &Path, lines: &[Vec<u8>], per_segment: usize, key: Option<&SigningKey>) {
    fs::create_dir_all(directory.join(SEGMENTS)).unwrap();
    for (number, chunk) in lines.chunks(per_segment).enumerate() {
        let mut bytes = chunk.join(&b'\n');
        bytes.push(b'\n');
        fs::write(segment(directory, number * per_segment), bytes).unwrap();
    }
    if let Some(key) = key {
        seal(directory, lines, key);
    }
}

pub(crate) fn seal(directory: &Path, lines: &[Vec<u8>], key: &SigningKey) {
    let _ = fs::remove_dir_all(directory.join(TILES));
    for (path, bytes) in tiles(lines) {
        let path = directory.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
    fs::write(directory.join(CHECKPOINT), sign(&checkpoint(lines, key).to_string(), key).to_string())
        .unwrap();
    fs::write(directory.join(VKEY), format!("{}\n", key.verifier())).unwrap();
}

pub(crate) fn checkpoint(lines: &[Vec<u8>], key: &SigningKey) -> Checkpoint {
    let leaves: Vec<_> = lines.iter().map(|line| leaf_hash(line)).collect();
    super::format::checkpoint(key.verifier().name(), lines.len() as u64, root(&leaves))
}
