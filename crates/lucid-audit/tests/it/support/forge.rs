//! Logs assembled from their parts, as by an attacker with write access and knowledge of the format.

use std::fs;
use std::path::{Path, PathBuf};

use lucid_audit::checkpoint::Checkpoint;
use lucid_audit::layout::{self, CHECKPOINT, VKEY, write_line};
use lucid_audit::merkle::{Hash, leaf_hash};
use lucid_audit::note::SigningKey;
use lucid_audit::tile::{Frontier, Tile, full_root, push_entry};

/// Lines of a log, without newlines.
pub(crate) type Lines = Vec<Vec<u8>>;

/// Returns `count` chained records.
pub(crate) fn lines(count: u64) -> Lines {
    let records = (0..count).map(|number| {
        format!(r#"{{"time":"2026-01-01T00:00:00Z","webhook":"validate","uid":"u-{number}","allowed":true}}"#)
    });
    chained(records)
}

/// Adds sequence numbers and hashes to records.
pub(crate) fn chained(records: impl IntoIterator<Item = String>) -> Lines {
    let mut prev = Hash::ZERO;
    let line = |(seq, record): (u64, String)| {
        let mut line = Vec::new();
        write_line(&mut line, seq, &prev, record.as_bytes());
        line.pop();
        prev = leaf_hash(&line);
        line
    };
    (0..).zip(records).map(line).collect()
}

/// Returns the fields of a line as a record.
pub(crate) fn record(line: &[u8]) -> String {
    let line = layout::Line::parse(line).unwrap();
    format!("{{{}", str::from_utf8(line.fields).unwrap())
}

/// Writes a log with `per_segment` records per segment.
pub(crate) fn write(directory: &Path, lines: &[Vec<u8>], per_segment: usize, key: Option<&SigningKey>) {
    fs::create_dir_all(directory.join("segments")).unwrap();
    for (number, chunk) in lines.chunks(per_segment).enumerate() {
        let mut bytes = chunk.join(&b'\n');
        bytes.push(b'\n');
        fs::write(segment(directory, number * per_segment), bytes).unwrap();
    }
    if let Some(key) = key {
        seal(directory, lines, key);
    }
}

pub(crate) fn segment(directory: &Path, first: usize) -> PathBuf {
    layout::segment(directory, first as u64)
}

/// Writes tiles, bundles and the checkpoint for `lines`.
pub(crate) fn seal(directory: &Path, lines: &[Vec<u8>], key: &SigningKey) {
    let _ = fs::remove_dir_all(directory.join("tile"));
    let size = lines.len() as u64;
    let put = |tile: Tile, bytes: Vec<u8>| {
        let path = directory.join(tile.path());
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    };
    for (index, chunk) in (0..).zip(lines.chunks(256)) {
        let mut bundle = Vec::new();
        chunk.iter().for_each(|line| push_entry(&mut bundle, line));
        put(Tile::entries(index, size).unwrap(), bundle);
    }
    let mut hashes: Vec<Hash> = lines.iter().map(|line| leaf_hash(line)).collect();
    for level in 0.. {
        for (index, tile) in (0..).zip(hashes.chunks(256)) {
            put(Tile::hashes(level, index, size).unwrap(), tile.iter().flat_map(|hash| hash.0).collect());
        }
        hashes = hashes.chunks_exact(256).map(full_root).collect();
        if hashes.is_empty() {
            break;
        }
    }
    fs::write(directory.join(CHECKPOINT), checkpoint(lines, key).sign(key).unwrap().to_string()).unwrap();
    fs::write(directory.join(VKEY), format!("{}\n", key.verifier())).unwrap();
}

/// Returns the checkpoint over `lines` of the log that `key` belongs to.
pub(crate) fn checkpoint(lines: &[Vec<u8>], key: &SigningKey) -> Checkpoint {
    let mut tree = Frontier::new();
    lines.iter().for_each(|line| drop(tree.append(leaf_hash(line))));
    Checkpoint::new(key.verifier().name(), tree.size(), tree.root())
}
