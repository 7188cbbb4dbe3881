//! Rules: which strings of a document are texts.

use crate::{
    Direction,
    json::{Document, Step},
};

/// Strings of a JSON document that are texts of one kind.
#[derive(Debug)]
pub(crate) struct Rule {
    /// Names of members, `*` for any element of an array, and `**` at the end for everything below.
    pub(super) path: &'static str,
    /// Number of steps of the path, without `**`.
    depth: usize,
    /// Number of leading steps of the path that lead to the message. Strings of one message are one text.
    message: usize,
    pub(crate) direction: Direction,
    /// Role of the message, if none is stated.
    pub(crate) role: &'static str,
    /// Member of the document, and a part of its value.
    only: Option<(&'static str, &'static str)>,
    /// In an event, the string is whole.
    pub(crate) is_whole: bool,
    /// The path ends in `**`.
    is_deep: bool,
}

/// Descriptions of tools: written by the application, like its system prompt.
pub(super) const TOOLS: Rule = prompt("tools/**", 2).role("system");

/// All strings.
pub(crate) static ANY: Rule = completion("**", 1);

pub(super) const fn prompt(path: &'static str, message: usize) -> Rule {
    Rule::new(Direction::Prompt, path, message)
}

pub(super) const fn completion(path: &'static str, message: usize) -> Rule {
    Rule::new(Direction::Completion, path, message)
}

pub(super) const fn call(path: &'static str, message: usize) -> Rule {
    Rule::new(Direction::ToolCall, path, message)
}

pub(super) const fn result(path: &'static str, message: usize) -> Rule {
    Rule::new(Direction::ToolResult, path, message)
}

impl Rule {
    const fn new(direction: Direction, path: &'static str, message: usize) -> Self {
        let bytes = path.as_bytes();
        let is_deep = bytes.len() >= 2 && bytes[bytes.len() - 1] == b'*' && bytes[bytes.len() - 2] == b'*';
        let (mut depth, mut at) = (if is_deep { 0 } else { 1 }, 0);
        while at < bytes.len() {
            depth += if bytes[at] == b'/' { 1 } else { 0 };
            at += 1;
        }
        Self { path, depth, message, direction, role: "", only: None, is_whole: false, is_deep }
    }

    /// Limits the rule to documents with this part in a member.
    pub(super) const fn only(mut self, member: &'static str, part: &'static str) -> Self {
        self.only = Some((member, part));
        self
    }

    pub(super) const fn role(mut self, role: &'static str) -> Self {
        self.role = role;
        self
    }

    pub(super) const fn whole(mut self) -> Self {
        self.is_whole = true;
        self
    }

    /// Returns the message that a string belongs to, if the rule covers it.
    pub(crate) fn message(&self, document: &Document<'_>, node: usize) -> Option<usize> {
        let depth = document.nodes[node].depth;
        (depth == self.depth || self.is_deep && depth > self.depth).then_some(())?;
        let mut at = document.ancestor(node, self.depth);
        for step in self.path.rsplit('/').skip(usize::from(self.is_deep)) {
            match &document.nodes[at].step {
                Step::Name(name) if name == step => {}
                Step::Index(_) if step == "*" => {}
                _ => return None,
            }
            at = document.nodes[at].parent;
        }
        if let Some((member, part)) = self.only {
            document.member_value(0, member).filter(|value| value.contains(part))?;
        }
        Some(document.ancestor(node, self.message))
    }

    /// Returns `true` if the strings of a message are separate texts, which are joined by line breaks.
    pub(crate) fn is_structure(&self) -> bool {
        self.is_deep
    }

    /// Returns `true` if the strings are JSON themselves, whose escapes are decoded too.
    pub(crate) fn is_nested(&self) -> bool {
        matches!(self.direction, Direction::ToolCall | Direction::ToolResult)
    }
}
