//! The `/mutate` webhook: injects auditor chains into pods.

use std::cell::LazyCell;
use std::sync::Arc;
use std::time::Instant;

use kube::Client;
use kube::core::GroupVersionKind;
use lucid_audit::Recorder;
use lucid_chain::{Decision, Inputs, PodView, plan};
use lucid_webhook::{
    AdmissionRequest, AdmissionResponse, AllowedPaths, Failure, FailureAction, JsonPatch, Operation,
    RawObject, Router, Webhook,
};
use prometheus_client::registry::Registry;
use snafu::ensure;

use crate::cluster::ClusterConfiguration;
use crate::error::{InjectError, NotAPodSnafu, RequestError};
use crate::events::{Events, Subject};
use crate::injection_metrics::{InjectionMetrics, Outcome};
use crate::metadata::Metadata;
use crate::names::{MUTATE_NAME, MUTATE_PATH};
use crate::notice::{FailureReason, Notice};
use crate::record::{decision, record_response};
use crate::registration::{Registrations, respond_to_failure};

/// Fields that injection writes.
const WRITTEN: [&str; 6] = [
    "/metadata/annotations/lucid.computing~1status",
    "/metadata/annotations/container.apparmor.security.beta.kubernetes.io~1*",
    "/spec/containers",
    "/spec/imagePullSecrets",
    "/spec/initContainers",
    "/spec/volumes",
];

/// Injects auditor chains into pods.
#[derive(Debug)]
pub struct PodInjector {
    registrations: Registrations,
    cluster: ClusterConfiguration,
    recorder: Arc<Recorder>,
    metrics: InjectionMetrics,
    events: Option<Events>,
}

impl PodInjector {
    /// Creates an injector that plans chains with `cluster` and records its decisions with `recorder`.
    #[must_use]
    pub fn new(registrations: Registrations, cluster: ClusterConfiguration, recorder: Arc<Recorder>) -> Self {
        let metrics = InjectionMetrics::new(&mut Registry::default());
        Self { registrations, cluster, recorder, metrics, events: None }
    }

    /// Counts pods in `metrics`.
    #[must_use]
    pub fn with_metrics(self, metrics: InjectionMetrics) -> Self {
        Self { metrics, ..self }
    }

    /// Reports failures and warnings as events.
    #[must_use]
    pub fn with_events(self, events: Events) -> Self {
        Self { events: Some(events), ..self }
    }

    /// Adds the webhook to `router`, at [`MUTATE_PATH`]. `client` reviews the access of a `serviceAccountName` in
    /// ConfigMap `lucid-webhooks`.
    #[must_use]
    pub fn mount(self, router: Router, client: Client) -> Router {
        let registration = self.registrations.mutating();
        let injector = Arc::new(self);
        let (this, policy) = (Arc::clone(&injector), injector.registrations.injection);
        let permissions = injector.cluster.permissions().mutate.subscribe();
        let inject = move |request: Arc<AdmissionRequest>| Arc::clone(&injector).inject(request);
        let webhook = Webhook::mutating(MUTATE_NAME, inject)
            .with_allowed_paths(AllowedPaths::parse(WRITTEN).unwrap_or_default())
            .with_overload_denied()
            .with_failure_action(FailureAction::call(move |request, failure| {
                respond_to_failure(policy, request, failure, "no auditors")
            }))
            .with_on_response(move |request, response, failure| this.record(request, response, failure))
            .with_registration(|_| registration)
            .with_permissions(permissions)
            .with_client(client);
        router.webhook(MUTATE_PATH, webhook)
    }

