//! Registration rules of the webhooks for pods.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use kube::core::Selector;
use lucid_policy::Workload;
use lucid_webhook::registration::{self, Registration, Rule, RuleScope, parse_selector};
use lucid_webhook::{AdmissionRequest, AdmissionResponse, Failure, Operation, RawObject};

use crate::scope::Scope;

/// Name of the webhook that validates pods.
pub const VALIDATE_NAME: &str = "validate.lucid.computing";
/// Path of the webhook that validates pods.
pub const VALIDATE_PATH: &str = "/validate";
/// Name of the webhook that warns about workloads whose pods will be rejected.
pub const WORKLOADS_NAME: &str = "workloads.lucid.computing";
/// Path of the webhook that warns about workloads.
pub const WORKLOADS_PATH: &str = "/validate-workloads";

/// The options that choose namespaces and pods, to be flattened into a binary's own arguments.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Registration")]
pub struct SelectorArgs {
    /// The namespaces whose pods are looked at, as kubectl takes a selector: `team=a,stage!=test,tier in (a,b),!legacy`.
    /// The own namespace, kube-system, kube-public and kube-node-lease are excluded whatever it says.
    #[arg(long, env = "LUCID_NAMESPACE_SELECTOR", value_name = "SELECTOR")]
    #[arg(default_value = "lucid.computing/enabled=true", value_parser = parse_selector)]
    pub namespace_selector: LabelSelector,

    /// The pods that are looked at in these namespaces, likewise. By default all of them. Whoever writes a pod writes its
    /// labels: what is not selected is neither injected nor validated.
    #[arg(long, env = "LUCID_OBJECT_SELECTOR", value_name = "SELECTOR", value_parser = parse_selector)]
    pub object_selector: Option<LabelSelector>,
}

