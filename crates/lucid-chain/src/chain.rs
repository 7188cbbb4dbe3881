//! Lists of auditor names and their sources.

use std::fmt;

use snafu::{OptionExt, Snafu, ensure};

use crate::{
    catalogue::{Auditor, Catalogue, UnknownAuditor},
    keys,
};

/// Maximum number of auditors in a chain. Bounds the use of uids and ports, and the size of the pod.
pub const MAX_CHAIN: usize = 128;

/// Source of a pod's chain, in descending order of precedence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChainSource {
    /// The pod annotation [`keys::AUDITOR_CHAIN`].
    AuditorChainAnnotation,
    /// The pod annotation [`keys::AUDITORS`].
    AuditorsAnnotation,
    /// The ConfigMap [`keys::NAMESPACE_CONFIG_MAP`] in the pod's namespace.
    Namespace,
    /// The operator's configuration.
    Operator,
    /// The built-in default.
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

/// A list of auditor names is not a valid chain.
#[derive(Debug, Clone, PartialEq, Eq, Snafu)]
#[non_exhaustive]
pub enum ChainError {
    /// The list is empty.
    #[snafu(display("names no auditor, accepted auditor names separated by commas"))]
    Empty,
    /// An item of the list is empty.
    #[snafu(display("item {position} is empty, accepted auditor names separated by commas"))]
    EmptyItem {
        /// Position of the item, counted from 1.
        position: usize,
    },
    /// The list has more than [`MAX_CHAIN`] names.
    #[snafu(display("names more than {MAX_CHAIN} auditors, accepted at most {MAX_CHAIN}"))]
    TooLong,
    /// A name is not in the catalogue.
    #[snafu(transparent)]
    Unknown {
        /// The unknown name and the known ones.
        source: UnknownAuditor,
    },
}

/// Resolves a comma-separated list of auditor names, in order.
pub(crate) fn parse<'c>(catalogue: &'c Catalogue, list: &str) -> Result<Vec<&'c Auditor>, ChainError> {
    ensure!(!list.trim().is_empty(), EmptySnafu);
    resolve(catalogue, list.split(','))
}

/// Resolves `names`, in order; an auditor may occur several times.
pub(crate) fn resolve<'c, 'n>(
    catalogue: &'c Catalogue,
    names: impl IntoIterator<Item = &'n str>,
) -> Result<Vec<&'c Auditor>, ChainError> {
    let mut chain = Vec::new();
    for name in names {
        ensure!(chain.len() < MAX_CHAIN, TooLongSnafu);
        ensure!(!name.trim().is_empty(), EmptyItemSnafu { position: chain.len() + 1 });
        chain.push(catalogue.resolve(name)?);
    }
    chain.first().context(EmptySnafu)?;
    Ok(chain)
}
