//! Edits the text of a registry file and preserves unrelated content, comments included.

use lucid_document::{Document, documents};
use lucid_notary::Digest;
use serde_json::{Value, json};
use snafu::{ResultExt, Snafu};

use crate::registry::{Entry, ParseError, Registry};

/// Text of an empty registry.
pub const EMPTY: &str = "notarized: []\n";

/// A registry's text cannot be edited.
#[derive(Debug, Snafu)]
#[non_exhaustive]
pub enum EditError {
    /// The text is not a valid registry.
    #[snafu(display("failed to parse the registry"))]
    Parse {
        /// Parse error.
        source: ParseError,
    },
    /// The document cannot be patched.
    #[snafu(display("failed to edit the registry"))]
    Edit {
        /// Cause.
        source: lucid_document::EditError,
    },
    /// The edited text does not parse to the expected registry.
    #[snafu(display(
        "failed to edit the registry: its new text would not say what it should; edit it by hand"
    ))]
    Unproved,
}

/// Returns the text with `digest` notarized as `entry`, or `None` if it already is. Fields of an existing entry are
/// kept unless `entry` sets them; an empty note removes the note.
///
/// # Errors
///
/// Returns [`EditError`] if the text is not a valid registry or cannot be edited.
pub fn notarize(text: &str, digest: &Digest, entry: &Entry) -> Result<Option<String>, EditError> {
    let registry = Registry::parse(text).context(ParseSnafu)?;
    let known = registry.entry(digest);
    let wanted = Entry {
        image: entry.image.clone().or_else(|| known.and_then(|known| known.image.clone())),
        note: match &entry.note {
            Some(note) => Some(note.clone()).filter(|note| !note.is_empty()),
            None => known.and_then(|known| known.note.clone()),
        },
    };
    if known == Some(&wanted) {
        return Ok(None);
    }
    let mut item = serde_json::Map::new();
    item.insert("digest".to_owned(), digest.to_string().into());
    item.extend(wanted.image.as_ref().map(|image| ("image".to_owned(), image.to_string().into())));
    item.extend(wanted.note.as_ref().map(|note| ("note".to_owned(), note.as_str().into())));
    let item = if item.len() == 1 { Value::from(digest.to_string()) } else { item.into() };
    let patch = |document: &Document| match place(document, digest) {
        Some(place) => json!([{"op": "replace", "path": format!("/notarized/{place}"), "value": item}]),
        None => json!([{"op": "add", "path": "/notarized/-", "value": item}]),
    };
    let count = registry.count() + usize::from(known.is_none());
    let is_valid = |registry: &Registry| registry.count() == count && registry.entry(digest) == Some(&wanted);
    edited(text, patch, is_valid).map(Some)
}

/// Returns the text without `digest`, or `None` if it is not notarized.
///
/// # Errors
///
/// Returns [`EditError`] if the text is not a valid registry or cannot be edited.
pub fn revoke(text: &str, digest: &Digest) -> Result<Option<String>, EditError> {
    let registry = Registry::parse(text).context(ParseSnafu)?;
    if registry.entry(digest).is_none() {
        return Ok(None);
    }
    let patch = |document: &Document| match place(document, digest) {
        Some(place) => json!([{"op": "remove", "path": format!("/notarized/{place}")}]),
        None => json!([]),
    };
    let count = registry.count() - 1;
    let is_valid = |registry: &Registry| registry.count() == count && registry.entry(digest).is_none();
    edited(text, patch, is_valid).map(Some)
}

/// Returns the position of a digest in the list.
fn place(document: &Document, digest: &Digest) -> Option<usize> {
    let digest = digest.to_string();
    let list = document.value().ok()??.get("notarized")?.as_array()?;
    list.iter().position(|item| item.as_str().or_else(|| item.get("digest")?.as_str()) == Some(&digest))
}

/// Applies `patch` and parses the result again, as a faulty edit would admit the wrong images.
fn edited(
    text: &str,
    patch: impl Fn(&Document) -> Value,
    is_valid: impl Fn(&Registry) -> bool,
) -> Result<String, EditError> {
    let mut new = String::with_capacity(text.len() + 256);
    for document in documents(text) {
        let is_registry = matches!(document.value(), Ok(Some(_)));
        let patch = if is_registry { serde_json::from_value(patch(&document)).ok() } else { None };
        match patch {
            Some(patch) => new.push_str(&document.patch(&patch).context(EditSnafu)?.text()),
            None => new.push_str(&document.text()),
        }
    }
    match Registry::parse(&new) {
        Ok(registry) if is_valid(&registry) => Ok(new),
        _ => UnprovedSnafu.fail(),
    }
}
