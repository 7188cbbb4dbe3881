//! From a changed tree to changed text.

use std::ops::Range;

use crate::{
    edit::Unsupported,
    layout::Layout,
    node::{Content, Entry, Node, Slot, State, Style},
    write::Json,
};

/// The text with what was removed from the tree cut out and what was added put in; everything else stays, byte for byte.
pub(crate) fn splice(text: &str, root: &Node, layout: &Layout, is_json: bool) -> Result<String, Unsupported> {
    let spaced = !is_json || text.contains("\": ");
    let mut splicer = Splicer { text, layout, spaced, edits: Vec::new() };
    splicer.node(root, 0)?;
    let mut edits = splicer.edits;
    edits.sort_by_key(|(range, _)| range.start);
    let mut spliced =
        String::with_capacity(text.len() + edits.iter().map(|(_, new)| new.len()).sum::<usize>());
    let mut at = 0;
    for (range, new) in edits {
        spliced.push_str(text.get(at..range.start).ok_or(Unsupported)?);
        spliced.push_str(&new);
        at = range.end;
    }
    spliced.push_str(text.get(at..).ok_or(Unsupported)?);
    Ok(spliced)
}

struct Splicer<'t> {
    text: &'t str,
    layout: &'t Layout,
    spaced: bool,
    edits: Vec<(Range<usize>, String)>,
}

/// An item with its place in the text.
struct Placed<'n, T> {
    slot: &'n Slot<T>,
    /// Of its dash, key or first character to its end; of an added one it says nothing.
    range: Range<usize>,
}

impl<'t> Splicer<'t> {
    /// `from` is where what stands before it ends: its key with the colon, or its dash.
    fn node(&mut self, node: &Node, from: usize) -> Result<(), Unsupported> {
        match &node.content {
            Content::Sequence { flow: false, items } => self.block_sequence(items, from),
            Content::Mapping { flow: false, entries } => self.block_mapping(entries),
            Content::Sequence { flow: true, items } => {
                let placed =
                    items.iter().map(|slot| Ok(Placed { slot, range: self.range(&slot.item, slot.state)? }));
                let placed = placed.collect::<Result<Vec<_>, Unsupported>>()?;
                for slot in items.iter().filter(|slot| slot.state == State::Kept) {
                    self.node(&slot.item, from)?;
                }
                self.flow(&placed, |item, json, out| json.value(item, out))
            }
            Content::Mapping { flow: true, entries } => {
                let placed = entries.iter().map(|slot| {
                    let key = self.range(&slot.item.key, slot.state)?;
                    let value = self.range(&slot.item.value, slot.state)?;
                    // The end of a value that is not written is that of its key.
                    let end = if value.is_empty() {
                        self.after_colon(key.end).unwrap_or(key.end)
                    } else {
                        value.end
                    };
                    Ok(Placed { slot, range: key.start..end })
                });
                let placed = placed.collect::<Result<Vec<_>, Unsupported>>()?;
                for slot in entries.iter().filter(|slot| slot.state == State::Kept) {
                    self.node(&slot.item.value, from)?;
                }
                let text = self.text;
                self.flow(&placed, |entry, json, out| json.entry(entry, key_text(text, entry), out))
            }
            Content::Scalar { .. } | Content::Alias(_) => Ok(()),
        }
    }

    fn range(&self, node: &Node, state: State) -> Result<Range<usize>, Unsupported> {
        if state == State::Added {
            return Ok(0..0);
        }
        node.span.clone().ok_or(Unsupported)
    }

    fn block_sequence(&mut self, items: &[Slot<Node>], from: usize) -> Result<(), Unsupported> {
        let mut placed = Vec::new();
        let mut at = from;
        for slot in items {
            let range = if slot.state == State::Added {
                0..0
            } else {
                let start = slot.item.span.as_ref().ok_or(Unsupported)?.start;
                let dash = self.dash(at, start).ok_or(Unsupported)?;
                at = self.end(&slot.item).ok_or(Unsupported)?;
                if slot.state == State::Kept {
                    self.node(&slot.item, dash + 1)?;
                }
                dash..at
            };
            placed.push(Placed { slot, range });
        }
        let layout = self.layout;
        self.block(&placed, from, |item, column, out| {
            out.push_str("- ");
            layout.block(item, column + 2, out);
        })
    }

