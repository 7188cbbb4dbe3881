//! What a table says that a program says, some program says.

use std::collections::BTreeSet;

use regex::Regex;

use super::{none, pages, sources};

/// How many words in a row have to be in a source: what stands between them differs from case to case.
const ROW: usize = 3;

/// The first cells of tables whose head says that they are messages of our own programs.
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
fn messages_in_tables_are_those_of_the_programs() {
    let continued = Regex::new(r"\\\n\s*").unwrap();
    let said: String =
        sources().iter().map(|source| continued.replace_all(&source.text, "").into_owned()).collect();
    let mut found = BTreeSet::new();
    let mut seen = 0;
    for page in pages() {
        for message in messages(&page.text) {
            seen += 1;
            // `…` stands for what differs from case to case.
            let mut rows = message.split('…').flat_map(|piece| {
                let words: Vec<_> = piece.split_whitespace().collect();
                let rows = words.windows(ROW.min(words.len()).max(1)).filter(|row| row.len() > 1);
                rows.map(|row| row.join(" ")).collect::<Vec<_>>()
            });
            if !rows.any(|row| said.contains(&row)) {
                found.insert(format!("{}: nobody says {message:?}", page.path));
            }
        }
    }
    assert!(seen > 15, "{seen} messages");
    none(&found);
}
