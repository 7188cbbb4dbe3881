//! Requests and responses of remote services.

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use lucid_auditor::{Direction, Passage, Span, Verdict};
use lucid_text::truncate;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Map, Value, json};

use crate::action::Action;
use crate::spans;

/// Protocol of the service that [`Http`](crate::Http) calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum HttpApi {
    /// `POST /` with `{"text", "direction"}`. Responses are `{"allowed": true}`,
    /// `{"allowed": false, "rule", "message"}` or `{"spans": [{"start", "end", "rule", "replacement"}]}`, with offsets in
    /// characters (Unicode code points). `rule`, `message` and `replacement` are optional.
    #[default]
    Plain,
    /// [Detectors of FMS Guardrails and TrustyAI](https://foundation-model-stack.github.io/fms-guardrails-orchestrator/?urls.primaryName=Detector+API):
    /// `POST /api/v1/text/contents`. The header `detector-id` is required.
    Fms,
    /// [Presidio analyzer](https://microsoft.github.io/presidio/api-docs/api-docs.html): `POST /analyze`. Default of the
    /// parameter `language`: `en`.
    Presidio,
    /// [NeMo Guardrails](https://docs.nvidia.com/nemo/guardrails/reference/guardrails-api-server/checks/check-content.md):
    /// `POST /v1/checks`, or `/v1/guardrail/checks` of the NeMo microservice and of TrustyAI, if the URL has that path. The
    /// parameter `model` is required. Prompts and tool results are checked by input rails, completions and tool calls by
    /// output rails.
    Nemo,
    /// [Generic guardrail API of LiteLLM](https://docs.litellm.ai/docs/adding_provider/generic_guardrail_api):
    /// `POST /beta/litellm_basic_guardrail_api`.
    Litellm,
}

impl HttpApi {
    pub(super) const fn path(self) -> &'static str {
        match self {
            Self::Plain => "/",
            Self::Fms => "/api/v1/text/contents",
            Self::Presidio => "/analyze",
            Self::Nemo => "/v1/checks",
            Self::Litellm => "/beta/litellm_basic_guardrail_api",
        }
    }

    /// Valid responses, for error messages.
    pub(super) const fn expected(self) -> &'static str {
        match self {
            Self::Plain => r#"{"allowed": …} or {"spans": […]}"#,
            Self::Fms => r#"[[{"start", "end", "detection", "detection_type", "score"}, …]]"#,
            Self::Presidio => r#"[{"start", "end", "entity_type", "score"}, …]"#,
            Self::Nemo => r#"{"status": "passed", "success", "modified" or "blocked"}"#,
            Self::Litellm => r#"{"action": "NONE", "BLOCKED" or "GUARDRAIL_INTERVENED"}"#,
        }
    }

    pub(super) const fn has_scores(self) -> bool {
        matches!(self, Self::Fms | Self::Presidio)
    }

    /// Fields of the request body that parameters may replace.
    pub(super) fn defaults(self, threshold: f64) -> Map<String, Value> {
        object(match self {
            Self::Presidio => json!({ "language": "en", "score_threshold": threshold }),
            // LiteLLM sends null for absent values, and services may require the fields.
            Self::Litellm => json!({
                "additional_provider_specific_params": {},
                "images": null,
                "litellm_call_id": null,
                "litellm_trace_id": null,
                "request_data": {},
                "structured_messages": null,
                "tool_calls": null,
                "tools": null,
            }),
            Self::Plain | Self::Fms | Self::Nemo => json!({}),
        })
    }

    /// Fields of the request body for the text.
    pub(super) fn text(self, passage: &Passage<'_>) -> Map<String, Value> {
        let text = &passage.text;
        let is_request = matches!(passage.direction, Direction::Prompt | Direction::ToolResult);
        object(match self {
            Self::Plain => json!({ "text": text, "direction": passage.direction.as_str() }),
            Self::Fms => json!({ "contents": [text] }),
            Self::Presidio => json!({ "text": text }),
            // No rail checks a message with another role, unless configured for it.
            Self::Nemo => {
                let role = if is_request { "user" } else { "assistant" };
                json!({ "messages": [{ "role": role, "content": text }] })
            }
            Self::Litellm => {
                json!({ "texts": [text], "input_type": if is_request { "request" } else { "response" } })
            }
        })
    }

    pub(super) fn read(
        self,
        body: &[u8],
        text: &str,
        threshold: f64,
        rules: &Rules,
    ) -> Result<Finding, Fault> {
        match self {
            Self::Plain => {
                let response: Plain = parse_object(body)?;
                match response {
                    Plain { allowed: Some(false), rule, message, .. } => Ok(Finding::Denied {
                        rule: rules.label(rule.as_deref().unwrap_or("denied")),
                        message: message.as_deref().map(shortened),
                    }),
                    Plain { spans: Some(spans), .. } => spanned(spans, text, threshold, rules),
                    Plain { allowed: Some(true), .. } => Ok(Finding::None),
                    Plain { allowed: None, .. } => Err(Fault::Malformed),
                }
            }
            Self::Fms => {
                let response: [Vec<Scored>; 1] = parse(body)?;
                let [detections] = response;
                spanned(detections, text, threshold, rules)
            }
            Self::Presidio => spanned(parse::<Vec<Scored>>(body)?, text, threshold, rules),
            Self::Nemo => {
                let response: Nemo = parse_object(body)?;
                match (response.status.as_str(), response.content) {
                    ("passed" | "success", _) => Ok(Finding::None),
                    ("modified", Some(content)) => Ok(replaced(text, &content)),
                    ("blocked", _) => {
                        let rails = response.rails_status.unwrap_or_default();
                        let is_blocked = |(rail, status): (String, RailStatus)| {
                            (status.status == "blocked").then_some(rail)
                        };
                        let rail = response.rail.or_else(|| rails.into_iter().find_map(is_blocked));
                        let rule = rules.label(rail.as_deref().unwrap_or("blocked"));
                        Ok(Finding::Denied { rule, message: None })
                    }
                    _ => Err(Fault::Malformed),
                }
            }
            Self::Litellm => {
                let response: Litellm = parse_object(body)?;
                match (response.action.as_str(), response.texts.as_deref()) {
                    ("BLOCKED", _) => {
                        let message = response.blocked_reason.as_deref().map(shortened);
                        Ok(Finding::Denied { rule: "blocked".into(), message })
                    }
                    // LiteLLM itself replaces the texts with both actions.
                    ("NONE" | "GUARDRAIL_INTERVENED", Some([new])) => Ok(replaced(text, new)),
                    ("NONE", None | Some([])) => Ok(Finding::None),
                    _ => Err(Fault::Malformed),
                }
            }
        }
    }
}

