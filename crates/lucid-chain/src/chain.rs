//! Lists of auditor names and their sources.

use std::fmt;

use crate::{
    catalogue::{Auditor, Catalogue},
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

/// Resolves a comma-separated list of auditor names, in order. The error names the problem and the expected values.
pub(crate) fn parse<'c>(catalogue: &'c Catalogue, list: &str) -> Result<Vec<&'c Auditor>, String> {
    match list.trim().is_empty() {
        true => Err(EMPTY.to_owned()),
        false => resolve(catalogue, list.split(',')),
    }
}

const EMPTY: &str = "the list is empty, expected auditor names separated by commas";

/// Resolves `names`, in order; an auditor may occur several times.
pub(crate) fn resolve<'c, 'n>(
    catalogue: &'c Catalogue,
    names: impl IntoIterator<Item = &'n str>,
) -> Result<Vec<&'c Auditor>, String> {
    let mut chain = Vec::new();
    for name in names {
        if chain.len() == MAX_CHAIN {
            return Err(format!("the list is too long, expected at most {MAX_CHAIN} auditors"));
        }
        if name.trim().is_empty() {
            let position = chain.len() + 1;
            return Err(format!("item {position} is empty, expected auditor names separated by commas"));
        }
        chain.push(catalogue.resolve(name).map_err(|error| error.to_string())?);
    }
    if chain.is_empty() { Err(EMPTY.to_owned()) } else { Ok(chain) }
}
