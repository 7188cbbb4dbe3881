//! Detection of changes by an attacker with write access to the log's directory.

use std::fs;
use std::path::Path;

use lucid_audit::note::{Note, SigningKey};
use lucid_audit::verify::{Expectations, Report, verify};

use crate::support::forge::{self, Lines};
use crate::support::format::{
    self, CHECKPOINT, COSIGNED, Checkpoint, VKEY, leaf_hash, line, record, root, segment, sign,
};
use crate::support::{self, ORIGIN, count, detail};

/// A log of 700 records in segments of 100, all of them sealed.
struct Log {
    directory: tempfile::TempDir,
    key: SigningKey,
    lines: Lines,
}

const COUNT: usize = 700;
const PER_SEGMENT: usize = 100;

impl Log {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let key = SigningKey::generate(ORIGIN).unwrap();
        let lines = forge::lines(COUNT as u64);
        forge::write(directory.path(), &lines, PER_SEGMENT, Some(&key));
        Self { directory, key, lines }
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn expected(&self) -> Expectations {
        support::expected(self.key.verifier())
    }

    fn ended(&self) -> Expectations {
        let mut expected = self.expected();
        expected.sealed = true;
        expected
    }

    fn since(&self, checkpoint: Checkpoint) -> Expectations {
        let mut expected = self.expected();
        expected.since.push(checkpoint.since());
        expected
    }

    fn verify(&self) -> Report {
        self.verify_as(&self.expected())
    }

    fn verify_as(&self, expected: &Expectations) -> Report {
        verify(self.path(), expected).unwrap()
    }

    /// Returns class, sequence number and byte offset of each fault.
    fn faults(&self) -> Vec<String> {
        brief(&self.verify())
    }

    fn faults_as(&self, expected: &Expectations) -> Vec<String> {
        brief(&self.verify_as(expected))
    }

    /// Returns the records without their sequence numbers and hashes.
    fn records(&self) -> Vec<String> {
        self.lines.iter().map(|line| record(line)).collect()
    }

    /// Returns the lines of a log in which record 342 is another one.
    fn fork(&self) -> Lines {
        let mut records = self.records();
        records[342] = r#"{"uid":"rewritten","allowed":true}"#.to_owned();
        forge::chained(records)
    }

    fn change(&self, file: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = fs::read(self.path().join(file)).unwrap();
        change(&mut bytes);
        fs::write(self.path().join(file), bytes).unwrap();
    }

    fn edit(&self, first: usize, edit: impl FnOnce(&mut Vec<Vec<u8>>)) {
        let path = segment(self.path(), first);
        let bytes = fs::read(&path).unwrap();
        let mut lines: Vec<Vec<u8>> =
            bytes.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
        edit(&mut lines);
        fs::write(&path, lines.concat()).unwrap();
    }

    fn unseal(&self) {
        for file in [CHECKPOINT, VKEY] {
            fs::remove_file(self.path().join(file)).unwrap();
        }
        fs::remove_dir_all(self.path().join("tile")).unwrap();
    }

    fn offset(&self, seq: usize) -> usize {
        self.lines[seq - seq % PER_SEGMENT..seq].iter().map(|line| line.len() + 1).sum()
    }

    fn end(&self, seq: usize) -> usize {
        self.offset(seq) + self.lines[seq].len() + 1
    }

    fn at(&self, fault: &str, seq: usize) -> String {
        format!("{fault}, {} at byte {}", self.name(seq), self.offset(seq))
    }

    fn name(&self, seq: usize) -> String {
        format!("segments/{:020}.jsonl", seq - seq % PER_SEGMENT)
    }
}

fn brief(report: &Report) -> Vec<String> {
    let brief = report.faults.iter().map(|fault| {
        let text = fault.to_string();
        text[..text.find(&detail(fault)).unwrap()].trim_end_matches(": ").to_owned()
    });
    brief.collect()
}

fn replace(bytes: &mut Vec<u8>, what: &str, with: &str) {
    let at = bytes.windows(what.len()).position(|window| window == what.as_bytes()).unwrap();
    bytes.splice(at..at + what.len(), with.bytes());
}

#[test]
fn an_untouched_log_is_intact() {
    let log = Log::new();
    let report = log.verify();
    assert_eq!(brief(&report), Vec::<String>::new());
    assert_eq!(
        (count(&report, "records"), report.sealed, count(&report, "unsealed")),
        (Some(700), Some(700), Some(0))
    );
    assert!(!report.key_from_log && report.to_string().starts_with(&format!("intact ({ORIGIN})\n")));
    let report = log.verify_as(&Expectations::default());
    assert!(report.is_intact() && report.key_from_log);
}

