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

/// Digests that are taken to be notarized without asking. Cheap to clone.
///
/// In a file there is one on each line, as `sha256:…`, or as an image that has one, `registry/repository[:tag]@sha256:…`, of
/// which the digest alone counts. Empty lines are skipped, and what follows a `#`.
#[derive(Clone, Debug)]
pub struct Allowlist {
    digests: Arc<Reread<HashSet<Digest>>>,
}

impl Allowlist {
    /// Reads the list of a file, and reads it again when it changes. While it cannot be read, the last list stays.
    ///
    /// # Errors
    ///
    /// When it cannot be read now, or a line is neither digest nor image with digest; the error names the line.
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

    /// Whether the digest is on the list.
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
    // An image has a name, and this no '@' or '/'.
    if !entry.contains(['@', '/']) {
        return Digest::from_str(entry).context(NoDigestSnafu { line });
    }
    let image = ImageReference::from_str(entry).context(NoImageSnafu { line })?;
    image.digest().cloned().with_context(|| WithoutDigestSnafu { line, image: excerpt(entry) })
}