    /// Responds to one request.
    async fn inject(
        self: Arc<Self>,
        request: Arc<AdmissionRequest>,
    ) -> Result<AdmissionResponse, InjectError> {
        let namespace = request.namespace.as_deref().unwrap_or_default();
        // A chain is part of a pod from its creation: containers cannot be added to an existing pod.
        let concerned = request.operation == Operation::Create && self.registrations.scope.covers(namespace);
        let Some(object) = request.object.as_ref().filter(|_| concerned) else {
            return Ok(AdmissionResponse::allow());
        };
        let view = self.cluster.namespace(namespace).await?;
        let begin = Instant::now();
        let pod = pod_of(&request, object)?;
        let exempt = view.policy.exempt_images(namespace, &pod);
        // The API server has mounted the token before it calls webhooks.
        let automounts_token = pod.lacks_token().then_some(false);
        let inputs = Inputs {
            namespace: Some(namespace),
            automounts_token,
            exempt_images: Some(&exempt),
            ..view.inputs()
        };
        let injection = Injection::of(&pod, plan(&pod, &inputs), &view.problems);
        self.metrics.planned(begin.elapsed());
        let Injection { mut response, result, chain } = injection;
        let metadata = Metadata::of(&request, Some(&pod));
        if !result.notices.is_empty() {
            response.extensions.insert(Subject::of(&request, &metadata));
        }
        if result.outcome != Outcome::NotRequested || !result.notices.is_empty() {
            let mut decision = decision("mutate", &request, &response, || metadata);
            decision.chain = chain;
            view.policy.tier(&pod).clone_into(&mut decision.tier);
            self.cluster.generation().clone_into(&mut decision.generation);
            response.extensions.insert(decision);
        }
        response.extensions.insert(result);
        Ok(response)
    }

    /// Counts, reports and records the result, a failure, or a denial by the webhook's permissions.
    fn record(
        &self,
        request: &AdmissionRequest,
        mut response: AdmissionResponse,
        failure: Option<&Failure>,
    ) -> impl Future<Output = AdmissionResponse> + use<> {
        let result = failure.map(|failure| {
            let reason = FailureReason::of(failure);
            let denial = response.denial().map(|denial| &denial.message);
            let text = denial.or(response.warnings().first()).cloned().unwrap_or_else(|| failure.to_string());
            PodResult { outcome: Outcome::Failed(reason), notices: vec![Notice::of_failure(reason, &text)] }
        });
        // Parsing would fail or panic again.
        let unreadable = [FailureReason::BadRequest, FailureReason::Panicked];
        let is_readable = failure.is_none_or(|failure| !unreadable.contains(&FailureReason::of(failure)));
        let object = request.object.as_ref().filter(|_| is_readable);
        let pod = LazyCell::new(|| pod_of(request, object?).ok());
        let metadata = LazyCell::new(|| Metadata::of(request, pod.as_ref()));
        let result =
            result.or_else(|| response.extensions.remove()).or_else(|| PodResult::of_guard(&response));
        if let Some(PodResult { outcome, notices }) = result {
            self.metrics.count(outcome, &notices);
            if let Some(events) = self.events.as_ref().filter(|_| !notices.is_empty()) {
                let subject = response.extensions.remove();
                let subject = subject.unwrap_or_else(|| Subject::of(request, &metadata));
                events.report(request, subject, notices);
            }
        }
        let tier = || pod.as_ref().map(|pod| self.cluster.policy().tier(pod).to_owned()).unwrap_or_default();
        let metadata = || metadata.clone();
        record_response(&self.recorder, "mutate", request, response, failure, &metadata, &tier)
    }
}

/// Parses `object`, one of the objects in `request`, as a pod.
///
/// # Errors
///
/// Returns an error if the request is about another kind, or the pod cannot be parsed.
pub fn pod_of<'a>(request: &AdmissionRequest, object: &'a RawObject) -> Result<PodView<'a>, RequestError> {
    let GroupVersionKind { group, version, kind } = &request.kind;
    let is_pod = (&**group, &**version, &**kind) == ("", "v1", "Pod");
    ensure!(is_pod, NotAPodSnafu { found: request.describe_kind() });
    Ok(PodView::from_json(object.as_bytes())?)
}

/// Maximum number of notices per pod, because its author controls how many there are.
const MOST_NOTICES: usize = 64;

#[derive(Clone)]
struct PodResult {
    outcome: Outcome,
    notices: Vec<Notice>,
}

impl PodResult {
    /// Returns the result of a request that the guard kept from the handler, if it says why.
    fn of_guard(response: &AdmissionResponse) -> Option<Self> {
        let denial = response.denial().map(|denial| &denial.message);
        let notice = Notice::of_permissions(denial.or(response.warnings().first())?);
        let outcome = match denial {
            Some(_) => Outcome::Refused(notice.reason),
            None => Outcome::Skipped(notice.reason),
        };
        Some(Self { outcome, notices: vec![notice] })
    }
}

