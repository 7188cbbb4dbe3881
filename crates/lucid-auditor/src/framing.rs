//! Division of a streamed answer into events.

use std::borrow::Cow;

use memchr::{memchr, memchr2};

use crate::protocol::{DONE, Event, is_identifier};

/// Length from which a list of numbers, such as a vector, is several events: it has no text.
const MAX_NUMBERS: usize = 64 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    /// Server-sent events (WHATWG HTML, section 9.2).
    Events,
    /// Lines, mostly of JSON.
    Lines,
    /// Elements of the first array of a JSON document.
    Elements,
    Text,
}

#[derive(Debug, Default)]
pub(crate) struct Search {
    /// Length of the part of the buffer that contains no end.
    searched: usize,
    json: Nesting,
}

/// State within a JSON document whose elements are events.
#[derive(Debug, Default)]
struct Nesting {
    depth: usize,
    /// Depth within the array.
    array: Option<usize>,
    is_in_string: bool,
    is_escaped: bool,
    /// Length of the event, and whether it ends in a number.
    length: usize,
    is_number: bool,
}

impl Nesting {
    /// Returns `true` if an event ends with this byte.
    fn ends(&mut self, byte: u8) -> bool {
        let is_end = self.is_end(byte);
        self.length = if is_end { 0 } else { self.length + 1 };
        self.is_number = byte.is_ascii_digit() && !self.is_in_string;
        is_end
    }

    fn is_end(&mut self, byte: u8) -> bool {
        if self.is_in_string {
            self.is_in_string = byte != b'"' || self.is_escaped;
            self.is_escaped = byte == b'\\' && !self.is_escaped;
            return false;
        }
        match byte {
            b'"' => self.is_in_string = true,
            b',' => return self.is_number && self.length >= MAX_NUMBERS,
            b'{' | b'[' => {
                self.depth += 1;
                if byte == b'[' && self.array.is_none() {
                    self.array = Some(self.depth);
                    return true;
                }
            }
            b'}' | b']' => {
                self.depth = self.depth.saturating_sub(1);
                // An element ends, or the array.
                return self.array == Some(self.depth) || byte == b']' && self.array == Some(self.depth + 1);
            }
            _ => {}
        }
        false
    }
}

impl Framing {
    /// Returns the length of the first event, if it is complete.
    pub(crate) fn next(self, bytes: &[u8], search: &mut Search) -> Option<usize> {
        let searched = search.searched;
        let found = match self {
            Self::Events => end_of_event(bytes, searched),
            Self::Lines => memchr(b'\n', &bytes[searched..]).map(|end| searched + end + 1),
            Self::Elements => {
                let found = bytes[searched..].iter().position(|&byte| search.json.ends(byte));
                found.map(|end| searched + end + 1)
            }
            // An incomplete character at the end waits for its rest.
            Self::Text => {
                let length = match str::from_utf8(bytes) {
                    Err(error) if error.error_len().is_none() => error.valid_up_to(),
                    _ => bytes.len(),
                };
                (length > 0).then_some(length)
            }
        };
        search.searched = if found.is_some() { 0 } else { bytes.len() };
        found
    }

