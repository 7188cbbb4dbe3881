//! The configuration of the offline commands, and the planner.

use std::path::PathBuf;

use json_patch::Patch;
use lucid_chain::{Configuration, Decision, Inputs, Outcome, Plan, PodView, plan};
use lucid_shared::options::InjectionArgs;

use super::pod_template::PodTemplate;
use crate::documents::{Input, Part};
use crate::error::{Result, ResultExt};
use crate::files;
use crate::namespaces::{NamespaceArgs, NamespaceContext, Namespaces};

/// Configuration of the operator and the cluster. The environment variables of `run` also apply here.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Configuration")]
pub(crate) struct PlanningArgs {
    /// Catalogue of the cluster (auditors.yaml), overlaid on the built-in one.
    #[arg(long, value_name = "FILE")]
    catalogue: Option<PathBuf>,

    /// Also inject into pods that do not request it.
    #[arg(long)]
    force: bool,

    #[command(flatten)]
    pub(crate) namespaces: NamespaceArgs,

    /// Injection options.
    #[command(flatten)]
    injection: InjectionArgs,
}

pub(super) struct Planner {
    configuration: Configuration,
    namespaces: Namespaces,
    is_forced: bool,
}

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
    pub(super) fn new<'i>(
        args: &PlanningArgs,
        inputs: impl IntoIterator<Item = &'i Input<'i>>,
    ) -> Result<Self> {
        let catalogue = files::catalogue(args.catalogue.as_deref())?;
        let configuration = args.injection.settings().configuration(catalogue).usage()?;
        let namespaces = Namespaces::new(&args.namespaces, configuration.catalogue(), inputs)?;
        Ok(Self { configuration, namespaces, is_forced: args.force })
    }

    pub(super) fn namespace(&self, namespace: &str) -> NamespaceContext {
        self.namespaces.get(namespace, self.configuration.catalogue())
    }

    pub(super) fn explain(&self, template: &PodTemplate, part: &Part) -> Explained {
        let json = template.pod(part).to_string();
        let pod = match PodView::from_json(&json) {
            Ok(pod) => pod,
            Err(error) => {
                let explanation = Explanation::Refused { reason: error.to_string() };
                return Explained { explanation, warnings: Vec::new() };
            }
        };
        let namespace = self.namespaces.name_of(template.namespace.as_deref());
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
                Explanation::Planned { plan, patch: patch.operations() }
            }
        };
        Explained { explanation, warnings }
    }

    pub(super) fn plan(&self, pod: &PodView<'_>, namespace: &str, context: &NamespaceContext) -> Outcome {
        let inputs = Inputs {
            namespace: Some(namespace),
            settings: &context.settings,
            namespace_chain: Ok(context.chain.as_ref()),
            automounts_token: context.automounts_token.get(pod.service_account()).copied(),
            forced: self.is_forced,
            ..Inputs::new(&self.configuration)
        };
        plan(pod, &inputs)
    }
}