/// Verdict of a service, before the judge's action.
#[derive(Debug)]
pub(super) enum Finding {
    None,
    Denied {
        rule: String,
        message: Option<String>,
    },
    /// Not empty, in order, without overlaps.
    Spans(Vec<Span>),
}

impl Finding {
    pub(super) fn into_verdict(self, action: Action) -> Verdict {
        match self {
            Self::None => Verdict::Allow,
            Self::Denied { rule, message } => {
                let message = message.unwrap_or_else(|| format!("the text violates {rule}"));
                Verdict::deny(rule, message)
            }
            Self::Spans(spans) => match (action, spans.first()) {
                (Action::Deny, Some(span)) => {
                    Verdict::deny(span.rule.clone(), format!("the text contains {}", span.rule))
                }
                (Action::Allow, _) => Verdict::Allow,
                _ => Verdict::Mask(spans),
            },
        }
    }
}

#[derive(Debug)]
pub(super) enum Fault {
    Malformed,
    /// Offsets in characters.
    OutOfRange {
        start: usize,
        end: usize,
        length: usize,
    },
}

/// Names of rules as label values: bounded in length and number, since a service may send any.
#[derive(Debug, Default)]
pub(super) struct Rules(Mutex<HashSet<String>>);

impl Rules {
    const LIMIT: usize = 64;

    fn label(&self, name: &str) -> String {
        let is_valid = (1..=Self::LIMIT).contains(&name.len())
            && name.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ');
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_known =
            is_valid && (known.contains(name) || known.len() < Self::LIMIT && known.insert(name.to_owned()));
        if is_known { name.to_owned() } else { "other".to_owned() }
    }
}

#[derive(Deserialize)]
struct Plain {
    allowed: Option<bool>,
    rule: Option<String>,
    message: Option<String>,
    spans: Option<Vec<Scored>>,
}

/// A finding of Presidio, of FMS detectors or of a plain service.
#[derive(Deserialize)]
struct Scored {
    start: usize,
    end: usize,
    score: Option<f64>,
    #[serde(alias = "entity_type", alias = "detection")]
    rule: Option<String>,
    detection_type: Option<String>,
    replacement: Option<String>,
}

#[derive(Deserialize)]
struct Nemo {
    status: String,
    content: Option<String>,
    rail: Option<String>,
    rails_status: Option<BTreeMap<String, RailStatus>>,
}

#[derive(Deserialize)]
struct RailStatus {
    status: String,
}

#[derive(Deserialize)]
struct Litellm {
    action: String,
    blocked_reason: Option<String>,
    texts: Option<Vec<String>>,
}

