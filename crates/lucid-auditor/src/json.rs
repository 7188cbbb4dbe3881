//! Finds the strings of a JSON text and their places.
//!
//! This is not a parser: it accepts lone surrogates, any depth, duplicate members, trailing documents and errors of syntax.
//! The parser of a model may accept what a parser here would reject.

mod escapes;
mod syntax;

use std::{borrow::Cow, collections::HashMap, iter, ops::Range, sync::OnceLock};

use memchr::memchr2;

pub(crate) use self::escapes::{Offsets, decode, encode};
use self::syntax::Syntax;

/// Depth from which containers do not have their own node. Their strings belong to the container at this depth.
const MAX_DEPTH: usize = 64;

/// Length up to which names matter: long ones may have many descendants, each of which reads them.
pub(crate) const MAX_NAME: usize = 64;

/// Returns the part of a name that matters.
pub(crate) fn shortened(name: &str) -> &str {
    &name[..name.floor_char_boundary(MAX_NAME)]
}

/// Maximum length of a member by which another one is understood, such as a role.
pub(crate) const MAX_VALUE: usize = 256;

/// Number of nodes up to which members are searched without an index.
const FEW: usize = 64;

/// Characters before a document: a byte order mark, and the separator of JSON text sequences (RFC 7464).
const SEPARATORS: [char; 2] = ['\u{feff}', '\u{1e}'];

/// A scanned text. Its first node is the root; every other node follows its parent.
#[derive(Debug)]
pub(crate) struct Document<'a> {
    pub(crate) text: &'a str,
    pub(crate) nodes: Vec<Node<'a>>,
    /// Names of members, as ranges of the text without quotes.
    pub(crate) names: Vec<Range<usize>>,
    /// The text is one JSON value, apart from duplicate members and lone surrogates.
    pub(crate) is_json: bool,
    /// The text has words outside of strings.
    pub(crate) is_bare: bool,
    index: OnceLock<HashMap<(usize, String), usize>>,
}

#[derive(Debug)]
pub(crate) struct Node<'a> {
    pub(crate) parent: usize,
    /// Number of steps from the root.
    pub(crate) depth: usize,
    pub(crate) step: Step<'a>,
    pub(crate) kind: Kind,
    /// Range of the value in the text, without the quotes of a string.
    pub(crate) range: Range<usize>,
}

/// Step from a container to one of its values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step<'a> {
    Name(Cow<'a, str>),
    Index(u32),
}

impl Step<'_> {
    pub(crate) fn name(&self) -> Option<&str> {
        match self {
            Self::Name(name) => Some(name),
            Self::Index(_) => None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Container,
    String,
    /// A number, `true`, `false` or `null` that is the value of a member. Of those in arrays, only long integers have nodes.
    Scalar,
}

/// Number of digits from which an integer may be the number of a card or account, and is judged.
const LONG_INTEGER: usize = 13;

fn is_long_integer(scalar: &str) -> bool {
    let digits = scalar.strip_prefix('-').unwrap_or(scalar);
    let digits = digits.split('.').next().unwrap_or_default();
    digits.len() >= LONG_INTEGER && digits.bytes().all(|byte| byte.is_ascii_digit())
}

struct Open<'a> {
    node: usize,
    next: u32,
    name: Option<Cow<'a, str>>,
}

