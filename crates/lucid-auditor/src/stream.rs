//! Answers that are streamed: server-sent events, lines or elements of JSON, plain text.
//!
//! An event is held until the judges have decided on its texts. Strings that continue over several events, such as the words of
//! an answer, are one [`Track`], and only what follows an undecided word of the same text waits with it.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque, hash_map::RandomState},
    hash::{BuildHasher as _, Hash as _, Hasher as _},
    ops::Range,
    ptr,
};

use bytes::{Bytes, BytesMut};

use crate::{
    Direction, Passage, Unjudged,
    body::as_text,
    framing::{Framing, Search},
    json::{Document, Kind, Step, shortened},
    protocol::{self, Effect, Protocol, Refusal, Rule, Sent, UNREADABLE},
    text::{Edit, Source, Text, apply, texts_of_answer, without},
    track::Track,
    verdict::{Denial, Outcome, Panel},
};

/// Maximum number of texts in one stream.
const MAX_TRACKS: usize = 1024;

/// Maximum number of waiting events that others may overtake.
const MAX_OVERTAKEN: usize = 64;

/// An event in which nothing can be replaced.
const MALFORMED: &str = "an event that is not well-formed";

#[derive(Debug)]
pub(crate) struct Stream {
    panel: Panel,
    framing: Framing,
    /// Action for events that are not text.
    unjudged: Unjudged,
    /// Maximum length of an event, and of the events that are held.
    max_bytes: usize,
    buffer: BytesMut,
    search: Search,
    held: VecDeque<Held>,
    held_bytes: usize,
    tracks: Vec<Track>,
    by_key: HashMap<u64, usize>,
    /// Ids of the elements that texts belong to.
    ids: HashMap<u64, u64>,
    hasher: RandomState,
    /// Protocol of the request, then of the answer, and the part of the stream that was sent.
    protocol: &'static Protocol,
    sent: Option<Box<dyn Sent>>,
    /// Answers that have begun and whose end is not sent.
    choices: BTreeSet<u32>,
    is_masked: bool,
}

/// An event that waits for its verdicts.
#[derive(Debug, Default)]
struct Held {
    raw: Bytes,
    pieces: Vec<Piece>,
    edits: Vec<Edit>,
    /// Containers that repeat the texts.
    echoes: Vec<Range<usize>>,
    protocol: Option<&'static Protocol>,
    /// Answers that the event is about: `None` for all of them.
    choice: Option<u32>,
    effect: Option<Effect>,
}

/// A string that continues a track.
#[derive(Debug)]
struct Piece {
    track: usize,
    range: Range<usize>,
    source: Source,
}

impl Stream {
    pub(crate) fn new(
        panel: Panel,
        protocol: &'static Protocol,
        framing: Framing,
        unjudged: Unjudged,
        max_bytes: usize,
    ) -> Self {
        Self {
            panel,
            framing,
            unjudged,
            max_bytes,
            buffer: BytesMut::new(),
            search: Search::default(),
            held: VecDeque::new(),
            held_bytes: 0,
            tracks: Vec::new(),
            by_key: HashMap::new(),
            ids: HashMap::new(),
            hasher: RandomState::new(),
            protocol,
            sent: None,
            choices: BTreeSet::new(),
            is_masked: false,
        }
    }

    pub(crate) fn count_bytes(&self, bytes: usize) {
        self.panel.telemetry.count_bytes("answer", bytes);
    }

    /// Receives a part of the answer. Returns the part that may be sent, after which the stream may have been refused.
    pub(crate) async fn push(&mut self, data: &[u8]) -> (Bytes, Result<(), Denial>) {
        self.buffer.extend_from_slice(data);
        let mut outcome = Ok(());
        while let Some(length) = self.framing.next(&self.buffer, &mut self.search) {
            let raw = self.buffer.split_to(length).freeze();
            outcome = match length > self.max_bytes && self.framing != Framing::Text {
                true => Err(self.too_long()),
                false => self.event(raw).await,
            };
            if outcome.is_err() {
                break;
            }
        }
        if outcome.is_ok() && self.buffer.len() > self.max_bytes {
            outcome = Err(self.too_long());
        }
        if outcome.is_ok() && self.held_bytes > self.max_bytes {
            outcome = self.end_texts(|_| true).await;
        }
        (self.release(), outcome)
    }