/// Reads an object: serde also accepts a list of its values. Errors of serde are dropped, since they may quote the text.
fn parse_object<T: DeserializeOwned>(body: &[u8]) -> Result<T, Fault> {
    let object: Map<String, Value> = parse(body)?;
    serde_json::from_value(Value::Object(object)).map_err(|_| Fault::Malformed)
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Fault> {
    serde_json::from_slice(body).map_err(|_| Fault::Malformed)
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

/// Converts offsets in characters to bytes, and merges overlapping spans: the longer one names the rule.
fn spanned(mut scored: Vec<Scored>, text: &str, threshold: f64, rules: &Rules) -> Result<Finding, Fault> {
    scored.retain(|span| span.score.is_none_or(|score| score >= threshold));
    if scored.is_empty() {
        return Ok(Finding::None);
    }
    let bytes: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
    let mut spans = Vec::new();
    for Scored { start, end, rule, detection_type, replacement, .. } in scored {
        let range = match (bytes.get(start), bytes.get(end)) {
            (Some(&start), Some(&end)) if start < end => start..end,
            (Some(_), Some(_)) if start == end => continue,
            _ => return Err(Fault::OutOfRange { start, end, length: bytes.len() - 1 }),
        };
        let name = rule.as_deref().unwrap_or("found");
        let rule =
            rules.label(&detection_type.map_or_else(|| name.to_owned(), |kind| format!("{kind}/{name}")));
        let replacement =
            replacement.unwrap_or_else(|| format!("<{}>", rule.rsplit('/').next().unwrap_or(&rule)));
        spans.push(((), Span::new(range, rule, replacement)));
    }
    Ok(if spans.is_empty() { Finding::None } else { Finding::Spans(spans::merge(spans)) })
}

/// Describes a new text as one span: the part between the common beginning and the common end.
fn replaced(text: &str, new: &str) -> Finding {
    if text == new {
        return Finding::None;
    }
    let common = |pairs: &mut dyn Iterator<Item = (char, char)>| -> usize {
        pairs.take_while(|(old, new)| old == new).map(|(old, _)| old.len_utf8()).sum()
    };
    let start = common(&mut text.chars().zip(new.chars()));
    let (old, inserted) = (&text[start..], &new[start..]);
    let tail = common(&mut old.chars().rev().zip(inserted.chars().rev()));
    let range: Range<usize> = start..text.len() - tail;
    Finding::Spans(vec![Span::new(range, "modified", inserted[..inserted.len() - tail].to_owned())])
}

fn shortened(message: &str) -> String {
    truncate(message, 300).into_owned()
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn masked(text: &str, finding: Finding) -> String {
        let Finding::Spans(spans) = finding else { return text.to_owned() };
        let mut masked = String::new();
        let mut end = 0;
        for span in spans {
            masked.push_str(&text[end..span.range.start]);
            masked.push_str(&span.replacement);
            end = span.range.end;
        }
        masked + &text[end..]
    }

    proptest! {
        #[test]
        fn replacing_the_span_gives_the_new_text(text in "[abé😀]{0,9}", new in "[abé😀]{0,9}") {
            prop_assert_eq!(masked(&text, replaced(&text, &new)), new);
        }

        #[test]
        fn characters_outside_of_spans_stay(text in "\\PC{0,20}", offsets in vec((0..22_usize, 0..22_usize), 0..5)) {
            let spans = offsets.iter().map(|(start, end)| json!({ "start": start, "end": end, "replacement": "" }));
            let body = json!({ "spans": spans.collect::<Vec<_>>() }).to_string();
            let length = text.chars().count();
            let is_valid = offsets.iter().all(|(start, end)| start <= end && *end <= length);
            match HttpApi::Plain.read(body.as_bytes(), &text, 0.5, &Rules::default()) {
                Ok(finding) => {
                    prop_assert!(is_valid);
                    let is_inside = |at: usize| offsets.iter().any(|(start, end)| (*start..*end).contains(&at));
                    let outside = text.chars().enumerate().filter(|(at, _)| !is_inside(*at));
                    let outside: String = outside.map(|(_, character)| character).collect();
                    prop_assert_eq!(masked(&text, finding), outside);
                }
                Err(_) => prop_assert!(!is_valid),
            }
        }

        #[test]
        fn no_body_panics(body in vec(any::<u8>(), 0..64)) {
            for api in [HttpApi::Plain, HttpApi::Fms, HttpApi::Presidio, HttpApi::Nemo, HttpApi::Litellm] {
                drop(api.read(&body, "a text", 0.5, &Rules::default()));
            }
        }
    }
}
