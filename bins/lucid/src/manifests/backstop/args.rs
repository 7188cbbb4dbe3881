//! Options of the backstop policy.

use std::collections::BTreeMap;
use std::path::PathBuf;

use lucid_admission::Scope;
use lucid_chain::{AuditorImages, NamespaceChain};
use lucid_shared::options::InjectionArgs;
use lucid_shared::options::{BreakGlassArgs, SelectorArgs};
use snafu::{OptionExt, ResultExt};

use super::{Backstop, BackstopError};
use crate::files::{self, NamespaceChainSnafu, NamespaceConfigSnafu};

/// The options of the policy.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Backstop")]
pub(in crate::manifests) struct BackstopArgs {
    /// Also a ValidatingAdmissionPolicy with its binding: the API server itself then refuses pods that ask for auditors and
    /// have no chain, whether or not the webhooks are up. It is made of the options below, which are those of `run`, and
    /// has to be printed again when they or the catalogue change.
    #[arg(long)]
    pub(in crate::manifests) backstop: bool,

    /// The cluster's catalogue (auditors.yaml), over the built-in one. Auditor objects belong into it as well.
    #[arg(long, value_name = "FILE", requires = "backstop")]
    config: Option<PathBuf>,

    /// A ConfigMap lucid-auditor-chain as a manifest that names its namespace; may be given several times. Needed of
    /// namespaces whose ConfigMap has auditors.yaml.
    #[arg(long, value_name = "FILE", requires = "backstop")]
    namespace_config: Vec<PathBuf>,

    /// Pods that name no chain must have exactly the configured one. Without it any unbroken chain of known auditors is
    /// enough, for their namespaces may have chains of their own; those of --namespace-config are known, and exact.
    #[arg(long, requires = "backstop")]
    exact_chain: bool,

    /// Auditor images must carry a digest, as for `run`.
    #[arg(long, env = "LUCID_STRICT_NOTARIZATION", value_name = "BOOL", default_value = "false")]
    #[arg(action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    strict_notarization: bool,

    /// No ticket breaks the glass of the policy, whatever the webhooks accept.
    #[arg(long, requires = "backstop")]
    no_break_glass: bool,

    #[command(flatten)]
    break_glass: BreakGlassArgs,

    #[command(flatten)]
    selectors: SelectorArgs,

    #[command(flatten)]
    injection: InjectionArgs,
}

impl BackstopArgs {
    /// Reads the files and combines them with the options.
    pub(in crate::manifests) fn read(&self, namespace: &str) -> Result<Backstop, BackstopError> {
        let catalogue = files::catalogue(self.config.as_deref())?;
        let mut namespaces = BTreeMap::new();
        for path in &self.namespace_config {
            for (namespace, data) in files::namespace_configs(path)? {
                let problem = "found no metadata.namespace, accepted are ConfigMaps that name theirs";
                let namespace = namespace.context(NamespaceConfigSnafu { path, problem })?;
                let chain = NamespaceChain::from_data(&namespace, &data, &catalogue, &AuditorImages::all())
                    .context(NamespaceChainSnafu)?;
                namespaces.insert(namespace, chain);
            }
        }
        Ok(Backstop {
            scope: Scope::new(namespace),
            selectors: self.selectors.clone(),
            settings: self.injection.settings(),
            catalogue,
            namespaces,
            strict: self.strict_notarization,
            exact: self.exact_chain,
            break_glass: (!self.no_break_glass).then(|| self.break_glass.clone()),
        })
    }
}
