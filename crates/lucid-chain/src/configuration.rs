//! What the operator decides for all pods.

use std::num::NonZeroU16;

use lucid_notary::{ImageReference, reference::ReferenceError};
use serde::{Deserialize, Serialize};
use snafu::{ResultExt, Snafu};

use crate::{
    catalogue::{Auditor, Catalogue},
    chain::{self, ChainError, ChainSource},
    mode::{AuditMode, Direction, Intercept, SidecarMode},
    skip::SkipPolicy,
};

/// The image of the init container that installs the network rules, unless the operator names another one.
pub const DEFAULT_INIT_IMAGE: &str = concat!("ghcr.io/lucid/lucid-init:", env!("CARGO_PKG_VERSION"));

/// The chain of a pod when nobody says anything: the same auditor twice.
pub const DEFAULT_CHAIN: [&str; 2] = ["lucid-guardrails-auditor", "lucid-guardrails-auditor"];

/// A [`Configuration`] cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, Snafu)]
#[non_exhaustive]
pub enum ConfigurationError {
    /// The operator's own chain is none.
    #[snafu(display("failed to read the operator's chain: {source}"))]
    OperatorChain {
        /// What is wrong with it.
        source: ChainError,
    },
    /// No chain is configured and the catalogue lacks an auditor of the default one.
    #[snafu(display("failed to find the built-in chain in the catalogue: {source}"))]
    DefaultChain {
        /// What is missing.
        source: ChainError,
    },
    /// The built-in reference of lucid-init is none.
    #[snafu(display("failed to read {DEFAULT_INIT_IMAGE}: {source}"))]
    InitImage {
        /// What is wrong with it.
        source: ReferenceError,
    },
}

/// Settings of the operator that win over a pod's annotations.
///
/// Not `#[non_exhaustive]`: who fills it from flags should hear from the compiler of a setting that is new. Who sets a few
/// writes `..Overrides::default()`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Overrides {
    /// What auditors do with what they find.
    pub audit_mode: Option<AuditMode>,
    /// The port models listen on.
    pub target_port: Option<NonZeroU16>,
    /// Which traffic the chain stands in.
    pub direction: Option<Direction>,
    /// What kind of containers auditors are.
    pub sidecar_mode: Option<SidecarMode>,
    /// How traffic comes to the chain.
    pub intercept: Option<Intercept>,
    /// The port of other hosts to which calls are taken to be calls of a model.
    pub outbound_port: Option<NonZeroU16>,
}

/// The cluster's catalogue and the operator's settings.
///
/// ```
/// use lucid_chain::{AuditMode, Catalogue, Configuration, SkipPolicy};
///
/// let chain = ["injection".to_owned(), "toxicity".to_owned()];
/// let mut configuration = Configuration::new(Catalogue::builtin(), Some(&chain))?;
/// configuration.overrides.audit_mode = Some(AuditMode::Observe);
/// configuration.skip = SkipPolicy::Always;
///
/// let unknown = Configuration::new(Catalogue::builtin(), Some(&["injectoin".to_owned()]));
/// assert!(unknown.unwrap_err().to_string().contains("did you mean lucid-injection-auditor?"));
/// # Ok::<(), lucid_chain::ConfigurationError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Configuration {
    catalogue: Catalogue,
    chain: Vec<Auditor>,
    chain_source: ChainSource,
    /// Settings that win over a pod's annotations.
    pub overrides: Overrides,
    /// Which pods may ask for no injection.
    pub skip: SkipPolicy,
    /// Image of the init container that installs the network rules.
    pub init_image: ImageReference,
    /// Names of Secrets with which images are pulled. Every pod with a chain refers to them.
    pub image_pull_secrets: Vec<String>,
}

impl Configuration {
    /// A configuration with this catalogue and chain, no overrides, `skip-audit` not allowed, [`DEFAULT_INIT_IMAGE`] and
    /// no pull secrets. Without a chain it is [`DEFAULT_CHAIN`].
    ///
    /// # Errors
    /// [`ConfigurationError`] when the chain is empty, too long or names an auditor that the
    /// catalogue does not have.
    pub fn new(catalogue: Catalogue, chain: Option<&[String]>) -> Result<Self, ConfigurationError> {
        let (chain, chain_source) = match chain {
            Some(names) => {
                let chain = chain::resolve(&catalogue, names.iter().map(String::as_str));
                (chain.context(OperatorChainSnafu)?, ChainSource::Operator)
            }
            None => {
                let chain = chain::resolve(&catalogue, DEFAULT_CHAIN);
                (chain.context(DefaultChainSnafu)?, ChainSource::BuiltIn)
            }
        };
        let chain = chain.into_iter().cloned().collect();
        Ok(Self {
            catalogue,
            chain,
            chain_source,
            overrides: Overrides::default(),
            skip: SkipPolicy::default(),
            init_image: DEFAULT_INIT_IMAGE.parse().context(InitImageSnafu)?,
            image_pull_secrets: Vec::new(),
        })
    }

    /// The auditors of the cluster.
    pub fn catalogue(&self) -> &Catalogue {
        &self.catalogue
    }

    /// The chain of a pod that neither its annotations nor its namespace give one.
    pub fn chain(&self) -> &[Auditor] {
        &self.chain
    }

    /// Whether [`chain`](Self::chain) is the operator's own or the built-in one.
    pub fn chain_source(&self) -> ChainSource {
        self.chain_source
    }
}
