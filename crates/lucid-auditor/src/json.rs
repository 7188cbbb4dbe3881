//! Finds the strings of a JSON text and their places.
//!
//! This is not a parser: it accepts lone surrogates, any depth, duplicate members, trailing documents and errors of syntax.
//! The parser of a model may accept what a parser here would reject.

use std::{borrow::Cow, collections::HashMap, iter, ops::Range, sync::OnceLock};

use memchr::{memchr, memchr_iter, memchr2};
use serde::de::IgnoredAny;

/// Depth from which containers have no node of their own. The strings in them belong to the one at this depth.
const MAX_DEPTH: usize = 64;

/// Number of characters of a name that matter.
pub(crate) const MAX_NAME: usize = 64;

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
    /// It has words outside of strings.
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
    /// Range of the value in the text; of a string, what is between its quotes.
    pub(crate) range: Range<usize>,
}

/// Way from a container to a value in it.
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

/// A container that is open.
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
            nodes: vec![root],
            names: Vec::new(),
            is_json: false,
            is_bare: false,
            index: OnceLock::new(),
        };
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
                // RFC 8259 knows no form feed.
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

    /// Returns `true` if a text begins like JSON.
    pub(crate) fn is_like(text: &str) -> bool {
        text.trim_start_matches(SEPARATORS).trim_start().starts_with(['{', '[', '"'])
    }

    /// Returns the outermost containers that are members of these names, in order.
    pub(crate) fn outermost(&self, names: &[&str]) -> Vec<Range<usize>> {
        let mut outermost: Vec<Range<usize>> = Vec::new();
        for node in self.nodes.iter().filter(|node| node.kind == Kind::Container) {
            let is_named = node.step.name().is_some_and(|name| names.contains(&name));
            if is_named && outermost.last().is_none_or(|last| last.end <= node.range.start) {
                outermost.push(node.range.clone());
            }
        }
        outermost
    }

    /// Returns `true` for a string, and for an integer that is long.
    pub(crate) fn is_text(&self, node: usize) -> bool {
        let Node { kind, range, .. } = &self.nodes[node];
        match kind {
            Kind::String => true,
            Kind::Scalar => is_long_integer(&self.text[range.clone()]),
            Kind::Container => false,
        }
    }

    /// Returns a node and those that it is in, up to the root.
    pub(crate) fn ancestors(&self, node: usize) -> impl Iterator<Item = usize> {
        iter::successors(Some(node), |&node| (node > 0).then(|| self.nodes[node].parent))
    }

    /// Returns the node of this depth that a node is in.
    pub(crate) fn ancestor(&self, node: usize, depth: usize) -> usize {
        self.ancestors(node).find(|&node| self.nodes[node].depth <= depth).unwrap_or_default()
    }

    /// Returns the last name on the way to a node.
    pub(crate) fn name(&self, node: usize) -> &str {
        self.ancestors(node).find_map(|node| self.nodes[node].step.name()).unwrap_or_default()
    }

    /// Returns a JSON Pointer (RFC 6901) to a node. Long names are shortened.
    pub(crate) fn pointer(&self, node: usize) -> String {
        let mut path: Vec<_> = self.ancestors(node).filter(|&node| node > 0).collect();
        path.reverse();
        let steps = path.into_iter().map(|node| match &self.nodes[node].step {
            Step::Name(name) => {
                let name: String = name.chars().take(MAX_NAME).collect();
                format!("/{}", name.replace('~', "~0").replace('/', "~1"))
            }
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

    /// Returns a member as a value.
    pub(crate) fn member_json(&self, container: usize, name: &str) -> Option<serde_json::Value> {
        self.member(container, name).map(|node| self.json(node))
    }

    /// Returns the text as it is.
    pub(crate) fn raw(&self, node: usize) -> &'a str {
        &self.text[self.nodes[node].range.clone()]
    }

    /// Returns the text of a string or scalar.
    pub(crate) fn value(&self, node: usize) -> Cow<'a, str> {
        match self.nodes[node].kind {
            Kind::String => decode(self.raw(node)).text,
            Kind::Container | Kind::Scalar => Cow::Borrowed(self.raw(node)),
        }
    }

    /// Returns a node as a value.
    pub(crate) fn json(&self, node: usize) -> serde_json::Value {
        match self.nodes[node].kind {
            Kind::String => self.value(node).into(),
            Kind::Container | Kind::Scalar => serde_json::from_str(self.raw(node)).unwrap_or_default(),
        }
    }
}

/// The grammar of JSON (RFC 8259), apart from depth, duplicate members and lone surrogates.
#[derive(Debug, Default)]
struct Syntax {
    /// Open brackets.
    open: Vec<u8>,
    next: Next,
    is_wrong: bool,
    is_bare: bool,
}

