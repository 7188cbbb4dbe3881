//! A registry for people and for programs.

use lucid_notary::Digest;
use serde::Serialize;

use crate::registry::{Entry, Registry};

/// A line for each digest, under a head. What people wrote is escaped where it could do something to a terminal.
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

/// What makes a terminal show the text behind it in another order (UAX #9, section 2).
fn is_bidirectional(character: char) -> bool {
    matches!(character, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// JSON that is a registry file itself.
///
/// # Errors
///
/// Never, as far as is known: everything in a registry can be written.
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
