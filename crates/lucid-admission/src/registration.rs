//! Registration of Lucid's webhooks.

use std::collections::BTreeSet;

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use kube::core::Selector;
use lucid_chain::keys;
use lucid_policy::{EvaluatedKeys, Workload};
use lucid_webhook::guard::Permissions;
use lucid_webhook::registration::{
    Configurations, FailurePolicy, RegistrationError, Rule, WebhookRegistration,
};
use lucid_webhook::{
    AdmissionRequest, AdmissionResponse, Failure, Operation, RawObject, Webhook, WebhookKind,
};
use tokio::sync::watch;

use crate::error::{InjectError, RequestError, ValidateError};
use crate::names::{MUTATE_NAME, MUTATE_PATH, VALIDATE_NAME, VALIDATE_PATH, WORKLOADS_NAME, WORKLOADS_PATH};
use crate::scope::Scope;

/// Label selectors of the webhooks.
#[derive(Clone, Debug)]
pub struct Selectors {
    /// Namespaces whose pods are handled.
    pub namespaces: LabelSelector,
    /// Pods that are handled in these namespaces; `None` for all.
    pub pods: Option<LabelSelector>,
}

impl Default for Selectors {
    /// Selects all pods of namespaces with the label `lucid.computing/enabled: "true"`.
    fn default() -> Self {
        let enabled = [(keys::ENABLED_LABEL.to_owned(), keys::TRUE.to_owned())].into();
        Self {
            namespaces: LabelSelector { match_labels: Some(enabled), match_expressions: None },
            pods: None,
        }
    }
}

impl Selectors {
    /// Returns these selectors without the namespaces that Lucid never touches.
    #[must_use]
    pub fn in_scope(&self, scope: &Scope) -> Self {
        let mut selectors = self.clone();
        selectors.namespaces.match_expressions.get_or_insert_default().insert(
            0,
            LabelSelectorRequirement {
                key: "kubernetes.io/metadata.name".to_owned(),
                operator: "NotIn".to_owned(),
                values: Some(scope.excluded().map(str::to_owned).collect()),
            },
        );
        selectors
    }

    /// Returns the selector of pods, for pod templates: the API server matches the labels of the requested object, and
    /// a workload's own labels differ from those of its pods.
    pub(crate) fn of_pods(&self) -> Selector {
        Selector::try_from(self.pods.clone().unwrap_or_default()).unwrap_or_default()
    }
}

/// Returns the response to a request that a webhook could not process: a rejection, or under `Ignore` a warning with
/// the `consequence`, such as `not validated`. Both policies reject a pod that cannot be read and a large pod that
/// exceeds the deadline: otherwise its author could bypass the webhook.
pub(crate) fn respond_to_failure(
    policy: FailurePolicy,
    request: &AdmissionRequest,
    failure: &Failure,
    consequence: &str,
) -> AdmissionResponse {
    let (mut is_unreadable, mut is_transient) = (false, false);
    if let Failure::Error(error) = failure {
        match error.downcast_ref() {
            Some(InjectError::Request { source: RequestError::Pod { .. } }) => is_unreadable = true,
            Some(InjectError::NotSynced { .. }) => is_transient = true,
            _ => {}
        }
        match error.downcast_ref() {
            Some(ValidateError::Subject { source }) => is_unreadable = source.workload().is_pod(),
            Some(ValidateError::NotSynced { .. }) => is_transient = true,
            _ => {}
        }
        if is_unreadable {
            return AdmissionResponse::deny(422, "Invalid", error.to_string());
        }
    }
    match policy {
        FailurePolicy::Fail if is_transient => {
            let text = format!("{failure}; try again in a moment");
            AdmissionResponse::deny(503, "ServiceUnavailable", text)
        }
        FailurePolicy::Ignore if !is_expensive(request, failure) => {
            AdmissionResponse::allow().with_warning(format!("{consequence}: {failure}"))
        }
        _ => failure.refusal(),
    }
}

