//! The `/validate` webhooks, which evaluate pods and warn about workloads whose pods would be rejected.

use std::cell::LazyCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::Client;
use kube::core::{Selector, SelectorExt};
use lucid_audit::{Decision, ImageVerdict, Recorder};
use lucid_chain::Inputs;
use lucid_notary::client::Notary;
use lucid_notary::{CheckedVerdict, Digest, ImageReference, NotaryVerdict, Provenance};
use lucid_policy::{
    AuditorContainer, Case, EvaluatedKeys, Evaluation, Mode, Permission, Policy, Request, Subject,
    SubjectError, Workload,
};
use lucid_webhook::registration::FailurePolicy;
use lucid_webhook::{
    AdmissionRequest, AdmissionResponse, Failure, FailureAction, Operation, RawObject, Router, Webhook,
};
use prometheus_client::registry::Registry;
use snafu::OptionExt;
use tokio::time::Instant;

use crate::break_glass::BreakGlassReview;
use crate::cluster::ClusterConfiguration;
use crate::error::{UnknownKindSnafu, ValidateError};
use crate::metadata::Metadata;
use crate::names::{VALIDATE_NAME, VALIDATE_PATH, WORKLOADS_NAME, WORKLOADS_PATH};
use crate::record::{decision, record_response};
use crate::registration::{Registrations, respond_to_failure};
use crate::validation_metrics::ValidationMetrics;

/// Checks pods and workloads against the policy.
#[derive(Debug)]
pub struct PodValidator {
    registrations: Registrations,
    cluster: ClusterConfiguration,
    notary: Option<Notary>,
    break_glass: Option<BreakGlassReview>,
    recorder: Arc<Recorder>,
    metrics: ValidationMetrics,
}

impl PodValidator {
    /// Creates a validator that evaluates pods with `cluster` and records its decisions with `recorder`. No image can
    /// be verified, and every pod with a valid ticket may break the glass.
    #[must_use]
    pub fn new(registrations: Registrations, cluster: ClusterConfiguration, recorder: Arc<Recorder>) -> Self {
        let metrics = ValidationMetrics::new(&mut Registry::default());
        Self { registrations, cluster, notary: None, break_glass: None, recorder, metrics }
    }

    /// Verifies the auditors' images.
    #[must_use]
    pub fn with_notary(self, notary: Notary) -> Self {
        Self { notary: Some(notary), ..self }
    }

    /// Authorizes break-glass by the cluster's RBAC.
    #[must_use]
    pub fn with_break_glass_review(self, review: BreakGlassReview) -> Self {
        Self { break_glass: Some(review), ..self }
    }

    /// Counts decisions in `metrics`.
    #[must_use]
    pub fn with_metrics(self, metrics: ValidationMetrics) -> Self {
        metrics.initialize(self.cluster.policy().required_label.as_ref());
        Self { metrics, ..self }
    }

    /// Adds the webhooks to `router`: the one that evaluates pods, and, if it is registered, the one that warns about
    /// workloads. `client` reviews the access of a `serviceAccountName` in ConfigMap `lucid-webhooks`.
    #[must_use]
    pub fn mount(self, router: Router, client: Client) -> Router {
        let this = Arc::new(self);
        let registrations = &this.registrations;
        let (pods, warn) = (Arc::clone(&this), Arc::clone(&this));
        let (pods_recorder, workloads_recorder) = (Arc::clone(&this), Arc::clone(&this));
        let evaluate =
            move |request: Arc<AdmissionRequest>| Arc::clone(&pods).validate(request, Workload::is_pod, None);
        let permissions = this.cluster.permissions();
        let pods = Webhook::validating(VALIDATE_NAME, evaluate)
            .with_registration(|_| registrations.validating(permissions.validate.subscribe()))
            .with_overload_denied()
            .with_failure_action(failure_action(registrations.validation))
            .with_on_response(move |request, response, failure| {
                pods_recorder.record(request, response, failure)
            })
            .with_permissions(permissions.validate.subscribe())
            .with_client(client.clone());
        let router = router.webhook(VALIDATE_PATH, pods);
        if !registrations.workloads {
            return router;
        }
        let selected = Arc::new(registrations.selectors.of_pods());
        let warn = move |request: Arc<AdmissionRequest>| {
            Arc::clone(&warn).validate(request, |it| !it.is_pod(), Some(Arc::clone(&selected)))
        };
        let workloads = Webhook::validating(WORKLOADS_NAME, warn)
            .with_registration(|_| registrations.workloads())
            // Failures only cause warnings: the pods of a workload are evaluated on creation.
            .with_failure_action(failure_action(FailurePolicy::Ignore))
            .with_on_response(move |request, response, failure| {
                workloads_recorder.record(request, response, failure)
            })
            .with_permissions(permissions.workloads.subscribe())
            .with_client(client);
        router.webhook(WORKLOADS_PATH, workloads)
    }

