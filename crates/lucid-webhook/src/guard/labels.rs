//! Label selectors (`LabelSelector` of `meta/v1`).

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use snafu::{Snafu, ensure};

use super::metadata::ObjectMeta;
use crate::names::{is_label_value, is_qualified_name};

/// Selects objects by their labels like a `LabelSelector` of the Kubernetes API. An empty one selects everything.
///
/// ```
/// use lucid_webhook::guard::{LabelOperator, LabelSelector};
///
/// let selector = LabelSelector::new()
///     .with_label("app", "web")?
///     .with_expression("tier", LabelOperator::In, ["a", "b"])?;
/// # Ok::<(), lucid_webhook::guard::InvalidLabels>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "WireSelector")]
pub struct LabelSelector {
    /// All have to match.
    expressions: Vec<Expression>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Expression {
    key: String,
    operator: LabelOperator,
    values: BTreeSet<String>,
}

/// Operator of a label expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
pub enum LabelOperator {
    /// The label exists and has one of the values.
    In,
    /// The label has none of the values, or does not exist.
    NotIn,
    /// The label exists. Takes no values.
    Exists,
    /// The label does not exist. Takes no values.
    DoesNotExist,
}

/// The label selector is invalid.
#[derive(Clone, Debug, PartialEq, Eq, Snafu)]
#[snafu(visibility(pub(crate)))]
#[non_exhaustive]
pub enum InvalidLabels {
    /// The key is not a valid label key.
    #[snafu(display(
        "label key {key:?}: accepted is a name of up to 63 of A-Z, a-z, 0-9, '-', '_' and '.', alphanumeric at both \
         ends, optionally after a DNS name and '/'"
    ))]
    Key {
        /// The key found.
        key: String,
    },
    /// The value is not a valid label value.
    #[snafu(display(
        "label {key}: value {value:?}: accepted are up to 63 of A-Z, a-z, 0-9, '-', '_' and '.', alphanumeric at both ends"
    ))]
    Value {
        /// The label.
        key: String,
        /// The value found.
        value: String,
    },
    /// `In` and `NotIn` require values.
    #[snafu(display("label {key}: operator {} needs at least one value", operator.as_str()))]
    NoValues {
        /// The label.
        key: String,
        /// The operator.
        operator: LabelOperator,
    },
    /// `Exists` and `DoesNotExist` take no values.
    #[snafu(display("label {key}: operator {} takes no values", operator.as_str()))]
    UnexpectedValues {
        /// The label.
        key: String,
        /// The operator.
        operator: LabelOperator,
    },
}

impl LabelOperator {
    /// Name in the Kubernetes API.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::In => "In",
            Self::NotIn => "NotIn",
            Self::Exists => "Exists",
            Self::DoesNotExist => "DoesNotExist",
        }
    }

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        let all = [Self::In, Self::NotIn, Self::Exists, Self::DoesNotExist];
        all.into_iter().find(|operator| operator.as_str() == name)
    }
}

impl LabelSelector {
    /// Creates a selector that selects everything.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Requires the label `key` to have this value (an entry of `matchLabels`).
    ///
    /// # Errors
    ///
    /// [`InvalidLabels`] if the key or the value is invalid.
    pub fn with_label(self, key: impl Into<String>, value: impl Into<String>) -> Result<Self, InvalidLabels> {
        self.with_expression(key, LabelOperator::In, [value.into()])
    }

    /// Adds a requirement (an entry of `matchExpressions`).
    ///
    /// # Errors
    ///
    /// [`InvalidLabels`] if the key or a value is invalid, or if the number of values does not suit the operator.
    pub fn with_expression<V: Into<String>>(
        mut self,
        key: impl Into<String>,
        operator: LabelOperator,
        values: impl IntoIterator<Item = V>,
    ) -> Result<Self, InvalidLabels> {
        let key = key.into();
        let values: BTreeSet<String> = values.into_iter().map(Into::into).collect();
        ensure!(is_qualified_name(&key), KeySnafu { key });
        match operator {
            LabelOperator::In | LabelOperator::NotIn => {
                ensure!(!values.is_empty(), NoValuesSnafu { key, operator });
            }
            LabelOperator::Exists | LabelOperator::DoesNotExist => {
                ensure!(values.is_empty(), UnexpectedValuesSnafu { key, operator });
            }
        }
        if let Some(value) = values.iter().find(|value| !is_label_value(value)) {
            return ValueSnafu { key, value }.fail();
        }
        self.expressions.push(Expression { key, operator, values });
        Ok(self)
    }

    /// Returns `true` if the selector selects everything.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.expressions.is_empty()
    }

    pub(crate) fn matches(&self, object: &ObjectMeta<'_>) -> bool {
        self.expressions.iter().all(|Expression { key, operator, values }| {
            let label = object.label(key);
            match operator {
                LabelOperator::In => label.is_some_and(|value| values.contains(value)),
                LabelOperator::NotIn => label.is_none_or(|value| !values.contains(value)),
                LabelOperator::Exists => label.is_some(),
                LabelOperator::DoesNotExist => label.is_none(),
            }
        })
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WireSelector {
    #[serde(default)]
    match_labels: BTreeMap<String, String>,
    #[serde(default)]
    match_expressions: Vec<WireExpression>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WireExpression {
    key: String,
    operator: LabelOperator,
    #[serde(default)]
    values: Vec<String>,
}

impl TryFrom<WireSelector> for LabelSelector {
    type Error = InvalidLabels;

    fn try_from(wire: WireSelector) -> Result<Self, InvalidLabels> {
        let selector = wire
            .match_labels
            .into_iter()
            .try_fold(Self::new(), |selector, (key, value)| selector.with_label(key, value))?;
        wire.match_expressions.into_iter().try_fold(
            selector,
            |selector, WireExpression { key, operator, values }| {
                selector.with_expression(key, operator, values)
            },
        )
    }
}
