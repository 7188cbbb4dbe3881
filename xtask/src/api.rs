//! `cargo xtask api`: listings of the public items of each published crate, in docs/api. Reviews of a change see what it adds
//! and removes. The source is rustdoc's HTML: its JSON needs a nightly compiler.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use clap::Args;
use lucid_e2e::Error;

use crate::command::{ROOT, cargo, metadata, succeed};
use crate::crates::libraries;

/// Builds the pages that the listings are read from.
pub(crate) const DOC: &str =
    "doc --workspace --all-features --no-deps --locked --config build.rustdocflags=['-Dwarnings']";

/// Traits whose implementations are not listed: they are derived, or implemented for every type of their kind.
const COMMON: [&str; 12] = [
    "Clone",
    "Copy",
    "Debug",
    "Default",
    "Eq",
    "Error",
    "ErrorCompat",
    "Hash",
    "Ord",
    "PartialEq",
    "PartialOrd",
    "StructuralPartialEq",
];

#[derive(Args)]
pub(crate) struct Api {
    /// Fails if a listing differs, instead of writing it.
    #[arg(long)]
    check: bool,
}

pub(crate) fn run(api: &Api) -> Result<(), Error> {
    succeed(cargo().args(DOC.split(' ')))?;
    let metadata = metadata()?;
    let target = metadata["target_directory"].as_str().ok_or("cargo metadata has no target directory")?;
    let mut stale = Vec::new();
    for library in libraries(&metadata)? {
        let name = library.name;
        let pages = Path::new(target).join("doc").join(name.replace('-', "_"));
        let (listing, items) = listing(&pages).map_err(|error| format!("failed to list {name}: {error}"))?;
        eprintln!("xtask: {name}: {items} public items");
        let path = format!("docs/api/{name}.txt");
        if fs::read_to_string(Path::new(ROOT).join(&path)).is_ok_and(|found| found == listing) {
            continue;
        }
        if api.check {
            stale.push(path);
        } else {
            fs::create_dir_all(Path::new(ROOT).join("docs/api"))?;
            fs::write(Path::new(ROOT).join(path), listing)?;
        }
    }
    match stale.as_slice() {
        [] => Ok(()),
        stale => {
            Err(format!("{} differ from the code: run cargo xtask api and review", stale.join(", ")).into())
        }
    }
}

/// Public items of the crate with these pages, and their number.
fn listing(pages: &Path) -> Result<(String, usize), Error> {
    let all = fs::read_to_string(pages.join("all.html"))?;
    // Paths of pages, by the path of the item. Pages of former items stay in the folder, but not in this list.
    let links = between_all(&all, "<li><a href=\"", "</a></li>");
    let links: BTreeMap<&str, &str> =
        links.filter_map(|link| link.split_once(".html\">").map(|(page, path)| (path, page))).collect();
    let (mut listing, mut items) = (String::new(), 0);
    for (path, page) in links {
        let html = fs::read_to_string(pages.join(format!("{page}.html")))
            .map_err(|error| format!("{page}: {error}"))?;
        let lines = item(&html).ok_or_else(|| format!("{page} has no declaration"))?;
        items += 1 + lines.iter().filter(|line| line.starts_with("    pub ")).count();
        listing.push_str(&format!("# {path}\n{}\n\n", lines.join("\n")));
    }
    if items == 0 { Err("all.html lists no items".into()) } else { Ok((listing, items)) }
}

/// Declaration of an item, its methods and implemented traits.
fn item(html: &str) -> Option<Vec<String>> {
    let (_, declared) = html.split_once("<pre class=\"rust item-decl\">")?;
    let (declaration, rest) = declared.split_once("</pre>")?;
    let mut lines: Vec<_> = text(declaration).lines().map(|line| line.trim_end().to_owned()).collect();
    lines.retain(|line| !line.is_empty());
    let section =
        |id: &str| rest.split_once(&format!("<div id=\"{id}\">")).map_or("", |(_, section)| section);
    let own = section("implementations-list").split("<h2 ").next().unwrap_or_default();
    for header in between_all(own, "class=\"code-header\">", "</section>") {
        let line = one_line(header);
        lines.push(if line.starts_with("impl") { line } else { format!("    {line}") });
    }
    let traits = section("trait-implementations-list").split("<h2 ").next().unwrap_or_default();
    let headers = between_all(traits, "<h3 class=\"code-header\">", "</h3>").map(one_line);
    let mut implemented: Vec<_> = headers.filter(|header| !is_common(header)).collect();
    implemented.sort();
    lines.extend(implemented);
    Some(lines)
}

/// Returns `true` for a header such as `impl Clone for Review`.
fn is_common(header: &str) -> bool {
    let (implemented, _) = header.split_once(" for ").unwrap_or((header, ""));
    let name = implemented.rsplit(' ').next().unwrap_or_default();
    COMMON.contains(&name.split('<').next().unwrap_or_default())
}

/// Texts between each `start` and the next `end`.
fn between_all<'t>(text: &'t str, start: &'t str, end: &'t str) -> impl Iterator<Item = &'t str> {
    text.split(start).skip(1).filter_map(move |rest| rest.split_once(end).map(|(found, _)| found))
}

fn one_line(html: &str) -> String {
    text(html).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Text of an HTML fragment, without the labels of what is folded.
fn text(html: &str) -> String {
    let mut text = String::new();
    let html = html.replace("<div class=\"where\">", "\n").replace("</div>", "\n");
    for part in html.split("<summary").enumerate().map(|(index, part)| match index {
        0 => part,
        _ => part.split_once("</summary>").map_or(part, |(_, rest)| rest),
    }) {
        for piece in part.split('<').enumerate().map(|(index, piece)| match index {
            0 => piece,
            _ => piece.split_once('>').map_or("", |(_, rest)| rest),
        }) {
            text.push_str(piece);
        }
    }
    let entities =
        [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#39;", "'"), ("&#x27;", "'"), ("&nbsp;", " ")];
    let text = entities.iter().fold(text, |text, (entity, character)| text.replace(entity, character));
    text.replace("&amp;", "&")
}

#[cfg(test)]
mod tests {
    use super::item;

    #[test]
    fn an_item_is_listed_with_its_methods_and_traits() {
        let html = r##"<pre class="rust item-decl"><code>pub struct <a href="#">Page</a> {
    <details><summary class="hideme"><span>Show 1 field</span></summary>pub title: <a>Option</a>&lt;String&gt;,
</details>}</code></pre><div id="implementations-list"><section id="impl-Page" class="impl"><h3 class="code-header">impl Page</h3>
</section><section id="method.new" class="method"><h4 class="code-header">pub fn <a>new</a>&lt;T&gt;() -&gt; Self<div class="where">where
    T: <a>Clone</a>,</div></h4></section></div><h2 id="trait-implementations">Trait</h2><div id="trait-implementations-list">
<h3 class="code-header">impl Clone for Page</h3><h3 class="code-header">impl&lt;'a&gt; From&lt;&amp;'a str&gt; for Page</h3></div><h2 id="blanket">"##;
        assert_eq!(
            item(html).unwrap(),
            [
                "pub struct Page {",
                "    pub title: Option<String>,",
                "}",
                "impl Page",
                "    pub fn new<T>() -> Self where T: Clone,",
                "impl<'a> From<&'a str> for Page"
            ]
        );
    }
}
