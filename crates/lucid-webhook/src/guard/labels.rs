//! Label selectors (`LabelSelector` of `meta/v1`).

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use lucid_text::names::{is_label_value, is_qualified_name};
use serde::Deserialize;
use snafu::{OptionExt, Snafu, ensure};

use super::metadata::ObjectMeta;

/// A validated label selector. An empty one selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Labels(Vec<Requirement>);

/// A requirement on one label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Requirement {
    key: String,
    operator: LabelOperator,
    values: BTreeSet<String>,
}

/// Operator of a [`Requirement`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub(crate) enum LabelOperator {
    /// The label exists and has one of the values.
    In,
    /// The label has none of the values, or does not exist.
    NotIn,
    /// The label exists.
    Exists,
    /// The label does not exist.
    DoesNotExist,
}

/// The selector is invalid.
#[derive(Clone, Debug, PartialEq, Eq, Snafu)]
#[snafu(display("{problem}"), visibility(pub(crate)))]
pub(crate) struct InvalidSelector {
    problem: String,
}

impl LabelOperator {
    /// Name in the Kubernetes API.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::In => "In",
            Self::NotIn => "NotIn",
            Self::Exists => "Exists",
            Self::DoesNotExist => "DoesNotExist",
        }
    }

    fn from_name(name: &str) -> Result<Self, InvalidSelector> {
        let all = [Self::In, Self::NotIn, Self::Exists, Self::DoesNotExist];
        all.into_iter().find(|operator| operator.as_str() == name).with_context(|| InvalidSelectorSnafu {
            problem: format!("operator {name:?}, accepted are In, NotIn, Exists and DoesNotExist"),
        })
    }
}

impl Requirement {
    pub(crate) fn new<V: Into<String>>(
        key: &str,
        operator: LabelOperator,
        values: impl IntoIterator<Item = V>,
    ) -> Result<Self, InvalidSelector> {
        const NAME: &str = "up to 63 of A-Z, a-z, 0-9, '-', '_' and '.', alphanumeric at both ends";
        let invalid = |problem: String| InvalidSelectorSnafu { problem: format!("label {problem}") };
        let values: BTreeSet<String> = values.into_iter().map(Into::into).collect();
        ensure!(
            is_qualified_name(key),
            invalid(format!(
                "key {key:?}: accepted is a name of {NAME}, optionally after a DNS name and '/'"
            ))
        );
        let takes_values = matches!(operator, LabelOperator::In | LabelOperator::NotIn);
        let needs = if takes_values { "needs at least one value" } else { "takes no values" };
        ensure!(
            takes_values != values.is_empty(),
            invalid(format!("{key}: operator {} {needs}", operator.as_str()))
        );
        if let Some(value) = values.iter().find(|value| !is_label_value(value)) {
            return invalid(format!("{key}: value {value:?}: accepted are {NAME}")).fail();
        }
        Ok(Self { key: key.to_owned(), operator, values })
    }

    fn matches(&self, object: &ObjectMeta) -> bool {
        let label = object.label(&self.key);
        match self.operator {
            LabelOperator::In => label.is_some_and(|value| self.values.contains(value)),
            LabelOperator::NotIn => label.is_none_or(|value| !self.values.contains(value)),
            LabelOperator::Exists => label.is_some(),
            LabelOperator::DoesNotExist => label.is_none(),
        }
    }
}

impl Labels {
    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|requirement| requirement.key.as_str())
    }

    pub(crate) fn matches(&self, object: &ObjectMeta) -> bool {
        self.0.iter().all(|requirement| requirement.matches(object))
    }
}

impl TryFrom<&LabelSelector> for Labels {
    type Error = InvalidSelector;

    fn try_from(selector: &LabelSelector) -> Result<Self, InvalidSelector> {
        let labels = selector.match_labels.iter().flatten();
        let labels = labels.map(|(key, value)| Requirement::new(key, LabelOperator::In, [value]));
        let expressions = selector.match_expressions.iter().flatten();
        let expressions = expressions.map(|LabelSelectorRequirement { key, operator, values }| {
            Requirement::new(key, LabelOperator::from_name(operator)?, values.iter().flatten())
        });
        Ok(Self(labels.chain(expressions).collect::<Result<_, _>>()?))
    }
}

/// One of the `matchExpressions` of a `LabelSelector`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MatchExpression {
    key: String,
    operator: LabelOperator,
    #[serde(default)]
    values: Vec<String>,
}

impl Labels {
    pub(super) fn new(
        match_labels: &BTreeMap<String, String>,
        match_expressions: &[MatchExpression],
    ) -> Result<Self, InvalidSelector> {
        let labels = match_labels.iter();
        let labels = labels.map(|(key, value)| Requirement::new(key, LabelOperator::In, [value]));
        let expressions = match_expressions
            .iter()
            .map(|MatchExpression { key, operator, values }| Requirement::new(key, *operator, values));
        Ok(Self(labels.chain(expressions).collect::<Result<_, _>>()?))
    }
}