    /// Records the decision, a failure, or a denial by the webhook's permissions.
    fn record(
        &self,
        request: &AdmissionRequest,
        response: AdmissionResponse,
        failure: Option<&Failure>,
    ) -> impl Future<Output = AdmissionResponse> + use<> {
        let workload = Workload::from_kind(&request.kind.group, &request.kind.kind);
        // Parsing would panic again.
        let workload = workload.filter(|_| !matches!(failure, Some(Failure::Panic)));
        let keys = LazyCell::new(|| self.evaluated_keys());
        let subject = LazyCell::new(|| subject(workload?, request, &keys).ok().flatten());
        let pod = || subject.as_ref().map(|subject| &subject.pod);
        let tier = || pod().map(|pod| self.cluster.policy().tier(pod).to_owned()).unwrap_or_default();
        // A template has other metadata than its object.
        let metadata = || Metadata::of(request, pod().filter(|_| workload.is_some_and(Workload::is_pod)));
        record_response(&self.recorder, "validate", request, response, failure, &metadata, &tier)
    }

    /// Evaluates a request for a kind that `expected` accepts. `selected` restricts the pod templates. A rejected pod
    /// is not an error.
    async fn validate(
        self: Arc<Self>,
        request: Arc<AdmissionRequest>,
        expected: fn(Workload) -> bool,
        selected: Option<Arc<Selector>>,
    ) -> Result<AdmissionResponse, ValidateError> {
        let namespace = request.namespace.as_deref().unwrap_or_default();
        if !self.registrations.scope.covers(namespace) {
            return Ok(AdmissionResponse::allow());
        }
        let found = || UnknownKindSnafu { found: request.describe_kind() };
        let workload = Workload::from_kind(&request.kind.group, &request.kind.kind);
        let workload = workload.filter(|workload| expected(*workload)).with_context(found)?;
        let keys = self.evaluated_keys();
        let Some(subject) = subject(workload, &request, &keys)? else {
            return Ok(AdmissionResponse::allow());
        };
        let labels = || subject.pod.labels().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        // Pods that are not selected will not be evaluated, so there is nothing to warn about.
        if selected.is_some_and(|selected| !selected.matches(&labels())) {
            return Ok(AdmissionResponse::allow());
        }

        let view = self.cluster.namespace(namespace).await?;
        let catalogues = view.catalogues();
        let policy = &view.policy;
        // A restarted replica does not know the last valid chain of the namespace, and must not weaken it.
        let invalid_chain = view.invalid_chain.as_deref().filter(|_| policy.mode == Mode::Enforce);
        let inputs = view.inputs();
        let namespace_chain = invalid_chain.map_or(inputs.namespace_chain, Err);
        let inputs = Inputs { namespace_chain, ..inputs };
        let evaluate = async |inputs: &Inputs<'_>| {
            let case = Case::new(&subject, inputs, &catalogues);
            let permission = self.permission(policy, &case, &request);
            evaluate_case(policy, &case, self.notary.as_ref(), permission, request.deadline).await
        };
        let mut evaluated = evaluate(&inputs).await;
        let mut generation = self.cluster.generation().to_owned();
        if evaluated.evaluation.would_deny {
            // A replica with other settings may have injected the chain.
            for (other, configuration) in self.cluster.others(&view.configuration) {
                let found = evaluate(&Inputs { configuration: &configuration, ..inputs }).await;
                if !found.evaluation.would_deny {
                    (evaluated, generation) = (found, other);
                    break;
                }
            }
        }
        let Evaluated { evaluation, images } = evaluated;
        self.metrics.count(&evaluation);
        let response = match evaluation.denial() {
            Some(reason) => AdmissionResponse::deny(403, "Forbidden", reason),
            None => AdmissionResponse::allow(),
        };
        let mut response = response.with_warnings(evaluation.warnings());
        let pod = Some(&subject.pod).filter(|_| workload.is_pod());
        let mut decision = decision("validate", &request, &response, || Metadata::of(&request, pod));
        decision.images = images;
        decision.generation = generation;
        add_evaluation(&mut decision, &evaluation);
        response.extensions.insert(decision);
        Ok(response)
    }

    /// Includes the keys that the policy and the administrator's selector read.
    fn evaluated_keys(&self) -> EvaluatedKeys {
        let policy = self.cluster.policy();
        let required = policy.required_label.iter().map(|required| &required.key);
        let permissions = self.cluster.permissions().validate.borrow();
        self.registrations.evaluated_keys().with(required).with(permissions.selector.label_keys())
    }

    async fn permission(&self, policy: &Policy, case: &Case<'_>, request: &AdmissionRequest) -> Permission {
        match (&self.break_glass, policy.tickets.valid_ticket(case)) {
            (Some(review), Some(_)) => {
                let namespace = request.namespace.as_deref().unwrap_or_default();
                let deadline = verifier_deadline(request.deadline);
                review.permission(&request.user_info, request.is_authenticated(), namespace, deadline).await
            }
            _ => Permission::NotRequired,
        }
    }
}

