//! Label selectors in the notation of kubectl.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use snafu::ensure;

use super::{RegistrationError, RegistrationSnafu};
use crate::guard::labels::{self, LabelOperator};

const ACCEPTED: &str =
    "accepted are KEY=VALUE, KEY!=VALUE, KEY in (A,B), KEY notin (A,B), KEY and !KEY, separated by commas";

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
/// A [`RegistrationError`] if a requirement is malformed, or its key or value is invalid for a label. `<` and `>`, which
/// kubectl accepts for node selectors, do not exist in a `LabelSelector`.
pub fn parse_selector(text: &str) -> Result<LabelSelector, RegistrationError> {
    let invalid =
        |found: &str, problem: &str| RegistrationSnafu { problem: format!("found {found:?}{problem}") };
    let mut selector = LabelSelector::default();
    for requirement in split(text) {
        let found = requirement.trim();
        ensure!(!found.is_empty(), invalid(text, &format!(": a requirement is empty; {ACCEPTED}")));
        let Requirement { key, operator, values } =
            Requirement::parse(found).ok_or_else(|| invalid(found, &format!("; {ACCEPTED}")).build())?;
        labels::Requirement::new(key, operator, values.iter().copied())
            .map_err(|error| invalid(found, &format!(": {error}")).build())?;
        let labels = selector.match_labels.get_or_insert_default();
        match (operator, &values[..]) {
            // A second value for the same key needs an expression; both together select nothing.
            (LabelOperator::In, [value]) if labels.get(key).is_none_or(|other| other == value) => {
                labels.insert(key.to_owned(), (*value).to_owned());
            }
            _ => selector.match_expressions.get_or_insert_default().push(LabelSelectorRequirement {
                key: key.to_owned(),
                operator: operator.as_str().to_owned(),
                values: (!values.is_empty()).then(|| values.into_iter().map(str::to_owned).collect()),
            }),
        }
    }
    Ok(super::normal(&selector))
}

struct Requirement<'t> {
    key: &'t str,
    operator: LabelOperator,
    values: Vec<&'t str>,
}

impl<'t> Requirement<'t> {
    fn parse(text: &'t str) -> Option<Self> {
        let of = |key: &'t str, operator, values| Some(Self { key: key.trim(), operator, values });
        if let Some(key) = text.strip_prefix('!') {
            return of(key, LabelOperator::DoesNotExist, Vec::new());
        }
        if let Some((key, rest)) = text.split_once(char::is_whitespace) {
            for (name, operator) in [("in", LabelOperator::In), ("notin", LabelOperator::NotIn)] {
                let Some(list) = rest.trim_start().strip_prefix(name) else { continue };
                let list = list.trim().strip_prefix('(').and_then(|list| list.strip_suffix(')'));
                if let Some(list) = list.filter(|list| !list.trim().is_empty()) {
                    return of(key, operator, list.split(',').map(str::trim).collect());
                }
            }
        }
        let one = |(key, value): (&'t str, &'t str), operator| of(key, operator, vec![value.trim()]);
        if let Some(parts) = text.split_once("!=") {
            one(parts, LabelOperator::NotIn)
        } else if let Some(parts) = text.split_once("==").or_else(|| text.split_once('=')) {
            one(parts, LabelOperator::In)
        } else {
            of(text, LabelOperator::Exists, Vec::new())
        }
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
    fn every_form_that_kubectl_takes_is_read() {
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
            assert!(error.contains("found ") && error.contains("accepted"), "{text:?}: {error}");
        }
    }
}
