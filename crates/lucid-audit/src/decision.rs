use std::{io, mem};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::layout::{LONGEST_LINE, LONGEST_RECORD};

/// Maximum length of a decision as JSON, in bytes. With `seq`, `prev` and the newline, its line takes at most 2,000 bytes.
pub const LONGEST_DECISION: usize = 2_000 - (LONGEST_LINE - LONGEST_RECORD) - 1;

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
    pub overrules: Option<u64>,
    /// `true` if anything was truncated; see [`Self::bounded`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cut: bool,
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

    /// Truncates the decision to [`LONGEST_DECISION`]. Truncated texts end in `…`, truncated lists in the number of omitted
    /// items. A decision that fits keeps its details.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        let mut cut = self.cut;
        for (text, longest) in [
            (&mut self.webhook, 32),
            (&mut self.uid, 64),
            (&mut self.operation, 16),
            (&mut self.kind, 64),
            (&mut self.namespace, LONGEST_NAMESPACE),
            (&mut self.name, LONGEST_NAME),
            (&mut self.user, LONGEST_USER),
            (&mut self.mode, 16),
            (&mut self.tier, 64),
            (&mut self.ticket, 64),
            (&mut self.generation, 16),
        ] {
            if escaped_length(text) > longest {
                *text = cut_text(text, longest, &mut cut);
            }
            text.shrink_to_fit();
        }
        self.cut = cut;
        if self.length() <= LONGEST_DECISION {
            return self;
        }
        let details = Details {
            warnings: mem::take(&mut self.warnings),
            message: mem::take(&mut self.message),
            findings: mem::take(&mut self.findings),
            exemptions: mem::take(&mut self.exemptions),
            chain: mem::take(&mut self.chain),
            images: mem::take(&mut self.images),
        };
        let mut limits = [LONGEST_TEXT; 6];
        let mut longest_first = (0..limits.len()).cycle();
        loop {
            let bounded = details.within(&limits, &self);
            if bounded.length() <= LONGEST_DECISION || limits.iter().all(|limit| *limit <= 16) {
                return bounded;
            }
            if let Some(limit) = longest_first.next().and_then(|next| limits.get_mut(next)) {
                *limit /= 2;
            }
        }
    }

    /// Returns the length of the decision as JSON, in bytes.
    fn length(&self) -> usize {
        let mut written = Written(0);
        // Infallible: every field is representable in JSON.
        let _ = serde_json::to_writer(&mut written, self);
        written.0
    }

    fn to_json(&self) -> Vec<u8> {
        // Infallible: every field is representable in JSON.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Serializes the decision as a log record, truncated if necessary.
    pub(crate) fn to_record(&self) -> Vec<u8> {
        let record = self.to_json();
        if record.len() <= LONGEST_DECISION { record } else { self.clone().bounded().to_json() }
    }
}

/// Fields that are truncated as far as necessary. Warnings and message repeat the findings, so they are truncated first.
struct Details {
    warnings: Vec<String>,
    message: String,
    findings: Vec<String>,
    exemptions: Vec<String>,
    chain: Vec<String>,
    images: Vec<ImageVerdict>,
}

impl Details {
    /// Returns `decision` with these details, each truncated to its limit.
    fn within(&self, limits: &[usize; 6], decision: &Decision) -> Decision {
        let [warnings, message, findings, exemptions, chain, images] = *limits;
        let mut bounded = decision.clone();
        let cut = &mut bounded.cut;
        bounded.warnings = cut_texts(&self.warnings, warnings, cut);
        bounded.message = cut_text(&self.message, message, cut);
        bounded.findings = cut_texts(&self.findings, findings, cut);
        bounded.exemptions = cut_texts(&self.exemptions, exemptions, cut);
        bounded.chain = cut_texts(&self.chain, chain, cut);
        let cut_image = |it: &ImageVerdict, cut: &mut bool| {
            let [container, image, verdict] =
                [&it.container, &it.image, &it.verdict].map(|text| cut_text(text, images, cut));
            ImageVerdict { container, image, verdict }
        };
        let note = |note| ImageVerdict::new(note, "", "");
        bounded.images = cut_list(&self.images, images, cut, cut_image, note);
        bounded
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
    // Copies the text, since the original may have excess capacity.
    text.to_owned()
}

/// Length of `text` in JSON, in bytes.
fn escaped_length(text: &str) -> usize {
    text.chars().map(escaped).sum()
}

fn escaped(character: char) -> usize {
    match character {
        '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
        '\0'..' ' => 6,
        other => other.len_utf8(),
    }
}

/// Counts bytes instead of keeping them.
struct Written(usize);

impl io::Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Truncates a user name as [`Decision::bounded`] does.
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

    /// Returns a decision with `text` in each field and `items` copies of it in each list.
    fn decision(text: &str, items: usize) -> Decision {
        let mut decision = Decision::new(text, text);
        let Decision { operation, kind, namespace, name, user, mode, ticket, generation, message, .. } =
            &mut decision;
        for field in [operation, kind, namespace, name, user, mode, ticket, generation, message] {
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
    fn a_decision_is_bounded_whatever_its_texts_and_lists_are() {
        for text in ["x", "x\u{1}", "\u{1}\u{e9}\"\n", "\u{1f600}", "\u{7f}", "\\"] {
            for (repeat, items) in [(1, 100_000), (1 << 20, 1), (5_000, 200), (16, 16), (700, 0)] {
                let bounded = decision(&text.repeat(repeat), items).bounded();
                assert!(bounded.cut && bounded.length() <= LONGEST_DECISION, "{text:?} {repeat} {items}");
                assert_eq!(bounded.clone().bounded(), bounded, "{text:?} {repeat} {items}");
                let record = bounded.to_record();
                assert_eq!(record.len(), bounded.length());
                assert_eq!(serde_json::from_slice::<Decision>(&record).unwrap(), bounded);
                assert!(bounded.user.capacity() <= LONGEST_USER);
            }
        }
    }

    #[test]
    fn warnings_are_cut_before_findings_and_identity_stays() {
        let mut long = decision("short", 0);
        long.warnings = (0..500).map(|number| format!("warning {number}")).collect();
        long.findings = vec!["f".repeat(100); 8];
        long.user = format!("system:serviceaccount:{}:{}", "n".repeat(63), "s".repeat(253));
        let bounded = long.clone().bounded();
        assert_eq!((&bounded.user, &bounded.findings), (&long.user, &long.findings));
        let (last, kept) = bounded.warnings.split_last().unwrap();
        assert_eq!(*last, format!("and {} more", 500 - kept.len()));
        assert_eq!(kept, &long.warnings[..kept.len()]);
    }

    #[test]
    fn a_text_that_is_cut_ends_in_a_mark_and_between_characters() {
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
        assert_eq!(decision.clone().bounded(), decision);
        let read: Decision = serde_json::from_slice(&decision.to_record()).unwrap();
        assert_eq!(read, decision);
    }
}