    pub(crate) async fn finish(&mut self) -> (Bytes, Result<(), Denial>) {
        let rest = self.buffer.split().freeze();
        let mut outcome = if rest.is_empty() { Ok(()) } else { self.event(rest).await };
        if outcome.is_ok() {
            outcome = self.end_texts(|_| true).await;
        }
        (self.release(), outcome)
    }

    fn too_long(&self) -> Denial {
        Denial::unjudged(
            "too_large",
            format!("an event of the answer is longer than {} bytes", self.max_bytes),
        )
    }

    pub(crate) fn end(&self, refusal: &Refusal<'_>) -> String {
        let refusal = Refusal { choices: &self.choices, ..*refusal };
        let events = match &self.sent {
            Some(sent) => sent.end(&refusal),
            None => (self.protocol.sent)().end(&refusal),
        };
        self.framing.end(&events, self.sent.is_some())
    }

    /// Has texts judged that end here.
    async fn end_texts(&mut self, is_ended: impl Fn(&Track) -> bool) -> Result<(), Denial> {
        for track in self.tracks.iter_mut().filter(|track| track.is_open() && is_ended(track)) {
            track.judge(&self.panel, true).await?;
        }
        Ok(())
    }

    async fn event(&mut self, raw: Bytes) -> Result<(), Denial> {
        let text = match as_text(&raw) {
            Some(text) => text,
            None if self.unjudged == Unjudged::Pass => "",
            None => return Err(Denial::unjudged(UNREADABLE, "the answer is not UTF-8 text".to_owned())),
        };
        self.ignored(text).await?;
        let content = self.framing.content(text);
        let mut held = Held { raw: raw.clone(), ..Held::default() };
        let start = content.trim_start();
        let (mut touched, mut kinds) = (BTreeSet::new(), Vec::new());
        if start.is_empty() {
            // A comment.
            held.effect = Some(Effect::Ping);
        } else if start.trim_end() == protocol::DONE || self.framing == Framing::Elements && start == "]" {
            held.effect = Some(Effect::EndsAll);
        } else if self.framing == Framing::Elements
            || Document::is_like(start) && self.framing != Framing::Text
        {
            kinds = self.json(&content, &mut held, &mut touched).await?;
        } else {
            let track = self.track(0, &protocol::ANY, || Passage::new(Direction::Completion, ""))?;
            let range = self.tracks[track].push(&content);
            held.pieces.push(Piece { track, range, source: Source::plain(&content) });
            touched.insert(track);
        }
        let effect = held.effect.clone();
        let choice = held.choice;
        self.held_bytes += held.raw.len();
        self.held.push_back(held);
        for &track in &touched {
            self.tracks[track].judge(&self.panel, false).await?;
        }
        match effect {
            Some(Effect::EndsAll) => self.end_texts(|_| true).await,
            Some(Effect::Ends(choices)) => {
                self.end_texts(|it| it.choice().is_none_or(|it| choices.contains(&it))).await
            }
            _ if kinds.is_empty() => Ok(()),
            // Another kind of text of the same answer ends the one before.
            _ => {
                let is_other = |it: &Track| !kinds.iter().any(|kind| ptr::eq(*kind, it.rule()));
                self.end_texts(|it| it.choice() == choice && is_other(it)).await
            }
        }
    }

    /// Judges lines of a server-sent event that its receivers ignore.
    async fn ignored(&mut self, raw: &str) -> Result<(), Denial> {
        let ignored = self.framing.ignored(raw);
        if ignored.is_empty() {
            return Ok(());
        }
        let track = self.track(1, &protocol::ANY, || Passage::new(Direction::Completion, ""))?;
        let track = &mut self.tracks[track];
        track.push(&ignored);
        track.judge(&self.panel, false).await?;
        match track.masks() {
            [] => Ok(()),
            masks => Err(Denial::irreplaceable(masks, MALFORMED)),
        }
    }

