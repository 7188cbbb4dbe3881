use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use lucid_audit::Recorder;
use lucid_audit::log::Options;
use lucid_audit::note::VerifierKey;
use lucid_audit::proof::Proof;
use serde_json::{Value, json};

use super::archive::{Fault, Files};
use super::collect::Collected;
use super::*;

struct Fixture {
    collector: SigningKey,
    keys: Vec<VerifierKey>,
    files: Files,
}

impl Fixture {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let sealer = SigningKey::generate("lucid.computing/test/0").unwrap();
        let keys = vec![sealer.verifier().clone()];
        let recorder = Recorder::new(10);
        recorder.open_log(folder.path(), Options::new().with_key(sealer)).unwrap();
        let mut anchors = Vec::new();
        for name in ["web-0", "web-1", "<script>\u{202e}"] {
            let mut decision = lucid_audit::Decision::new("validate", name);
            (decision.namespace, decision.name) = ("shop".to_owned(), name.to_owned());
            let mut seen = json!(recorder.record(decision).await.unwrap().unwrap());
            seen["log"] = json!("lucid.computing/test/0");
            for (key, value) in
                [("auditID", "a"), ("webhook", "w"), ("name", name), ("time", "2026-01-01T00:00:00Z")]
            {
                seen[key] = json!(value);
            }
            anchors.push(serde_json::from_value(seen).unwrap());
        }
        recorder.log().unwrap().close();
        let decisions = (0..3)
            .map(|seq| (format!("decisions/0-{seq}.tlog-proof"), Proof::of(folder.path(), seq).unwrap()));
        let digest = format!("sha256:{:064}", 7).parse().unwrap();
        let verdict = Verdict { digest, notarized: Some(true), reason: None, proof: None };
        let files = Collected {
            subject: json!({"version": VERSION, "namespace": "shop", "pod": null, "collected": "2026-01-01T00:00:00Z"}),
            pods: vec![json!({"name": "web-0", "uid": "0"}), json!({"name": "web-1", "uid": "1"})],
            verdicts: vec![json!(verdict)],
            bundles: Files::new(),
            decisions: decisions.collect(),
            anchors,
            unmatched: 0,
        };
        let collector = SigningKey::generate("collector.example").unwrap();
        Self { collector, keys, files: files.into_files() }
    }

    fn evaluate(&self, archive: &[u8]) -> Result<String, Vec<Fault>> {
        let collectors = &[self.collector.verifier().clone()];
        let keys = verify::Keys { collectors, logs: &self.keys, verifiers: &[], signatures: None };
        archive::read(archive).map_err(|fault| vec![fault]).and_then(|files| verify::evaluate(files, &keys))
    }

    /// Evaluates the files after a change, with the manifest of the others.
    fn unsigned(&self, change: impl FnOnce(&mut Files)) -> String {
        let mut files = archive::read(&archive::write(self.files.clone(), &self.collector).unwrap()).unwrap();
        change(&mut files);
        faults(self.evaluate(&pack(&archive::tar(&files).unwrap())))
    }

    /// Evaluates the files after a change, signed again by the collector.
    fn signed(&self, change: impl FnOnce(&mut Files)) -> String {
        let mut files = self.files.clone();
        change(&mut files);
        faults(self.evaluate(&archive::write(files, &self.collector).unwrap()))
    }
}

fn faults(result: Result<String, Vec<Fault>>) -> String {
    let faults = result.expect_err("not verified");
    faults.iter().map(|fault| format!("{fault}\n")).collect()
}

fn pack(tar: &[u8]) -> Vec<u8> {
    let mut compressed = GzEncoder::new(Vec::new(), Compression::default());
    compressed.write_all(tar).unwrap();
    compressed.finish().unwrap()
}

fn swap(files: &mut Files, one: &str, other: &str) {
    let (a, b) = (files[one].clone(), files[other].clone());
    files.insert(one.to_owned(), b);
    files.insert(other.to_owned(), a);
}

fn edit(files: &mut Files, path: &str, change: impl FnOnce(&mut Value)) {
    let mut value = serde_json::from_slice(&files[path]).unwrap();
    change(&mut value);
    files.insert(path.to_owned(), value.to_string().into_bytes());
}

