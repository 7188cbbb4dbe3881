//! Cluster-wide configuration of the operator.

use std::num::NonZeroU16;

use lucid_notary::ImageReference;
use serde::{Deserialize, Serialize};

use crate::{
    catalogue::{Auditor, Catalogue, DEFAULT_INIT_IMAGE},
    chain::{self, ChainSource},
    error::Error,
    mode::{AuditMode, Direction, Intercept, SidecarMode},
    port_list::PortList,
    skip::SkipPolicy,
};

const DEFAULT_CHAIN: [&str; 2] = ["lucid-guardrails-auditor", "lucid-guardrails-auditor"];

/// Operator settings that take precedence over pod annotations.
///
/// Exhaustive on purpose: code that fills it from flags fails to compile when a setting is added. To set only a few
/// fields, use `..Overrides::default()`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Overrides {
    /// Reaction of auditors to a finding. With it, pods and namespaces cannot set failure and timeout of auditors either.
    pub audit_mode: Option<AuditMode>,
    /// Ports that models listen on.
    pub target_port: Option<PortList>,
    /// Direction of the audited traffic.
    pub direction: Option<Direction>,
    /// Kind of container that auditors run as.
    pub sidecar_mode: Option<SidecarMode>,
    /// Method that directs traffic to the chain.
    pub intercept: Option<Intercept>,
    /// Remote port on which outbound calls are treated as model calls.
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
/// # Ok::<(), lucid_chain::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Configuration {
    catalogue: Catalogue,
    chain: Vec<Auditor>,
    chain_source: ChainSource,
    /// Settings that take precedence over pod annotations.
    pub overrides: Overrides,
    /// Pods that may opt out of injection.
    pub skip: SkipPolicy,
    /// Image of the init container that installs the network rules.
    pub init_image: ImageReference,
    /// Names of image pull secrets, added to every pod with a chain.
    pub image_pull_secrets: Vec<String>,
}

impl Configuration {
    /// Creates a configuration with no overrides, [`SkipPolicy::Never`], the init image of this release and no pull
    /// secrets. `chain` has entries as in [`keys::AUDITOR_CHAIN`](crate::keys::AUDITOR_CHAIN), and defaults to
    /// `lucid-guardrails-auditor` twice.
    ///
    /// # Errors
    /// Returns [`Error`] if the chain is empty, too long, names an auditor that is not in `catalogue`, or has an invalid
    /// parameter.
    pub fn new(catalogue: Catalogue, chain: Option<&[String]>) -> Result<Self, Error> {
        let failed = |action| move |problem: String| Error::new(format!("failed to {action}: {problem}"));
        let (chain, chain_source) = match chain {
            Some(names) => (
                chain::resolve(&catalogue, names.iter().map(String::as_str))
                    .map_err(failed("read the operator's chain"))?,
                ChainSource::Operator,
            ),
            None => (
                chain::resolve(&catalogue, DEFAULT_CHAIN)
                    .map_err(failed("find the built-in chain in the catalogue"))?,
                ChainSource::BuiltIn,
            ),
        };
        let init_image = DEFAULT_INIT_IMAGE.parse::<ImageReference>();
        Ok(Self {
            catalogue,
            chain,
            chain_source,
            overrides: Overrides::default(),
            skip: SkipPolicy::default(),
            init_image: init_image
                .map_err(|error| failed("read the default init image")(error.to_string()))?,
            image_pull_secrets: Vec::new(),
        })
    }

    /// Returns the cluster's catalogue.
    pub fn catalogue(&self) -> &Catalogue {
        &self.catalogue
    }

    /// Returns the chain for pods whose annotations and namespace specify none.
    pub fn chain(&self) -> &[Auditor] {
        &self.chain
    }

    /// Returns the source of [`chain`](Self::chain): [`ChainSource::Operator`] or [`ChainSource::BuiltIn`].
    pub(crate) fn chain_source(&self) -> ChainSource {
        self.chain_source
    }
}
