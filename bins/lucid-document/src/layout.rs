//! How a document is laid out, so that what is added looks like the rest of it.

use crate::node::{Content, Node, Slot};

/// How a document is laid out.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    pub(crate) newline: &'static str,
    /// Spaces by which a map stands to the right of its key.
    pub(crate) indent: usize,
    /// Spaces by which a list does.
    pub(crate) list_indent: usize,
}

impl Default for Layout {
    /// As kubectl writes.
    fn default() -> Self {
        Self { newline: "\n", indent: 2, list_indent: 0 }
    }
}

impl Layout {
    /// The layout of a text: the first map and the first list below a key show it.
    pub(crate) fn of(text: &str, root: &Node) -> Self {
        let newline = match text.find('\n') {
            Some(at) if text[..at].ends_with('\r') => "\r\n",
            _ => "\n",
        };
        let mut look = Look { text, indent: None, list_indent: None };
        look.at(root);
        let usual = Self::default();
        Self {
            newline,
            indent: look.indent.unwrap_or(usual.indent),
            list_indent: look.list_indent.unwrap_or(usual.list_indent),
        }
    }
}

struct Look<'t> {
    text: &'t str,
    indent: Option<usize>,
    list_indent: Option<usize>,
}

impl Look<'_> {
    fn at(&mut self, node: &Node) {
        match &node.content {
            Content::Mapping { flow: false, entries } => {
                for Slot { item: entry, .. } in entries {
                    if let Some(key) = &entry.key.span {
                        self.below(key.start, &entry.value);
                    }
                    self.at(&entry.value);
                }
            }
            Content::Sequence { flow: false, items } => items.iter().for_each(|slot| self.at(&slot.item)),
            _ => {}
        }
    }

    /// Notes how far a value stands to the right of its key.
    fn below(&mut self, key: usize, value: &Node) {
        let first = match &value.content {
            Content::Mapping { flow: false, entries } => {
                entries.first().and_then(|slot| slot.item.key.span.as_ref())
            }
            Content::Sequence { flow: false, items } => {
                items.first().and_then(|slot| slot.item.span.as_ref())
            }
            _ => None,
        };
        let Some(lines) = first.and_then(|first| self.text.get(key..first.start)) else { return };
        let start = self.text[..key].rfind('\n').map_or(0, |newline| newline + 1);
        let column = self.text[start..key].chars().count();
        let mut widths = lines.split('\n').skip(1).map(|line| {
            let rest = line.trim_start_matches(' ');
            (line.len() - rest.len(), rest)
        });
        if let Content::Mapping { .. } = value.content {
            if let Some((width, _)) = widths.last() {
                self.indent.get_or_insert(width.saturating_sub(column).max(1));
            }
        } else if let Some((width, _)) = widths.find(|(_, rest)| rest.starts_with('-')) {
            self.list_indent.get_or_insert(width.saturating_sub(column));
        }
    }
}
