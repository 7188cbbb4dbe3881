//! The configuration of the offline commands, and the planner.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use json_patch::Patch;
use lucid_admission::Scope;
use lucid_chain::{
    AuditorImages, Configuration, Decision, Inputs, NamespaceChain, NamespaceChainError, Outcome, Plan,
    PodChoices, PodSecurity, PodView, keys, plan,
};
use lucid_shared::options::InjectionArgs;
use serde_json::Value;

use super::pod_template::PodTemplate;
use crate::documents::{Input, Object, Part};
use crate::error::{Result, ResultExt};
use crate::files::{self, Data, namespace_config_error, strings};

/// Configuration of the operator and the cluster. The environment variables of `run` also apply here.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Configuration")]
pub(crate) struct PlanningArgs {
    /// Catalogue of the cluster (auditors.yaml), overlaid on the built-in one.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

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

    /// Also inject into pods that do not request it.
    #[arg(long)]
    force: bool,

    /// Namespace of the operator. Objects in it, kube-system, kube-public and kube-node-lease are skipped.
    #[arg(long, env = "LUCID_NAMESPACE", value_name = "NAME", default_value = "lucid-system")]
    #[arg(value_parser = lucid_shared::parse_namespace)]
    operator_namespace: String,

    /// Injection options.
    #[command(flatten)]
    injection: InjectionArgs,
}

fn parse_label(text: &str) -> Result<(String, String), &'static str> {
    match text.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => Ok((key.trim().to_owned(), value.trim().to_owned())),
        _ => Err("accepted are comma-separated labels, key=value"),
    }
}

/// Planner with the configuration of one cluster.
pub(super) struct Planner {
    args: PlanningArgs,
    scope: Scope,
    configuration: Configuration,
    /// Labels and annotations by namespace.
    metadata: BTreeMap<String, [Data; 2]>,
    /// `data` of the ConfigMaps by namespace.
    chains: BTreeMap<String, Data>,
    /// `data` for all other namespaces.
    fallback: Option<Data>,
}

/// Settings of one namespace.
pub(super) struct NamespaceContext {
    pod_security: PodSecurity,
    pod_choices: PodChoices,
    chain: Option<NamespaceChain>,
    /// Invalid settings of the namespace and of its ConfigMap. An invalid ConfigMap is ignored.
    pub(super) problems: Vec<String>,
    /// Reason why the webhook is not called for pods of the namespace.
    pub(super) skip_reason: Option<String>,
}

/// Decision about a pod, with warnings for the user.
pub(super) struct Explained {
    pub(super) explanation: Explanation,
    pub(super) warnings: Vec<String>,
}

pub(super) enum Explanation {
    NotRequested,
    Skipped { reason: String },
    Planned { plan: Box<Plan>, patch: Patch },
    Refused { reason: String },
}

