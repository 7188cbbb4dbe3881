//! Valid links, and a place in the book for every page.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use lucid_e2e::page::root;
use regex::Regex;

use super::{none, pages, prose, read, tracked};

/// Normalizes `a/b/../c` to `a/c`, or returns `None` for a path outside of the repository.
fn normal(path: &Path) -> Option<PathBuf> {
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => normal.pop().then_some(())?,
            Component::Normal(name) => normal.push(name),
            _ => {}
        }
    }
    Some(normal)
}

/// Anchors of a page, as generated from headings by GitHub and mdBook: a duplicate has `-1`.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    for heading in prose(text).lines().filter_map(|line| line.strip_prefix('#')) {
        let heading = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = heading.chars().filter(|it| it.is_alphanumeric() || matches!(it, ' ' | '-' | '_'));
        let anchor = kept.collect::<String>().replace(' ', "-");
        let mut unique = anchor.clone();
        for number in 1.. {
            if anchors.insert(unique) {
                break;
            }
            unique = format!("{anchor}-{number}");
        }
    }
    anchors
}

#[test]
fn links_lead_to_files_and_headings() {
    let link = Regex::new(r"\]\(([^)\s]+)\)").unwrap();
    // Code may contain text that resembles a link.
    let code = Regex::new("`[^`\n]*`").unwrap();
    let mut found = BTreeSet::new();
    for page in pages() {
        let folder = Path::new(&page.path).parent().unwrap();
        let prose = prose(&page.text);
        let text = code.replace_all(&prose, "`code`");
        for target in link.captures_iter(&text).map(|link| link.get(1).unwrap().as_str()) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (file, anchor) = target.split_once('#').map_or((target, None), |(file, it)| (file, Some(it)));
            let path =
                if file.is_empty() { Some(PathBuf::from(&page.path)) } else { normal(&folder.join(file)) };
            let Some(path) = path.filter(|path| root().join(path).exists()) else {
                found.insert(format!("{}: {target} is not there", page.path));
                continue;
            };
            if let Some(anchor) = anchor {
                let text = read(path.to_str().unwrap());
                if !anchors(&text).contains(anchor) {
                    found.insert(format!("{}: {target} has no such heading", page.path));
                }
            }
        }
    }
    none(&found);
}

#[test]
fn every_page_is_in_the_summary() {
    let summary = read("docs/SUMMARY.md");
    let link = Regex::new(r"\]\(([^)]+)\)").unwrap();
    let listed: Vec<_> = link.captures_iter(&summary).map(|link| link[1].to_owned()).collect();
    let unique: BTreeSet<_> = listed.iter().cloned().collect();
    assert_eq!(listed.len(), unique.len(), "a page is listed twice");
    let pages = tracked().into_iter().filter_map(|path| path.strip_prefix("docs/").map(str::to_owned));
    let pages = pages.filter(|path| path.ends_with(".md") && path != "SUMMARY.md");
    assert_eq!(unique, pages.collect());
}

#[test]
fn anchors_are_those_of_github() {
    let text = "# `not ready: certificates`\n```sh\n# a comment\n```\n## A, b & c\n## A, b & c\n";
    let expected = ["a-b--c", "a-b--c-1", "not-ready-certificates"].map(str::to_owned);
    assert_eq!(anchors(text), expected.into());
}
