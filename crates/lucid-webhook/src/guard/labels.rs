//! Label selectors (`LabelSelector` of `meta/v1`).

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use lucid_text::names::{is_label_value, is_qualified_name};
use serde::Deserialize;
use snafu::{OptionExt, Snafu, ensure};

use super::metadata::ObjectMeta;

/// A validated label selector. An empty one selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Labels(Vec<Requirement>);

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Requirement {
    pub(crate) key: String,
    pub(crate) operator: LabelOperator,
    #[serde(default)]
    pub(crate) values: BTreeSet<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub(crate) enum LabelOperator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
}

#[derive(Clone, Debug, PartialEq, Eq, Snafu)]
#[snafu(display("{problem}"), visibility(pub(crate)))]
pub(crate) struct InvalidSelector {
    problem: String,
}

impl LabelOperator {
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
            problem: format!("operator: expected one of In, NotIn, Exists, DoesNotExist; found {name:?}"),
        })
    }
}

impl Requirement {
    pub(crate) fn validate(&self) -> Result<(), InvalidSelector> {
        const NAME: &str = "up to 63 of A-Z, a-z, 0-9, '-', '_' and '.', alphanumeric at both ends";
        let Self { key, operator, values } = self;
        let invalid = |problem: String| InvalidSelectorSnafu { problem: format!("label {problem}") };
        ensure!(
            is_qualified_name(key),
            invalid(format!("key {key:?}: expected a name of {NAME}, optionally after a DNS name and '/'"))
        );
        let takes_values = matches!(operator, LabelOperator::In | LabelOperator::NotIn);
        let needs = if takes_values { "needs at least one value" } else { "takes no values" };
        ensure!(
            takes_values != values.is_empty(),
            invalid(format!("{key}: operator {} {needs}", operator.as_str()))
        );
        match values.iter().find(|value| !is_label_value(value)) {
            Some(value) => invalid(format!("{key}: value {value:?}: expected {NAME}")).fail(),
            None => Ok(()),
        }
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
    pub(super) fn new(
        match_labels: BTreeMap<String, String>,
        match_expressions: Vec<Requirement>,
    ) -> Result<Self, InvalidSelector> {
        let labels = match_labels.into_iter().map(|(key, value)| Requirement {
            key,
            operator: LabelOperator::In,
            values: [value].into(),
        });
        let requirements: Vec<_> = labels.chain(match_expressions).collect();
        requirements.iter().try_for_each(Requirement::validate)?;
        Ok(Self(requirements))
    }

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
        let expressions = selector.match_expressions.iter().flatten().map(|expression| {
            let (key, operator) = (expression.key.clone(), LabelOperator::from_name(&expression.operator)?);
            Ok(Requirement { key, operator, values: expression.values.iter().flatten().cloned().collect() })
        });
        let labels = selector.match_labels.clone().unwrap_or_default();
        Self::new(labels, expressions.collect::<Result<_, _>>()?)
    }
}
