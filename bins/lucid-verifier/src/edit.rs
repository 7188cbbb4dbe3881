//! Changes of a registry file. The new text keeps the comments at the top of the file; comments elsewhere are lost.

use lucid_notary::Digest;

use crate::registry::{Entry, ParseError, Registry};

pub(crate) const EMPTY: &str = "notarized: []\n";

/// Returns the text with `digest` notarized as `entry`, or `None` if it already is. Fields of an existing entry are
/// kept unless `entry` sets them; an empty note removes the note.
pub(crate) fn notarize(text: &str, digest: &Digest, entry: &Entry) -> Result<Option<String>, ParseError> {
    let mut registry = Registry::parse(text)?;
    let known = registry.entry(digest);
    let wanted = Entry {
        image: entry.image.clone().or_else(|| known.and_then(|known| known.image.clone())),
        note: match &entry.note {
            Some(note) => Some(note.clone()).filter(|note| !note.is_empty()),
            None => known.and_then(|known| known.note.clone()),
        },
        conformance: entry.conformance.clone().or_else(|| known.and_then(|known| known.conformance.clone())),
    };
    if known == Some(&wanted) {
        return Ok(None);
    }
    registry.insert(digest.clone(), wanted);
    Ok(Some(edited(text, &registry)))
}

/// Returns the text without `digest`, or `None` if it is not notarized.
pub(crate) fn revoke(text: &str, digest: &Digest) -> Result<Option<String>, ParseError> {
    let mut registry = Registry::parse(text)?;
    Ok(registry.remove(digest).map(|_| edited(text, &registry)))
}

/// Returns the text of the registry after the comments at the top of `text`.
fn edited(text: &str, registry: &Registry) -> String {
    let is_comment =
        |line: &&str| line.trim_start_matches('\u{feff}').starts_with('#') || line.trim().is_empty();
    let mut edited: String = text.split_inclusive('\n').take_while(is_comment).collect();
    if text.starts_with('\u{feff}') && edited.is_empty() {
        edited.push('\u{feff}');
    }
    // Infallible: every field is representable in YAML.
    edited + &serde_yaml::to_string(registry).unwrap_or_default()
}