/// Tokens that may come next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Next {
    #[default]
    Value,
    ValueOrEnd,
    NameOrEnd,
    Name,
    Colon,
    CommaOrEnd,
}

impl Syntax {
    fn mark(&mut self, byte: u8) {
        let is_in_object = self.open.last() == Some(&b'{');
        self.next = match (byte, self.next) {
            (b'{' | b'[', Next::Value | Next::ValueOrEnd) => {
                self.open.push(byte);
                if byte == b'{' { Next::NameOrEnd } else { Next::ValueOrEnd }
            }
            (b'}', Next::NameOrEnd) | (b']', Next::ValueOrEnd) => self.close(),
            (b'}', Next::CommaOrEnd) if is_in_object => self.close(),
            (b']', Next::CommaOrEnd) if !is_in_object && !self.open.is_empty() => self.close(),
            (b',', Next::CommaOrEnd) if !self.open.is_empty() => {
                if is_in_object {
                    Next::Name
                } else {
                    Next::Value
                }
            }
            (b':', Next::Colon) => Next::Value,
            (_, next) => {
                self.is_wrong = true;
                next
            }
        };
    }

    fn close(&mut self) -> Next {
        self.open.pop();
        Next::CommaOrEnd
    }

    fn string(&mut self, text: &str, content: &Range<usize>) {
        let raw = &text[content.clone()];
        self.is_wrong |= content.end >= text.len()
            || raw.bytes().any(|byte| byte < 0x20)
            || !(memchr(b'\\', raw.as_bytes()).is_none() || are_valid_escapes(raw));
        self.next = match self.next {
            Next::Value | Next::ValueOrEnd => Next::CommaOrEnd,
            Next::Name | Next::NameOrEnd => Next::Colon,
            next => {
                self.is_wrong = true;
                next
            }
        };
    }

    fn scalar(&mut self, scalar: &str) {
        let is_expected = matches!(self.next, Next::Value | Next::ValueOrEnd);
        let is_bare = serde_json::from_str::<IgnoredAny>(scalar).is_err();
        self.is_bare |= is_bare;
        self.is_wrong |= !is_expected || is_bare;
        self.next = Next::CommaOrEnd;
    }

    fn is_complete(&self) -> bool {
        !self.is_wrong && self.open.is_empty() && self.next == Next::CommaOrEnd
    }
}

fn are_valid_escapes(text: &str) -> bool {
    let mut after = 0;
    memchr_iter(b'\\', text.as_bytes()).all(|at| {
        // The second backslash of a pair begins no escape.
        if at < after {
            return true;
        }
        after = at + 2;
        match text.as_bytes().get(at + 1) {
            Some(b'u') => {
                let digits = text.as_bytes().get(at + 2..at + 6);
                digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
            }
            Some(byte) => b"\"\\/bfnrt".contains(byte),
            None => false,
        }
    })
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

/// A text without escapes, with the way back to the escaped one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Decoded<'a> {
    pub(crate) text: Cow<'a, str>,
    pub(crate) offsets: Offsets,
    /// Length of the escaped text that is decoded. The rest is the beginning of an escape.
    pub(crate) complete: usize,
}

/// Offsets after each escape: in the decoded text, and in the escaped one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Offsets(Vec<(usize, usize)>);

impl Offsets {
    /// Returns the offset in the escaped text.
    pub(crate) fn escaped(&self, decoded: usize) -> usize {
        let after = self.0.partition_point(|(offset, _)| *offset <= decoded);
        match after.checked_sub(1).and_then(|last| self.0.get(last)) {
            Some((offset, escaped)) => escaped + (decoded - offset),
            None => decoded,
        }
    }
}

/// Decodes the escapes of JSON strings (RFC 8259 section 7). Unpaired surrogates and other invalid escapes become U+FFFD.
pub(crate) fn decode(text: &str) -> Decoded<'_> {
    let mut decoded = String::new();
    let mut offsets = Vec::new();
    let mut at = 0;
    while let Some(found) = memchr(b'\\', &text.as_bytes()[at..]) {
        decoded.push_str(&text[at..at + found]);
        at += found;
        let Some((character, length)) = escape(&text[at..]) else { break };
        decoded.push(character);
        at += length;
        offsets.push((decoded.len(), at));
    }
    if offsets.is_empty() {
        // A backslash that was found begins an incomplete escape.
        let complete = memchr(b'\\', text.as_bytes()).unwrap_or(text.len());
        let offsets = Offsets::default();
        return Decoded { text: Cow::Borrowed(&text[..complete]), offsets, complete };
    }
    let rest = memchr(b'\\', &text.as_bytes()[at..]).unwrap_or(text.len() - at);
    decoded.push_str(&text[at..at + rest]);
    Decoded { text: Cow::Owned(decoded), offsets: Offsets(offsets), complete: at + rest }
}

