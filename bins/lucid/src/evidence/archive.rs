//! Archives of evidence: tar.gz with a manifest of all files, signed by the collector. Their content is untrusted until
//! [`check`] returns no fault.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::io::{Read, Write};

use aws_lc_rs::digest::{SHA256, digest};
use flate2::Compression;
use flate2::bufread::GzDecoder;
use flate2::write::GzEncoder;
use lucid_audit::note::{Note, SigningKey, VerifierKey};

use crate::error::Result;

/// Contents by path.
pub(super) type Files = BTreeMap<String, Vec<u8>>;

const MANIFEST: &str = "manifest";
const TITLE: &str = "lucid evidence v1";
/// Maximum size of an archive in bytes, compressed and uncompressed.
pub(super) const MOST_BYTES: usize = 64 << 20;

/// A file that is not as it was signed.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) file: String,
    pub(super) reason: String,
}

impl Fault {
    pub(super) fn new(file: impl Into<String>, reason: impl fmt::Display) -> Self {
        Self { file: file.into(), reason: reason.to_string() }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.file.escape_debug(), self.reason.escape_debug())
    }
}

/// Returns the archive of `files`, with a manifest signed by `key`. The same files result in the same bytes.
pub(super) fn write(mut files: Files, key: &SigningKey) -> Result<Vec<u8>> {
    let mut note = Note::new(manifest(&files))?;
    note.sign(key);
    files.insert(MANIFEST.to_owned(), note.to_string().into_bytes());
    let tar = tar(&files)?;
    if tar.len() > MOST_BYTES {
        return Err(too_long());
    }
    let mut compressed = GzEncoder::new(Vec::new(), Compression::default());
    compressed.write_all(&tar)?;
    Ok(compressed.finish()?)
}

pub(super) fn too_long() -> Box<dyn Error> {
    format!("the evidence is longer than {MOST_BYTES} bytes; narrow it by --since or POD").into()
}

/// Returns the text of the manifest, whose lines after the first are those of sha256sum.
fn manifest(files: &Files) -> String {
    let lines = files.iter().map(|(path, content)| format!("{}  {path}\n", hash(content)));
    format!("{TITLE}\n{}", lines.collect::<String>())
}

fn hash(content: &[u8]) -> String {
    digest(&SHA256, content).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(super) fn tar(files: &Files) -> std::io::Result<Vec<u8>> {
    let mut tar = tar::Builder::new(Vec::new());
    for (path, content) in files {
        let mut header = tar::Header::new_ustar();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        tar.append_data(&mut header, path, &content[..])?;
    }
    tar.into_inner()
}

/// Unpacks an archive in memory. Only the uncompressed bytes that [`write()`] makes of its files are accepted, so nothing can
/// hide between them.
pub(super) fn read(archive: &[u8]) -> Result<Files, Fault> {
    let invalid = |reason: &dyn fmt::Display| Fault::new("archive", reason);
    let mut compressed = GzDecoder::new(archive);
    let mut bytes = Vec::new();
    (&mut compressed).take(MOST_BYTES as u64 + 1).read_to_end(&mut bytes).map_err(|error| invalid(&error))?;
    if bytes.len() > MOST_BYTES {
        return Err(invalid(&format!("expected at most {MOST_BYTES} bytes")));
    }
    let has_text = compressed
        .header()
        .is_some_and(|it| it.filename().is_some() || it.comment().is_some() || it.extra().is_some());
    if has_text {
        return Err(invalid(&"found more than its files, in the header of gzip"));
    }
    if !compressed.into_inner().is_empty() {
        return Err(invalid(&"found bytes after its end"));
    }
    let mut files = Files::new();
    let mut archive = tar::Archive::new(&bytes[..]);
    for entry in archive.entries().map_err(|error| invalid(&error))? {
        let mut entry = entry.map_err(|error| invalid(&error))?;
        let path = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        if !entry.header().entry_type().is_file() {
            return Err(Fault::new(path, "expected a regular file"));
        }
        let mut content = Vec::new();
        entry.read_to_end(&mut content).map_err(|error| Fault::new(&path, error))?;
        if files.insert(path.clone(), content).is_some() {
            return Err(Fault::new(path, "found twice in the archive"));
        }
    }
    match tar(&files) {
        Ok(canonical) if canonical == bytes => Ok(files),
        _ => Err(invalid(&"found more than its files, expected an archive as lucid writes it")),
    }
}

/// Compares all files with the manifest, which one of `signers` has to have signed.
pub(super) fn check(files: &mut Files, signers: &[VerifierKey]) -> Vec<Fault> {
    let fault = |reason: &dyn fmt::Display| vec![Fault::new(MANIFEST, reason)];
    let Some(note) = files.remove(MANIFEST) else { return fault(&"missing") };
    let note: Note = match String::from_utf8_lossy(&note).parse() {
        Ok(note) => note,
        Err(error) => return fault(&error),
    };
    let mut faults = match signers.iter().map(|signer| note.verify(signer)).reduce(Result::or) {
        Some(Ok(_)) => Vec::new(),
        Some(Err(error)) => fault(&error),
        None => fault(&"no trusted key was given"),
    };
    let listed = note.text().lines().skip(1).filter_map(|line| line.split_once("  "));
    let listed: BTreeMap<_, _> = listed.map(|(hash, path)| (path, hash)).collect();
    let missing = listed.keys().filter(|path| !files.contains_key(**path));
    faults.extend(missing.map(|path| Fault::new(*path, "missing")));
    for (path, content) in &*files {
        match listed.get(path.as_str()) {
            None => faults.push(Fault::new(path, "not in the manifest")),
            Some(listed) if *listed != hash(content) => {
                faults.push(Fault::new(path, "changed: it is not the file that was signed"));
            }
            Some(_) => {}
        }
    }
    if faults.is_empty() && note.text() != manifest(files) {
        faults = fault(&"expected the title and one line for each file");
    }
    faults
}
