//! Label selectors (`LabelSelector` of `meta/v1`).

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use snafu::{Snafu, ensure};

use super::metadata::ObjectMeta;
use crate::names::{is_name, is_qualified_name};

/// Selects objects by their labels, as a `LabelSelector` of the Kubernetes API does. An empty one selects everything.
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
    /// All have to hold.
    expressions: Vec<Expression>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Expression {
    key: String,
    operator: LabelOperator,
    values: BTreeSet<String>,
}

/// How a label is compared with the values of an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
pub enum LabelOperator {
    /// The label is there and has one of the values.
    In,
    /// The label has none of the values, or is not there.
    NotIn,
    /// The label is there. Takes no values.
    Exists,
    /// The label is not there. Takes no values.
    DoesNotExist,
}

/// Why something is no label selector.
#[derive(Clone, Debug, PartialEq, Eq, Snafu)]
#[snafu(visibility(pub(crate)))]
#[non_exhaustive]
pub enum InvalidLabels {
    /// A key that no label can have.
    #[snafu(display(
        "label key {key:?}: accepted is a name of up to 63 of A-Z, a-z, 0-9, '-', '_' and '.', alphanumeric at both \
         ends, optionally after a DNS name and '/'"
    ))]
    Key {
        /// The key found.
        key: String,
    },
    /// A value that no label can have.
    #[snafu(display(
        "label {key}: value {value:?}: accepted are up to 63 of A-Z, a-z, 0-9, '-', '_' and '.', alphanumeric at both ends"
    ))]
    Value {
        /// The label.
        key: String,
        /// The value found.
        value: String,
    },
    /// `In` and `NotIn` need values.
    #[snafu(display("label {key}: operator {} needs at least one value", operator.as_str()))]
    NoValues {
        /// The label.
        key: String,
        /// The operator.
        operator: LabelOperator,
    },
    /// `Exists` and `DoesNotExist` take none.
    #[snafu(display("label {key}: operator {} takes no values", operator.as_str()))]
    UnexpectedValues {
        /// The label.
        key: String,
        /// The operator.
        operator: LabelOperator,
    },
}

impl LabelOperator {
    /// As the Kubernetes API writes it.
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
    /// Selects everything.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Demands that the label `key` has this value (an entry of `matchLabels`).
    ///
    /// # Errors
    ///
    /// When no label can have this key or this value.
    pub fn with_label(self, key: impl Into<String>, value: impl Into<String>) -> Result<Self, InvalidLabels> {
        self.with_expression(key, LabelOperator::In, [value.into()])
    }

    /// Demands what an entry of `matchExpressions` says.
    ///
    /// # Errors
    ///
    /// When no label can have this key or one of the values, or when the operator needs values, or takes none.
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
        if let Some(value) = values.iter().find(|value| !value.is_empty() && !is_name(value)) {
            return ValueSnafu { key, value }.fail();
        }
        self.expressions.push(Expression { key, operator, values });
        Ok(self)
    }

    /// Whether it selects everything.
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