/// Decodes the escape at the beginning of `text`. Returns the character and the length of the escape, or nothing if it is
/// incomplete.
fn escape(text: &str) -> Option<(char, usize)> {
    let kind = text[1..].chars().next()?;
    let simple = match kind {
        'b' => '\u{8}',
        'f' => '\u{c}',
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'u' => return unicode_escape(text),
        other => other,
    };
    Some((simple, 1 + kind.len_utf8()))
}

fn unicode_escape(text: &str) -> Option<(char, usize)> {
    const LENGTH: usize = 6;
    let unit = |text: &str| {
        let digits = text.get(2..LENGTH)?;
        // The standard library accepts a sign.
        digits.bytes().all(|digit| digit.is_ascii_hexdigit()).then_some(())?;
        u16::from_str_radix(digits, 16).ok()
    };
    let is_possible = |text: &str| text.chars().skip(2).take(4).all(|digit| digit.is_ascii_hexdigit());
    let Some(first) = unit(text) else {
        // With fewer than four digits at the end of the text, the rest may follow.
        return (!is_possible(text)).then_some((char::REPLACEMENT_CHARACTER, 2));
    };
    if !matches!(first, 0xD800..0xDC00) {
        return Some((char::from_u32(first.into()).unwrap_or(char::REPLACEMENT_CHARACTER), LENGTH));
    }
    let rest = &text[LENGTH..];
    if rest.len() < LENGTH && (r"\u".starts_with(rest) || rest.starts_with(r"\u") && is_possible(rest)) {
        return None;
    }
    let second = rest.starts_with(r"\u").then(|| unit(rest)).flatten();
    match second.and_then(|second| char::decode_utf16([first, second]).next()?.ok()) {
        Some(character) => Some((character, 2 * LENGTH)),
        None => Some((char::REPLACEMENT_CHARACTER, LENGTH)),
    }
}

/// Encodes a text for a JSON string, without quotes.
pub(crate) fn encode(text: &str) -> String {
    let quoted = serde_json::Value::from(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
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
    fn escapes_are_decoded_wherever_a_text_ends() {
        let escaped = r#"\"\\\/\b\f\n\r\t\u0041\u00E9\u20ac\ud83d\ude00\ud800!\ude00\u00é\u+041"#;
        let whole = "\"\\/\u{8}\u{c}\n\r\tA\u{e9}\u{20ac}\u{1f600}\u{fffd}!\u{fffd}\u{fffd}00é\u{fffd}+041";
        assert_eq!(decode(escaped).text, whole);
        for cut in (0..=escaped.len()).filter(|cut| escaped.is_char_boundary(*cut)) {
            let start = decode(&escaped[..cut]);
            let rest = decode(&escaped[start.complete..]);
            assert_eq!(format!("{}{}", start.text, rest.text), whole, "{cut}");
        }
    }

    #[test]
    fn offsets_lead_back_to_the_escaped_text() {
        let escaped = r"a\u0069gnore\n\ud83d\ude00 b";
        let decoded = decode(escaped);
        for (part, original) in
            [("i", r"\u0069"), ("gnore", "gnore"), ("\u{1f600}", r"\ud83d\ude00"), (" b", " b")]
        {
            let at = decoded.text.find(part).unwrap();
            let range = decoded.offsets.escaped(at)..decoded.offsets.escaped(at + part.len());
            assert_eq!(&escaped[range], original);
        }
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
    fn what_is_json_is_what_serde_json_accepts() {
        let texts = [
            "",
            " ",
            "1",
            "-",
            "01",
            "1.",
            "-0.5e+3",
            "nul",
            "null",
            "\"a\"",
            "\"a",
            "\"\\u00e9\"",
            "\"\\u00g0\"",
            "\"\\x\"",
            "\"\\\\\"",
            "\"\\\"",
            "\"a\nb\"",
            "{}",
            "{",
            "}",
            "[]",
            "[",
            "[}",
            "{]",
            "[1,2]",
            "[1,]",
            "[,1]",
            "[1 2]",
            "{\"a\":1}",
            "{\"a\":1,}",
            "{\"a\"}",
            "{\"a\":}",
            "{\"a\" 1}",
            "{1:2}",
            "{\"a\":1 \"b\":2}",
            "{\"a\":1,\"b\":[{},[]]}",
            "{} {}",
            "{},",
            "1 2",
            "[\"a\":1]",
            "{\"a\":\"b\":1}",
            "\u{c}1",
            ":1",
            "{\"\\ud800\":\"\\ud800\"}",
            "[1]]",
            "[[1]",
            "tru e",
            "1\"a\"",
            "\"a\"1",
        ];
        for text in texts {
            assert_eq!(
                Document::scan(text).is_json,
                serde_json::from_str::<IgnoredAny>(text).is_ok(),
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
