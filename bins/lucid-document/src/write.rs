//! Values as new text.

use std::fmt::Write as _;

use crate::{
    layout::Layout,
    node::{Content, Entry, Node, Slot, Style},
    scalar::{Meaning, is_plainly_a_string},
};

/// The items of a collection that are there.
fn there<T>(slots: &[Slot<T>]) -> impl Iterator<Item = &T> {
    slots.iter().filter(|slot| slot.is_there()).map(|slot| &slot.item)
}

impl Layout {
    fn line(&self, column: usize, out: &mut String) {
        out.push_str(self.newline);
        out.extend(std::iter::repeat_n(' ', column));
    }

    /// Block style, from `column` on, without the end of the last line.
    pub(crate) fn block(&self, node: &Node, column: usize, out: &mut String) {
        match &node.content {
            Content::Mapping { entries, .. } if !node.is_empty() => {
                for (index, entry) in there(entries).enumerate() {
                    if index > 0 {
                        self.line(column, out);
                    }
                    self.entry(entry, None, column, out);
                }
            }
            Content::Sequence { items, .. } if !node.is_empty() => {
                for (index, item) in there(items).enumerate() {
                    if index > 0 {
                        self.line(column, out);
                    }
                    out.push_str("- ");
                    self.block(item, column + 2, out);
                }
            }
            _ => self.scalar(node, column, out),
        }
    }

    /// A key, as it is written already or anew, and its value.
    pub(crate) fn entry(&self, entry: &Entry, key: Option<&str>, column: usize, out: &mut String) {
        match key {
            Some(key) => out.push_str(key),
            None => self.key(&entry.key, out),
        }
        out.push(':');
        let value = &entry.value;
        let inner = match &value.content {
            Content::Mapping { .. } if !value.is_empty() => column + self.indent,
            Content::Sequence { .. } if !value.is_empty() => column + self.list_indent,
            _ => {
                out.push(' ');
                return self.scalar(value, column + self.indent, out);
            }
        };
        self.line(inner, out);
        self.block(value, inner, out);
    }

    fn key(&self, key: &Node, out: &mut String) {
        match &key.content {
            Content::Scalar { text, .. } if text.contains('\n') => double_quoted(text, out),
            _ => self.scalar(key, 0, out),
        }
    }

    /// A scalar or an empty collection. Further lines of a text begin at `column`.
    fn scalar(&self, node: &Node, column: usize, out: &mut String) {
        let (text, style) = match &node.content {
            Content::Scalar { text, style } => (text, style),
            Content::Sequence { .. } => return out.push_str("[]"),
            _ => return out.push_str("{}"),
        };
        match node.meaning() {
            Some(Meaning::String(_)) if is_literal(text) && column > 0 => {
                out.push_str(if text.ends_with('\n') { "|" } else { "|-" });
                for line in text.strip_suffix('\n').unwrap_or(text).split('\n') {
                    self.line(if line.is_empty() { 0 } else { column }, out);
                    out.push_str(line);
                }
            }
            // A tag that made a string of it is gone.
            Some(Meaning::String(_))
                if *style != Style::Plain || node.tag.is_some() || text.contains('\n') =>
            {
                string(text, out);
            }
            _ if text.is_empty() => out.push_str("null"),
            _ => out.push_str(text),
        }
    }
}

fn string(text: &str, out: &mut String) {
    if is_plainly_a_string(text) {
        out.push_str(text);
    } else if text.chars().all(is_printable)
        && (text.contains(['"', '\\']) || !text.contains('\''))
        && !text.is_empty()
    {
        let single = text.contains(['"', '\\']);
        if single {
            let _ = write!(out, "'{}'", text.replace('\'', "''"));
        } else {
            let _ = write!(out, "\"{text}\"");
        }
    } else {
        double_quoted(text, out);
    }
}

/// A text of several lines that reads well as it is.
fn is_literal(text: &str) -> bool {
    text.trim_end_matches('\n').contains('\n')
        && !text.ends_with("\n\n")
        && !text.starts_with([' ', '\t', '\n'])
        && text.chars().all(|it| is_printable(it) || matches!(it, '\n' | '\t'))
}

/// `c-printable` of YAML 1.1 without breaks, tabs and what looks like nothing.
fn is_printable(it: char) -> bool {
    !it.is_control() && !matches!(it, '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}')
}

/// A string that is the same in JSON and in YAML.
fn double_quoted(text: &str, out: &mut String) {
    out.push('"');
    for it in text.chars() {
        match it {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            _ if is_printable(it) => out.push(it),
            // All of them are in the basic plane.
            _ => {
                let _ = write!(out, "\\u{:04x}", u32::from(it));
            }
        }
    }
    out.push('"');
}

/// How JSON is laid out, which is also flow style in YAML.
#[derive(Debug, Clone)]
pub(crate) enum Json<'a> {
    /// In one line, with spaces after `:` and `,` or without.
    Line { spaced: bool },
    /// Each item in a line, after `newline` and this `prefix`, by one `indent` more for each level.
    Lines { newline: &'a str, prefix: String, indent: &'a str },
}

impl<'a> Json<'a> {
    fn inner(&self) -> Self {
        match self {
            Self::Line { .. } => self.clone(),
            Self::Lines { newline, prefix, indent } => {
                Self::Lines { newline, prefix: format!("{prefix}{indent}"), indent }
            }
        }
    }

    fn line(&self, out: &mut String) {
        if let Self::Lines { newline, prefix, .. } = self {
            out.push_str(newline);
            out.push_str(prefix);
        }
    }

    /// What stands between two items.
    pub(crate) fn separator(&self, out: &mut String) {
        out.push(',');
        match self {
            Self::Line { spaced: true } => out.push(' '),
            _ => self.line(out),
        }
    }

    pub(crate) fn value(&self, node: &Node, out: &mut String) {
        let inner = self.inner();
        match &node.content {
            Content::Mapping { entries, .. } => {
                out.push('{');
                for (index, entry) in there(entries).enumerate() {
                    if index == 0 {
                        inner.line(out)
                    } else {
                        inner.separator(out)
                    }
                    inner.entry(entry, None, out);
                }
                if !node.is_empty() {
                    self.line(out);
                }
                out.push('}');
            }
            Content::Sequence { items, .. } => {
                out.push('[');
                for (index, item) in there(items).enumerate() {
                    if index == 0 {
                        inner.line(out)
                    } else {
                        inner.separator(out)
                    }
                    inner.value(item, out);
                }
                if !node.is_empty() {
                    self.line(out);
                }
                out.push(']');
            }
            _ => match node.meaning() {
                Some(Meaning::Bool(value)) => out.push_str(if value { "true" } else { "false" }),
                Some(Meaning::Number(number)) => out.push_str(&number),
                Some(Meaning::String(text)) => double_quoted(text, out),
                _ => out.push_str("null"),
            },
        }
    }

    /// A key, as it is written already or anew, and its value.
    pub(crate) fn entry(&self, entry: &Entry, key: Option<&str>, out: &mut String) {
        match (key, entry.key.meaning().and_then(crate::node::name_of)) {
            (Some(key), _) => out.push_str(key),
            (None, name) => double_quoted(&name.unwrap_or_default(), out),
        }
        out.push_str(if matches!(self, Self::Line { spaced: false }) { ":" } else { ": " });
        self.value(&entry.value, out);
    }
}