    fn block_mapping(&mut self, entries: &[Slot<Entry>]) -> Result<(), Unsupported> {
        let mut placed = Vec::new();
        for slot in entries {
            let range = if slot.state == State::Added {
                0..0
            } else {
                let key = slot.item.key.span.clone().ok_or(Unsupported)?;
                let colon = self.after_colon(key.end).ok_or(Unsupported)?;
                if slot.state == State::Kept {
                    self.node(&slot.item.value, colon)?;
                }
                key.start..self.end(&slot.item.value).ok_or(Unsupported)?.max(colon)
            };
            placed.push(Placed { slot, range });
        }
        let (layout, text) = (self.layout, self.text);
        self.block(&placed, 0, |entry, column, out| layout.entry(entry, key_text(text, entry), column, out))
    }

    /// The items of a block collection, each of which has its lines. `from` bounds what is before the first.
    fn block<T>(
        &mut self,
        placed: &[Placed<'_, T>],
        from: usize,
        write: impl Fn(&T, usize, &mut String),
    ) -> Result<(), Unsupported> {
        if placed.iter().all(|it| it.slot.state == State::Kept) {
            return Ok(());
        }
        let original = |it: &&Placed<'_, T>| it.slot.state != State::Added;
        let first = placed.iter().find(original).ok_or(Unsupported)?.range.start;
        let column = self.text[self.line_start(first)..first].chars().count();
        let indent = " ".repeat(column);
        let mut before = None;
        let mut index = 0;
        while let Some(Placed { slot, range }) = placed.get(index) {
            index += 1;
            match (slot.state, placed.get(index)) {
                (State::Kept, _) => before = Some(range.end),
                (State::Removed, Some(next)) if next.slot.state == State::Added => {
                    let mut new = String::new();
                    write(&next.slot.item, column, &mut new);
                    self.edits.push((range.start..self.line_end(range.end), new));
                    before = Some(range.end);
                    index += 1;
                }
                (State::Removed, next) => {
                    let start = self.line_start(range.start);
                    let cut = if self.text[start..range.start].trim_matches(' ').is_empty() {
                        start..self.line_after(range.end)
                    } else {
                        // In one line with the dash of an item of which it is the first key.
                        let next = next.filter(|next| next.slot.state == State::Kept).ok_or(Unsupported)?;
                        range.start..next.range.start
                    };
                    self.edits.push((cut, String::new()));
                    before = Some(range.end);
                }
                (State::Added, _) => {
                    let at = match before {
                        Some(end) => self.line_after(end),
                        None => self.above(first, from).ok_or(Unsupported)?,
                    };
                    let mut new = indent.clone();
                    write(&slot.item, column, &mut new);
                    let ends = self.text[..at].ends_with('\n') || at == 0;
                    let newline = self.layout.newline;
                    self.edits.push((at..at, if ends { new + newline } else { format!("{newline}{new}") }));
                }
            }
        }
        Ok(())
    }

    /// The items of a flow collection, with commas in between.
    fn flow<T>(
        &mut self,
        placed: &[Placed<'_, T>],
        write: impl Fn(&T, &Json<'_>, &mut String),
    ) -> Result<(), Unsupported> {
        if placed.iter().all(|it| it.slot.state == State::Kept) {
            return Ok(());
        }
        let is_original = |it: &&Placed<'_, T>| it.slot.state != State::Added;
        let first = placed.iter().find(is_original).ok_or(Unsupported)?.range.start;
        let prefix: &'t str = &self.text[self.line_start(first)..first];
        let json = if prefix.trim().is_empty() && !prefix.is_empty() {
            let indent = if prefix.contains('\t') { "\t" } else { self.indent() };
            Json::Lines { newline: self.layout.newline, prefix: prefix.to_owned(), indent }
        } else {
            Json::Line { spaced: self.spaced }
        };
        let mut before = None;
        let mut index = 0;
        while let Some(Placed { slot, range }) = placed.get(index) {
            index += 1;
            let mut new = String::new();
            match (slot.state, placed.get(index)) {
                (State::Kept, _) => before = Some(range.end),
                (State::Removed, Some(next)) if next.slot.state == State::Added => {
                    write(&next.slot.item, &json, &mut new);
                    self.edits.push((range.clone(), new));
                    before = Some(range.end);
                    index += 1;
                }
                (State::Removed, next) => match before {
                    Some(end) => {
                        self.edits.push((end..range.end, new));
                        before = Some(range.end);
                    }
                    None => self.edits.push((range.start..next.ok_or(Unsupported)?.range.start, new)),
                },
                (State::Added, _) => match before {
                    Some(end) => {
                        json.separator(&mut new);
                        write(&slot.item, &json, &mut new);
                        self.edits.push((end..end, new));
                    }
                    None => {
                        write(&slot.item, &json, &mut new);
                        json.separator(&mut new);
                        self.edits.push((first..first, new));
                    }
                },
            }
        }
        Ok(())
    }

    /// By how much JSON is indented: as its first member is.
    fn indent(&self) -> &'t str {
        let text: &'t str = self.text;
        let after = text.find('\n').map_or("", |at| &text[at + 1..]);
        let width = after.len() - after.trim_start_matches(' ').len();
        if width == 0 { "  " } else { &after[..width] }
    }

    /// Where a value of the text ends.
    fn end(&self, node: &Node) -> Option<usize> {
        let span = node.span.as_ref()?;
        match &node.content {
            Content::Scalar { text, style: Style::Block } => {
                let written = self.text.get(..span.end)?;
                // Empty lines at the end belong to it only if it keeps them.
                let keeps = text.ends_with("\n\n") || text == "\n";
                Some(if keeps { written.trim_end_matches([' ', '\t']) } else { written.trim_end() }.len())
            }
            Content::Sequence { flow: false, items } => {
                self.end(&items.iter().rfind(|slot| slot.state != State::Added)?.item)
            }
            Content::Mapping { flow: false, entries } => {
                let entry = &entries.iter().rfind(|slot| slot.state != State::Added)?.item;
                Some(self.end(&entry.value)?.max(entry.key.span.as_ref()?.end))
            }
            _ => Some(span.end),
        }
    }

    fn after_colon(&self, key_end: usize) -> Option<usize> {
        let rest = self.text.get(key_end..)?;
        let spaces = rest.len() - rest.trim_start().len();
        rest.trim_start().starts_with(':').then_some(key_end + spaces + 1)
    }

    /// The dash of an item that begins at `start`, when nothing of the list stands between it and `from`.
    fn dash(&self, from: usize, start: usize) -> Option<usize> {
        let between = self.text.get(from..start)?;
        let mut at = from;
        for line in between.split_inclusive('\n') {
            let trimmed = line.trim_start_matches(' ');
            if let Some(rest) = trimmed.strip_prefix('-')
                && (rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n']))
            {
                return Some(at + line.len() - trimmed.len());
            }
            at += line.len();
        }
        None
    }

    fn line_start(&self, at: usize) -> usize {
        self.text[..at].rfind('\n').map_or(0, |newline| newline + 1)
    }

    /// The end of the line, before its line break. What ends with its line break has its end there.
    fn line_end(&self, at: usize) -> usize {
        if self.text[..at].ends_with('\n') {
            return at - 1;
        }
        let end = self.text[at..].find('\n').map_or(self.text.len(), |newline| at + newline);
        if self.text[..end].ends_with('\r') { end - 1 } else { end }
    }

    fn line_after(&self, at: usize) -> usize {
        if self.text[..at].ends_with('\n') {
            return at;
        }
        self.text[at..].find('\n').map_or(self.text.len(), |newline| at + newline + 1)
    }

    /// The line in which `first` begins, or that of the comments above it.
    fn above(&self, first: usize, from: usize) -> Option<usize> {
        let mut line = self.line_start(first);
        if !self.text[line..first].trim_matches(' ').is_empty() {
            return None;
        }
        let bound = self.line_after(from);
        while line > bound {
            let previous = self.line_start(line - 1);
            let text = self.text[previous..line].trim();
            if !text.starts_with('#') {
                break;
            }
            line = previous;
        }
        Some(line)
    }
}

/// The key as the user wrote it.
fn key_text<'t>(text: &'t str, entry: &Entry) -> Option<&'t str> {
    text.get(entry.key.span.clone()?)
}