impl SelectorArgs {
    /// Returns these selectors without the namespaces that Lucid never touches.
    #[must_use]
    pub fn in_scope(&self, scope: &Scope) -> Self {
        let mut selectors = self.clone();
        selectors.namespace_selector.match_expressions.get_or_insert_default().insert(
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
    #[must_use]
    pub fn pods(&self) -> Selector {
        Selector::try_from(self.object_selector.clone().unwrap_or_default()).unwrap_or_default()
    }
}

/// Handling of requests while a webhook is unavailable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
#[value(rename_all = "PascalCase")]
pub enum FailurePolicy {
    /// It is refused.
    #[default]
    Fail,
    /// It passes.
    Ignore,
}

impl FailurePolicy {
    /// Returns the response to a request that a webhook could not process: a rejection, or a warning with the
    /// consequence `lost`, such as `not judged`. If `passes`, the failure is transient and the rejection suggests a
    /// retry. Both policies reject a large pod that exceeds the deadline, because its author controls the size.
    pub fn answer(
        self,
        request: &AdmissionRequest,
        failure: &Failure,
        passes: bool,
        lost: &str,
    ) -> AdmissionResponse {
        match self {
            Self::Fail if passes => {
                let text = format!("{failure}; try again in a moment");
                AdmissionResponse::deny(503, "ServiceUnavailable", text)
            }
            Self::Ignore if !is_expensive(request, failure) => {
                AdmissionResponse::allow().with_warning(format!("{lost}: {failure}"))
            }
            Self::Fail | Self::Ignore => failure.refusal(),
        }
    }
}

fn is_expensive(request: &AdmissionRequest, failure: &Failure) -> bool {
    const LARGE: usize = 64 * 1024;
    let size = |object: &Option<RawObject>| object.as_ref().map_or(0, |object| object.as_bytes().len());
    matches!(failure, Failure::Deadline)
        && request.kind.kind == "Pod"
        && size(&request.object) + size(&request.old_object) > LARGE
}

impl From<FailurePolicy> for registration::FailurePolicy {
    fn from(policy: FailurePolicy) -> Self {
        match policy {
            FailurePolicy::Fail => Self::Fail,
            FailurePolicy::Ignore => Self::Ignore,
        }
    }
}

/// The options of the validating webhooks' registration, to be flattened into a binary's own arguments.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Registration")]
pub struct ValidationWebhookArgs {
    /// What happens to pods of selected namespaces, and to changes of them, while the validating webhook cannot be asked:
    /// Fail refuses them, with Ignore they pass unjudged. Ignore is for clusters with the backstop
    /// (`lucid manifests --backstop`), in which the API server itself refuses pods without their chain.
    #[arg(long, env = "LUCID_VALIDATION_FAILURE_POLICY", value_name = "POLICY", default_value = "Fail")]
    pub validation_failure_policy: FailurePolicy,

    /// Register the webhook for workloads too, which warns of Deployments, Jobs and the like whose pods would be refused. It
    /// refuses nothing itself: with false pods are judged as before, and who applies a workload hears of it from events.
    #[arg(long, env = "LUCID_VALIDATE_WORKLOADS", value_name = "BOOL", default_value = "true")]
    #[arg(action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub validate_workloads: bool,
}

/// Namespaces, pods and failure handling of Lucid's webhooks.
#[derive(Clone, Debug)]
pub struct Calls {
    /// Namespaces that Lucid may touch.
    pub scope: Scope,
    /// Selectors of namespaces and pods by label.
    pub selectors: SelectorArgs,
    /// Handling of pods while the validating webhook is unavailable.
    pub validation: FailurePolicy,
    /// `true` if the webhook for workloads is registered.
    pub workloads: bool,
    /// Timeout of the API server in seconds, 1 to 30.
    pub timeout_seconds: i32,
}

impl Calls {
    /// Configures the validating webhook for new pods and changes of their specs.
    pub fn validating(&self, registration: Registration) -> Registration {
        let pods = Rule::of::<Pod>([Operation::Create, Operation::Update]).scope(RuleScope::Namespaced);
        let changes = Rule::of::<Pod>([Operation::Update]).scope(RuleScope::Namespaced);
        self.of_pods(registration)
            .with_failure_policy(self.validation.into())
            .with_rule(pods)
            .with_rule(changes.clone().subresource("ephemeralcontainers"))
            .with_rule(changes.subresource("resize"))
            // Only the spec is validated. Labels and finalizers must stay mutable while the webhook is down, or pods
            // could not even be deleted.
            .with_match_condition(
                "spec-changed",
                "request.operation != 'UPDATE' || object.spec != oldObject.spec",
            )
    }

    /// Configures the webhook that warns about workloads. It rejects nothing, so requests pass while it is down. The
    /// handler itself checks whether their pods are selected.
    pub fn of_workloads(&self, registration: Registration) -> Registration {
        let mut registration = self.of_namespaces(registration);
        registration = registration.with_failure_policy(FailurePolicy::Ignore.into());
        for group in ["", "apps", "batch"] {
            let of_group = |workload: &&Workload| workload.group() == group && !workload.is_pod();
            let resources = Workload::ALL.iter().filter(of_group).map(|workload| workload.resource());
            let rule = Rule::new(group, ["v1"], resources, [Operation::Create, Operation::Update]);
            registration = registration.with_rule(rule.scope(RuleScope::Namespaced));
        }
        // A PodTemplate has no spec and rarely changes.
        registration.with_match_condition(
            "template-changed",
            "request.operation != 'UPDATE' || !has(object.spec) || object.spec != oldObject.spec",
        )
    }

    /// Configures the selectors that all webhooks for pods share.
    pub fn of_pods(&self, registration: Registration) -> Registration {
        let pods = self.selectors.object_selector.clone().unwrap_or_default();
        self.of_namespaces(registration).with_object_selector(pods)
    }

    fn of_namespaces(&self, registration: Registration) -> Registration {
        let namespaces = self.selectors.in_scope(&self.scope).namespace_selector;
        registration.with_timeout_seconds(self.timeout_seconds).with_namespace_selector(namespaces)
    }
}

#[cfg(test)]
mod tests {
    use lucid_webhook_test::Review;
    use serde_json::{Value, json};

    use super::*;

    fn pod(size: usize) -> Value {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x".repeat(size)}})
    }

    fn review(object: &Value) -> AdmissionRequest {
        let deadline = tokio::time::Instant::now();
        AdmissionRequest::from_json(&Review::create(object).to_bytes(), deadline).unwrap()
    }

    #[test]
    fn a_large_pod_that_takes_too_long_is_refused_by_either_policy() {
        let workload =
            json!({"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "x".repeat(70_000)}});
        for (object, denied) in [(pod(10), false), (pod(70_000), true), (workload, false)] {
            let answer =
                |failure| FailurePolicy::Ignore.answer(&review(&object), &failure, false, "not judged");
            assert_eq!(answer(Failure::Deadline).denial().is_some(), denied);
            assert!(answer(Failure::Panic).denial().is_none());
        }
    }

    #[test]
    fn a_failed_webhook_refuses_or_warns_as_the_policy_says() {
        let failure = Failure::Error("no list of pods".into());
        for (policy, passes, code, text) in [
            (FailurePolicy::Fail, false, Some(500), "the webhook failed: no list of pods"),
            (
                FailurePolicy::Fail,
                true,
                Some(503),
                "the webhook failed: no list of pods; try again in a moment",
            ),
            (FailurePolicy::Ignore, false, None, "not judged: the webhook failed: no list of pods"),
            (FailurePolicy::Ignore, true, None, "not judged: the webhook failed: no list of pods"),
        ] {
            let response = policy.answer(&review(&pod(10)), &failure, passes, "not judged");
            let said = response.denial().map(|it| &it.message).or(response.warnings().first());
            let denied = response.denial().map(|denial| i32::from(denial.code));
            assert_eq!((denied, said.map(String::as_str)), (code, Some(text)), "{policy:?} {passes}");
        }
    }
}
