//! Lists of auditor names and their sources.

use std::fmt;

use crate::{
    catalogue::{Auditor, Catalogue},
    entry_policy::EntryPolicy,
    keys,
};

/// Maximum number of auditors in a chain. Bounds the use of uids and ports, and the size of the pod.
pub const MAX_CHAIN: usize = 128;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChainSource {
    AuditorChainAnnotation,
    AuditorsAnnotation,
    Namespace,
    Operator,
    BuiltIn,
}

impl fmt::Display for ChainSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AuditorChainAnnotation => write!(f, "annotation {}", keys::AUDITOR_CHAIN),
            Self::AuditorsAnnotation => write!(f, "annotation {}", keys::AUDITORS),
            Self::Namespace => write!(f, "ConfigMap {} of the namespace", keys::NAMESPACE_CONFIG_MAP),
            Self::Operator => f.write_str("operator configuration"),
            Self::BuiltIn => f.write_str("built-in default"),
        }
    }
}

/// Resolves a comma-separated list of entries, in order. The error names the problem and the expected values.
pub(crate) fn parse(catalogue: &Catalogue, list: &str) -> Result<Vec<Auditor>, String> {
    match list.trim().is_empty() {
        true => Err(EMPTY.to_owned()),
        false => resolve(catalogue, list.split(',')),
    }
}

const EMPTY: &str = "the list is empty, expected auditor names separated by commas";

/// Resolves `entries`, in order: names of auditors, each with optional parameters such as
/// `injection?mode=observe&timeout=5s`. An auditor may occur several times.
pub(crate) fn resolve<'n>(
    catalogue: &Catalogue,
    entries: impl IntoIterator<Item = &'n str>,
) -> Result<Vec<Auditor>, String> {
    let mut chain = Vec::new();
    for entry in entries {
        if chain.len() == MAX_CHAIN {
            return Err(format!("the list is too long, expected at most {MAX_CHAIN} auditors"));
        }
        if entry.trim().is_empty() {
            let position = chain.len() + 1;
            return Err(format!("item {position} is empty, expected auditor names separated by commas"));
        }
        let (name, parameters) = match entry.trim().split_once('?') {
            Some((name, parameters)) => (name, Some(parameters)),
            None => (entry, None),
        };
        let auditor = catalogue.resolve(name).map_err(|error| error.to_string())?;
        let policy = parameters.map(str::parse::<EntryPolicy>).transpose();
        let policy = policy.map_err(|problem| format!("{}: {problem}", auditor.name()))?;
        chain.push(auditor.with_policy(policy.unwrap_or_default()));
    }
    if chain.is_empty() { Err(EMPTY.to_owned()) } else { Ok(chain) }
}