#[tokio::test]
async fn every_file_is_covered() {
    let fixture = Fixture::new().await;
    let archive = archive::write(fixture.files.clone(), &fixture.collector).unwrap();
    assert_eq!(archive, archive::write(fixture.files.clone(), &fixture.collector).unwrap(), "deterministic");
    let verified = fixture.evaluate(&archive).unwrap();
    for part in ["2 pods", "3 decisions", "1 verdicts, 0 proven", "3 anchors of the API server, 0 without"] {
        assert!(verified.contains(part), "{verified}");
    }
    let paths = archive::read(&archive).unwrap().into_keys().collect::<Vec<_>>();
    assert_eq!(paths.len(), 10, "{paths:?}");
    for path in &paths {
        for at in [0, fixture.files.get(path).map_or(30, Vec::len) / 2] {
            let found = fixture.unsigned(|files| files.get_mut(path).unwrap()[at] ^= 1);
            assert!(found.starts_with(&format!("{path}: ")), "{path}: {found}");
        }
        let found = fixture.unsigned(|files| drop(files.remove(path)));
        assert_eq!(found, format!("{path}: missing\n"));
    }
    let found = fixture.unsigned(|files| swap(files, "pods/web-0.json", "pods/web-1.json"));
    assert_eq!(found.matches("changed").count(), 2);
    assert!(
        found.contains("pods/web-0.json: changed") && found.contains("pods/web-1.json: changed"),
        "{found}"
    );
    let found = fixture.unsigned(|files| drop(files.insert("pods/x.json".to_owned(), b"{}".to_vec())));
    assert_eq!(found, "pods/x.json: not in the manifest\n");
    let other = SigningKey::generate("collector.example").unwrap();
    let found = faults(fixture.evaluate(&archive::write(fixture.files.clone(), &other).unwrap()));
    assert!(found.starts_with("manifest: the note is not signed by collector.example"), "{found}");
}

#[tokio::test]
async fn a_collector_cannot_change_decisions() {
    let fixture = Fixture::new().await;
    let first = "decisions/0-0.tlog-proof";
    for (expected, found) in [
        (
            "pods/web-0.json: found web-1",
            fixture.signed(|files| swap(files, "pods/web-0.json", "pods/web-1.json")),
        ),
        (
            "decisions/0-0.tlog-proof: ",
            fixture.signed(|files| drop(files.insert(first.to_owned(), b"x".to_vec()))),
        ),
        (
            "decisions/0-0.tlog-proof: expected namespace other",
            fixture.signed(|files| {
                edit(files, "evidence.json", |subject| subject["namespace"] = json!("other"));
            }),
        ),
        (
            "evidence.json: expected version 1, found 2",
            fixture.signed(|files| {
                edit(files, "evidence.json", |subject| subject["version"] = json!(2));
            }),
        ),
        (
            "anchors.json: record 1 of lucid.computing/test/0 is not the one",
            fixture.signed(|files| {
                edit(files, "anchors.json", |anchors| anchors[1]["leaf"] = json!("ab".repeat(32)));
            }),
        ),
        (
            "verdicts/x.json: found sha256:",
            fixture.signed(|files| {
                let verdict = files.values().find(|it| it.starts_with(b"{\n  \"digest\"")).unwrap().clone();
                files.insert("verdicts/x.json".to_owned(), verdict);
            }),
        ),
        ("x: not a file of evidence", fixture.signed(|files| drop(files.insert("x".to_owned(), Vec::new())))),
    ] {
        assert!(found.contains(expected), "{expected}: {found}");
    }
    // Anchors of other records are counted.
    let mut files = fixture.files.clone();
    files.remove(first);
    let archive = archive::write(files, &fixture.collector).unwrap();
    assert!(fixture.evaluate(&archive).unwrap().contains("3 anchors of the API server, 1 without"));
    // A log of an untrusted key.
    let other = Fixture { keys: vec![fixture.collector.verifier().clone()], ..Fixture::new().await };
    let archive = archive::write(other.files.clone(), &other.collector).unwrap();
    assert!(
        faults(other.evaluate(&archive)).starts_with("decisions/0-0.tlog-proof: the note is not signed by")
    );
}