fn is_expensive(request: &AdmissionRequest, failure: &Failure) -> bool {
    let size = |object: &Option<RawObject>| object.as_ref().map_or(0, |object| object.as_bytes().len());
    matches!(failure, Failure::Deadline)
        && request.kind.kind == "Pod"
        && size(&request.object) + size(&request.old_object) > Webhook::LARGE_REVIEW
}

/// Namespaces, pods and failure handling of Lucid's webhooks.
#[derive(Clone, Debug)]
pub struct Registrations {
    pub(crate) scope: Scope,
    pub(crate) selectors: Selectors,
    /// Handling of pods while the mutating webhook is unavailable.
    pub(crate) injection: FailurePolicy,
    /// Handling of pods while the validating webhook is unavailable.
    pub(crate) validation: FailurePolicy,
    pub(crate) workloads: bool,
    pub(crate) validated_labels: BTreeSet<String>,
    /// Timeout of the API server in seconds, 1 to 30.
    pub(crate) timeout_seconds: i32,
}

impl Registrations {
    /// Registers all webhooks with the default selectors, `failurePolicy: Fail` and a timeout of 5 seconds. `namespace`
    /// is the application's own, which is never handled.
    #[must_use]
    pub fn new(namespace: impl Into<String>) -> Self {
        Self {
            scope: Scope::new(namespace),
            selectors: Selectors::default(),
            injection: FailurePolicy::Fail,
            validation: FailurePolicy::Fail,
            workloads: true,
            validated_labels: BTreeSet::new(),
            timeout_seconds: 5,
        }
    }

    /// Handles the namespaces and pods that `selectors` match.
    #[must_use]
    pub fn with_selectors(self, selectors: Selectors) -> Self {
        Self { selectors, ..self }
    }

    /// Sets the handling of pods while the mutating webhook is unavailable.
    #[must_use]
    pub fn with_injection_failure_policy(self, policy: FailurePolicy) -> Self {
        Self { injection: policy, ..self }
    }

    /// Sets the handling of pods while the validating webhook is unavailable.
    #[must_use]
    pub fn with_validation_failure_policy(self, policy: FailurePolicy) -> Self {
        Self { validation: policy, ..self }
    }

    /// Omits the webhook that warns about workloads.
    #[must_use]
    pub fn without_workloads(self) -> Self {
        Self { workloads: false, ..self }
    }

    /// Also validates changes of the labels `keys` in existing pods: those that the policy or an administrator's
    /// permissions read.
    #[must_use]
    pub fn with_validated_labels<K: Into<String>>(mut self, keys: impl IntoIterator<Item = K>) -> Self {
        self.validated_labels.extend(keys.into_iter().map(Into::into));
        self
    }

    /// Sets the timeout of the API server in seconds, 1 to 30.
    #[must_use]
    pub fn with_timeout_seconds(self, timeout_seconds: i32) -> Self {
        Self { timeout_seconds, ..self }
    }

    /// Returns the configurations that register the webhooks with the API server; `configurations` has their name and
    /// the endpoint of the server.
    ///
    /// # Errors
    ///
    /// Returns an error if the API server would reject a selector or the timeout.
    pub fn configurations(
        &self,
        configurations: &Configurations,
    ) -> Result<(MutatingWebhookConfiguration, ValidatingWebhookConfiguration), RegistrationError> {
        let mutating = configurations.mutating([&self.mutating()])?;
        let pods = self.validating(watch::channel(Permissions::default()).1);
        let workloads = self.workloads.then(|| self.workloads());
        let validating = configurations.validating([&pods].into_iter().chain(&workloads))?;
        // Both have a webhook, so both exist.
        Ok((mutating.unwrap_or_default(), validating.unwrap_or_default()))
    }

