//! Changes of a registry file's text: what is not concerned stays as it was written, comments too.

use lucid_document::{Document, documents};
use lucid_notary::Digest;
use serde_json::{Value, json};
use snafu::{ResultExt, Snafu};

use crate::registry::{Entry, ParseError, Registry};

/// The text of a registry that notarizes nothing.
pub const EMPTY: &str = "notarized: []\n";

/// Why a text cannot be changed.
#[derive(Debug, Snafu)]
#[non_exhaustive]
pub enum EditError {
    /// It is no registry.
    #[snafu(display("failed to parse the registry"))]
    Parse {
        /// What is wrong where.
        source: ParseError,
    },
    /// It is a registry that cannot be edited.
    #[snafu(display("failed to edit the registry"))]
    Edit {
        /// Why.
        source: lucid_document::EditError,
    },
    /// The changed text would not say what it should.
    #[snafu(display(
        "failed to edit the registry: its new text would not say what it should; edit it by hand"
    ))]
    Unproved,
}

/// The text with `digest` notarized as `entry` says; `None` when it says so already. What is known of a digest that is
/// notarized, and not given anew, stays; an empty note takes the note away.
///
/// # Errors
///
/// When the text is no registry, or cannot be changed.
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
    let is_right = |registry: &Registry| registry.count() == count && registry.entry(digest) == Some(&wanted);
    edited(text, patch, is_right).map(Some)
}

/// The text without `digest`; `None` when it is not notarized.
///
/// # Errors
///
/// As [`notarize`].
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
    let is_right = |registry: &Registry| registry.count() == count && registry.entry(digest).is_none();
    edited(text, patch, is_right).map(Some)
}

/// Where in the list a digest stands.
fn place(document: &Document, digest: &Digest) -> Option<usize> {
    let digest = digest.to_string();
    let list = document.value().ok()??.get("notarized")?.as_array()?;
    list.iter().position(|item| item.as_str().or_else(|| item.get("digest")?.as_str()) == Some(&digest))
}

/// The text after `patch`, which is read again: it decides which images may run.
fn edited(
    text: &str,
    patch: impl Fn(&Document) -> Value,
    is_right: impl Fn(&Registry) -> bool,
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
        Ok(registry) if is_right(&registry) => Ok(new),
        _ => UnprovedSnafu.fail(),
    }
}