struct Injection {
    response: AdmissionResponse,
    result: PodResult,
    chain: Vec<String>,
}

/// Returns the response of `/mutate` for `pod`, whose plan is `planned`. `problems` are those of the configuration.
pub fn respond(pod: &PodView<'_>, planned: lucid_chain::Outcome, problems: &[String]) -> AdmissionResponse {
    Injection::of(pod, planned, problems).response
}

impl Injection {
    /// Responds for `pod`, whose plan is `planned`. `problems` are those of the configuration.
    fn of(pod: &PodView<'_>, planned: lucid_chain::Outcome, problems: &[String]) -> Self {
        // Most important first, because the author of a pod controls how many warnings the planner has.
        let mut notices: Vec<Notice> = Vec::new();
        let mut chain = Vec::new();
        let (response, outcome) = match planned.decision {
            Decision::NotRequested => (AdmissionResponse::allow(), Outcome::NotRequested),
            Decision::Skipped { reason } => {
                notices.push(Notice::of_skip(reason));
                (AdmissionResponse::allow(), Outcome::Skipped(reason.reason()))
            }
            Decision::Planned(plan) => {
                let patch = plan.patch(pod);
                notices.extend(problems.iter().map(|problem| Notice::of_configuration(problem)));
                notices.extend(patch.warnings.iter().map(Notice::from));
                chain.extend(plan.containers.into_iter().map(|container| container.name));
                let outcome = if patch.is_empty() { Outcome::Unchanged } else { Outcome::Injected };
                (AdmissionResponse::patch(JsonPatch::from_text_unchecked(patch.text)), outcome)
            }
            // In mode `enforce`, `/validate` denies the pod.
            Decision::Impossible { reason } => {
                notices.push(Notice::of_impossible(&reason));
                (AdmissionResponse::allow(), Outcome::Skipped(reason.reason()))
            }
        };
        notices.extend(planned.warnings.iter().map(Notice::from));
        let dropped = notices.len().saturating_sub(MOST_NOTICES);
        notices.truncate(MOST_NOTICES);
        let response = response.with_warnings(notices.iter().map(|notice| &notice.text));
        let response =
            if dropped > 0 { response.with_warning(format!("and {dropped} more")) } else { response };
        Self { response, result: PodResult { outcome, notices }, chain }
    }
}

#[cfg(test)]
mod tests {
    use lucid_chain::{Catalogue, Configuration};
    use serde_json::json;

    use super::*;

    #[test]
    fn multiplied_warnings_do_not_hide_other_notices() {
        let pod = json!({
            "metadata": {
                "labels": {"lucid.io/secured": "true"},
                "annotations": {"lucid.computing/audit-mode": "loud"},
            },
            "spec": {"containers": [{
                "name": "web", "image": "r.test/web:1", "ports": [{"containerPort": 5000}],
                "securityContext": {"capabilities": {"add": ["NET_RAW"]}},
            }]},
        });
        let pod = serde_json::to_vec(&pod).unwrap();
        let pod = PodView::from_json(&pod).unwrap();
        let configuration = Configuration::new(Catalogue::builtin(), None).unwrap();
        let mut planned = plan(&pod, &Inputs::new(&configuration));
        planned.warnings = vec![planned.warnings[0].clone(); 100];
        let injection = Injection::of(&pod, planned, &["no such chain".to_owned()]);
        let reasons: Vec<_> = injection.result.notices.iter().map(|notice| notice.reason).collect();
        assert_eq!((reasons.len(), reasons[0]), (MOST_NOTICES, "InvalidConfiguration"));
        assert!(reasons[1].starts_with("Privilege"), "{reasons:?}");
        let warnings = injection.response.warnings();
        let said: Vec<_> = warnings.iter().filter(|it| it.starts_with("and ")).collect();
        let of_patch = reasons.iter().filter(|it| it.starts_with("Privilege")).count();
        assert_eq!(said, [&format!("and {} more", 100 + 1 + of_patch - MOST_NOTICES)]);
        assert_eq!(warnings.last(), said.first().copied());
    }
}