    pub(crate) fn mutating(&self) -> WebhookRegistration {
        let pods = Rule::of::<Pod>([Operation::Create]).namespaced();
        self.with_pod_selectors(WebhookRegistration::new(WebhookKind::Mutating, MUTATE_NAME, MUTATE_PATH))
            .with_rule(pods)
            .with_failure_policy(self.injection)
            // A later injector may add containers or ports.
            .with_reinvocation()
    }

    /// Registration of the validating webhook for new pods and changes of existing ones, those that fulfil
    /// [`pod_changed`](Self::pod_changed). Updates that move a pod into or out of the administrator's selector are
    /// validated.
    pub(crate) fn validating(&self, permissions: watch::Receiver<Permissions>) -> WebhookRegistration {
        let registrations = self.clone();
        let pod_changed = move |permissions: &Permissions| {
            let keys = permissions.selector.label_keys();
            registrations.clone().with_validated_labels(keys).pod_changed()
        };
        let pods = Rule::of::<Pod>([Operation::Create, Operation::Update]).namespaced();
        let changes = Rule::of::<Pod>([Operation::Update]).namespaced();
        self.with_pod_selectors(WebhookRegistration::new(
            WebhookKind::Validating,
            VALIDATE_NAME,
            VALIDATE_PATH,
        ))
        .with_failure_policy(self.validation)
        .with_rule(pods)
        .with_rule(changes.clone().subresource("ephemeralcontainers"))
        .with_rule(changes.subresource("resize"))
        // Finalizers, and the labels and annotations of others, must stay mutable while the webhook is down, or pods
        // could not even be deleted.
        .with_live_match_condition("pod-changed", permissions, pod_changed)
    }

    pub(crate) fn evaluated_keys(&self) -> EvaluatedKeys {
        let selected = self.selectors.pods.iter();
        let selected = selected.flat_map(|selector| {
            let expressions = selector.match_expressions.iter().flatten().map(|it| it.key.as_str());
            selector.match_labels.iter().flatten().map(|(key, _)| key.as_str()).chain(expressions)
        });
        EvaluatedKeys::default().with(&self.validated_labels).with(selected)
    }

    /// CEL expression that is true for new pods, and for updates that change the spec or a label or annotation that
    /// Lucid reads. Equal maps are compared at once, because a pod may have tens of thousands of annotations.
    pub(crate) fn pod_changed(&self) -> String {
        let read = self.evaluated_keys();
        let read = read.names().map(|key| format!("'{key}'")).collect::<Vec<_>>().join(", ");
        let prefix = EvaluatedKeys::PREFIX;
        format!(
            "request.operation != 'UPDATE' || object.spec != oldObject.spec || \
             [[object.metadata.?labels.orValue({{}}), oldObject.metadata.?labels.orValue({{}})], \
             [object.metadata.?annotations.orValue({{}}), oldObject.metadata.?annotations.orValue({{}})]]\
             .exists(maps, maps[0] != maps[1] && [[maps[0], maps[1]], [maps[1], maps[0]]].exists(pair, \
             pair[0].exists(key, (key.startsWith('{prefix}') || key in [{read}]) && \
             pair[1][?key] != pair[0][?key])))"
        )
    }

    /// Registration of the webhook that warns about workloads. It rejects nothing, so requests pass while it is down.
    /// The handler itself checks whether their pods are selected.
    pub(crate) fn workloads(&self) -> WebhookRegistration {
        let registration = WebhookRegistration::new(WebhookKind::Validating, WORKLOADS_NAME, WORKLOADS_PATH);
        let mut registration =
            self.with_namespace_selector(registration).with_failure_policy(FailurePolicy::Ignore);
        for group in ["", "apps", "batch"] {
            let of_group = |workload: &&Workload| workload.group() == group && !workload.is_pod();
            let resources = Workload::ALL.iter().filter(of_group).map(|workload| workload.resource());
            let rule = Rule::new(group, ["v1"], resources, [Operation::Create, Operation::Update]);
            registration = registration.with_rule(rule.namespaced());
        }
        // A PodTemplate has no spec and rarely changes.
        registration.with_match_condition(
            "template-changed",
            "request.operation != 'UPDATE' || !has(object.spec) || object.spec != oldObject.spec",
        )
    }

