//! Tables of registries.

use lucid_shared::is_bidirectional;

use crate::conformance::Conformance;
use crate::registry::Registry;

/// Formats a table with one line per digest and a header. Control and bidirectional characters in notes are escaped
/// to protect terminals.
#[must_use]
pub(crate) fn table(registry: &Registry) -> String {
    let rows = registry.entries().map(|(digest, entry)| {
        let image = entry.image.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string);
        let note = entry.note.as_deref().unwrap_or("-");
        let conformance = entry.conformance.as_ref().map_or_else(|| "-".to_owned(), Conformance::summary);
        [digest.to_string(), image, conformance, note.chars().flat_map(shown).collect()]
    });
    let head = ["DIGEST", "IMAGE", "CONFORMANCE", "NOTE"].map(str::to_owned);
    let rows: Vec<_> = std::iter::once(head).chain(rows).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
    let (digests, images, results) = (width(0), width(1), width(2));
    let line = |[digest, image, conformance, note]: &[String; 4]| {
        format!("{digest:digests$}  {image:images$}  {conformance:results$}  {note}\n")
    };
    rows.iter().map(line).collect()
}

fn shown(character: char) -> Vec<char> {
    if character.is_control() || is_bidirectional(character) {
        character.escape_default().collect()
    } else {
        vec![character]
    }
}
