use std::collections::HashSet;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use lucid_text::Excerpt;
use tower::BoxError;

use super::metrics::ClientMetrics;
use super::reloading_files::{FileError, ReloadingFiles};
use crate::digest::Digest;
use crate::reference::ImageReference;

/// A list of digests that count as notarized without a request. Cheap to clone.
///
/// The file has one entry per line: a digest, `sha256:…`, or an image with a digest,
/// `registry/repository[:tag]@sha256:…`, of which only the digest counts. Empty lines and text after `#` are ignored.
#[derive(Clone, Debug)]
pub struct Allowlist {
    digests: Arc<ReloadingFiles<HashSet<Digest>>>,
}

impl Allowlist {
    /// Reads the list from a file, and again whenever the file changes. If a later read fails, the last valid list
    /// stays in use.
    ///
    /// # Errors
    ///
    /// Returns [`FileError`] if the file cannot be read, or a line is neither a digest nor an image with a digest.
    /// The error names the line.
    pub fn open(path: impl Into<PathBuf>, metrics: ClientMetrics) -> Result<Self, FileError> {
        let entries = metrics.allowlist_entries.clone();
        let parse = move |files: &[Vec<u8>]| {
            let digests = parse(files.first().map_or(&[], Vec::as_slice))?;
            entries.set(i64::try_from(digests.len()).unwrap_or(i64::MAX));
            Ok(digests)
        };
        let digests =
            ReloadingFiles::open(vec![path.into()], parse)?.on_change(metrics.on_change("allowlist"));
        Ok(Self { digests: Arc::new(digests) })
    }

    /// Returns `true` if the list contains the digest.
    pub async fn contains(&self, digest: &Digest) -> bool {
        self.digests.get().await.contains(digest)
    }
}

fn parse(text: &[u8]) -> Result<HashSet<Digest>, BoxError> {
    let text = str::from_utf8(text).map_err(|_| "it is not UTF-8")?;
    let mut digests = HashSet::new();
    for (index, line) in text.lines().enumerate() {
        let entry = line.split_once('#').map_or(line, |(entry, _)| entry).trim();
        if !entry.is_empty() {
            let digest = parse_entry(entry).map_err(|error| format!("line {}: {error}", index + 1))?;
            digests.insert(digest);
        }
    }
    Ok(digests)
}

fn parse_entry(entry: &str) -> Result<Digest, BoxError> {
    // A digest contains neither '@' nor '/', an image with a digest always has an '@'.
    if !entry.contains(['@', '/']) {
        return Ok(Digest::from_str(entry)?);
    }
    let digest = ImageReference::from_str(entry)?.digest().cloned();
    digest.ok_or_else(|| {
        format!("image {} does not have a digest; expected sha256:HEX or IMAGE@sha256:HEX", Excerpt(entry))
            .into()
    })
}
