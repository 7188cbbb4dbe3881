//! Rules that come with the crate.

use serde::Deserialize;

use super::{Rule, parse};
use crate::OptionsError;

/// A rule file that comes with the crate.
///
/// Such rules are a first line of defence: they find known wording at little cost, and miss what is worded differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum Builtin {
    /// Prompt injection and jailbreaks: `rules/injection.yaml`.
    Injection,
    /// Threats, slurs and harassment: `rules/toxicity.yaml`.
    Toxicity,
}

impl Builtin {
    pub(crate) fn rules(self) -> Result<Vec<Rule>, OptionsError> {
        match self {
            Self::Injection => parse("builtin", include_str!("../../rules/injection.yaml"), "injection.yaml"),
            Self::Toxicity => parse("builtin", include_str!("../../rules/toxicity.yaml"), "toxicity.yaml"),
        }
    }
}
