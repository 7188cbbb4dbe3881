//! Label selectors in the notation of kubectl.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use snafu::ensure;

use super::{RegistrationError, RegistrationSnafu};
use crate::guard::labels::{LabelOperator, Requirement};

const EXPECTED: &str =
    "expected KEY=VALUE, KEY!=VALUE, KEY in (A,B), KEY notin (A,B), KEY or !KEY, separated by commas";

/// Parses a selector such as `team=a,stage!=test,tier in (web,api),!legacy`, in the notation of kubectl's `--selector`.
/// All requirements have to hold. An empty text, which would select everything, is rejected.
///
/// ```
/// let selector = lucid_webhook::registration::parse_selector("team=a, !legacy")?;
/// assert_eq!(selector.match_labels.unwrap()["team"], "a");
/// assert_eq!(selector.match_expressions.unwrap()[0].operator, "DoesNotExist");
/// # Ok::<(), lucid_webhook::registration::RegistrationError>(())
/// ```
///
/// # Errors
///
/// A [`RegistrationError`] if a requirement is malformed, or its key or value is invalid for a label. `<` and `>`,
/// which kubectl accepts for node selectors, do not exist in a `LabelSelector`.
pub fn parse_selector(text: &str) -> Result<LabelSelector, RegistrationError> {
    let invalid =
        |found: &str, problem: &str| RegistrationSnafu { problem: format!("selector {found:?}: {problem}") };
    let mut selector = LabelSelector::default();
    for requirement in split(text) {
        let found = requirement.trim();
        ensure!(!found.is_empty(), invalid(text, &format!("a requirement is empty; {EXPECTED}")));
        let requirement = parse(found).ok_or_else(|| invalid(found, EXPECTED).build())?;
        requirement.validate().map_err(|error| invalid(found, &error.to_string()).build())?;
        let Requirement { key, operator, values } = requirement;
        let mut values = Vec::from_iter(values);
        let labels = selector.match_labels.get_or_insert_default();
        match (operator, &mut values[..]) {
            // A second value for the same key needs an expression; both together select nothing.
            (LabelOperator::In, [value]) if labels.get(&key).is_none_or(|other| other == value) => {
                labels.insert(key, std::mem::take(value));
            }
            _ => selector.match_expressions.get_or_insert_default().push(LabelSelectorRequirement {
                key,
                operator: operator.as_str().to_owned(),
                values: Some(values),
            }),
        }
    }
    Ok(super::normal(&selector))
}

fn parse(text: &str) -> Option<Requirement> {
    let of = |key: &str, operator, values: &str| {
        let values = values.split(',').map(|value| value.trim().to_owned()).collect();
        Some(Requirement { key: key.trim().to_owned(), operator, values })
    };
    let bare = |key, operator| Some(Requirement { values: BTreeSet::new(), ..of(key, operator, "")? });
    if let Some(key) = text.strip_prefix('!') {
        return bare(key, LabelOperator::DoesNotExist);
    }
    if let Some((key, rest)) = text.split_once(char::is_whitespace) {
        for (name, operator) in [("in", LabelOperator::In), ("notin", LabelOperator::NotIn)] {
            let Some(list) = rest.trim_start().strip_prefix(name) else { continue };
            let list = list.trim().strip_prefix('(').and_then(|list| list.strip_suffix(')'));
            if let Some(list) = list.filter(|list| !list.trim().is_empty()) {
                return of(key, operator, list);
            }
        }
    }
    if let Some((key, value)) = text.split_once("!=") {
        of(key, LabelOperator::NotIn, value)
    } else if let Some((key, value)) = text.split_once("==").or_else(|| text.split_once('=')) {
        of(key, LabelOperator::In, value)
    } else {
        bare(text, LabelOperator::Exists)
    }
}

/// Splits at commas outside of parentheses.
fn split(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_usize;
    text.split(move |character| {
        match character {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        character == ',' && depth == 0
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn parsed(text: &str) -> Value {
        serde_json::to_value(parse_selector(text).unwrap()).unwrap()
    }

    #[test]
    fn every_selector_syntax_of_kubectl_is_accepted() {
        let expression = |key: &str, operator: &str, values: &[&str]| match values {
            [] => json!({"matchExpressions": [{"key": key, "operator": operator}]}),
            _ => json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]}),
        };
        for (text, expected) in [
            ("a=b", json!({"matchLabels": {"a": "b"}})),
            (" example.com/a == b ", json!({"matchLabels": {"example.com/a": "b"}})),
            ("a=", json!({"matchLabels": {"a": ""}})),
            ("a=b,a=b", json!({"matchLabels": {"a": "b"}})),
            ("a!=b", expression("a", "NotIn", &["b"])),
            ("a in (b, c)", expression("a", "In", &["b", "c"])),
            ("a in(b,c)", expression("a", "In", &["b", "c"])),
            ("a notin (b)", expression("a", "NotIn", &["b"])),
            ("a", expression("a", "Exists", &[])),
            ("in", expression("in", "Exists", &[])),
            ("!a", expression("a", "DoesNotExist", &[])),
            ("! a", expression("a", "DoesNotExist", &[])),
        ] {
            assert_eq!(parsed(text), expected, "{text}");
        }
        assert_eq!(
            parsed("k=v,k2!=v,k3 in (a,b),!k4,k=w"),
            json!({"matchLabels": {"k": "v"}, "matchExpressions": [
                {"key": "k2", "operator": "NotIn", "values": ["v"]},
                {"key": "k3", "operator": "In", "values": ["a", "b"]},
                {"key": "k4", "operator": "DoesNotExist"},
                {"key": "k", "operator": "In", "values": ["w"]},
            ]})
        );
    }

    #[test]
    fn invalid_selectors_are_rejected() {
        for text in [
            "",
            "  ",
            ",",
            "a=b,",
            "a=b,,c",
            "a in ()",
            "a in b",
            "a in (b",
            "a b",
            "a<1",
            "a>1",
            "=b",
            "!",
            "!!a",
            "a=b=c",
            "a=b c",
            "a in (b),c d",
            "ä=b",
            "a=ä",
            "a=(b)",
            "a in (b))",
            "/a=b",
            "a/b/c=d",
        ] {
            let error = parse_selector(text).unwrap_err().to_string();
            assert!(error.contains("selector ") && error.contains("expected"), "{text:?}: {error}");
        }
    }
}
