//! Lists of auditor names, and who wrote them.

use std::fmt;

use snafu::{OptionExt, Snafu, ensure};

use crate::{
    catalogue::{Auditor, Catalogue, UnknownAuditor},
    keys,
};

/// The longest chain: uids, ports and the pod's own limits are not without end.
pub const MAX_CHAIN: usize = 128;

/// Where the chain of a pod was written; the first that has one gives it.
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
    /// Nowhere: the built-in default.
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

/// A list of auditor names is no chain.
#[derive(Debug, Clone, PartialEq, Eq, Snafu)]
#[non_exhaustive]
pub enum ChainError {
    /// There is no name at all.
    #[snafu(display("names no auditor, accepted auditor names separated by commas"))]
    Empty,
    /// A name between two commas, or before the first or after the last, is empty.
    #[snafu(display("item {position} is empty, accepted auditor names separated by commas"))]
    EmptyItem {
        /// Where the item stands, counted from 1.
        position: usize,
    },
    /// There are more than [`MAX_CHAIN`] names.
    #[snafu(display("names more than {MAX_CHAIN} auditors, accepted at most {MAX_CHAIN}"))]
    TooLong,
    /// A name is not in the catalogue.
    #[snafu(transparent)]
    Unknown {
        /// The name and those that are known.
        source: UnknownAuditor,
    },
}

/// The auditors that a comma-separated list names, in order.
pub(crate) fn parse<'c>(catalogue: &'c Catalogue, list: &str) -> Result<Vec<&'c Auditor>, ChainError> {
    ensure!(!list.trim().is_empty(), EmptySnafu);
    resolve(catalogue, list.split(','))
}

/// The auditors that `names` mean, in order; one auditor may come several times.
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
