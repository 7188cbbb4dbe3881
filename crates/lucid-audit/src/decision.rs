use std::mem;
use std::ops::Deref;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::layout::{LONGEST_LINE, LONGEST_RECORD};

/// Maximum length of a decision as JSON, in bytes. With `seq`, `prev` and the newline, its line takes at most 2,000 bytes.
const LONGEST_DECISION: usize = 2_000 - (LONGEST_LINE - LONGEST_RECORD) - 1;

/// Maximum lengths in bytes of JSON. Kubernetes namespaces, object names and ServiceAccount user names fit.
const LONGEST_NAMESPACE: usize = 64;
const LONGEST_NAME: usize = 253;
const LONGEST_USER: usize = 340;
const LONGEST_TEXT: usize = 1 << 10;
/// Maximum number of items in a list.
const MOST_ITEMS: usize = 32;

/// A webhook's response to one admission request.
///
/// Serialized with camelCase keys; empty fields are omitted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Decision {
    /// Time of the decision.
    pub time: Timestamp,
    /// Name of the webhook, such as `mutate`.
    pub webhook: String,
    /// UID of the call, chosen by the API server (`AdmissionRequest.uid`).
    pub uid: String,
    /// Operation of the request, such as `CREATE`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub operation: String,
    /// Kind of the object and its subresource: `Pod`, `Pod/ephemeralcontainers`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// Namespace of the object.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Name of the object, or its `generateName` before a name is assigned.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// User that sent the request (`userInfo.username`).
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub user: String,
    /// `true` if the caller presented a verified client certificate, as a suitably configured API server does. For other
    /// callers, every other field is an unverified claim.
    #[serde(default)]
    pub authenticated: bool,
    /// `true` for dry-run requests, which store nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
    /// `true` if the request was allowed.
    pub allowed: bool,
    /// `true` if the policy denies the request, even when `audit` mode or break-glass allowed it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub would_deny: bool,
    /// Mode in force: `audit`, `enforce` or `break-glass`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub mode: String,
    /// Tier of the pod: an accepted value of the required label, `any`, `missing` or `invalid`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub tier: String,
    /// Ticket given for break-glass.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub ticket: String,
    /// `true` if the webhook patched the object.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub patched: bool,
    /// Reason for the decision, in one sentence.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Policy violations, one sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<String>,
    /// Exemptions that suppressed findings.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exemptions: Vec<String>,
    /// Identifier of the settings that the chain was planned with.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub generation: String,
    /// Container names of the pod's auditors, in chain order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub chain: Vec<String>,
    /// Images that were checked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<ImageVerdict>,
    /// Warnings returned to the client.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Sequence number of the record that this one supersedes. That record became durable too late, so the webhook sent
    /// this response instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) overrules: Option<u64>,
    /// `true` if anything was truncated; see [`Record`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) cut: bool,
}

impl Decision {
    /// Creates a decision with the current time that allows the request and leaves the other fields empty.
    #[must_use]
    pub fn new(webhook: impl Into<String>, uid: impl Into<String>) -> Self {
        Self {
            time: Timestamp::now(),
            webhook: webhook.into(),
            uid: uid.into(),
            allowed: true,
            ..Self::default()
        }
    }

    /// Serializes the decision. Returns `None` if it is longer than [`LONGEST_DECISION`].
    fn to_json(&self) -> Option<Box<[u8]>> {
        let mut json = [0; LONGEST_DECISION];
        let mut room = &mut json[..];
        serde_json::to_writer(&mut room, self).ok()?;
        let length = LONGEST_DECISION - room.len();
        json.get(..length).map(Box::from)
    }

    /// Copies the truncated texts and lists of `details`.
    fn with_details(mut self, details: &Self, limits: [usize; 6]) -> Self {
        let [warnings, message, findings, exemptions, chain, images] = limits;
        let cut = &mut self.cut;
        self.warnings = cut_texts(&details.warnings, warnings, cut);
        self.message = cut_text(&details.message, message, cut);
        self.findings = cut_texts(&details.findings, findings, cut);
        self.exemptions = cut_texts(&details.exemptions, exemptions, cut);
        self.chain = cut_texts(&details.chain, chain, cut);
        let cut_image = |it: &ImageVerdict, cut: &mut bool| {
            let [container, image, verdict] =
                [&it.container, &it.image, &it.verdict].map(|text| cut_text(text, images, cut));
            ImageVerdict { container, image, verdict }
        };
        let note = |note| ImageVerdict::new(note, "", "");
        self.images = cut_list(&details.images, images, cut, cut_image, note);
        self
    }
}

