//! Program messages quoted in tables exist in the sources.

use std::collections::BTreeSet;

use regex::Regex;

use super::{none, pages, sources};

/// Number of consecutive words that a source must contain: the text between them varies.
const ROW: usize = 3;

/// First cells of tables whose header declares messages of our programs.
fn messages(text: &str) -> Vec<&str> {
    let mut messages = Vec::new();
    let mut quotes = false;
    for line in text.lines() {
        if line.trim().starts_with("|---") {
            continue;
        }
        let Some(row) = line.trim().strip_prefix("| ") else {
            quotes = false;
            continue;
        };
        let cell = row.split(" | ").next().unwrap_or_default();
        if ["it says", "the line says", "log"].contains(&cell) {
            quotes = true;
        } else if quotes {
            messages.push(cell.trim_matches('`'));
        }
    }
    messages
}

#[test]
fn documented_messages_are_those_of_the_programs() {
    let continued = Regex::new(r"\\\n\s*").unwrap();
    let said: String =
        sources().iter().map(|source| continued.replace_all(&source.text, "").into_owned()).collect();
    let mut found = BTreeSet::new();
    let mut seen = 0;
    for page in pages() {
        for message in messages(&page.text) {
            seen += 1;
            // `…` stands for the variable parts.
            let mut rows = message.split('…').flat_map(|piece| {
                let words: Vec<_> = piece.split_whitespace().collect();
                let rows = words.windows(ROW.min(words.len()).max(1)).filter(|row| row.len() > 1);
                rows.map(|row| row.join(" ")).collect::<Vec<_>>()
            });
            if !rows.any(|row| said.contains(&row)) {
                found.insert(format!("{}: no program prints {message:?}", page.path));
            }
        }
    }
    assert!(seen > 15, "{seen} messages");
    none(&found);
}
