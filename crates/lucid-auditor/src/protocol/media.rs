//! Content that is not text: images, sound, video, files, token ids.

use std::{borrow::Cow, collections::HashSet, sync::LazyLock};

use super::PROTOCOLS;
use crate::json::{Document, Kind, MAX_NAME, MAX_VALUE, Node, Step};

/// Members that hold such content. A pattern is the end of a path: names of members [in any spelling](folded), `*` for an element of an array, `^` for the root, and `name=value` for the value of a string.
#[derive(Debug)]
pub(super) struct Media {
    /// Places of parts of messages.
    pub(super) parts: &'static [&'static str],
    /// Values of `type` of such parts. Servers also accept parts without it, by the name of their member.
    pub(super) kinds: &'static [&'static str],
    pub(super) members: &'static [&'static str],
    /// Objects with any members, such as the arguments of tools.
    pub(super) free: &'static [&'static str],
    /// Members of the root, or tensors, with text as token ids.
    pub(super) tokens: &'static [&'static str],
}

impl Media {
    pub(super) const NONE: Self = Self { parts: &[], kinds: &[], members: &[], free: &[], tokens: &[] };
}

/// Returns kind and place of content of a request that cannot be judged.
pub(crate) fn unjudged_request(document: &Document<'_>) -> Option<String> {
    let ids = token_ids(document).map(|place| format!("token ids in {place}"));
    ids.or_else(|| media(document))
}

/// Returns why an answer cannot be judged. Prose may contain JSON as an example, so only whole documents count.
pub(crate) fn unjudged_answer(document: &Document<'_>) -> Option<String> {
    let found = media(document).filter(|_| document.is_json)?;
    Some(format!("the answer has {found}, which cannot be judged"))
}

struct Known {
    /// Names of members, and of objects with any members, in lower case.
    names: HashSet<String>,
    free: HashSet<String>,
    all: Vec<&'static Media>,
}

static KNOWN: LazyLock<Known> = LazyLock::new(|| {
    let all: Vec<_> = PROTOCOLS.iter().map(|it| &it.media).collect();
    let last = |pattern: &&'static str| pattern.rsplit('/').next().and_then(|it| it.split('=').next());
    let named = all.iter().flat_map(|it| it.kinds.iter().copied().chain(it.members.iter().filter_map(last)));
    let free = all.iter().flat_map(|it| it.free.iter().filter_map(last));
    Known {
        names: named.chain(["type"]).map(str::to_ascii_lowercase).collect(),
        free: free.map(str::to_ascii_lowercase).collect(),
        all,
    }
});

impl Known {
    fn has(&self, of: fn(&Media) -> &'static [&'static str], mut is: impl FnMut(&str) -> bool) -> bool {
        self.all.iter().any(|media| of(media).iter().any(|known| is(known)))
    }
}

/// Returns kind and place of an image, sound, video or file in messages.
fn media(document: &Document<'_>) -> Option<String> {
    let known = &*KNOWN;
    let is_kind = |kind: &str| known.has(|it| it.kinds, |known| kind.eq_ignore_ascii_case(known));
    let ends = |node, pattern: &str| ends(document, node, pattern);
    let is_media = |node: usize| {
        let Some(name) = document.nodes[node].step.name().map(folded) else { return false };
        let is_of_kind = || is_kind(&name) || name == "type" && is_kind(&short_value(document, node));
        let holder = document.nodes[node].parent;
        known.names.contains(&*name)
            && (is_of_kind() && known.has(|it| it.parts, |part| ends(holder, part))
                || known.has(|it| it.members, |member| ends(node, member)))
    };
    let is_empty = |node: usize| {
        let value = document.raw(node);
        matches!(value.trim_matches(|c: char| "[]{}".contains(c) || c.is_whitespace()), "" | "null")
    };
    let is_found = |&node: &usize| is_media(node) && !is_empty(node) && !is_free(document, node);
    let found = (1..document.nodes.len()).find(is_found);
    found.map(|node| format!("an image, sound or file in {}", document.pointer(node)))
}

/// Returns `true` for a node in an object with any members.
pub(super) fn is_free(document: &Document<'_>, node: usize) -> bool {
    document.ancestors(node).skip(1).any(|node| {
        document.nodes[node].step.name().is_some_and(|name| KNOWN.free.contains(&*folded(name)))
            && document.raw(node).starts_with('{')
            && KNOWN.has(|it| it.free, |it| ends(document, node, it))
    })
}

/// Returns a name in lower case. Servers in Go ignore the case, and take U+017F for `s` and U+212A for `k`. Long names,
/// which are unknown, are empty.
fn folded(name: &str) -> Cow<'_, str> {
    match name {
        _ if name.len() > MAX_NAME => Cow::Borrowed(""),
        _ if name.bytes().all(|byte| byte.is_ascii() && !byte.is_ascii_uppercase()) => Cow::Borrowed(name),
        _ => name.to_lowercase().replace('\u{17f}', "s").into(),
    }
}

/// Returns the value of a string that may be a kind, or nothing.
fn short_value<'a>(document: &Document<'a>, node: usize) -> Cow<'a, str> {
    match document.nodes[node].kind == Kind::String && document.raw(node).len() <= MAX_VALUE {
        true => document.value(node),
        false => "".into(),
    }
}

/// Returns `true` if the path of a node ends with this pattern.
pub(super) fn ends(document: &Document<'_>, node: usize, pattern: &str) -> bool {
    let mut at = Some(node);
    pattern.rsplit('/').all(|step| {
        let Some(node) = at else { return false };
        at = (node > 0).then(|| document.nodes[node].parent);
        let (name, value) = step.split_once('=').map_or((step, None), |(name, value)| (name, Some(value)));
        let is_named = match &document.nodes[node].step {
            _ if node == 0 => name == "^",
            Step::Name(found) => folded(found).eq_ignore_ascii_case(name),
            Step::Index(_) => name == "*",
        };
        is_named && value.is_none_or(|value| short_value(document, node) == value)
    })
}

/// Returns the place of token ids in a request. Without the model's tokenizer they are not text.
fn token_ids(document: &Document<'_>) -> Option<String> {
    let is_known = |name: &str| PROTOCOLS.iter().any(|it| it.media.tokens.contains(&name));
    let is_number = |start: char| start == '-' || start.is_ascii_digit();
    let found = (0..document.nodes.len()).find(|&node| {
        let Node { parent, step, kind, .. } = &document.nodes[node];
        let array = document.raw(node).strip_prefix('[').filter(|_| *kind == Kind::Container);
        if !array.is_some_and(|content| content.trim_start().starts_with(is_number)) {
            return false;
        }
        // A tensor of KServe has its name beside its data.
        let tensor = || document.member_value(*parent, "name").is_some_and(|name| is_known(&name));
        let member = document.ancestor(node, 1);
        let named = || document.nodes[member].step.name().map(folded);
        step.name() == Some("data") && tensor() || named().is_some_and(|name| is_known(&name))
    });
    found.map(|node| document.pointer(node))
}
