//! Any bytes where the readers of a decision log look: read, or refused with an error or a fault; never a panic, and never a
//! log that counts as intact although a sealed record is another.

#![no_main]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use jiff::SignedDuration;
use libfuzzer_sys::fuzz_target;
use lucid_audit::checkpoint::Checkpoint;
use lucid_audit::correlate::Correlator;
use lucid_audit::layout::{self, CHECKPOINT, VKEY, write_line};
use lucid_audit::merkle::{Hash, leaf_hash};
use lucid_audit::note::{Note, SigningKey, VerifierKey};
use lucid_audit::proof::Proof;
use lucid_audit::tile::{Frontier, Tile, full_root, push_entry};
use lucid_audit::verify::{Expectations, verify};

/// Enough for tiles at two levels, of which some are partial.
const RECORDS: u64 = 300;
const PER_SEGMENT: u64 = 100;

/// A log: its files, and the key that sealed it.
struct Log {
    files: Vec<(PathBuf, Vec<u8>)>,
    key: VerifierKey,
}

static LOG: LazyLock<Log> = LazyLock::new(|| {
    let key = SigningKey::generate("lucid.computing/fuzz/0").expect("a key");
    let mut segments: Vec<(PathBuf, Vec<u8>)> = Vec::new();
    let mut bundles = vec![Vec::new(); 2];
    let mut leaves = Vec::new();
    let (mut tree, mut prev) = (Frontier::new(), Hash::ZERO);
    for seq in 0..RECORDS {
        let mut line = Vec::new();
        write_line(
            &mut line,
            seq,
            &prev,
            br#"{"time":"2026-01-01T00:00:00Z","webhook":"validate","uid":"u"}"#,
        );
        if seq % PER_SEGMENT == 0 {
            segments.push((layout::segment(Path::new(""), seq), Vec::new()));
        }
        segments.last_mut().expect("one").1.extend_from_slice(&line);
        line.pop();
        push_entry(&mut bundles[(seq / 256) as usize], &line);
        prev = leaf_hash(&line);
        leaves.push(prev);
        tree.append(prev);
    }
    let mut files = segments;
    let checkpoint = Checkpoint::new(key.verifier().name(), RECORDS, tree.root()).sign(&key).expect("signed");
    files.push((CHECKPOINT.into(), checkpoint.to_string().into_bytes()));
    files.push((VKEY.into(), key.verifier().to_string().into_bytes()));
    let bytes = |hashes: &[Hash]| hashes.iter().flat_map(|hash| hash.0).collect::<Vec<_>>();
    for (index, (hashes, bundle)) in (0..).zip(leaves.chunks(256).zip(bundles)) {
        files.push((Tile::hashes(0, index, RECORDS).expect("a tile").path().into(), bytes(hashes)));
        files.push((Tile::entries(index, RECORDS).expect("a bundle").path().into(), bundle));
    }
    let upper = full_root(&leaves[..256]);
    files.push((Tile::hashes(1, 0, RECORDS).expect("a tile").path().into(), bytes(&[upper])));
    Log { files, key: key.verifier().clone() }
});

/// In memory, where there is such a place.
static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
    let shared = Path::new("/dev/shm");
    let base = if shared.is_dir() { shared.to_owned() } else { std::env::temp_dir() };
    let folder = base.join(format!("lucid-fuzz-{}", std::process::id()));
    write(&folder, &LOG.files);
    folder
});

fn write(folder: &Path, files: &[(PathBuf, Vec<u8>)]) {
    for (path, bytes) in files {
        let path = folder.join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, bytes).expect("a file");
    }
}

fuzz_target!(|data: &[u8]| match data.split_first() {
    Some((0, text)) => texts(text),
    Some((1, lines)) => correlation(lines),
    Some((_, edits)) => directory(edits),
    None => {}
});

/// Parsed text serializes to the same text.
fn texts(text: &[u8]) {
    let Ok(text) = str::from_utf8(text) else { return };
    if let Ok(note) = text.parse::<Note>() {
        assert_eq!(note.to_string().parse::<Note>().expect("it was written"), note);
        drop(Checkpoint::verify(&note, &LOG.key));
    }
    if let Ok(checkpoint) = text.parse::<Checkpoint>() {
        assert_eq!(checkpoint.to_string(), text);
    }
    if let Ok(proof) = text.parse::<Proof>() {
        assert_eq!(proof.to_string().parse::<Proof>().expect("it was written"), proof);
        assert!(proof.check(&[LOG.key.clone()], None).is_err(), "nobody knows the key");
    }
    drop(text.parse::<VerifierKey>().map_err(|error| error.to_string()));
}

/// Lines of a log and of the API server, as they come.
fn correlation(lines: &[u8]) {
    let mut correlator = Correlator::new(SignedDuration::from_secs(30));
    let log = correlator.add_log("log", vec![LOG.key.clone()]);
    for line in lines.split(|byte| *byte == b'\n') {
        match line.split_first() {
            Some((b'e', event)) => correlator.event(event),
            Some((b'r', record)) => correlator.record(log, record),
            Some((b'c', note)) => correlator.checkpoint(log, &String::from_utf8_lossy(note), None),
            _ => drop(correlator.settle(jiff::Timestamp::UNIX_EPOCH)),
        }
    }
    for drift in correlator.finish(jiff::Timestamp::UNIX_EPOCH) {
        drop(drift.to_string());
    }
}

/// A log whose files are cut or overwritten: a file, a place in it, and what is put there, with a length of two bytes before it.
fn directory(mut edits: &[u8]) {
    let mut files = LOG.files.clone();
    let mut changed = Vec::new();
    while let [file, high, low, length, rest @ ..] = edits {
        let index = usize::from(*file) % files.len();
        let bytes = &mut files[index].1;
        let at = usize::from(u16::from_be_bytes([*high, *low])) % (bytes.len() + 1);
        let (text, after) = rest.split_at(usize::from(length & 0x3f).min(rest.len()));
        match length >> 6 {
            0 => bytes.truncate(at),
            1 => drop(bytes.splice(at..at, text.iter().copied())),
            2 => drop(bytes.drain(at..(at + text.len()).min(bytes.len()))),
            _ => bytes.iter_mut().skip(at).zip(text).for_each(|(byte, with)| *byte = *with),
        }
        changed.push(index);
        edits = after;
    }
    changed.sort_unstable();
    changed.dedup();
    let changed: Vec<_> = changed.into_iter().map(|index| files[index].clone()).collect();
    write(&FOLDER, &changed);
    let mut expected = Expectations::default();
    expected.keys.push(LOG.key.clone());
    if let Ok(report) = verify(&FOLDER, &expected) {
        report.faults.iter().for_each(|fault| drop(fault.to_string()));
        let same = |(path, bytes): &(PathBuf, Vec<u8>)| {
            let original = LOG.files.iter().find(|(it, _)| it == path).map(|(_, bytes)| bytes);
            // Records may follow that are not sealed.
            original.is_some_and(|original| bytes.starts_with(original)) || !path.starts_with("segments")
        };
        assert!(!report.is_intact() || files.iter().all(same), "a record is another, and nobody noticed");
    }
    drop(Proof::of(&FOLDER, 7).map_err(|error| error.to_string()));
    let original: Vec<_> =
        LOG.files.iter().filter(|(path, _)| changed.iter().any(|(it, _)| it == path)).cloned().collect();
    write(&FOLDER, &original);
}