#[test]
fn an_edit_is_one_fault_at_its_place() {
    type Edit = fn(&mut Vec<Vec<u8>>);
    let inserted: Edit = |lines| {
        let mut forged = lines[42].clone();
        replace(&mut forged, "u-342", "u-xxx");
        lines.insert(43, forged);
    };
    let cases: [(usize, Edit, &str, usize); 6] = [
        (300, |lines| replace(&mut lines[42], "true", "fals"), "rewritten: seq 342", 342),
        (300, |lines| drop(lines.remove(42)), "gap: seq 342", 342),
        (300, inserted, "inserted: seq 342", 343),
        (300, |lines| lines.insert(43, lines[42].clone()), "duplicate: seq 342", 343),
        (300, |lines| lines.swap(42, 43), "reordered: seq 342", 343),
        (600, |lines| lines.truncate(42), "shrink: seq 642 to 699", 642),
    ];
    for (segment, edit, fault, at) in cases {
        let log = Log::new();
        log.edit(segment, edit);
        assert_eq!(log.faults(), [log.at(fault, at)]);
    }
    let log = Log::new();
    log.edit(300, |lines| replace(&mut lines[42], "true", "fals"));
    assert!(detail(&log.verify().faults[0]).contains("entry bundle still has"));
}

#[test]
fn all_faults_are_named() {
    let log = Log::new();
    log.edit(100, |lines| replace(&mut lines[50], "true", "false"));
    log.edit(300, |lines| {
        lines.remove(7);
    });
    log.edit(600, |lines| replace(&mut lines[99], "true", "false"));
    fs::remove_file(log.path().join("tile/0/001")).unwrap();
    fs::write(log.path().join("segments/notes.txt"), "x").unwrap();
    let expected = [("rewritten: seq 150", 150), ("rewritten: seq 699", 699), ("gap: seq 307", 307)];
    let expected = expected.map(|(fault, seq)| log.at(fault, seq));
    let found = log.faults();
    for fault in &expected {
        assert!(found.contains(fault), "{fault} is not in {found:?}");
    }
    assert!(found.iter().any(|fault| fault.starts_with("tile: seq 256, tile/0/001")), "{found:?}");
    assert!(found.contains(&"segment: segments/notes.txt".to_owned()), "{found:?}");
}

#[test]
fn an_edit_that_changes_tile_and_bundle_too_is_named() {
    let log = Log::new();
    let mut lines = log.lines.clone();
    replace(&mut lines[342], "true", "false");
    let checkpoint = fs::read(log.path().join(CHECKPOINT)).unwrap();
    forge::write(log.path(), &lines, PER_SEGMENT, Some(&log.key));
    fs::write(log.path().join(CHECKPOINT), checkpoint).unwrap();
    let faults = log.faults();
    assert_eq!(faults[0], "fork: checkpoint");
    // The next record refers to the original one.
    assert_eq!(faults[1..], [log.at("rewritten: seq 342", 342)]);
}

