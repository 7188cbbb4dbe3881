use std::collections::HashSet;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use snafu::{OptionExt, ResultExt, Snafu};
use tower::BoxError;

use crate::client::Metrics;
use crate::client::file::{FileError, Reread};
use crate::digest::{Digest, DigestError};
use crate::reference::{ImageReference, ReferenceError};
use crate::text::excerpt;

/// A list of digests that count as notarized without a request. Cheap to clone.
///
/// The file has one entry per line: a digest, `sha256:…`, or an image with a digest,
/// `registry/repository[:tag]@sha256:…`, of which only the digest counts. Empty lines and text after `#` are ignored.
#[derive(Clone, Debug)]
pub struct Allowlist {
    digests: Arc<Reread<HashSet<Digest>>>,
}

impl Allowlist {
    /// Reads the list from a file, and again whenever the file changes. If a later read fails, the last valid list
    /// stays in use.
    ///
    /// # Errors
    ///
    /// Returns [`FileError`] if the file cannot be read, or a line is neither a digest nor an image with a digest.
    /// The error names the line.
    pub fn open(path: impl Into<PathBuf>, metrics: Metrics) -> Result<Self, FileError> {
        let entries = metrics.clone();
        let parse = move |files: &[Vec<u8>]| {
            let digests = parse(files.first().map_or(&[], Vec::as_slice))?;
            entries.allowlist_entries(digests.len());
            Ok(digests)
        };
        let digests = Reread::open(vec![path.into()], parse)?.on_change(metrics.on_change("allowlist"));
        Ok(Self { digests: Arc::new(digests) })
    }

    /// Returns `true` if the list contains the digest.
    pub async fn contains(&self, digest: &Digest) -> bool {
        self.digests.get().await.contains(digest)
    }
}

#[derive(Debug, Snafu)]
enum ListError {
    #[snafu(display("it is not UTF-8"))]
    NotText { source: std::str::Utf8Error },
    #[snafu(display("line {line}: {source}"))]
    NoDigest { line: usize, source: DigestError },
    #[snafu(display("line {line}: {source}"))]
    NoImage { line: usize, source: ReferenceError },
    #[snafu(display("line {line}: image {image} has no digest; accepted is sha256:HEX or IMAGE@sha256:HEX"))]
    WithoutDigest { line: usize, image: String },
}

fn parse(text: &[u8]) -> Result<HashSet<Digest>, BoxError> {
    let text = str::from_utf8(text).context(NotTextSnafu)?;
    let mut digests = HashSet::new();
    for (number, line) in text.lines().enumerate() {
        let entry = line.split_once('#').map_or(line, |(entry, _)| entry).trim();
        if !entry.is_empty() {
            digests.insert(parse_entry(entry, number + 1)?);
        }
    }
    Ok(digests)
}

fn parse_entry(entry: &str, line: usize) -> Result<Digest, ListError> {
    // A digest contains neither '@' nor '/', an image with a digest always has an '@'.
    if !entry.contains(['@', '/']) {
        return Digest::from_str(entry).context(NoDigestSnafu { line });
    }
    let image = ImageReference::from_str(entry).context(NoImageSnafu { line })?;
    image.digest().cloned().with_context(|| WithoutDigestSnafu { line, image: excerpt(entry) })
}