    fn with_pod_selectors(&self, registration: WebhookRegistration) -> WebhookRegistration {
        let pods = self.selectors.pods.clone().unwrap_or_default();
        self.with_namespace_selector(registration).with_object_selector(pods)
    }

    fn with_namespace_selector(&self, registration: WebhookRegistration) -> WebhookRegistration {
        let namespaces = self.selectors.in_scope(&self.scope).namespaces;
        registration.with_timeout_seconds(self.timeout_seconds).with_namespace_selector(namespaces)
    }
}

#[cfg(test)]
mod tests {
    use lucid_webhook_test::Review;
    use serde_json::{Value, json};

    use super::*;
    use crate::{ChainSettings, ClusterConfiguration};

    fn pod(size: usize) -> Value {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x".repeat(size)}})
    }

    fn review(object: &Value) -> AdmissionRequest {
        let deadline = tokio::time::Instant::now();
        AdmissionRequest::from_json(&Review::create(object).to_bytes(), deadline).unwrap()
    }

    #[test]
    fn the_match_condition_and_the_handler_read_the_same_keys() {
        let pods = LabelSelector {
            match_labels: Some([("team".to_owned(), "a".to_owned())].into()),
            match_expressions: None,
        };
        let selectors = Selectors { pods: Some(pods), ..Selectors::default() };
        let registrations =
            Registrations::new("lucid-system").with_selectors(selectors).with_validated_labels(["class"]);
        let keys = registrations.evaluated_keys();
        for key in ["team", "class", "canMutate", "canValidate", keys::SECURED_LABEL] {
            assert!(keys.contains(key), "{key}");
        }
        assert!(keys.contains(keys::TIER) && !keys.contains("app"));
        let names: Vec<_> = keys.names().map(|name| format!("'{name}'")).collect();
        let condition = registrations.pod_changed();
        let expected = format!("key.startsWith('lucid.computing/') || key in [{}])", names.join(", "));
        assert!(condition.contains(&expected), "{condition}");
    }

    #[test]
    fn a_large_pod_that_takes_too_long_is_refused_by_either_policy() {
        let workload =
            json!({"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "x".repeat(70_000)}});
        for (object, denied) in [(pod(10), false), (pod(70_000), true), (workload, false)] {
            let response = |failure| {
                respond_to_failure(FailurePolicy::Ignore, &review(&object), &failure, "not validated")
            };
            assert_eq!(response(Failure::Deadline).denial().is_some(), denied);
            assert!(response(Failure::Panic).denial().is_none());
        }
    }

    #[test]
    fn a_failed_webhook_denies_or_warns_as_configured() {
        let error = Failure::Error("no list of pods".into());
        let unsynced = ClusterConfiguration::new(ChainSettings::default()).view("shop").unwrap_err();
        let unsynced = Failure::Error(ValidateError::from(unsynced).into());
        let reason = unsynced.to_string();
        let (retry, warning) =
            (format!("{reason}; try again in a moment"), format!("not validated: {reason}"));
        for (policy, failure, code, text) in [
            (FailurePolicy::Fail, &error, Some(500), "the webhook failed: no list of pods"),
            (FailurePolicy::Fail, &unsynced, Some(503), &*retry),
            (FailurePolicy::Ignore, &error, None, "not validated: the webhook failed: no list of pods"),
            (FailurePolicy::Ignore, &unsynced, None, &*warning),
        ] {
            let response = respond_to_failure(policy, &review(&pod(10)), failure, "not validated");
            let said = response.denial().map(|it| &it.message).or(response.warnings().first());
            let denied = response.denial().map(|denial| i32::from(denial.code));
            assert_eq!((denied, said.map(String::as_str)), (code, Some(text)), "{policy:?}");
        }
    }
}
