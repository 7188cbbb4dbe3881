//! Labels and annotations whose changes are evaluated.

use std::collections::BTreeSet;

use lucid_chain::keys;

/// Keys of the labels and annotations of a pod whose changes are evaluated: those that begin with
/// [`PREFIX`](Self::PREFIX), and [`names`](Self::names). An update that changes only other labels and annotations
/// passes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvaluatedKeys(BTreeSet<String>);

impl Default for EvaluatedKeys {
    /// Lucid's own keys.
    fn default() -> Self {
        Self([keys::SECURED_LABEL, "canMutate", "canValidate"].map(str::to_owned).into())
    }
}

impl EvaluatedKeys {
    /// Prefix of Lucid's own keys.
    pub const PREFIX: &'static str = "lucid.computing/";

    /// Adds keys, such as that of the [`RequiredLabel`](crate::RequiredLabel) or those that a selector reads.
    #[must_use]
    pub fn with<K: Into<String>>(mut self, keys: impl IntoIterator<Item = K>) -> Self {
        self.0.extend(keys.into_iter().map(Into::into));
        self
    }

    /// Returns `true` if changes of this label or annotation are evaluated.
    #[must_use]
    pub fn contains(&self, key: &str) -> bool {
        key.starts_with(Self::PREFIX) || self.0.contains(key)
    }

    /// Iterates over the keys, in order, without those that only begin with [`PREFIX`](Self::PREFIX).
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}
