//! Any bytes where the readers of a decision log look: read, or refused with an error or a fault; never a panic, and never a
//! log that counts as intact although a sealed record is another.

#![no_main]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use jiff::SignedDuration;
use libfuzzer_sys::fuzz_target;
use lucid_audit::correlate::Correlator;
use lucid_audit::log::Options;
use lucid_audit::note::{Note, SigningKey, VerifierKey};
use lucid_audit::proof::Proof;
use lucid_audit::verify::{Expectations, Since, verify};

/// Enough for tiles at two levels, of which some are partial.
const RECORDS: u64 = 300;
const SEGMENT_BYTES: u64 = 16 << 10;

/// A log: its files, and the key that sealed it.
struct Log {
    files: Vec<(PathBuf, Vec<u8>)>,
    key: VerifierKey,
}

static LOG: LazyLock<Log> = LazyLock::new(|| {
    let key = SigningKey::generate("lucid.computing/fuzz/0").expect("a key");
    let verifier = key.verifier().clone();
    let folder = temporary("log");
    let options = Options::new().with_key(key).with_segment_bytes(SEGMENT_BYTES);
    let log = lucid_audit::Log::open(&folder, options).expect("a log");
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    for _ in 0..RECORDS {
        let record = br#"{"time":"2026-01-01T00:00:00Z","webhook":"validate","uid":"u"}"#;
        runtime.block_on(log.append(record.to_vec())).expect("an anchor");
    }
    log.close();
    let mut files = Vec::new();
    read(&folder, &folder, &mut files);
    // The same order in each process.
    files.sort();
    Log { files, key: verifier }
});

/// Reads the files below `folder`, with paths relative to `root`.
fn read(root: &Path, folder: &Path, files: &mut Vec<(PathBuf, Vec<u8>)>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            read(root, &path, files);
        } else {
            let name = path.strip_prefix(root).expect("a path below").to_owned();
            files.push((name, fs::read(&path).expect("a file")));
        }
    }
}

/// Returns a folder of this process, in memory where there is such a place.
fn temporary(name: &str) -> PathBuf {
    let shared = Path::new("/dev/shm");
    let base = if shared.is_dir() { shared.to_owned() } else { std::env::temp_dir() };
    base.join(format!("lucid-fuzz-{name}-{}", std::process::id()))
}

static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder = temporary("edited");
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
        drop(note.verify(&LOG.key));
    }
    drop(text.parse::<Since>());
    if let Ok(proof) = text.parse::<Proof>() {
        assert_eq!(proof.to_string().parse::<Proof>().expect("it was written"), proof);
        assert!(proof.check(&[LOG.key.clone()], None).is_err(), "nobody knows the key");
    }
    drop(text.parse::<VerifierKey>().map_err(|error| error.to_string()));
}

/// Lines of a log and of the API server, as they come.
fn correlation(lines: &[u8]) {
    let folder = temporary("correlated");
    drop(fs::remove_dir_all(&folder));
    let segment = folder.join("segments/00000000000000000000.jsonl");
    write(&folder, &[(segment.clone(), Vec::new())]);
    let mut correlator = Correlator::new(SignedDuration::from_secs(30));
    correlator.add_log(&folder, vec![LOG.key.clone()]);
    let mut records = Vec::new();
    for line in lines.split(|byte| *byte == b'\n').chain([&b""[..]]) {
        match line.split_first() {
            Some((b'e', event)) => correlator.event(event),
            Some((b'r', record)) => records.extend([record, b"\n"].concat()),
            Some((b'c', note)) => fs::write(folder.join("checkpoint"), note).expect("a file"),
            _ => {
                fs::write(&segment, &records).expect("a file");
                drop(correlator.read().map_err(|error| error.to_string()));
                drop(correlator.settle(jiff::Timestamp::UNIX_EPOCH));
            }
        }
    }
    drop(correlator.read_again().map_err(|error| error.to_string()));
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
