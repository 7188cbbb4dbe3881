//! Options and verdicts of the judges that find entities.

use std::{collections::BTreeMap, error, fmt, ops::Range};

use lucid_auditor::{Span, Verdict};
use serde::Deserialize;

use crate::Action;

/// Options of [`Pii`](crate::Pii) and [`Secrets`](crate::Secrets).
///
/// ```
/// use lucid_guardrails::{EntityOptions, Pii};
///
/// let options: EntityOptions = serde_yaml::from_str("
///     entities: [CREDIT_CARD, IBAN_CODE, US_SSN]
///     actions:
///       CREDIT_CARD: deny
/// ")?;
/// let judge = Pii::new(&options)?;
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[non_exhaustive]
pub struct EntityOptions {
    /// Entities to search for. Default: all, where formats that occur by chance, such as nine digits, need a context word
    /// before them. The formats of a named entity are found without context.
    pub entities: Option<Vec<String>>,
    /// Consequence of a finding. Default: mask.
    pub action: Option<Action>,
    /// Consequences for single entities.
    pub actions: BTreeMap<String, Action>,
}

impl EntityOptions {
    /// Sets the entities to search for.
    pub fn with_entities(mut self, entities: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.entities = Some(entities.into_iter().map(Into::into).collect());
        self
    }

    /// Sets the consequence of a finding.
    pub fn with_action(mut self, action: Action) -> Self {
        self.action = Some(action);
        self
    }

    /// Sets the consequence for one entity.
    pub fn with_entity_action(mut self, entity: impl Into<String>, action: Action) -> Self {
        self.actions.insert(entity.into(), action);
        self
    }

    /// Returns the selection for each of the `known` entities, in their order.
    pub(crate) fn select(&self, known: &[&'static str]) -> Result<Vec<Option<Selected>>, EntityError> {
        let error =
            |key, found: &str| EntityError::Unknown { key, found: found.to_owned(), known: known.join(", ") };
        let named = self.entities.as_deref();
        if named.is_some_and(<[_]>::is_empty) {
            return Err(error("entities", ""));
        }
        if let Some(found) = named.unwrap_or_default().iter().find(|name| !known.contains(&name.as_str())) {
            return Err(error("entities", found));
        }
        if let Some(found) = self.actions.keys().find(|name| !known.contains(&name.as_str())) {
            return Err(error("actions", found));
        }
        Ok(known
            .iter()
            .map(|entity| {
                let action = self.actions.get(*entity).copied().or(self.action).unwrap_or(Action::Mask);
                let is_named = named.map(|named| named.iter().any(|name| name == entity));
                (action != Action::Allow && is_named != Some(false))
                    .then(|| Selected { action, named: is_named.is_some() })
            })
            .collect())
    }
}

/// The options cannot be applied.
#[derive(Debug)]
#[non_exhaustive]
pub enum EntityError {
    /// An entity is not known, or none is named.
    #[non_exhaustive]
    Unknown {
        /// Key of the option.
        key: &'static str,
        /// Value of the option.
        found: String,
        /// Names of the known entities.
        known: String,
    },
    /// The search for all formats cannot be built.
    #[non_exhaustive]
    Search(aho_corasick::BuildError),
}

impl fmt::Display for EntityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { key, found, known } if found.is_empty() => {
                write!(f, "{key}: no entity (known: {known})")
            }
            Self::Unknown { key, found, known } => {
                write!(f, "{key}: entity \"{found}\" not found (known: {known})")
            }
            Self::Search(_) => f.write_str("failed to build the search for all formats"),
        }
    }
}

impl error::Error for EntityError {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            Self::Unknown { .. } => None,
            Self::Search(source) => Some(source),
        }
    }
}

/// An entity to search for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Selected {
    pub(crate) action: Action,
    /// The options name the entity: weak formats count.
    pub(crate) named: bool,
}

/// An entity in a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) range: Range<usize>,
    pub(crate) entity: &'static str,
    pub(crate) action: Action,
    pub(crate) weak: bool,
}

/// Merges findings that overlap. The entity is that of the stronger one, then of the longer one.
pub(crate) fn merge(mut findings: Vec<Finding>) -> Vec<Finding> {
    findings.sort_by_key(|finding| finding.range.start);
    let mut merged: Vec<Finding> = Vec::with_capacity(findings.len());
    for finding in findings {
        match merged.last_mut() {
            Some(last) if finding.range.start < last.range.end => {
                let union = last.range.start..last.range.end.max(finding.range.end);
                if (!finding.weak, finding.range.len()) > (!last.weak, last.range.len()) {
                    *last = finding;
                }
                last.range = union;
            }
            _ => merged.push(finding),
        }
    }
    merged
}

/// Returns the verdict on a text with these findings.
pub(crate) fn verdict(findings: Vec<Finding>, kind: &str) -> Verdict {
    if let Some(denied) = findings.iter().find(|finding| finding.action == Action::Deny) {
        return Verdict::deny(denied.entity, format!("the text contains {kind} ({})", denied.entity));
    }
    match findings.is_empty() {
        true => Verdict::Allow,
        false => Verdict::Mask(
            merge(findings)
                .into_iter()
                .map(|found| Span::new(found.range, found.entity, format!("<{}>", found.entity)))
                .collect(),
        ),
    }
}
