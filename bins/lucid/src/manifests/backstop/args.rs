//! Options of the backstop policy.

use std::collections::BTreeMap;
use std::path::PathBuf;

use lucid_admission::Scope;
use lucid_chain::{NamespaceChain, NamespaceSettings};
use lucid_shared::options::{BreakGlassArgs, InjectionArgs, SelectorArgs};

use super::Backstop;
use crate::error::{Result, ResultExt};
use crate::files;

/// Options of the policy.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Backstop")]
pub(in crate::manifests) struct BackstopArgs {
    /// Include a ValidatingAdmissionPolicy and its binding, by which the API server itself denies pods that request
    /// auditors and have no chain, even while the webhooks are unavailable. It is generated from the options below,
    /// which must match those of `run`. Generate it again when they or the catalogue change.
    #[arg(long)]
    pub(in crate::manifests) backstop: bool,

    /// Print only the policy, for a file in the API servers' staticManifestsDir (Kubernetes 1.37; KEP-5793), with another
    /// one that keeps Lucid's registrations from all who cannot act as its service accounts. Neither can be deleted.
    #[arg(long = "static", requires = "backstop")]
    pub(in crate::manifests) is_static: bool,

    /// Catalogue of the cluster (auditors.yaml), overlaid on the built-in one. It must include Auditor objects.
    #[arg(long, value_name = "FILE", requires = "backstop")]
    catalogue: Option<PathBuf>,

    /// ConfigMap lucid-auditor-chain as a manifest with its namespace; repeatable. Required for namespaces whose
    /// ConfigMap contains auditors.yaml.
    #[arg(long, value_name = "FILE", requires = "backstop")]
    namespace_config: Vec<PathBuf>,

    /// Require the configured chain in pods that do not name one. Without it any unbroken chain of known auditors is
    /// accepted, because namespaces may have their own; namespaces given by --namespace-config always require their
    /// exact chain.
    #[arg(long, requires = "backstop")]
    exact_chain: bool,

    /// Require digests in auditor images, as for `run`.
    #[arg(long, env = "LUCID_STRICT_NOTARIZATION", value_name = "BOOL", default_value = "false")]
    #[arg(action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    strict_notarization: bool,

    /// Accept no break-glass tickets in the policy, regardless of the webhooks.
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
    pub(in crate::manifests) fn read(&self, namespace: &str) -> Result<Backstop> {
        let injection = self.injection.settings();
        let catalogue = injection.configuration(files::catalogue(self.catalogue.as_deref())?).usage()?;
        let catalogue = catalogue.catalogue().clone();
        let mut namespaces = BTreeMap::new();
        let settings = NamespaceSettings::default().with_any_auditor_image();
        for path in &self.namespace_config {
            for (namespace, data) in files::namespace_configs(path)? {
                let problem = "found no metadata.namespace";
                let namespace = namespace.ok_or_else(|| files::namespace_config_error(path, problem))?;
                let chain = NamespaceChain::from_data(&namespace, &data, &catalogue, &settings);
                let chain = chain.failed_to("read --namespace-config").usage()?;
                namespaces.insert(namespace, chain);
            }
        }
        Ok(Backstop {
            scope: Scope::new(namespace),
            selectors: self.selectors.clone(),
            settings: injection,
            catalogue,
            namespaces,
            strict: self.strict_notarization,
            exact: self.exact_chain,
            break_glass: (!self.no_break_glass).then(|| self.break_glass.clone()),
        })
    }
}
