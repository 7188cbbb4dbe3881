//! Consequences of findings.

use serde::Deserialize;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Action {
    #[default]
    Deny,
    /// The finding is replaced by its name, such as `<CREDIT_CARD>`.
    Mask,
    Allow,
}
