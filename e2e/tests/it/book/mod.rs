//! Checks of all documentation pages.

mod commands;
mod links;
mod names;
mod options;
mod quotes;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use lucid_e2e::page::root;

/// A page: its path relative to the root of the repository, and its text.
struct Text {
    path: String,
    text: String,
}

/// All pages: the README, those of docs/, and those beside crates, programs, examples and the chart.
fn pages() -> Vec<Text> {
    let markdown = tracked().into_iter().filter(|path| path.ends_with(".md"));
    let pages: Vec<_> = markdown.map(|path| Text { text: read(&path), path }).collect();
    assert!(pages.len() > 40, "{} pages", pages.len());
    pages
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Files of the repository, committed or not, by their paths relative to its root.
fn tracked() -> Vec<String> {
    fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
        const NOT_OURS: [&str; 4] = [".git", "target", "corpus", "artifacts"];
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            if path.is_dir() && !path.is_symlink() {
                if !NOT_OURS.contains(&name) {
                    walk(&path, found);
                }
            } else {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    walk(&root(), &mut found);
    let root = root();
    let relative = found.iter().map(|path| path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned());
    let mut relative: Vec<_> = relative.collect();
    relative.sort();
    relative
}

/// Replaces the lines of fenced blocks by empty lines.
fn prose(text: &str) -> String {
    let mut inside = false;
    let lines = text.lines().map(|line| {
        let fence = line.trim_start().starts_with("```");
        inside ^= fence;
        if inside || fence { "" } else { line }
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Text between backticks in a line of prose.
fn spans(prose: &str) -> impl Iterator<Item = &str> {
    prose.lines().flat_map(|line| line.split('`').skip(1).step_by(2))
}

/// Rust sources without tests, in which names are defined.
fn sources() -> Vec<Text> {
    let rust = tracked().into_iter().filter(|path| path.ends_with(".rs"));
    let rust = rust.filter(|path| !path.contains("/tests/") && !path.starts_with("e2e/"));
    rust.map(|path| Text { text: read(&path), path }).collect()
}

fn output(program: &Path, arguments: &[&str]) -> String {
    // Some defaults derive from the name of the pod or the host.
    let mut command = Command::new(program);
    command.args(arguments).env_clear().env("POD_NAME", "POD_NAME");
    let output = command.output().unwrap();
    assert!(output.status.success(), "{} {arguments:?}: {output:?}", program.display());
    String::from_utf8(output.stdout).unwrap()
}

fn none(found: &BTreeSet<String>) {
    let list: Vec<_> = found.iter().map(String::as_str).collect();
    assert!(list.is_empty(), "\n{}", list.join("\n"));
}