impl<'a> Document<'a> {
    pub(crate) fn scan(text: &'a str) -> Self {
        let bytes = text.as_bytes();
        let root =
            Node { parent: 0, depth: 0, step: Step::Index(0), kind: Kind::Container, range: 0..text.len() };
        let mut document = Self {
            text,
            nodes: Vec::with_capacity(FEW / 4),
            names: Vec::new(),
            is_json: false,
            is_bare: false,
            index: OnceLock::new(),
        };
        document.nodes.push(root);
        let mut syntax = Syntax::default();
        let mut open: Vec<Open<'a>> = vec![Open { node: 0, next: 0, name: None }];
        // Number of open containers without a node.
        let mut deeper = 0_usize;
        let mut at = text.len() - text.trim_start_matches(SEPARATORS).len();
        while let Some(&byte) = bytes.get(at) {
            match byte {
                b'"' => {
                    let content = at + 1..end_of_string(bytes, at + 1);
                    at = content.end + 1;
                    syntax.string(text, &content);
                    if next_token(bytes, at) == Some(b':') {
                        let name = decode(&text[content.clone()]).text;
                        document.names.push(content);
                        if let Some(open) = open.last_mut().filter(|_| deeper == 0) {
                            open.name = Some(name);
                        }
                    } else {
                        document.add(&mut open, Kind::String, content);
                    }
                    continue;
                }
                b'{' | b'[' if open.len() > MAX_DEPTH => {
                    syntax.mark(byte);
                    deeper += 1;
                }
                b'{' | b'[' => {
                    syntax.mark(byte);
                    // The first container of the text is the root.
                    let node = match document.nodes.len() {
                        1 if open.len() == 1 && open.iter().all(|open| open.next == 0) => {
                            open[0].next = 1;
                            0
                        }
                        _ => document.add(&mut open, Kind::Container, at..text.len()),
                    };
                    open.push(Open { node, next: 0, name: None });
                }
                b'}' | b']' if deeper > 0 => {
                    syntax.mark(byte);
                    deeper -= 1;
                }
                b'}' | b']' => {
                    syntax.mark(byte);
                    if open.len() > 1
                        && let Some(closed) = open.pop()
                        && closed.node > 0
                    {
                        document.nodes[closed.node].range.end = at + 1;
                    }
                }
                b',' | b':' => syntax.mark(byte),
                // RFC 8259 does not allow a form feed.
                _ if byte.is_ascii_whitespace() => syntax.is_wrong |= byte == b'\x0c',
                _ => {
                    let is_end = |byte: &u8| {
                        matches!(byte, b',' | b'}' | b']' | b'"' | b'{' | b'[' | b':')
                            || byte.is_ascii_whitespace()
                    };
                    let length = bytes[at..].iter().position(is_end).unwrap_or(bytes.len() - at);
                    let scalar = at..at + length;
                    at = scalar.end;
                    syntax.scalar(&text[scalar.clone()]);
                    let is_named = open.last().is_some_and(|open| open.name.is_some());
                    match is_named || is_long_integer(&text[scalar.clone()]) {
                        true => drop(document.add(&mut open, Kind::Scalar, scalar)),
                        false => open.last_mut().into_iter().for_each(|open| open.next += 1),
                    }
                    continue;
                }
            }
            at += 1;
        }
        document.is_json = syntax.is_complete();
        document.is_bare = syntax.is_bare;
        document
    }

