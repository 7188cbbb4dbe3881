//! The chain of a namespace, from its ConfigMap `lucid-auditor-chain`.

use std::collections::BTreeMap;

use snafu::{ResultExt, Snafu};

use crate::{
    catalogue::{Auditor, Catalogue, CatalogueError},
    chain::{self, ChainError},
    keys,
    text::Excerpt,
};

/// A namespace's ConfigMap gives no chain; the message names the ConfigMap and the key.
#[derive(Debug, Clone, PartialEq, Eq, Snafu)]
#[non_exhaustive]
pub enum NamespaceChainError {
    /// The ConfigMap has neither of the keys that are read.
    #[snafu(display(
        "ConfigMap {namespace}/{}: found {}, accepted the keys {} and {}",
        keys::NAMESPACE_CONFIG_MAP,
        if found.is_empty() { "no data".to_owned() } else { format!("only the keys {}", Excerpt(found)) },
        keys::CHAIN_KEY,
        keys::CATALOGUE_KEY,
    ))]
    NoKey {
        /// Namespace of the ConfigMap.
        namespace: String,
        /// The keys that are there, separated by commas.
        found: String,
    },
    /// The value of [`keys::CATALOGUE_KEY`] is no catalogue.
    #[snafu(transparent)]
    Catalogue {
        /// What is wrong, with origin and line.
        source: CatalogueError,
    },
    /// A key gives no chain.
    #[snafu(display("ConfigMap {namespace}/{}, {key}: {source}", keys::NAMESPACE_CONFIG_MAP))]
    Chain {
        /// Namespace of the ConfigMap.
        namespace: String,
        /// The key.
        key: &'static str,
        /// What is wrong with its value.
        source: ChainError,
    },
}

/// The chain of one namespace, and the catalogue as this namespace sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamespaceChain {
    catalogue: Catalogue,
    chain: Vec<Auditor>,
}

impl NamespaceChain {
    /// Reads the `data` of the ConfigMap.
    ///
    /// Key `chain` holds names separated by commas. Key `auditors.yaml` holds a catalogue: in
    /// this namespace its entries and defaults win over those of `cluster`, and the order of its entries, if it has any,
    /// is the chain unless there is a key `chain` too.
    ///
    /// # Errors
    /// [`NamespaceChainError`] when neither key is there or the value of one is invalid.
    pub fn from_data(
        namespace: &str,
        data: &BTreeMap<String, String>,
        cluster: &Catalogue,
    ) -> Result<Self, NamespaceChainError> {
        let own = data.get(keys::CATALOGUE_KEY).map(|yaml| {
            let origin =
                format!("ConfigMap {namespace}/{}, {}", keys::NAMESPACE_CONFIG_MAP, keys::CATALOGUE_KEY);
            Catalogue::parse(&origin, yaml)
        });
        let own = own.transpose()?;
        let catalogue = own.as_ref().map_or_else(|| cluster.clone(), |own| cluster.overlay(own));
        let (key, chain) = match (data.get(keys::CHAIN_KEY), &own) {
            (Some(names), _) => (keys::CHAIN_KEY, chain::parse(&catalogue, names)),
            (None, Some(own)) if own.auditors().is_empty() => (keys::CATALOGUE_KEY, Ok(Vec::new())),
            (None, Some(own)) => {
                let names = own.auditors().iter().map(Auditor::name);
                (keys::CATALOGUE_KEY, chain::resolve(&catalogue, names))
            }
            (None, None) => {
                let found = data.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
                return NoKeySnafu { namespace, found }.fail();
            }
        };
        let chain = chain.context(ChainSnafu { namespace, key })?.into_iter().cloned().collect();
        Ok(Self { catalogue, chain })
    }

    /// The cluster's catalogue with the namespace's own entries over it.
    pub fn catalogue(&self) -> &Catalogue {
        &self.catalogue
    }

    /// The chain, in order; empty when the namespace makes defaults only.
    pub fn chain(&self) -> &[Auditor] {
        &self.chain
    }
}
