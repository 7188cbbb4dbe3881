//! The `/mutate` webhook: pods get their auditor chain.

use std::sync::Arc;

use lucid_audit::Recorder;
use lucid_chain::{Decision, Inputs, plan};
use lucid_cluster::{ClusterConfiguration, NotSynced};
use lucid_validator::{RequestError, Scope, decision, pod_of, record};
use lucid_webhook::{AdmissionRequest, AdmissionResponse, InvalidPatch, JsonPatch, Operation};
use snafu::Snafu;

/// Why a pod could not be given its chain.
#[derive(Debug, Snafu)]
pub(crate) enum InjectError {
    /// It is not about a pod that can be read.
    #[snafu(transparent)]
    Request {
        /// What it is about.
        source: RequestError,
    },
    /// The configuration is not known yet.
    #[snafu(transparent)]
    NotSynced {
        /// What is missing.
        source: NotSynced,
    },
    /// The planner decided something that is not known here.
    #[snafu(display("failed to act on the plan: its decision is unknown"))]
    UnknownDecision,
    /// The plan made no patch.
    #[snafu(transparent)]
    Patch {
        /// What is wrong with it.
        source: InvalidPatch,
    },
}

/// Injects chains. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Injector {
    /// Which namespaces are looked at.
    pub(crate) scope: Scope,
    /// Chains, catalogues and settings.
    pub(crate) cluster: ClusterConfiguration,
    /// Where decisions are kept.
    pub(crate) recorder: Arc<Recorder>,
}

impl Injector {
    /// Answers one request.
    ///
    /// # Errors
    ///
    /// When the pod cannot be read or the configuration is not known yet.
    pub(crate) async fn inject(self, request: AdmissionRequest) -> Result<AdmissionResponse, InjectError> {
        let namespace = request.namespace.as_deref().unwrap_or_default();
        // A chain is part of a pod from the start: containers cannot be added to one that exists.
        let concerned = request.operation == Operation::Create && self.scope.covers(namespace);
        let Some(object) = request.object.as_ref().filter(|_| concerned) else {
            return Ok(AdmissionResponse::allow());
        };
        let pod = pod_of(&request, object)?;
        let view = self.cluster.namespace(namespace).await?;
        let inputs = Inputs::new(&view.configuration)
            .with_namespace(namespace)
            .with_namespace_chain(view.namespace_chain.as_deref())
            .with_pod_security(view.pod_security);
        let outcome = plan(&pod, &inputs);
        let response = match &outcome.decision {
            Decision::NotRequested => AdmissionResponse::allow(),
            Decision::Skipped { reason } => {
                AdmissionResponse::allow().with_warning(format!("no auditors: {reason}"))
            }
            Decision::Planned(plan) => {
                let patch = plan.patch(&pod);
                let warnings =
                    view.problems.iter().cloned().chain(patch.warnings().iter().map(ToString::to_string));
                AdmissionResponse::patch(JsonPatch::from_operations(&patch)?).with_warnings(warnings)
            }
            Decision::Impossible { reason } => AdmissionResponse::deny(422, "Invalid", reason.to_string()),
            _ => return UnknownDecisionSnafu.fail(),
        };
        let response = response.with_warnings(&outcome.warnings);
        if matches!(outcome.decision, Decision::NotRequested) && outcome.warnings.is_empty() {
            return Ok(response);
        }
        let mut decision = decision("mutate", &request, &response);
        if let Decision::Planned(plan) = &outcome.decision {
            decision.chain = plan.containers.iter().map(|container| container.name.clone()).collect();
        }
        record(&self.recorder, decision);
        Ok(response)
    }
}