    fn add(&mut self, open: &mut [Open<'a>], kind: Kind, range: Range<usize>) -> usize {
        let (parent, step) = match open.last_mut() {
            Some(open) => {
                let index = open.next;
                open.next += 1;
                (open.node, open.name.take().map_or(Step::Index(index), Step::Name))
            }
            None => (0, Step::Index(0)),
        };
        self.nodes.push(Node { parent, depth: self.nodes[parent].depth + 1, step, kind, range });
        self.nodes.len() - 1
    }

    pub(crate) fn is_like(text: &str) -> bool {
        text.trim_start_matches(SEPARATORS).trim_start().starts_with(['{', '[', '"'])
    }

    /// Returns the outermost containers for which `is` holds, in order.
    pub(crate) fn outermost(&self, is: impl Fn(usize) -> bool) -> Vec<Range<usize>> {
        let mut outermost: Vec<Range<usize>> = Vec::new();
        for (index, node) in self.nodes.iter().enumerate() {
            let is_inside = outermost.last().is_some_and(|last| node.range.start < last.end);
            if node.kind != Kind::String && !is_inside && is(index) {
                outermost.push(node.range.clone());
            }
        }
        outermost
    }

    /// Returns the strings, and the integers that are long.
    pub(crate) fn strings(&self) -> impl Iterator<Item = usize> {
        (0..self.nodes.len()).filter(|&node| match self.nodes[node].kind {
            Kind::String => true,
            Kind::Scalar => is_long_integer(self.raw(node)),
            Kind::Container => false,
        })
    }

    /// Returns a node and those that it is in, up to the root.
    pub(crate) fn ancestors(&self, node: usize) -> impl Iterator<Item = usize> {
        iter::successors(Some(node), |&node| (node > 0).then(|| self.nodes[node].parent))
    }

    /// Returns the node of this depth that a node is in.
    pub(crate) fn ancestor(&self, node: usize, depth: usize) -> usize {
        self.ancestors(node).find(|&node| self.nodes[node].depth <= depth).unwrap_or_default()
    }

    /// Returns `true` if a member with this name, at any depth of a container, is a string that is not empty.
    pub(crate) fn has_within(&self, container: usize, name: &str) -> bool {
        let depth = self.nodes[container].depth;
        let within = self.nodes[container + 1..].iter().take_while(|node| node.depth > depth);
        let mut named = within.filter(|node| node.kind == Kind::String && node.step.name() == Some(name));
        named.any(|node| !node.range.is_empty())
    }

    /// Returns the last name on the way to a node.
    pub(crate) fn name(&self, node: usize) -> &str {
        self.ancestors(node).find_map(|node| self.nodes[node].step.name()).unwrap_or_default()
    }

    pub(crate) fn pointer(&self, node: usize) -> String {
        let mut path: Vec<_> = self.ancestors(node).filter(|&node| node > 0).collect();
        path.reverse();
        let steps = path.into_iter().map(|node| match &self.nodes[node].step {
            Step::Name(name) => format!("/{}", shortened(name).replace('~', "~0").replace('/', "~1")),
            Step::Index(index) => format!("/{index}"),
        });
        steps.collect()
    }

    /// Returns the last member with this name of a container.
    pub(crate) fn member(&self, container: usize, name: &str) -> Option<usize> {
        let members = || (1..self.nodes.len()).filter_map(|node| Some((node, self.nodes[node].step.name()?)));
        if self.nodes.len() <= FEW {
            let mut members = members().rev();
            return members
                .find(|(node, it)| self.nodes[*node].parent == container && *it == name)
                .map(|it| it.0);
        }
        let index = self.index.get_or_init(|| {
            let short = members().filter(|(_, name)| name.len() <= MAX_NAME);
            short.map(|(node, name)| ((self.nodes[node].parent, name.to_owned()), node)).collect()
        });
        index.get(&(container, name.to_owned())).copied()
    }

    /// Returns the value of a member, if it is short: a long one is decoded for each text that depends on it.
    pub(crate) fn member_value(&self, container: usize, name: &str) -> Option<Cow<'a, str>> {
        let member = self.member(container, name).filter(|&node| self.raw(node).len() <= MAX_VALUE);
        member.map(|node| self.value(node))
    }

    pub(crate) fn member_json(&self, container: usize, name: &str) -> Option<serde_json::Value> {
        self.member(container, name).map(|node| self.json(node))
    }

    pub(crate) fn raw(&self, node: usize) -> &'a str {
        &self.text[self.nodes[node].range.clone()]
    }

    pub(crate) fn value(&self, node: usize) -> Cow<'a, str> {
        match self.nodes[node].kind {
            Kind::String => decode(self.raw(node)).text,
            Kind::Container | Kind::Scalar => Cow::Borrowed(self.raw(node)),
        }
    }

    pub(crate) fn json(&self, node: usize) -> serde_json::Value {
        match self.nodes[node].kind {
            Kind::String => self.value(node).into(),
            Kind::Container | Kind::Scalar => serde_json::from_str(self.raw(node)).unwrap_or_default(),
        }
    }
}

/// Returns the position of the quote that ends the string, or the end of the text.
fn end_of_string(bytes: &[u8], mut at: usize) -> usize {
    loop {
        match memchr2(b'"', b'\\', &bytes[at.min(bytes.len())..]) {
            Some(found) if bytes[at + found] == b'"' => return at + found,
            Some(found) => at += found + 2,
            None => return bytes.len(),
        }
    }
}