#[test]
fn an_inserted_line_with_renumbered_followers_is_named() {
    let log = Log::new();
    let mut records = log.records();
    records.insert(342, r#"{"webhook":"validate","uid":"forged","allowed":true}"#.to_owned());
    forge::write(log.path(), &forge::chained(records), PER_SEGMENT, None);
    let faults = log.faults();
    assert_eq!(faults[0], log.at("rewritten: seq 342 to 399", 342));
    assert_eq!(faults.len(), 4, "one for each segment: {faults:?}");
}

#[test]
fn an_edit_with_its_tile_is_named_and_its_bundle_is_intact() {
    for bundle_too in [false, true] {
        let log = Log::new();
        let mut line = log.lines[342].clone();
        replace(&mut line, "true", "fals");
        log.edit(300, |lines| lines[42] = [&line[..], b"\n"].concat());
        log.change("tile/0/001", |hashes| hashes[86 * 32..87 * 32].copy_from_slice(&leaf_hash(&line).0));
        if bundle_too {
            let at: usize = log.lines[256..342].iter().map(|line| line.len() + 2).sum();
            let length = u16::try_from(line.len()).unwrap().to_be_bytes();
            let entry = [&length[..], &line].concat();
            log.change("tile/entries/001", |bundle| {
                drop(bundle.splice(at..at + 2 + log.lines[342].len(), entry));
            });
        }
        let rewritten = log.at("rewritten: seq 342", 342);
        assert_eq!(log.faults(), ["fork: checkpoint", &rewritten], "{bundle_too}");
        assert_eq!(detail(&log.verify().faults[1]).contains("its entry bundle still has"), !bundle_too);
    }
}

#[test]
fn a_bad_tile_does_not_discredit_chained_records() {
    let log = Log::new();
    // The signed root covers other records, so it proves nothing.
    let other = forge::checkpoint(&log.lines[..699], &log.key).root;
    let checkpoint = sign(&format::checkpoint(ORIGIN, 700, other).to_string(), &log.key);
    fs::write(log.path().join(CHECKPOINT), checkpoint.to_string()).unwrap();
    log.change("tile/0/001", |hashes| hashes[0] ^= 1);
    assert_eq!(log.faults(), ["fork: checkpoint", "tile: seq 256, tile/0/001 at byte 0"]);
}

#[test]
fn forged_lines_with_reused_numbers_are_insertions() {
    for sealed in [true, false] {
        let log = Log::new();
        if !sealed {
            log.unseal();
        }
        let prev = leaf_hash(&log.lines[342]);
        let mut forged = line(343, &prev, r#"{"uid":"forged","allowed":true}"#);
        forged.push(b'\n');
        log.edit(300, |lines| lines.insert(43, forged.clone()));
        let expected = if sealed { log.expected() } else { Expectations::default() };
        let report = log.verify_as(&expected);
        assert_eq!(brief(&report), [log.at("inserted: seq 343", 343)]);
        if sealed {
            assert_eq!((count(&report, "records"), count(&report, "unsealed")), (Some(701), Some(0)));
            // Three lines.
            log.edit(300, |lines| {
                for seq in [344, 345] {
                    lines.insert(seq - 300, forged.clone());
                    replace(&mut lines[seq - 300], ":343,", &format!(":{seq},"));
                }
            });
            assert_eq!(log.faults(), [log.at("inserted: seq 343 to 345", 343)]);
        }
    }
}

#[test]
fn a_renumbered_record_is_the_only_fault() {
    for number in ["1000000", "720", "700", "343", "341", "0", "500", "18446744073709551615"] {
        for sealed in [true, false] {
            let log = Log::new();
            if !sealed {
                log.unseal();
            }
            log.edit(300, |lines| replace(&mut lines[42], "\"seq\":342,", &format!("\"seq\":{number},")));
            let expected = if sealed { log.expected() } else { Expectations::default() };
            let report = log.verify_as(&expected);
            let rewritten = log.at("rewritten: seq 342", 342);
            assert_eq!(brief(&report), [rewritten], "{number}, sealed: {sealed}");
            assert_eq!(count(&report, "unsealed"), Some(if sealed { 0 } else { 699 }));
        }
    }
    // Several records, and the last one.
    let log = Log::new();
    log.edit(300, |lines| {
        for (at, number) in [(42, 342), (43, 343)] {
            replace(&mut lines[at], &format!("\"seq\":{number},"), &format!("\"seq\":{number}0,"));
        }
    });
    log.edit(600, |lines| replace(&mut lines[99], "\"seq\":699,", "\"seq\":700,"));
    let report = log.verify();
    let begins: Vec<_> = brief(&report).iter().map(|it| it.split(", ").next().unwrap().to_owned()).collect();
    assert_eq!(begins, ["rewritten: seq 342", "rewritten: seq 343", "rewritten: seq 699"]);
}

#[test]
fn the_first_records_of_a_segment_are_not_a_segment() {
    let log = Log::new();
    log.edit(300, |lines| drop(lines.drain(..3)));
    let gap = log.verify().faults.into_iter().find(|fault| fault.to_string().starts_with("gap: ")).unwrap();
    assert!(gap.to_string().starts_with("gap: seq 300 to 302, "), "{gap}");
    assert!(detail(&gap).contains("is there without them"), "{gap}");
    // A missing newline affects one record, not the whole segment.
    let log = Log::new();
    log.edit(200, |lines| lines[99].truncate(log.lines[299].len()));
    assert_eq!(log.faults(), [log.at("framing: seq 299", 299)]);
}

#[test]
fn surplus_lines_are_not_unsealed_records() {
    let log = Log::new();
    log.edit(300, |lines| lines.insert(43, lines[42].clone()));
    log.edit(400, |lines| lines.insert(43, b"\n".to_vec()));
    let report = log.verify();
    assert_eq!(
        (report.faults.len(), count(&report, "records"), count(&report, "unsealed")),
        (2, Some(702), Some(0))
    );
}

#[test]
fn records_that_differ_from_their_anchor_are_named() {
    let log = Log::new();
    let mut expected = log.expected();
    let anchor = |json: &str| serde_json::from_str::<lucid_audit::Anchor>(json).unwrap().into();
    expected.since.push(anchor(&format!(r#"{{"seq":342,"leaf":"{}","size":343}}"#, leaf_hash(b"other"))));
    let rewritten = log.at("rewritten: seq 342", 342);
    assert_eq!(log.faults_as(&expected), [rewritten]);
    // An anchor may claim any size.
    expected.since = vec![anchor(&format!(r#"{{"seq":705,"leaf":"{}","size":0}}"#, leaf_hash(b"other")))];
    assert!(log.faults_as(&expected)[0].starts_with("shrink: seq 700, "));
}

#[test]
fn a_log_truncated_within_a_record_has_shrunk() {
    let log = Log::new();
    log.edit(600, |lines| lines[99].truncate(20));
    let report = log.verify();
    assert_eq!(brief(&report), [log.at("shrink: seq 699", 699)]);
    assert_eq!(count(&report, "tornBytes"), Some(20));
}

#[test]
fn a_log_truncated_and_continued_is_rewritten() {
    let log = Log::new();
    let mut records: Vec<_> = log.lines[..650].iter().map(|line| record(line)).collect();
    records.extend((0..60).map(|number| format!(r#"{{"uid":"other-{number}","allowed":true}}"#)));
    forge::write(log.path(), &forge::chained(records), PER_SEGMENT, None);
    assert_eq!(log.faults(), [log.at("rewritten: seq 650 to 699", 650)]);
    assert_eq!(count(&log.verify(), "unsealed"), Some(10));
}

#[test]
fn resealing_with_another_key_is_a_key_change() {
    let log = Log::new();
    let newer = SigningKey::generate(ORIGIN).unwrap();
    forge::write(log.path(), &log.fork(), PER_SEGMENT, Some(&newer));
    assert_eq!(log.faults(), ["key-change: vkey", "key-change: checkpoint"]);
    // Trusting the key in the log's own directory hides the change, unless an earlier checkpoint was stored elsewhere.
    let mut expected = Expectations::default();
    assert!(log.verify_as(&expected).is_intact());
    expected.since.push(forge::checkpoint(&log.lines, &log.key).since());
    assert_eq!(log.faults_as(&expected), ["fork: segments"]);
}

#[test]
fn a_swapped_key_is_named() {
    let log = Log::new();
    let other = SigningKey::generate(ORIGIN).unwrap();
    fs::write(log.path().join(VKEY), format!("{}\n", other.verifier())).unwrap();
    assert_eq!(log.faults(), ["key-change: vkey"]);
    assert_eq!(log.faults_as(&Expectations::default()), ["key-change: checkpoint"]);
}

#[test]
fn a_fork_by_the_key_holder_is_found_with_a_kept_checkpoint() {
    let log = Log::new();
    let kept = forge::checkpoint(&log.lines[..500], &log.key);
    forge::write(log.path(), &log.fork(), PER_SEGMENT, Some(&log.key));
    assert!(log.verify().is_intact(), "the directory alone cannot tell");
    assert_eq!(log.faults_as(&log.since(kept)), ["fork: segments"]);
}

#[test]
fn a_log_without_its_checkpoint_is_unsealed() {
    let log = Log::new();
    fs::remove_file(log.path().join(CHECKPOINT)).unwrap();
    assert_eq!(log.faults(), ["unsealed: checkpoint"]);
    // Tiles and key prove that there was a checkpoint.
    assert_eq!(log.faults_as(&Expectations::default()), ["unsealed: checkpoint"]);
    fs::remove_dir_all(log.path().join("tile")).unwrap();
    fs::remove_file(log.path().join(VKEY)).unwrap();
    assert_eq!(log.faults(), ["unsealed: checkpoint"]);
    // Without expectations it is a plain log of JSON lines.
    assert!(log.verify_as(&Expectations::default()).is_intact());
    let mut expected = Expectations::default();
    expected.sealed = true;
    assert_eq!(log.faults_as(&expected)[0], "unsealed: checkpoint");
}

#[test]
fn a_checkpoint_without_signature_or_with_a_wrong_one_is_named() {
    let log = Log::new();
    let path = log.path().join(CHECKPOINT);
    let signed = fs::read_to_string(&path).unwrap();
    let (text, signature) = signed.split_once("\n\n").unwrap();
    for (changed, class) in [
        (format!("{text}\n\n"), "checkpoint"),
        (format!("{text}\n"), "checkpoint"),
        (format!("{text}\n\n{signature}\0"), "checkpoint"),
        (String::new(), "checkpoint"),
        (signed.replace("\n700\n", "\n070\n"), "checkpoint"),
        (signed.replace("\n700\n", "\n600\n"), "signature"),
        (format!("{text}\nextension\n\n{signature}"), "signature"),
    ] {
        fs::write(&path, &changed).unwrap();
        assert_eq!(log.faults()[0], format!("{class}: checkpoint"), "{changed}");
    }
    fs::write(&path, [0xff, 0xfe]).unwrap();
    assert_eq!(log.faults()[0], "checkpoint: checkpoint");
}

#[test]
fn a_rolled_back_checkpoint_is_found_with_a_later_one() {
    let log = Log::new();
    let later = forge::checkpoint(&log.lines, &log.key);
    // The whole directory in an earlier state.
    fs::remove_dir_all(log.path().join("segments")).unwrap();
    forge::write(log.path(), &log.lines[..600], PER_SEGMENT, Some(&log.key));
    assert!(log.verify().is_intact(), "the directory alone cannot tell");
    let mut expected = log.since(later);
    let at = log.end(599);
    let shrink = format!("shrink: seq 600 to 699, {} at byte {at}", log.name(500));
    assert_eq!(log.faults_as(&expected), [shrink]);
    // Only an earlier checkpoint, with all records unchanged.
    forge::write(log.path(), &log.lines, PER_SEGMENT, None);
    let report = log.verify_as(&expected);
    assert_eq!(
        (brief(&report), count(&report, "unsealed")),
        (vec!["shrink: checkpoint".to_owned()], Some(100))
    );
    expected.sealed = true;
    let tail = log.at("unsealed-tail: seq 600 to 699", 600);
    assert_eq!(log.faults_as(&expected), ["shrink: checkpoint", &tail]);
}

#[test]
fn records_past_a_rolled_back_checkpoint_are_compared() {
    let log = Log::new();
    let of_300 = tempfile::tempdir().unwrap();
    forge::write(of_300.path(), &log.lines[..300], PER_SEGMENT, Some(&log.key));
    let roll_back = |log: &Log| {
        for file in [CHECKPOINT, "tile/1/000.p/1"] {
            fs::copy(of_300.path().join(file), log.path().join(file)).unwrap();
        }
    };
    roll_back(&log);
    // A writer killed between writing tiles and checkpoint leaves the same state.
    let report = log.verify();
    assert_eq!(
        (brief(&report), count(&report, "tiled"), count(&report, "unsealed")),
        (vec![], Some(700), Some(400))
    );
    for missing in ["tile/entries/002.p/188", "tile/0/002.p/188", "tile/entries/001"] {
        let path = log.path().join(missing);
        let bytes = fs::read(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let sealed = missing.ends_with("001");
        assert_eq!(log.verify().is_intact(), !sealed, "{missing}");
        fs::write(&path, bytes).unwrap();
    }
    let mut records = log.records();
    records[400] = r#"{"uid":"rewritten","allowed":true}"#.to_owned();
    forge::write(log.path(), &forge::chained(records), PER_SEGMENT, None);
    let rewritten: Vec<_> = [400, 500, 600]
        .map(|first| log.at(&format!("rewritten: seq {first} to {}", first + 99), first))
        .into();
    assert_eq!(log.faults(), rewritten);
    // A log truncated to the size of the checkpoint.
    forge::write(log.path(), &log.lines, PER_SEGMENT, Some(&log.key));
    roll_back(&log);
    for first in [300, 400, 500, 600] {
        fs::remove_file(segment(log.path(), first)).unwrap();
    }
    assert!(
        log.faults().iter().any(|fault| fault.starts_with("shrink: seq 300 to 699")),
        "{:?}",
        log.faults()
    );
}

#[test]
fn a_dropped_segment_is_named() {
    let log = Log::new();
    fs::remove_file(segment(log.path(), 300)).unwrap();
    assert_eq!(log.faults(), [log.at("gap: seq 300 to 399", 400)]);
    fs::remove_file(segment(log.path(), 0)).unwrap();
    assert_eq!(log.faults()[0], log.at("gap: seq 0 to 99", 100));
    fs::remove_file(segment(log.path(), 600)).unwrap();
    assert!(log.faults()[2].starts_with("shrink: seq 600 to 699, "), "{:?}", log.faults());
    fs::remove_dir_all(log.path().join("segments")).unwrap();
    assert_eq!(log.faults(), ["shrink: seq 0 to 699, segments"]);
}

#[test]
fn swapped_segments_are_named() {
    let log = Log::new();
    let [one, other, between] = [300, 400, 1].map(|first| segment(log.path(), first));
    for (from, to) in [(&one, &between), (&other, &one), (&between, &other)] {
        fs::rename(from, to).unwrap();
    }
    assert_eq!(log.faults(), [log.at("segment: seq 300", 400), log.at("segment: seq 400", 300),]);
}

#[test]
fn strange_files_among_the_segments_are_named() {
    let log = Log::new();
    fs::write(log.path().join("segments/1.jsonl"), "{}").unwrap();
    std::os::unix::fs::symlink("/etc/passwd", segment(log.path(), 700)).unwrap();
    assert_eq!(log.faults(), ["segment: segments/00000000000000000700.jsonl", "segment: segments/1.jsonl"]);
}

#[test]
fn an_edited_entry_bundle_is_named() {
    let log = Log::new();
    let path = log.path().join("tile/entries/001");
    let bundle = fs::read(&path).unwrap();
    log.change("tile/entries/001", |bundle| replace(bundle, "u-300", "u-999"));
    let offset: usize = log.lines[256..300].iter().map(|line| line.len() + 2).sum();
    assert_eq!(log.faults(), [format!("bundle: seq 300, tile/entries/001 at byte {offset}")]);
    fs::write(&path, &bundle[1..]).unwrap();
    assert_eq!(log.faults(), ["bundle: seq 256, tile/entries/001"]);
    fs::remove_file(&path).unwrap();
    assert_eq!(log.faults(), ["bundle: seq 256, tile/entries/001"]);
}

#[test]
fn an_edited_tile_is_named() {
    let log = Log::new();
    for (path, at, faults) in [
        ("tile/0/001", 32 * 44, vec!["tile: seq 300, tile/0/001 at byte 1408"]),
        ("tile/0/002.p/188", 0, vec!["tile: seq 512, tile/0/002.p/188 at byte 0"]),
        ("tile/1/000.p/2", 33, vec!["tile: seq 256, tile/1/000.p/2 at byte 32"]),
    ] {
        let (name, path) = (path, log.path().join(path));
        let tile = fs::read(&path).unwrap();
        log.change(name, |tile| tile[at] ^= 1);
        assert_eq!(log.faults(), faults);
        fs::write(&path, &tile[1..]).unwrap();
        assert_eq!(log.faults()[0].split(':').next(), Some("tile"), "{}", path.display());
        fs::remove_file(&path).unwrap();
        assert_eq!(log.faults()[0].split(':').next(), Some("tile"), "{}", path.display());
        fs::write(&path, tile).unwrap();
    }
    assert!(log.verify().is_intact());
}

#[test]
fn manually_appended_lines_are_named_unless_well_formed() {
    let log = Log::new();
    log.edit(600, |lines| {
        let mut line = lines[99].clone();
        replace(&mut line, "\"seq\":699", "\"seq\":700");
        lines.push(line);
    });
    let at = log.end(699);
    assert_eq!(log.faults(), [format!("chain: seq 700, {} at byte {at}", log.name(600))]);
    // With the right hash it is an unsealed record. Only the API server's audit log can reveal that it is forged.
    let mut records = log.records();
    records.push(r#"{"uid":"forged","allowed":true}"#.to_owned());
    let lines = forge::chained(records);
    log.edit(600, |found| found[100] = [&lines[700][..], b"\n"].concat());
    let report = log.verify();
    assert_eq!((brief(&report), count(&report, "unsealed")), (vec![], Some(1)));
    let tail = format!("unsealed-tail: seq 700, {} at byte {at}", log.name(600));
    assert_eq!(log.faults_as(&log.ended()), [tail]);
}

#[test]
fn forged_sequence_numbers_do_not_hide_later_records() {
    let log = Log::new();
    let mut forged = [&log.lines[342][..], b"\n"].concat();
    replace(&mut forged, ":342,", ":18446744073709551615,");
    log.edit(300, |lines| lines.insert(43, forged));
    assert_eq!(log.faults(), [log.at("inserted: seq 18446744073709551615", 343)]);
}

#[test]
fn malformed_records_are_named() {
    let log = Log::new();
    for (line, seq) in [
        (vec![0; 200], "342"),
        (b"half a li".to_vec(), "342"),
        (b"{}".to_vec(), "342"),
        (log.lines[342][..40].to_vec(), "342"),
        ([&log.lines[342][..], b"\r"].concat(), ""),
        ([&log.lines[342][..], b"}"].concat(), ""),
        (vec![b'x'; 70_000], "342"),
        (vec![b'x'; 20 << 20], "342"),
    ] {
        log.edit(300, |lines| lines[42] = [&line[..], b"\n"].concat());
        let class = if seq.is_empty() { "rewritten" } else { "framing" };
        let text = String::from_utf8_lossy(&line[..line.len().min(60)]).into_owned();
        assert_eq!(log.faults(), [log.at(&format!("{class}: seq 342"), 342)], "{text}");
    }
    // Two joined records, and a newline within one.
    let fresh = Log::new();
    fresh.edit(300, |lines| lines[42].truncate(30));
    assert_eq!(fresh.faults()[0], fresh.at("framing: seq 342", 342));
    assert!(fresh.faults()[1].starts_with("gap: seq 343, "));
    let fresh = Log::new();
    fresh.edit(300, |lines| lines[42].insert(30, b'\n'));
    assert_eq!(
        fresh.faults()[0].split(" at").next().unwrap(),
        format!("framing: seq 342 to 343, {}", fresh.name(300))
    );
}

#[test]
fn the_wrong_origin_is_named() {
    let log = Log::new();
    let mut expected = log.expected();
    expected.origin = Some("lucid.computing/test/replica-1".to_owned());
    assert_eq!(log.faults_as(&expected), ["origin: checkpoint"]);
    // The directory of another log, signed with the same key under that log's name.
    let other = log.key.named("lucid.computing/test/replica-1").unwrap();
    forge::write(log.path(), &log.lines, PER_SEGMENT, Some(&other));
    assert!(log.faults().contains(&"origin: checkpoint".to_owned()), "{:?}", log.faults());
}

#[test]
fn an_edit_of_a_plain_log_is_detected_by_the_next_record() {
    let log = Log::new();
    log.unseal();
    let plain = |log: &Log| log.faults_as(&Expectations::default());
    log.edit(300, |lines| replace(&mut lines[42], "true", "false"));
    assert_eq!(plain(&log), [log.at("rewritten: seq 342", 342)]);
    log.edit(300, |lines| lines.swap(52, 53));
    assert!(plain(&log)[1].starts_with("reordered: seq 35"), "{:?}", plain(&log));
}

#[test]
fn torn_tails_of_running_logs_are_not_faults() {
    let log = Log::new();
    log.edit(600, |lines| lines.push(b"{\"seq\":700,\"pr".to_vec()));
    let report = log.verify();
    assert_eq!((brief(&report), count(&report, "tornBytes")), (vec![], Some(14)));
    let torn = format!("torn: seq 700, {} at byte {}", log.name(600), log.end(699));
    assert_eq!(log.faults_as(&log.ended()), [torn]);
    // A torn line before the last segment is always a fault.
    log.edit(300, |lines| lines.push(b"{\"seq\":400,\"pr".to_vec()));
    assert!(log.faults()[0].starts_with("framing: seq 400, "), "{:?}", log.faults());
}

#[test]
fn witnesses_must_have_signed() {
    let log = Log::new();
    let [witness, other] =
        ["witness.example", "other.example"].map(|name| SigningKey::generate(name).unwrap());
    let mut expected = log.expected();
    expected.witnesses.push(witness.verifier().clone());
    assert_eq!(log.faults_as(&expected), ["witness: checkpoint.cosigned"]);
    for quorum in [0, 2] {
        expected.quorum = Some(quorum);
        let error = verify(log.path(), &expected).unwrap_err().to_string();
        assert!(error.contains("expected 1 to 1"), "{error}");
    }
    expected.quorum = None;
    let mut note: Note = fs::read_to_string(log.path().join(CHECKPOINT)).unwrap().parse().unwrap();
    note.sign(&witness);
    // Next to the checkpoint, or in it.
    for file in [COSIGNED, CHECKPOINT] {
        let before = fs::read(log.path().join(file)).ok();
        fs::write(log.path().join(file), note.to_string()).unwrap();
        let report = log.verify_as(&expected);
        assert_eq!((brief(&report), count(&report, "cosigned")), (vec![], Some(700)), "{file}");
        match before {
            Some(before) => fs::write(log.path().join(file), before).unwrap(),
            None => fs::remove_file(log.path().join(file)).unwrap(),
        }
    }
    expected.cosigned = Some(note.clone());
    assert!(log.verify_as(&expected).is_intact());
    // A witness given twice counts once.
    expected.witnesses.push(witness.verifier().clone());
    assert!(log.verify_as(&expected).is_intact());
    expected.quorum = Some(2);
    assert!(verify(log.path(), &expected).unwrap_err().to_string().contains("expected 1 to 1"));
    expected.quorum = None;
    expected.witnesses.push(other.verifier().clone());
    let report = log.verify_as(&expected);
    assert!(
        detail(&report.faults[0]).contains("of 700 records is cosigned by 1 of the 2"),
        "{:?}",
        report.faults
    );
    expected.quorum = Some(1);
    assert!(log.verify_as(&expected).is_intact());
    // A cosignature of another text.
    let (text, wrong) = (note.text(), format::checkpoint(ORIGIN, 699, leaf_hash(b"x")));
    expected.cosigned = Some(note.to_string().replace(text, &wrong.to_string()).parse().unwrap());
    let report = log.verify_as(&expected);
    assert!(detail(&report.faults[0]).contains("is not one of this text"), "{:?}", report.faults);
}

#[test]
fn histories_that_a_witness_contradicts_are_named() {
    let log = Log::new();
    let witness = SigningKey::generate("witness.example").unwrap();
    let cosigned = |size: u64, root| {
        let note = sign(&format::checkpoint(ORIGIN, size, root).to_string(), &log.key);
        sign(&note.to_string(), &witness)
    };
    let leaves: Vec<_> = log.lines.iter().map(|line| leaf_hash(line)).collect();
    let right = root(&leaves[..500]);
    let mut expected = log.expected();
    expected.witnesses.push(witness.verifier().clone());
    for (note, faults) in [
        (cosigned(500, right), vec![]),
        (cosigned(500, leaf_hash(b"x")), vec!["fork: segments"]),
        (cosigned(800, leaf_hash(b"x")), vec!["shrink: seq 700 to 799"]),
    ] {
        // In the log's directory without other expectations, and stored elsewhere.
        fs::write(log.path().join(COSIGNED), note.to_string()).unwrap();
        for expected in [&expected, &log.expected()] {
            let report = log.verify_as(expected);
            let found = brief(&report);
            assert_eq!(found.len(), faults.len(), "{found:?}");
            assert!(found.iter().zip(&faults).all(|(found, fault)| found.starts_with(fault)), "{found:?}");
        }
        fs::remove_file(log.path().join(COSIGNED)).unwrap();
        let mut elsewhere = expected.clone();
        elsewhere.cosigned = Some(note);
        let report = verify(log.path(), &elsewhere).unwrap();
        assert_eq!(brief(&report).len(), faults.len());
        assert!(report.faults.iter().all(|it| detail(it).contains("that witness.example cosigned")));
    }
    fs::write(log.path().join(COSIGNED), "no note").unwrap();
    assert_eq!(log.faults(), ["witness: checkpoint.cosigned"]);
}

#[test]
fn special_files_are_not_read() {
    for name in [CHECKPOINT, VKEY, COSIGNED, "tile/0/001", "tile/entries/001"] {
        let log = Log::new();
        let path = log.path().join(name);
        let _ = fs::remove_file(&path);
        let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
        assert!(made.success());
        let verified = verify(log.path(), &log.expected());
        let said = match verified {
            Ok(report) => report.faults[0].to_string(),
            Err(error) => error.to_string(),
        };
        assert!(said.contains("it is not a regular file"), "{name}: {said}");
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
        let verified = verify(log.path(), &log.expected());
        assert!(verified.is_err() || !verified.unwrap().is_intact(), "{name}");
        let proof = lucid_audit::proof::Proof::of(log.path(), 300);
        assert_eq!(proof.is_err(), ![VKEY, COSIGNED].contains(&name), "{name}");
    }
}

#[test]
fn directories_without_a_log_are_an_error() {
    let error = verify(Path::new("/nonexistent"), &Expectations::default()).unwrap_err().to_string();
    assert_eq!(error, "/nonexistent is not there");
    let empty = tempfile::tempdir().unwrap();
    let error = verify(empty.path(), &Expectations::default()).unwrap_err().to_string();
    assert!(error.contains("is not a log"), "{error}");
    // A new log is empty.
    fs::create_dir(empty.path().join("segments")).unwrap();
    assert!(verify(empty.path(), &Expectations::default()).unwrap().is_intact());
}

#[tokio::test]
async fn the_copy_to_tamper_with_equals_the_original() {
    let (real, forged) = (tempfile::tempdir().unwrap(), Log::new());
    let options =
        lucid_audit::log::Options::new().with_key(support::again(&forged.key.named(ORIGIN).unwrap()));
    let log = lucid_audit::Log::open(real.path(), options).unwrap();
    for line in &forged.lines {
        log.append(record(line).into_bytes()).await.unwrap();
    }
    log.close();
    for name in
        ["tile/0/000", "tile/0/002.p/188", "tile/1/000.p/2", "tile/entries/001", "tile/entries/002.p/188"]
    {
        assert_eq!(
            fs::read(real.path().join(name)).unwrap(),
            fs::read(forged.path().join(name)).unwrap(),
            "{name}"
        );
    }
    let lines = support::lines(real.path());
    assert_eq!(lines, forged.lines);
    let report = verify(real.path(), &Expectations::default()).unwrap();
    assert_eq!((brief(&report), report.sealed, count(&report, "unsealed")), (vec![], Some(700), Some(0)));
}