    /// Judges the whole texts of an event, and adds its other strings to their tracks. Returns the kinds of its texts.
    async fn json(
        &mut self,
        content: &str,
        held: &mut Held,
        touched: &mut BTreeSet<usize>,
    ) -> Result<Vec<&'static Rule>, Denial> {
        let document = Document::scan(content);
        if self.unjudged == Unjudged::Refuse
            && let Some(message) = protocol::unjudged_answer(&document)
        {
            return Err(Denial::unjudged(UNREADABLE, message));
        }
        let known = Protocol::of_answer(&document);
        let is_fragment = self.framing == Framing::Elements && !document.is_json;
        let protocol = known.or(is_fragment.then_some(self.protocol)).unwrap_or(&protocol::GENERIC);
        held.protocol = known;
        held.effect = Some((protocol.effect)(&document));
        let choices = protocol.choices(&document);
        held.choice = choices.first().copied().filter(|_| choices.len() == 1);
        self.note_ids(&document, protocol);
        let (mut whole, mut kinds) = (Vec::new(), Vec::new());
        for node in document.strings() {
            let (source, text) = Source::of(&document, node, false);
            if text.is_empty() {
                continue;
            }
            let rule = protocol.events.iter().find(|rule| rule.message(&document, node).is_some());
            let is_structure = protocol.is_known() && protocol::is_structure(&document, node, &text);
            kinds.extend(rule.filter(|rule| !is_structure || rule.is_whole));
            if is_structure {
                continue;
            }
            let rule = rule.or((known.is_none() && !is_fragment).then_some(&protocol::ANY));
            let Some(rule) = rule.filter(|rule| !rule.is_whole && document.nodes[node].kind == Kind::String)
            else {
                whole.push(node);
                continue;
            };
            let passage = || Passage {
                choice: protocol.choice(&document, node),
                location: document.pointer(node).into(),
                ..Passage::new(rule.direction, "")
            };
            let track = self.track(self.key(&document, node, protocol, rule), rule, passage)?;
            let range = self.tracks[track].push(&text);
            held.pieces.push(Piece { track, range, source });
            touched.insert(track);
        }
        let mut texts = texts_of_answer(&document, whole.into_iter(), protocol);
        if !document.is_json && (!is_fragment || document.is_bare) {
            texts.push(Text::plain(Direction::Completion, content));
        }
        for text in &texts {
            match self.panel.judge(&text.passage).await {
                Outcome::Allow => {}
                Outcome::Deny(denial) => return Err(denial),
                Outcome::Mask(spans) if document.is_json => {
                    held.edits.extend(spans.iter().flat_map(|span| text.edits(span)));
                }
                Outcome::Mask(spans) => return Err(Denial::irreplaceable(&spans, MALFORMED)),
            }
        }
        held.echoes = protocol.echoes(&document);
        Ok(kinds)
    }

    fn track(
        &mut self,
        key: u64,
        rule: &'static Rule,
        passage: impl FnOnce() -> Passage<'static>,
    ) -> Result<usize, Denial> {
        if let Some(track) = self.by_key.get(&key) {
            return Ok(*track);
        }
        if self.tracks.len() >= MAX_TRACKS {
            let message = format!("the answer has more than {MAX_TRACKS} texts");
            return Err(Denial::unjudged("too_large", message));
        }
        self.tracks.push(Track::new(passage(), rule, &self.panel));
        self.by_key.insert(key, self.tracks.len() - 1);
        Ok(self.tracks.len() - 1)
    }

    /// Returns the key of the text that a string continues: its rule and path, with the indices and ids that the protocol
    /// states.
    fn key(&self, document: &Document<'_>, node: usize, protocol: &Protocol, rule: &'static Rule) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        ptr::hash(rule, &mut hasher);
        if ptr::eq(rule, &protocol::ANY) {
            // Strings of a protocol that is unknown are joined by the name of their member.
            shortened(document.name(node)).hash(&mut hasher);
            return hasher.finish();
        }
        self.place(document, node, protocol).hash(&mut hasher);
        for element in document.ancestors(node).filter(|&node| self.is_element(document, node)) {
            self.ids.get(&self.place(document, element, protocol)).hash(&mut hasher);
        }
        hasher.finish()
    }

    fn is_element(&self, document: &Document<'_>, node: usize) -> bool {
        node > 0 && matches!(document.nodes[node].step, Step::Index(_)) && !self.ids.is_empty()
    }

    /// Returns a hash of the path of a node, with the indices that the protocol states.
    fn place(&self, document: &Document<'_>, node: usize, protocol: &Protocol) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        for node in document.ancestors(node).filter(|&node| node > 0) {
            match &document.nodes[node].step {
                Step::Name(name) => shortened(name).hash(&mut hasher),
                Step::Index(_) if protocol.joins_elements && document.nodes[node].depth > 2 => {}
                Step::Index(index) => match document.member_value(node, protocol.element.0) {
                    Some(stated) => stated.hash(&mut hasher),
                    None => Cow::<str>::Owned(index.to_string()).hash(&mut hasher),
                },
            }
        }
        for name in protocol.indices {
            document.member_value(0, name).hash(&mut hasher);
        }
        hasher.finish()
    }

    /// Notes the ids of elements that begin. One with another id than before is another text: some servers give all calls of
    /// tools the same index. Others give each piece of a call another id.
    fn note_ids(&mut self, document: &Document<'_>, protocol: &Protocol) {
        let is_id = |&node: &usize| {
            let name = document.nodes[node].step.name();
            name == Some(protocol.element.1) && document.nodes[node].kind == Kind::String
        };
        for node in (1..document.nodes.len()).filter(is_id) {
            let element = document.nodes[node].parent;
            let is_new = self.ids.len() < MAX_TRACKS && !document.raw(node).is_empty();
            if element > 0 && is_new && document.has_within(element, protocol.element.2) {
                let id = self.hasher.hash_one(document.raw(node));
                self.ids.insert(self.place(document, element, protocol), id);
            }
        }
    }

    /// Returns the events on whose texts the judges have decided.
    fn release(&mut self) -> Bytes {
        let mut released = Vec::new();
        let mut waiting = Waiting::default();
        let mut at = 0;
        while at < self.held.len() && at < MAX_OVERTAKEN {
            let held = &self.held[at];
            let is_settled = held
                .pieces
                .iter()
                .all(|piece| piece.range.end <= self.tracks[piece.track].settled(&self.panel));
            if waiting.is_before(held) || !is_settled {
                waiting.add(held);
                at += 1;
            } else if let Some(held) = self.held.remove(at) {
                released.push(self.edited(held));
            }
        }
        match <[Bytes; 1]>::try_from(released) {
            Ok([one]) => one,
            Err(several) => several.concat().into(),
        }
    }

    /// Returns an event with its replacements, and notes that it is sent.
    fn edited(&mut self, held: Held) -> Bytes {
        let Held { raw, pieces, edits, echoes, protocol, effect, .. } = held;
        self.held_bytes -= raw.len();
        let masked =
            pieces.iter().flat_map(|piece| self.tracks[piece.track].edits(&piece.range, &piece.source));
        let edits: Vec<_> = masked.chain(edits).collect();
        let ends: BTreeMap<_, _> = pieces.iter().map(|piece| (piece.track, piece.range.end)).collect();
        for (track, end) in ends {
            self.tracks[track].release(end);
            self.choices.extend(self.tracks[track].choice());
        }
        if let Some(Effect::Ends(choices)) = &effect {
            self.choices.retain(|choice| !choices.contains(choice));
        }
        if let Some(protocol) = protocol {
            self.protocol = protocol;
        }
        let is_noted = protocol.is_some_and(|it| self.sent.is_none() || pieces.is_empty() || it.keeps_texts);
        self.is_masked |= !edits.is_empty();
        // An event without its own text repeats that of the others.
        let is_repeated = pieces.is_empty() && !echoes.is_empty();
        let is_edited = !edits.is_empty() || self.is_masked && is_repeated;
        if !is_edited && !is_noted {
            return raw;
        }
        let text = str::from_utf8(&raw).unwrap_or_default();
        let mut content = self.framing.content(text);
        if is_edited {
            content = apply(&content, without(&content, echoes, edits)).into();
        }
        if is_noted {
            let sent = self.sent.get_or_insert_with(self.protocol.sent);
            sent.note(&Document::scan(&content));
        }
        if is_edited { self.framing.replace(text, &content).into_owned().into() } else { raw }
    }
}

/// Events that wait in front of another one.
#[derive(Debug, Default)]
struct Waiting {
    tracks: BTreeSet<usize>,
    /// Answers of all events, and of those without text, which keep their place among the others.
    choices: Vec<Option<u32>>,
    barriers: Vec<Option<u32>>,
}

impl Waiting {
    /// Returns `true` if an event that waits has to be sent before this one.
    fn is_before(&self, held: &Held) -> bool {
        let concerns = |choice: &Option<u32>| choice.zip(held.choice).is_none_or(|(a, b)| a == b);
        match held.effect {
            Some(Effect::Ping) => false,
            _ if held.pieces.is_empty() => self.choices.iter().any(concerns),
            _ => {
                held.pieces.iter().any(|piece| self.tracks.contains(&piece.track))
                    || self.barriers.iter().any(concerns)
            }
        }
    }

    fn add(&mut self, held: &Held) {
        self.tracks.extend(held.pieces.iter().map(|piece| piece.track));
        self.choices.push(held.choice);
        if held.pieces.is_empty() {
            self.barriers.push(held.choice);
        }
    }
}