/// A decision as it is recorded, with its JSON.
///
/// The JSON takes at most 1,898 bytes. Truncated texts end in `…`, truncated lists in the number of omitted
/// items. A decision that fits keeps its details.
#[derive(Clone, Debug, Default)]
pub struct Record {
    pub(crate) decision: Decision,
    pub(crate) json: Box<[u8]>,
}

impl Deref for Record {
    type Target = Decision;

    fn deref(&self) -> &Decision {
        &self.decision
    }
}

impl From<Decision> for Record {
    fn from(mut decision: Decision) -> Self {
        for (text, longest) in [
            (&mut decision.webhook, 32),
            (&mut decision.uid, 64),
            (&mut decision.operation, 16),
            (&mut decision.kind, 64),
            (&mut decision.namespace, LONGEST_NAMESPACE),
            (&mut decision.name, LONGEST_NAME),
            (&mut decision.user, LONGEST_USER),
            (&mut decision.mode, 16),
            (&mut decision.tier, 64),
            (&mut decision.ticket, 64),
            (&mut decision.generation, 16),
        ] {
            // Most texts fit even if each byte is escaped.
            if text.len() > longest / LONGEST_ESCAPE && escaped_length(text) > longest {
                *text = cut_text(text, longest, &mut decision.cut);
            }
        }
        if let Some(json) = decision.to_json() {
            return Self { decision, json };
        }
        // Warnings and message repeat the findings, so they are truncated first.
        let details = Decision {
            warnings: mem::take(&mut decision.warnings),
            message: mem::take(&mut decision.message),
            findings: mem::take(&mut decision.findings),
            exemptions: mem::take(&mut decision.exemptions),
            chain: mem::take(&mut decision.chain),
            images: mem::take(&mut decision.images),
            ..Decision::default()
        };
        // Each step halves the next one of six limits, from 1,024 to 16 bytes.
        let truncated = (0..=36).find_map(|step| {
            let limits = [5, 4, 3, 2, 1, 0].map(|later| LONGEST_TEXT >> ((step + later) / 6));
            let decision = decision.clone().with_details(&details, limits);
            Some(Self { json: decision.to_json()?, decision })
        });
        // Infallible: the shortest details fit.
        truncated.unwrap_or_default()
    }
}

fn cut_texts(texts: &[String], longest: usize, cut: &mut bool) -> Vec<String> {
    cut_list(texts, longest, cut, |text, cut| cut_text(text, longest, cut), |note| note)
}

/// Truncates the list and its items. The item limit shrinks with the text limit.
fn cut_list<T>(
    items: &[T],
    longest: usize,
    cut: &mut bool,
    cut_item: impl Fn(&T, &mut bool) -> T,
    note: impl FnOnce(String) -> T,
) -> Vec<T> {
    let most = (longest / 16).clamp(1, MOST_ITEMS);
    let kept = if items.len() > most { most - 1 } else { items.len() };
    let mut list: Vec<T> = items.iter().take(kept).map(|item| cut_item(item, cut)).collect();
    if kept < items.len() {
        *cut = true;
        list.push(note(format!("and {} more", items.len() - kept)));
    }
    list
}

/// Truncates `text` to at most `longest` bytes of JSON.
fn cut_text(text: &str, longest: usize, cut: &mut bool) -> String {
    const MARK: &str = "…";
    let (mut length, mut end) = (0, 0);
    for (at, character) in text.char_indices() {
        if length + MARK.len() <= longest {
            end = at;
        }
        length += escaped(character);
        if length > longest {
            *cut = true;
            return [text.get(..end).unwrap_or_default(), MARK].concat();
        }
    }
    text.to_owned()
}

