//! Options and verdicts of the judges that find entities.

use std::{collections::BTreeMap, ops::Range};

use lucid_auditor::{Span, Verdict};
use serde::Deserialize;

use crate::{OptionsError, action::Action, spans};

/// Options of [`Pii`](crate::Pii) and [`Secrets`](crate::Secrets).
///
/// ```
/// use lucid_guardrails::{EntityOptions, Pii};
///
/// let judge = Pii::new(EntityOptions::default().with_entities(["CREDIT_CARD", "IBAN_CODE"]))?;
/// # Ok::<_, lucid_guardrails::OptionsError>(())
/// ```
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct EntityOptions {
    entities: Option<Vec<String>>,
    action: Action,
    actions: BTreeMap<String, Action>,
}

impl Default for EntityOptions {
    fn default() -> Self {
        Self { entities: None, action: Action::Mask, actions: BTreeMap::new() }
    }
}

impl EntityOptions {
    /// Sets the entities to search for. Default: all, where formats that occur by chance, such as nine digits, need a context
    /// word before them. The formats of a named entity are found without context.
    #[must_use]
    pub fn with_entities(mut self, entities: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.entities = Some(entities.into_iter().map(Into::into).collect());
        self
    }

    /// Returns the selection for each of the `known` entities, in their order.
    pub(crate) fn select(&self, known: &[&'static str]) -> Result<Vec<Option<Selected>>, OptionsError> {
        let error = |key, found: &str| OptionsError::one_of(key, found, known.join(", "));
        let named = self.entities.as_deref();
        if named.is_some_and(<[_]>::is_empty) {
            return Err(error("entities", "none"));
        }
        let is_unknown = |name: &&String| !known.contains(&name.as_str());
        if let Some(found) = named.unwrap_or_default().iter().find(is_unknown) {
            return Err(error("entities", &format!("{found:?}")));
        }
        if let Some(found) = self.actions.keys().find(is_unknown) {
            return Err(error("actions", &format!("{found:?}")));
        }
        Ok(known
            .iter()
            .map(|entity| {
                let action = self.actions.get(*entity).copied().unwrap_or(self.action);
                let is_named = named.map(|named| named.iter().any(|name| name == entity));
                (action != Action::Allow && is_named != Some(false))
                    .then(|| Selected { action, named: is_named.is_some() })
            })
            .collect())
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Selected {
    pub(crate) action: Action,
    /// The options name the entity: weak formats count.
    pub(crate) named: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) range: Range<usize>,
    pub(crate) entity: &'static str,
    pub(crate) action: Action,
    pub(crate) weak: bool,
}

pub(crate) fn verdict(findings: Vec<Finding>, kind: &str) -> Verdict {
    if let Some(denied) = findings.iter().find(|finding| finding.action == Action::Deny) {
        return Verdict::deny(denied.entity, format!("the text contains {kind} ({})", denied.entity));
    }
    match findings.is_empty() {
        true => Verdict::Allow,
        false => {
            let span = |Finding { range, entity, weak, .. }| {
                (!weak, Span::new(range, entity, format!("<{entity}>")))
            };
            Verdict::Mask(spans::merge(findings.into_iter().map(span).collect()))
        }
    }
}
