//! Consequences of findings.

use serde::Deserialize;

/// Consequence of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Action {
    /// The text must not pass.
    #[default]
    Deny,
    /// The finding is replaced by its name, such as `<CREDIT_CARD>`.
    Mask,
    /// Nothing.
    Allow,
}