/// Length of `text` in JSON, in bytes.
fn escaped_length(text: &str) -> usize {
    text.chars().map(escaped).sum()
}

/// Maximum length of an escaped character in bytes.
const LONGEST_ESCAPE: usize = 6;

fn escaped(character: char) -> usize {
    match character {
        '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
        '\0'..' ' => LONGEST_ESCAPE,
        other => other.len_utf8(),
    }
}

pub(crate) fn user(name: &str) -> String {
    cut_text(name, LONGEST_USER, &mut false)
}

/// Result of checking one image for a decision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ImageVerdict {
    /// Name of the container or image volume.
    pub container: String,
    /// Image reference from the pod spec.
    pub image: String,
    /// `notarized`, `not notarized`, `missing digest`, or the reason why the check failed.
    pub verdict: String,
}

impl ImageVerdict {
    /// Creates the result for the image of `container`.
    #[must_use]
    pub fn new(container: impl Into<String>, image: impl Into<String>, verdict: impl Into<String>) -> Self {
        Self { container: container.into(), image: image.into(), verdict: verdict.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decision(text: &str, items: usize) -> Decision {
        let mut decision = Decision::new(text, text);
        let Decision {
            operation, kind, namespace, name, user, mode, tier, ticket, generation, message, ..
        } = &mut decision;
        for field in [operation, kind, namespace, name, user, mode, tier, ticket, generation, message] {
            text.clone_into(field);
        }
        let Decision { warnings, findings, exemptions, chain, .. } = &mut decision;
        for list in [warnings, findings, exemptions, chain] {
            *list = vec![text.to_owned(); items];
        }
        decision.images = vec![ImageVerdict::new(text, text, text); items];
        (decision.dry_run, decision.would_deny, decision.patched) = (true, true, true);
        (decision.overrules, decision.allowed) = (Some(u64::MAX), false);
        decision
    }

    #[test]
    fn decisions_with_any_texts_and_lists_are_bounded() {
        for text in ["x", "x\u{1}", "\u{1}\u{e9}\"\n", "\u{1f600}", "\u{7f}", "\\"] {
            for (repeat, items) in [(1, 100_000), (1 << 20, 1), (5_000, 200), (16, 16), (700, 0)] {
                let record = Record::from(decision(&text.repeat(repeat), items));
                assert!(record.cut && record.json.len() <= LONGEST_DECISION, "{text:?} {repeat} {items}");
                let again = Record::from(record.decision.clone());
                assert_eq!(again.json, record.json, "{text:?} {repeat} {items}");
                assert_eq!(serde_json::from_slice::<Decision>(&record.json).unwrap(), record.decision);
            }
        }
    }

    #[test]
    fn warnings_are_cut_before_findings_and_identity_stays() {
        let mut long = decision("short", 0);
        long.warnings = (0..500).map(|number| format!("warning {number}")).collect();
        long.findings = vec!["f".repeat(100); 8];
        long.user = format!("system:serviceaccount:{}:{}", "n".repeat(63), "s".repeat(253));
        let bounded = Record::from(long.clone()).decision;
        assert_eq!((&bounded.user, &bounded.findings), (&long.user, &long.findings));
        let (last, kept) = bounded.warnings.split_last().unwrap();
        assert_eq!(*last, format!("and {} more", 500 - kept.len()));
        assert_eq!(kept, &long.warnings[..kept.len()]);
    }

    #[test]
    fn truncated_texts_end_with_a_mark_between_characters() {
        for (text, longest, expected) in
            [("abcdef", 6, "abcdef"), ("abcdefg", 6, "abc…"), ("ééé", 5, "é…"), ("\n\n\n", 5, "\n…")]
        {
            let mut cut = false;
            assert_eq!(cut_text(text, longest, &mut cut), expected);
            assert_eq!(cut, text != expected);
        }
    }

    #[test]
    fn short_decisions_are_not_truncated() {
        let mut decision = Decision::new("validate", "u-1");
        decision.warnings = vec!["x".repeat(100); 16];
        let record = Record::from(decision.clone());
        assert_eq!(record.decision, decision);
        assert_eq!(serde_json::from_slice::<Decision>(&record.json).unwrap(), decision);
    }
}
