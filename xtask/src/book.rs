//! `cargo xtask book`: the mdBook preprocessor for the pages of docs/.
//!
//! On GitHub a page can link to any file of the repository. In the book, links out of docs/ lead to GitHub.

use std::io::{stdin, stdout};
use std::path::{Component, Path, PathBuf};

use clap::{Args, Subcommand};
use lucid_e2e::Error;
use serde_json::Value;

const FILES: &str = concat!(env!("CARGO_PKG_REPOSITORY"), "/blob/main/");

#[derive(Args)]
pub(crate) struct Book {
    #[command(subcommand)]
    question: Option<Question>,
}

#[derive(Subcommand)]
enum Question {
    /// Reports whether a renderer is supported; all are.
    Supports {
        /// Name of the renderer, such as `html`.
        renderer: String,
    },
}

/// Reads `[context, book]` of mdBook from standard input and writes the book to standard output.
pub(crate) fn run(book: &Book) -> Result<(), Error> {
    if let Some(Question::Supports { .. }) = book.question {
        return Ok(());
    }
    let (_, mut book): (Value, Value) = serde_json::from_reader(stdin())?;
    rewrite(&mut book);
    serde_json::to_writer(stdout(), &book)?;
    Ok(())
}

/// Chapters are nested, under keys that depend on the version of mdBook.
fn rewrite(value: &mut Value) {
    match value {
        Value::Object(members) => {
            let path = members.get("path").and_then(Value::as_str).map(PathBuf::from);
            if let (Some(path), Some(Value::String(content))) = (path, members.get_mut("content")) {
                *content = outward(&path, content);
            }
            members.values_mut().for_each(rewrite);
        }
        Value::Array(items) => items.iter_mut().for_each(rewrite),
        _ => {}
    }
}

/// Makes links out of docs/ absolute in the page at `path`, which is relative to docs/.
fn outward(path: &Path, content: &str) -> String {
    let mut parts = content.split("](");
    let mut page = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        page.push_str("](");
        let outside = part.split_once(')').and_then(|(target, rest)| Some((outside(path, target)?, rest)));
        match outside {
            Some((file, rest)) => page.extend([FILES, &file, ")", rest]),
            None => page.push_str(part),
        }
    }
    page
}

/// Path of the file that `target` names, from the root of the repository, or `None` if it is in docs/.
fn outside(path: &Path, target: &str) -> Option<String> {
    let mut folders: Vec<&str> = vec!["docs"];
    folders.extend(path.parent()?.iter().filter_map(|part| part.to_str()));
    if !target.starts_with("../") {
        return None;
    }
    for part in Path::new(target).components() {
        match part {
            Component::ParentDir => drop(folders.pop()?),
            Component::Normal(part) => folders.push(part.to_str()?),
            _ => return None,
        }
    }
    (folders.first() != Some(&"docs")).then(|| folders.join("/"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn links_out_of_the_book_lead_to_the_repository_and_others_stay() {
        let page = "[a](trust.md#modes) [b](../trust.md) [c](../../deploy/lucid.yaml) [d](https://c2sp.org) ![e](../images/x.png)";
        let chapter = json!({"path": "certificates/olm.md", "content": page, "sub_items": []});
        let mut book = json!({"items": [{"Chapter": {"path": "README.md", "content": "", "sub_items": [{"Chapter": chapter}]}}]});
        rewrite(&mut book);
        let content = &book["items"][0]["Chapter"]["sub_items"][0]["Chapter"]["content"];
        let expected = page.replace("../../deploy", "https://github.com/lucid/lucid/blob/main/deploy");
        assert_eq!(*content, expected);
    }
}