#[tokio::test]
async fn other_pods_than_the_subject_are_refused() {
    let fixture = Fixture::new().await;
    let about = |files: &mut Files, name: &str| {
        edit(files, "evidence.json", |subject| subject["pod"] = json!(name));
    };
    assert_eq!(fixture.signed(|files| about(files, "web-9")), "pods/web-9.json: missing\n");
    let found = fixture.signed(|files| {
        about(files, "web-0");
        files.remove("decisions/0-2.tlog-proof");
    });
    let expected = [
        "decisions/0-1.tlog-proof: expected pod web-0, found web-1",
        "pods/web-1.json: expected pod web-0, found web-1",
        "anchors.json: expected pod web-0, found web-1",
        "anchors.json: expected pod web-0, found <script>\\u{202e}",
    ];
    assert_eq!(found.lines().collect::<Vec<_>>(), expected);
    // Decisions before the API server chose the name.
    let mut files = fixture.files.clone();
    about(&mut files, "web-0");
    edit(&mut files, "pods/web-0.json", |pod| pod["generateName"] = json!("web-1"));
    edit(&mut files, "anchors.json", |anchors| drop(anchors.as_array_mut().unwrap().pop()));
    for path in ["pods/web-1.json", "decisions/0-2.tlog-proof"] {
        files.remove(path);
    }
    let verified = fixture.evaluate(&archive::write(files, &fixture.collector).unwrap()).unwrap();
    assert!(verified.contains("\n  1 of the decisions precede the pod's name"), "{verified}");
}

#[tokio::test]
async fn hostile_archives_are_refused() {
    let fixture = Fixture::new().await;
    let archive = archive::write(fixture.files.clone(), &fixture.collector).unwrap();
    for at in 0..archive.len() {
        let mut flipped = archive.clone();
        flipped[at] ^= 0x55;
        // Some bits of gzip change nothing.
        if fixture.evaluate(&flipped).is_ok() {
            assert_eq!(archive::read(&flipped).unwrap(), archive::read(&archive).unwrap(), "byte {at}");
        }
        assert!(fixture.evaluate(&archive[..at]).is_err(), "{at} bytes");
    }
    let entry = |path: &[u8], kind: tar::EntryType| {
        let mut header = tar::Header::new_gnu();
        header.as_mut_bytes()[..path.len()].copy_from_slice(path);
        header.set_entry_type(kind);
        header.set_size(0);
        // A sparse file of 8 GiB without data.
        let gnu = header.as_gnu_mut().unwrap();
        (gnu.realsize, gnu.sparse[0].offset) = (*b"77777777777\0", *b"77777777777\0");
        gnu.sparse[0].numbytes = *b"00000000000\0";
        header.set_cksum();
        header.as_bytes().to_vec()
    };
    let files = archive::tar(&fixture.files).unwrap();
    let regular = tar::EntryType::Regular;
    for (expected, bytes) in [
        ("found bytes after its end", [&archive[..], b"x"].concat()),
        ("found more than its files", pack(&[&files[..], &[0; 512]].concat())),
        ("expected at most", pack(&vec![0; archive::MOST_BYTES + 1])),
        ("expected a regular file", pack(&entry(b"a", tar::EntryType::Symlink))),
        ("expected a regular file", pack(&entry(b"a", tar::EntryType::GNUSparse))),
        ("found twice", pack(&[entry(b"a", regular), entry(b"a", regular)].concat())),
        ("found more than its files", pack(&entry(b"../a", regular))),
        ("found more than its files", pack(&entry(b"/a", regular))),
        ("archive: ", b"no gzip".to_vec()),
        ("manifest: missing", pack(&archive::tar(&Files::new()).unwrap())),
    ] {
        let found = faults(fixture.evaluate(&bytes));
        assert!(found.contains(expected), "{expected}: {found}");
    }
}

#[tokio::test]
async fn the_page_escapes_values() {
    let fixture = Fixture::new().await;
    let page = String::from_utf8(fixture.files["index.html"].clone()).unwrap();
    assert!(page.contains("&#60;script&#62;\\u{202e}") && page.contains(CLAIM), "{page}");
    assert!(!page.contains("<script") && !page.contains('\u{202e}'));
}
