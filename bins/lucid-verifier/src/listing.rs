//! Output formats of a registry.

use lucid_notary::Digest;
use serde::Serialize;

use crate::registry::{Entry, Registry};

/// Formats a table with one line per digest and a header. Control and bidirectional characters in notes are escaped
/// to protect terminals.
#[must_use]
pub fn table(registry: &Registry) -> String {
    let rows = registry.entries().map(|(digest, entry)| {
        let image = entry.image.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string);
        let note = entry.note.as_deref().unwrap_or("-");
        [digest.to_string(), image, note.chars().flat_map(shown).collect()]
    });
    let head = ["DIGEST", "IMAGE", "NOTE"].map(str::to_owned);
    let rows: Vec<_> = std::iter::once(head).chain(rows).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
    let (digests, images) = (width(0), width(1));
    rows.iter().map(|[digest, image, note]| format!("{digest:digests$}  {image:images$}  {note}\n")).collect()
}

fn shown(character: char) -> Vec<char> {
    if character.is_control() || is_bidirectional(character) {
        character.escape_default().collect()
    } else {
        vec![character]
    }
}

/// Returns `true` for characters that change the display order of text (UAX #9, section 2).
fn is_bidirectional(character: char) -> bool {
    matches!(character, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Formats JSON that is itself a valid registry file.
///
/// # Errors
///
/// Returns an error if serialization fails, which is not expected of any registry.
pub fn json(registry: &Registry) -> serde_json::Result<String> {
    #[derive(Serialize)]
    struct Document<'a> {
        notarized: Vec<Item<'a>>,
    }

    #[derive(Serialize)]
    struct Item<'a> {
        digest: &'a Digest,
        #[serde(flatten)]
        entry: &'a Entry,
    }

    let notarized = registry.entries().map(|(digest, entry)| Item { digest, entry }).collect();
    serde_json::to_string_pretty(&Document { notarized }).map(|text| text + "\n")
}