impl Planner {
    /// Reads the configuration, and the namespaces and ConfigMaps in `inputs`.
    pub(super) fn new<'i>(
        args: &PlanningArgs,
        inputs: impl IntoIterator<Item = &'i Input<'i>>,
    ) -> Result<Self> {
        let catalogue = files::catalogue(args.config.as_deref())?;
        let configuration = args.injection.settings().configuration(catalogue).usage()?;
        let mut planner = Self {
            scope: Scope::new(&args.operator_namespace),
            configuration,
            metadata: BTreeMap::new(),
            chains: BTreeMap::new(),
            fallback: args.namespace_config.as_deref().map(config_map).transpose()?,
            args: args.clone(),
        };
        for part in inputs.into_iter().flat_map(|input| input.document.parts()) {
            for object in part.objects() {
                planner.learn(&object, part.value.pointer(&object.pointer).unwrap_or(&Value::Null));
            }
        }
        // An invalid chain on the command line is an error; one in the files concerns its namespace.
        if let Some(data) = &planner.fallback {
            let namespace = planner.namespace_of(None);
            let (images, _) = AuditorImages::from_annotations(&planner.metadata(namespace)[1]);
            let chain = planner.chain_of(namespace, data, &images);
            chain.failed_to("read --namespace-config").usage()?;
        }
        Ok(planner)
    }

    /// Records a Namespace or a ConfigMap with a chain.
    fn learn(&mut self, object: &Object, value: &Value) {
        match (object.api_version.as_str(), object.kind.as_str()) {
            ("v1", "Namespace") => {
                let metadata = &value["metadata"];
                let both = [&metadata["labels"], &metadata["annotations"]].map(strings);
                self.metadata.insert(object.name.clone(), both);
            }
            ("v1", "ConfigMap") if object.name == keys::NAMESPACE_CONFIG_MAP => {
                let namespace = self.namespace_of(object.namespace.as_deref()).to_owned();
                self.chains.insert(namespace, strings(&value["data"]));
            }
            _ => {}
        }
    }

    /// Returns the namespace of an object that names `named`.
    pub(super) fn namespace_of<'n>(&'n self, named: Option<&'n str>) -> &'n str {
        let named = named.filter(|it| !it.is_empty());
        named.or(self.args.namespace.as_deref()).unwrap_or("default")
    }

    fn chain_of(
        &self,
        namespace: &str,
        data: &Data,
        images: &AuditorImages,
    ) -> Result<NamespaceChain, NamespaceChainError> {
        NamespaceChain::from_data(namespace, data, self.configuration.catalogue(), images)
    }

    /// Returns the labels and annotations of a namespace, with those of the command line added to both.
    fn metadata(&self, namespace: &str) -> [Data; 2] {
        let mut both = self.metadata.get(namespace).cloned().unwrap_or_default();
        both.iter_mut().for_each(|map| map.extend(self.args.namespace_labels.iter().cloned()));
        both
    }

    pub(super) fn namespace(&self, namespace: &str) -> NamespaceContext {
        let [labels, annotations] = self.metadata(namespace);
        let (pod_choices, of_choices) = PodChoices::from_namespace(&labels, &annotations);
        let (images, of_images) = AuditorImages::from_annotations(&annotations);
        let mut problems: Vec<_> = of_choices
            .into_iter()
            .chain(of_images)
            .map(|problem| format!("namespace {namespace}, {problem}"))
            .collect();
        let data = self.chains.get(namespace).or(self.fallback.as_ref());
        let chain = data.and_then(|data| {
            let chain = self.chain_of(namespace, data, &images);
            chain.map_err(|error| problems.push(format!("{error}; it is ignored"))).ok()
        });
        let skip_reason = match labels.get(keys::ENABLED_LABEL) {
            _ if !self.scope.covers(namespace) => {
                Some(format!("Lucid never touches pods of namespace {namespace}"))
            }
            Some(value) if value != keys::TRUE => Some(format!(
                "namespace {namespace} has the label {}: {value:?}, accepted is \"true\"",
                keys::ENABLED_LABEL
            )),
            _ => None,
        };
        let pod_security = PodSecurity::from_labels(&labels);
        NamespaceContext { pod_security, pod_choices, chain, problems, skip_reason }
    }

    /// Plans a pod and explains the decision.
    pub(super) fn explain(&self, template: &PodTemplate, part: &Part) -> Explained {
        let json = template.pod(part).to_string();
        let pod = match PodView::from_json(&json) {
            Ok(pod) => pod,
            Err(error) => {
                let explanation = Explanation::Refused { reason: error.to_string() };
                return Explained { explanation, warnings: Vec::new() };
            }
        };
        let namespace = self.namespace_of(template.namespace.as_deref());
        let context = self.namespace(namespace);
        let outcome = self.plan(&pod, namespace, &context);
        let planned = outcome.warnings.iter().map(ToString::to_string);
        let mut warnings: Vec<_> = match outcome.decision {
            Decision::NotRequested => planned.collect(),
            _ => context.problems.into_iter().chain(planned).collect(),
        };
        let explanation = match (outcome.decision, context.skip_reason) {
            (Decision::NotRequested, _) => Explanation::NotRequested,
            (_, Some(reason)) => Explanation::Skipped { reason },
            (Decision::Skipped { reason }, _) => Explanation::Skipped { reason: reason.to_string() },
            (Decision::Impossible { reason }, _) => Explanation::Refused { reason: reason.to_string() },
            (Decision::Planned(plan), _) => {
                let patch = plan.patch(&pod);
                warnings.extend(patch.warnings.iter().map(ToString::to_string));
                Explanation::Planned { plan, patch: patch.operations }
            }
            _ => Explanation::Refused { reason: "the planner returned an unknown decision".to_owned() },
        };
        Explained { explanation, warnings }
    }

    /// Plans a pod of this namespace.
    pub(super) fn plan(&self, pod: &PodView<'_>, namespace: &str, context: &NamespaceContext) -> Outcome {
        let inputs = Inputs::new(&self.configuration)
            .with_namespace(namespace)
            .with_namespace_chain(context.chain.as_ref())
            .with_pod_security(context.pod_security)
            .with_pod_choices(context.pod_choices);
        plan(pod, &if self.args.force { inputs.with_forced_injection() } else { inputs })
    }
}

/// Reads the only ConfigMap in a file, for any namespace.
fn config_map(path: &Path) -> Result<Data> {
    let mut found = files::namespace_configs(path)?;
    match found.len() {
        1 => Ok(found.swap_remove(0).1),
        number => Err(namespace_config_error(path, format_args!("found {number} of them instead of one"))),
    }
}
