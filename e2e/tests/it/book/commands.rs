//! Tests run every command on a page, or the page marks it as not run.

use std::collections::BTreeSet;

use lucid_e2e::page::{NOT_RUN, blocks, is_command};

use super::{none, pages, prose, read, tracked};

/// `Page::read` ensures that all commands of the page run.
#[test]
fn every_command_is_run_by_a_test_or_marked_as_not_run() {
    let tests = tracked().into_iter().filter(|path| path.ends_with(".rs") && path.contains("/tests/"));
    let tests: Vec<_> = tests.map(|path| read(&path)).filter(|text| text.contains("Page::read(")).collect();
    let mut found = BTreeSet::new();
    for page in pages() {
        let commands = blocks(&page.text).into_iter().filter(|(info, _)| is_command(info));
        let mut unmarked = commands.filter(|(info, _)| !info.split_whitespace().any(|word| word == NOT_RUN));
        let is_read = tests.iter().any(|test| test.contains(&format!("\"{}\"", page.path)));
        if let Some((_, first)) = unmarked.next().filter(|_| !is_read) {
            let first = first.lines().next().unwrap_or_default().trim();
            found.insert(format!(
                "{}: no test reads the page, and `{first}` is not marked `{NOT_RUN}`",
                page.path
            ));
        }
    }
    none(&found);
}

#[test]
fn fences_are_closed_and_of_a_known_language() {
    let known = [
        "console", "dot", "ini", "json", "mermaid", "promql", "rust", "sh", "text", "toml", "yaml", "python",
    ];
    let mut found = BTreeSet::new();
    for page in pages() {
        if prose(&page.text)
            .lines()
            .any(|line| ["~~~", "<pre"].iter().any(|it| line.trim_start().starts_with(it)))
        {
            found.insert(format!("{}: a block that no test knows as one", page.path));
        }
        let fences = page.text.lines().filter(|line| line.trim_start().starts_with("```")).count();
        if fences % 2 == 1 {
            found.insert(format!("{}: a block without its end", page.path));
        }
        for (info, text) in blocks(&page.text) {
            let language = info.split([' ', ',']).next().unwrap_or_default();
            if !known.contains(&language) {
                found.insert(format!("{}: a block of the language {language:?}", page.path));
            }
            let is_session = text.lines().any(|line| line.trim_start().starts_with("$ "));
            if is_session && language != "console" {
                found.insert(format!("{}: a session in a block of the language {language:?}", page.path));
            }
        }
    }
    none(&found);
}