/// Applies `policy` to requests that could not be evaluated.
fn failure_action(policy: FailurePolicy) -> FailureAction {
    FailureAction::call(move |request, failure| respond_to_failure(policy, request, failure, "not validated"))
}

/// Returns the pod or template that has to be evaluated.
fn subject<'a>(
    workload: Workload,
    request: &'a AdmissionRequest,
    keys: &'a EvaluatedKeys,
) -> Result<Option<Subject<'a>>, SubjectError> {
    let old_object = match request.operation {
        Operation::Create => None,
        Operation::Update => request.old_object.as_ref(),
        _ => return Ok(None),
    };
    Request::new(workload, request.namespace.as_deref().unwrap_or_default(), Timestamp::now())
        .with_subresource(request.sub_resource.as_deref())
        .with_object(request.object.as_ref().map(RawObject::as_bytes))
        .with_old_object(old_object.map(RawObject::as_bytes))
        .with_evaluated_keys(keys)
        .subject()
}

/// Result for a pod or template with one configuration.
#[derive(Debug)]
#[non_exhaustive]
pub struct Evaluated {
    /// Result of the policy.
    pub evaluation: Evaluation,
    /// Verdicts on the images of [`Case::auditors`], in the same order.
    pub images: Vec<ImageVerdict>,
}

/// Evaluates a pod or template: requests the verdicts that `policy` needs, until shortly before `deadline`, and awaits
/// the `permission` to use a break-glass ticket.
pub async fn evaluate_case(
    policy: &Policy,
    case: &Case<'_>,
    notary: Option<&Notary>,
    permission: impl Future<Output = Permission>,
    deadline: Instant,
) -> Evaluated {
    let auditors = case.auditors();
    let asked: Vec<_> =
        auditors.iter().filter(|auditor| policy.needs_verdict(case, auditor)).cloned().collect();
    let (verdicts, permission) = tokio::join!(verdicts(notary, &asked, deadline), permission);
    let evaluation = policy.evaluate(case, &auditors, &verdicts, &permission);
    let images = auditors.iter().map(|auditor| image_verdict(auditor, &verdicts)).collect();
    Evaluated { evaluation, images }
}

fn add_evaluation(decision: &mut Decision, evaluation: &Evaluation) {
    evaluation.mode.as_str().clone_into(&mut decision.mode);
    decision.would_deny = evaluation.would_deny;
    evaluation.tier.clone_into(&mut decision.tier);
    decision.ticket = evaluation.ticket.clone().unwrap_or_default();
    decision.findings = evaluation.findings.iter().map(ToString::to_string).collect();
    decision.exemptions = evaluation.exempted.iter().map(ToString::to_string).collect();
}

/// Returns the verdicts on the digests of `auditors`, requested until shortly before `deadline`. A digest that is not
/// notarized under one of its names is not notarized.
async fn verdicts(
    notary: Option<&Notary>,
    auditors: &[AuditorContainer<'_>],
    deadline: Instant,
) -> BTreeMap<Digest, CheckedVerdict> {
    let images = auditors.iter().filter_map(|auditor| auditor.reference.as_ref().ok().cloned());
    let Some(notary) = notary else {
        let reason = "no Verifier is configured".to_owned();
        let unknown = CheckedVerdict::new(NotaryVerdict::Unknown { reason }, Provenance::Verifier);
        return images.filter_map(|image| Some((image.digest()?.clone(), unknown.clone()))).collect();
    };
    let checked = notary.check_all(images, verifier_deadline(deadline).into_std()).await;
    let (notarized, others): (Vec<_>, Vec<_>) =
        checked.into_iter().partition(|(_, checked)| checked.verdict.is_notarized());
    let by_digest = |(image, checked): (ImageReference, _)| Some((image.digest()?.clone(), checked));
    notarized.into_iter().chain(others).filter_map(by_digest).collect()
}

/// Returns the time at which requests are cancelled: shortly before `deadline`, or earlier if little time is left, so
/// that the response can report the timeout.
#[must_use]
pub fn verifier_deadline(deadline: Instant) -> Instant {
    const MARGIN: Duration = Duration::from_millis(500);
    let left = deadline.saturating_duration_since(Instant::now());
    deadline.checked_sub(MARGIN.min(left / 4)).unwrap_or(deadline)
}

fn image_verdict(
    auditor: &AuditorContainer<'_>,
    verdicts: &BTreeMap<Digest, CheckedVerdict>,
) -> ImageVerdict {
    let verdict = match (&auditor.reference, auditor.digest()) {
        (Err(error), _) => error.to_string(),
        (Ok(_), None) => "missing digest".to_owned(),
        (Ok(_), Some(digest)) => {
            verdicts.get(digest).map_or_else(|| "not verified".to_owned(), CheckedVerdict::to_string)
        }
    };
    ImageVerdict::new(auditor.name, auditor.image, verdict)
}
