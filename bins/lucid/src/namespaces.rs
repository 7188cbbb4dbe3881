//! Namespaces of the offline commands: their labels, annotations and chains, from the files and options.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use lucid_admission::Scope;
use lucid_chain::{Catalogue, NamespaceChain, NamespaceSettings, keys};
use serde_json::Value;

use crate::documents::{Input, Object};
use crate::error::{Result, ResultExt};
use crate::files::{self, Data, namespace_config_error, strings};

/// Namespaces of the cluster.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Configuration")]
pub(crate) struct NamespaceArgs {
    /// Namespace of objects that name none. By default `default`, or for `kubectl lucid` that of the context.
    #[arg(long, short = 'n', value_name = "NAME")]
    #[arg(value_parser = lucid_shared::parse_namespace)]
    pub(crate) namespace: Option<String>,

    /// Labels of the namespaces, such as `pod-security.kubernetes.io/enforce=restricted`, overriding those of Namespace
    /// objects in the files. Also accepts Lucid's namespace annotations.
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',', value_parser = parse_label)]
    namespace_labels: Vec<(String, String)>,

    /// ConfigMap lucid-auditor-chain as a manifest, for namespaces without one in the files.
    #[arg(long, value_name = "FILE")]
    namespace_config: Option<PathBuf>,

    /// Namespace of the operator. Objects in it, kube-system, kube-public and kube-node-lease are skipped.
    #[arg(long, env = "LUCID_NAMESPACE", value_name = "NAME", default_value = "lucid-system")]
    #[arg(value_parser = lucid_shared::parse_namespace)]
    operator_namespace: String,
}

fn parse_label(text: &str) -> Result<(String, String), &'static str> {
    match text.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => Ok((key.trim().to_owned(), value.trim().to_owned())),
        _ => Err("expected comma-separated labels, key=value"),
    }
}

pub(crate) struct Namespaces {
    args: NamespaceArgs,
    scope: Scope,
    /// Labels and annotations by namespace.
    metadata: BTreeMap<String, [Data; 2]>,
    /// `data` of the ConfigMaps by namespace.
    chains: BTreeMap<String, Data>,
    /// `automountServiceAccountToken` of ServiceAccounts by namespace and name.
    automounts_token: BTreeMap<String, BTreeMap<String, bool>>,
    /// `data` for all other namespaces.
    fallback: Option<Data>,
}

pub(crate) struct NamespaceContext {
    pub(crate) settings: NamespaceSettings,
    /// `automountServiceAccountToken` by ServiceAccount, where it is set.
    pub(crate) automounts_token: BTreeMap<String, bool>,
    pub(crate) chain: Option<NamespaceChain>,
    /// Invalid settings of the namespace and of its ConfigMap. An invalid ConfigMap is ignored.
    pub(crate) problems: Vec<String>,
    /// Reason why the webhook is not called for pods of the namespace.
    pub(crate) skip_reason: Option<String>,
}

impl Namespaces {
    pub(crate) fn new<'i>(
        args: &NamespaceArgs,
        catalogue: &Catalogue,
        inputs: impl IntoIterator<Item = &'i Input<'i>>,
    ) -> Result<Self> {
        let mut namespaces = Self {
            scope: Scope::new(&args.operator_namespace),
            metadata: BTreeMap::new(),
            chains: BTreeMap::new(),
            automounts_token: BTreeMap::new(),
            fallback: args.namespace_config.as_deref().map(config_map).transpose()?,
            args: args.clone(),
        };
        for part in inputs.into_iter().flat_map(|input| input.document.parts()) {
            for object in part.objects() {
                namespaces.learn(&object, part.value.pointer(&object.pointer).unwrap_or(&Value::Null));
            }
        }
        // An invalid chain on the command line is an error; one in the files concerns its namespace.
        if let Some(data) = &namespaces.fallback {
            let namespace = namespaces.name_of(None);
            let [labels, annotations] = namespaces.metadata(namespace);
            let settings = NamespaceSettings::new(&labels, &annotations);
            let chain = NamespaceChain::from_data(namespace, data, catalogue, &settings);
            chain.failed_to("read --namespace-config").usage()?;
        }
        Ok(namespaces)
    }

    fn learn(&mut self, object: &Object, value: &Value) {
        match (object.api_version.as_str(), object.kind.as_str()) {
            ("v1", "Namespace") => {
                let metadata = &value["metadata"];
                let both = [&metadata["labels"], &metadata["annotations"]].map(strings);
                self.metadata.insert(object.name.clone(), both);
            }
            ("v1", "ConfigMap") if object.name == keys::NAMESPACE_CONFIG_MAP => {
                let namespace = self.name_of(object.namespace.as_deref()).to_owned();
                self.chains.insert(namespace, strings(&value["data"]));
            }
            ("v1", "ServiceAccount") => {
                if let Some(automounts) = value["automountServiceAccountToken"].as_bool() {
                    let namespace = self.name_of(object.namespace.as_deref()).to_owned();
                    let accounts = self.automounts_token.entry(namespace).or_default();
                    accounts.insert(object.name.clone(), automounts);
                }
            }
            _ => {}
        }
    }

    pub(crate) fn name_of<'n>(&'n self, named: Option<&'n str>) -> &'n str {
        let named = named.filter(|it| !it.is_empty());
        named.or(self.args.namespace.as_deref()).unwrap_or("default")
    }

    /// Returns the labels and annotations of a namespace, with those of the command line added to both.
    fn metadata(&self, namespace: &str) -> [Data; 2] {
        let mut both = self.metadata.get(namespace).cloned().unwrap_or_default();
        both.iter_mut().for_each(|map| map.extend(self.args.namespace_labels.iter().cloned()));
        both
    }

    pub(crate) fn get(&self, namespace: &str, catalogue: &Catalogue) -> NamespaceContext {
        let [labels, annotations] = self.metadata(namespace);
        let settings = NamespaceSettings::new(&labels, &annotations);
        let problems = settings.problems().iter();
        let mut problems: Vec<_> =
            problems.map(|problem| format!("namespace {namespace}, {problem}")).collect();
        let data = self.chains.get(namespace).or(self.fallback.as_ref());
        let chain = data.and_then(|data| {
            let chain = NamespaceChain::from_data(namespace, data, catalogue, &settings);
            chain.map_err(|error| problems.push(format!("{error}; it is ignored"))).ok()
        });
        let skip_reason = match labels.get(keys::ENABLED_LABEL) {
            _ if !self.scope.covers(namespace) => {
                Some(format!("Lucid never touches pods of namespace {namespace}"))
            }
            Some(value) if value != keys::TRUE => Some(format!(
                "label {} of namespace {namespace}: expected \"true\", found {value:?}",
                keys::ENABLED_LABEL
            )),
            _ => None,
        };
        NamespaceContext {
            settings,
            automounts_token: self.automounts_token.get(namespace).cloned().unwrap_or_default(),
            chain,
            problems,
            skip_reason,
        }
    }
}

fn config_map(path: &Path) -> Result<Data> {
    let mut found = files::namespace_configs(path)?;
    match found.len() {
        1 => Ok(found.swap_remove(0).1),
        number => Err(namespace_config_error(path, format_args!("expected one, found {number}"))),
    }
}