fn next_token(bytes: &[u8], at: usize) -> Option<u8> {
    bytes.get(at..)?.iter().copied().find(|byte| !byte.is_ascii_whitespace())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strings(text: &str) -> Vec<(String, String)> {
        let document = Document::scan(text);
        let strings = (0..document.nodes.len()).filter(|&node| document.nodes[node].kind == Kind::String);
        strings.map(|node| (document.pointer(node), document.value(node).into_owned())).collect()
    }

    #[test]
    fn strings_are_found_with_their_places() {
        for (text, expected) in [
            (
                r#"{"a":"x","b":{"c/d":["y",1,{"e":"z"}]}}"#,
                &[("/a", "x"), ("/b/c~1d/0", "y"), ("/b/c~1d/2/e", "z")][..],
            ),
            (r#"["x",[["y"]],-1.5e3,"z"]"#, &[("/0", "x"), ("/1/0/0", "y"), ("/3", "z")]),
            (r#"{"\u0061":"\u0069gnore"}"#, &[("/a", "ignore")]),
            (r#" "only" "#, &[("/0", "only")]),
            // Duplicate members, other documents and errors of syntax hide nothing.
            (r#"{"a":"x","a":"y"} {"b":"z"}"#, &[("/a", "x"), ("/a", "y"), ("/1/b", "z")]),
            (r#"{"a":"x""#, &[("/a", "x")]),
            (r#"}]{"a":NaN,"b":"x"#, &[("/b", "x")]),
            ("a\u{c}b \u{b}\u{0} {\"a\":\"x\"}", &[("/3/a", "x")]),
        ] {
            let found = strings(text);
            let found: Vec<_> = found.iter().map(|(place, text)| (place.as_str(), text.as_str())).collect();
            assert_eq!(found, expected, "{text}");
        }
    }

    #[test]
    fn any_depth_is_scanned() {
        let depth = 100_000;
        let text = format!("{}\"x\"{},\"y\"]", "[".repeat(depth), "]".repeat(depth - 1));
        let found = strings(&text);
        assert_eq!(found.iter().map(|(_, text)| text.as_str()).collect::<Vec<_>>(), ["x", "y"]);
        assert_eq!(found[1].0, "/1");
        assert!(Document::scan(&text).is_json);
    }

    #[test]
    fn json_is_recognized_as_by_serde_json() {
        let texts = r#"
            1 | - | 01 | 1. | -0.5e+3 | nul | null | "a" | "a | "\u00e9" | "\u00g0" | "\x" | "\\" | "\" | "a\nb" | "\ud800"
            {} | { | } | [] | [ | [} | {] | [1,2] | [1,] | [,1] | [1 2] | [1]] | [[1] | ["a":1] | {"a":1} | {"a":1,}
            {"a"} | {"a":} | {"a" 1} | {1:2} | {"a":1 "b":2} | {"a":1,"b":[{},[]]} | {"a":"b":1} | {"\ud800":"\ud800"}
            {} {} | {}, | 1 2 | :1 | tru e | 1"a" | "a"1"#;
        let texts = texts.split(['|', '\n']).map(str::trim);
        for text in texts.chain(["\"a\nb\"", "\u{c}1"]) {
            assert_eq!(
                Document::scan(text).is_json,
                serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok(),
                "{text}"
            );
        }
    }

    #[test]
    fn members_are_found_in_small_and_large_documents() {
        for count in [1, 1000] {
            let others: String = (0..count).map(|n| format!("\"m{n}\":{{\"role\":\"x\"}},")).collect();
            let text = format!("{{{others}\"role\":\"a\",\"role\":\"user\"}}");
            let document = Document::scan(&text);
            assert_eq!(document.member_value(0, "role").as_deref(), Some("user"));
            assert_eq!(document.member(0, "none"), None);
            let first = document.member(0, "m0").unwrap();
            assert_eq!(document.member_value(first, "role").as_deref(), Some("x"));
        }
    }
}