    /// Returns the content of an event: the joined `data` of a server-sent event.
    pub(crate) fn content(self, raw: &str) -> Cow<'_, str> {
        match self {
            Self::Events => {}
            Self::Elements => return Cow::Borrowed(raw.trim_start_matches(is_between)),
            Self::Lines | Self::Text => return Cow::Borrowed(raw),
        }
        let mut data = lines(raw).filter_map(|line| data_of(line.trim_end_matches(['\r', '\n'])));
        let first = data.next().unwrap_or_default();
        let mut joined = Cow::Borrowed(first);
        for more in data {
            let joined = joined.to_mut();
            joined.push('\n');
            joined.push_str(more);
        }
        joined
    }

    pub(crate) fn replace<'a>(self, raw: &str, content: &'a str) -> Cow<'a, str> {
        match self {
            Self::Events => {}
            Self::Elements => {
                let before = raw.len() - raw.trim_start_matches(is_between).len();
                return format!("{}{content}", &raw[..before]).into();
            }
            Self::Lines | Self::Text => return Cow::Borrowed(content),
        }
        let mut replaced = String::with_capacity(raw.len());
        let mut content = Some(content);
        for line in lines(raw) {
            let end = &line[line.trim_end_matches(['\r', '\n']).len()..];
            match data_of(&line[..line.len() - end.len()]) {
                None => replaced.push_str(line),
                Some(_) => {
                    for data in content.take().into_iter().flat_map(|content| content.split('\n')) {
                        replaced.push_str("data: ");
                        replaced.push_str(data);
                        replaced.push_str(end);
                    }
                }
            }
        }
        Cow::Owned(replaced)
    }

    /// Returns an early end of a stream, of which events were sent or not.
    pub(crate) fn end(self, events: &[Event], has_begun: bool) -> String {
        let framed = events.iter().map(|event| match (self, &event.name) {
            (Self::Events, Some(name)) => format!("event: {name}\ndata: {}\n\n", event.data),
            (Self::Events, None) => format!("data: {}\n\n", event.data),
            // Only server-sent events have this end.
            (Self::Lines | Self::Elements, _) if event.data == DONE => String::new(),
            (Self::Lines, _) => format!("{}\n", event.data),
            (Self::Elements, _) => format!("{}{}]", if has_begun { "," } else { "" }, event.data),
            (Self::Text, _) => String::new(),
        });
        framed.collect()
    }

    /// Returns the fields of a server-sent event that its receivers ignore, and others may read.
    pub(crate) fn ignored(self, raw: &str) -> String {
        match self {
            Self::Events => lines(raw).filter(|line| is_other_field(line)).collect(),
            Self::Lines | Self::Elements | Self::Text => String::new(),
        }
    }
}

/// Returns `true` for what separates the elements of an array.
fn is_between(c: char) -> bool {
    c == ',' || c.is_ascii_whitespace()
}

/// Returns the length up to and including the empty line that ends a server-sent event.
fn end_of_event(bytes: &[u8], searched: usize) -> Option<usize> {
    let end_of_line = |at: usize| match bytes.get(at..)? {
        // The line feed may follow.
        [b'\r'] => None,
        [b'\r', b'\n', ..] => Some(at + 2),
        [b'\r' | b'\n', ..] => Some(at + 1),
        _ => None,
    };
    // The ends of two lines have at most four bytes.
    let mut at = searched.saturating_sub(3);
    if at == 0
        && let Some(end) = end_of_line(0)
    {
        return Some(end);
    }
    loop {
        at += memchr2(b'\r', b'\n', &bytes[at..])?;
        let next = end_of_line(at)?;
        if let Some(end) = end_of_line(next) {
            return Some(end);
        }
        at = next;
    }
}

/// Returns lines with their ends: `\n`, `\r` or `\r\n`.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let end = memchr2(b'\r', b'\n', rest.as_bytes());
        let end = end.map_or(rest.len(), |end| end + if rest[end..].starts_with("\r\n") { 2 } else { 1 });
        let (line, following) = rest.split_at(end);
        rest = following;
        (!line.is_empty()).then_some(line)
    })
}

/// Returns `true` for a field whose value is not `data` and may be text, such as a comment.
fn is_other_field(line: &str) -> bool {
    let line = line.trim_end_matches(['\r', '\n']);
    let is_identifier = line.split_once(':').is_some_and(|(name, value)| {
        matches!(name, "event" | "id" | "retry") && is_identifier(value.trim_start())
    });
    !line.is_empty() && data_of(line).is_none() && !is_identifier
}

fn data_of(line: &str) -> Option<&str> {
    let line = line.trim_start_matches('\u{feff}');
    match line.strip_prefix("data:") {
        Some(data) => Some(data.strip_prefix(' ').unwrap_or(data)),
        None => (line == "data").then_some(""),
    }
}
