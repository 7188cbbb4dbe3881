//! From YAML to the tree.

use std::{ops::Range, rc::Rc};

use granit_parser::{Event, Options, Parser, ScalarStyle, StructureStyle};

use crate::{
    error::SyntaxError,
    node::{Anchors, Content, Entry, Node, Slot, Style, Tag},
};

/// The tree of one document, and what its aliases stand for; `None` when there is nothing but comments.
pub(crate) fn yaml(text: &str) -> Result<Option<(Node, Anchors)>, SyntaxError> {
    let mut options = Options::default();
    options.set_emit_comments(false);
    // A key may be as long as an annotation.
    options.simple_key_max_lookahead = text.len().max(1024);
    let mut events =
        Events { text, parser: Parser::new_from_str_with_options(text, options), anchors: Anchors::new() };
    let mut root = None;
    loop {
        let (event, span) = events.next()?;
        match event {
            Event::StreamEnd => break,
            Event::StreamStart | Event::DocumentEnd => {}
            Event::DocumentStart(..) if root.is_some() => {
                let problem =
                    "found another document after `...`, which kubectl does not read: begin it with `---`";
                return Err(SyntaxError::new(text, span.start, problem));
            }
            Event::DocumentStart(..) => {
                let (event, span) = events.next()?;
                root = Some(events.node(event, span)?);
            }
            _ => return Err(SyntaxError::new(text, span.start, "found a value outside of a document")),
        }
    }
    let nothing = |root: &Node| matches!((&root.content, &root.span), (Content::Scalar { .. }, Some(span)) if span.is_empty());
    Ok(root.filter(|root| !nothing(root)).map(|root| (root, events.anchors)))
}

struct Events<'t, I: Iterator> {
    text: &'t str,
    parser: I,
    anchors: Anchors,
}

impl<'t, I> Events<'t, I>
where
    I: Iterator<Item = Result<(Event<'t>, granit_parser::Span), granit_parser::ScanError>>,
{
    fn next(&mut self) -> Result<(Event<'t>, Range<usize>), SyntaxError> {
        match self.parser.next() {
            Some(Ok((event, span))) => Ok((event, span.byte_range().unwrap_or_default())),
            Some(Err(error)) => {
                let at = error.marker().byte_offset().unwrap_or_default();
                Err(SyntaxError::new(self.text, at, error.info()))
            }
            None => Ok((Event::StreamEnd, self.text.len()..self.text.len())),
        }
    }

    fn node(&mut self, event: Event<'t>, span: Range<usize>) -> Result<Node, SyntaxError> {
        let (content, anchor, tag, span) = match event {
            Event::Alias(id) => (Content::Alias(id), 0, None, span),
            Event::Scalar(text, style, anchor, tag) => {
                let text = if span.is_empty() && style == ScalarStyle::Plain {
                    String::new()
                } else {
                    text.into_owned()
                };
                let style = match style {
                    ScalarStyle::Plain => Style::Plain,
                    ScalarStyle::Literal | ScalarStyle::Folded => Style::Block,
                    _ => Style::Quoted,
                };
                (Content::Scalar { text, style }, anchor, tag, span)
            }
            Event::SequenceStart(style, anchor, tag) => {
                let mut items = Vec::new();
                let end = loop {
                    match self.next()? {
                        (Event::SequenceEnd, end) => break end,
                        (event, span) => items.push(Slot::kept(self.node(event, span)?)),
                    }
                };
                let flow = style == StructureStyle::Flow;
                (Content::Sequence { flow, items }, anchor, tag, span.start..end.end)
            }
            Event::MappingStart(style, anchor, tag) => {
                let mut entries = Vec::new();
                let end = loop {
                    let (event, span) = match self.next()? {
                        (Event::MappingEnd, end) => break end,
                        next => next,
                    };
                    let key = self.node(event, span)?;
                    let (event, span) = self.next()?;
                    entries.push(Slot::kept(Entry { key, value: self.node(event, span)? }));
                };
                let flow = style == StructureStyle::Flow;
                (Content::Mapping { flow, entries }, anchor, tag, span.start..end.end)
            }
            _ => return Err(SyntaxError::new(self.text, span.start, "found no value")),
        };
        let tag = tag.map(|tag| match (tag.handle(), tag.suffix()) {
            ("tag:yaml.org,2002:", "str") => Tag::Str,
            ("tag:yaml.org,2002:", "binary") => Tag::Binary,
            ("tag:yaml.org,2002:", _) => Tag::Core,
            _ => Tag::Other,
        });
        let node = Node { span: Some(span), tag, content };
        if anchor != 0 {
            self.anchors.insert(anchor, Rc::new(node.clone()));
        }
        Ok(node)
    }
}
