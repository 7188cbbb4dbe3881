//! How the API server is told of the webhooks: MutatingWebhookConfiguration and ValidatingWebhookConfiguration.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures::{StreamExt, stream};
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhook, MutatingWebhookConfiguration, ValidatingWebhook, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use kube::api::{PartialObjectMeta, Patch, PatchParams, PostParams};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use lucid_certs::{PublishError, PublishTrust, Republish, TrustBundle};
use lucid_validator::Scope;
use lucid_webhook::registration::{
    self, Configurations, Endpoint, Registration, RegistrationError, ReinvocationPolicy, Rule, RuleScope,
};
use lucid_webhook::{Operation, Router};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Name of both configurations, and the owner of the fields in them.
pub(crate) const NAME: &str = "lucid-operator";
/// The Service in front of the webhooks.
pub(crate) const SERVICE: &str = "lucid-operator-webhook";
/// The webhook that mutates pods.
pub(crate) const MUTATE_NAME: &str = "mutate.lucid.computing";
/// The webhook that validates pods.
pub(crate) const VALIDATE_NAME: &str = "validate.lucid.computing";
/// Where pods are mutated.
pub(crate) const MUTATE_PATH: &str = "/mutate";
/// Where pods are validated.
pub(crate) const VALIDATE_PATH: &str = "/validate";
/// What happens to a request when the webhook cannot be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
#[value(rename_all = "PascalCase")]
pub(crate) enum FailurePolicy {
    /// It is refused: no pod runs without audit.
    Fail,
    /// It passes: pods may then run without audit.
    Ignore,
}

/// What the two webhooks are called for.
#[derive(Clone, Debug)]
pub(crate) struct Calls {
    /// Which namespaces are looked at.
    pub(crate) scope: Scope,
    /// For the mutating webhook; the validating one never fails open.
    pub(crate) failure_policy: FailurePolicy,
    /// How long the API server waits for an answer, 1 to 30.
    pub(crate) timeout_seconds: i32,
}

impl Calls {
    pub(crate) fn mutating(&self, registration: Registration) -> Registration {
        let pods = Rule::of::<Pod>([Operation::Create]).scope(RuleScope::Namespaced);
        self.of_pods(registration)
            .with_rule(pods)
            .with_failure_policy(match self.failure_policy {
                FailurePolicy::Fail => registration::FailurePolicy::Fail,
                FailurePolicy::Ignore => registration::FailurePolicy::Ignore,
            })
            // An injector that comes later may add containers or ports.
            .with_reinvocation_policy(ReinvocationPolicy::IfNeeded)
    }

    pub(crate) fn validating(&self, registration: Registration) -> Registration {
        let pods = Rule::of::<Pod>([Operation::Create, Operation::Update]).scope(RuleScope::Namespaced);
        let ephemeral = Rule::of::<Pod>([Operation::Update]).scope(RuleScope::Namespaced);
        self.of_pods(registration)
            .with_rule(pods)
            .with_rule(ephemeral.subresource("ephemeralcontainers"))
            // What is checked stands in the spec. Labels and finalizers must be changeable while the webhook is
            // down, or pods could not even be deleted.
            .with_match_condition(
                "spec-changed",
                "request.operation != 'UPDATE' || object.spec != oldObject.spec",
            )
    }

    fn of_pods(&self, registration: Registration) -> Registration {
        registration.with_timeout_seconds(self.timeout_seconds).with_namespace_selector(LabelSelector {
            match_labels: Some([(lucid_chain::keys::ENABLED_LABEL.to_owned(), "true".to_owned())].into()),
            match_expressions: Some(vec![LabelSelectorRequirement {
                key: "kubernetes.io/metadata.name".to_owned(),
                operator: "NotIn".to_owned(),
                values: Some(self.scope.excluded().map(str::to_owned).collect()),
            }]),
        })
    }
}

/// Writes both configurations to the API server, each as a whole.
#[derive(Clone)]
pub(crate) struct Publisher {
    client: Client,
    configurations: Configurations,
    registrations: Arc<[Registration]>,
    /// By kind, what was last written.
    written: Arc<Mutex<BTreeMap<String, Written>>>,
}

struct Written {
    ca_bundle: String,
    resource_version: Option<String>,
    reported: Option<Instant>,
}

/// Two operators that overwrite each other are reported this often.
const REPORT_INTERVAL: Duration = Duration::from_secs(60);

impl Publisher {
    /// A publisher of what the webhooks of `router` are called for, at `endpoint`.
    ///
    /// # Errors
    ///
    /// When the API server would refuse it.
    pub(crate) fn new(
        client: Client,
        endpoint: Endpoint,
        router: &Router,
    ) -> Result<Self, RegistrationError> {
        let configurations = Configurations::new(NAME, endpoint).with_label("app.kubernetes.io/name", NAME);
        let registrations: Arc<[_]> = router.registrations().cloned().collect();
        configurations.mutating(&*registrations)?;
        configurations.validating(&*registrations)?;
        Ok(Self { client, configurations, registrations, written: Arc::default() })
    }

    /// Applies `wanted` and makes sure that nothing else stands in its webhooks.
    ///
    /// Server-side apply alone would leave what others have added: a webhook, a matchCondition, a selector's key. Any of
    /// them can keep pods away from Lucid, so the list is replaced when it is not what was applied.
    async fn apply<K: WebhookConfiguration>(&self, wanted: K, ca_bundle: &str) -> Result<(), kube::Error> {
        let api: Api<K> = Api::all(self.client.clone());
        // Lucid owns these objects: a conflict is with somebody who wrote into them.
        let mut found = api.patch(NAME, &PatchParams::apply(NAME).force(), &Patch::Apply(&wanted)).await?;
        let is_wanted = found.webhooks() == wanted.webhooks();
        if !is_wanted {
            found.set_webhooks(wanted);
            let params = PostParams { field_manager: Some(NAME.to_owned()), ..PostParams::default() };
            found = api.replace(NAME, &params, &found).await?;
        }
        self.note(&found, ca_bundle, is_wanted);
        Ok(())
    }

    /// Remembers what is written now, and reports when somebody else wrote since the last time.
    fn note<K: WebhookConfiguration>(&self, found: &K, ca_bundle: &str, was_wanted: bool) {
        let kind = K::kind(&()).into_owned();
        let resource_version = found.resource_version();
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let before = written.remove(&kind);
        let ours = before.as_ref().is_none_or(|before| {
            before.ca_bundle != ca_bundle || before.resource_version == resource_version
        });
        let mut reported = before.and_then(|before| before.reported);
        let is_due = reported.is_none_or(|reported| reported.elapsed() > REPORT_INTERVAL);
        if !(was_wanted && ours) && is_due {
            let managers = found.managed_fields().iter().filter_map(|entry| entry.manager.as_deref());
            let managers = managers.collect::<BTreeSet<_>>();
            tracing::warn!(
                ?managers,
                "somebody else changed {kind} {NAME}, or another operator writes it; it is put back"
            );
            reported = Some(Instant::now());
        }
        written.insert(kind, Written { ca_bundle: ca_bundle.to_owned(), resource_version, reported });
    }
}

impl PublishTrust for Publisher {
    async fn publish(&self, bundle: &TrustBundle) -> Result<(), PublishError> {
        let ca_bundle = bundle.to_pem();
        let configurations = self.configurations.clone().with_ca_bundle(ca_bundle.clone());
        if let Some(wanted) = configurations.mutating(&*self.registrations)? {
            self.apply(wanted, &ca_bundle).await?;
        }
        if let Some(wanted) = configurations.validating(&*self.registrations)? {
            self.apply(wanted, &ca_bundle).await?;
        }
        Ok(())
    }
}

/// Asks for another publication whenever somebody changes one of the configurations, for as long as it is polled.
pub(crate) async fn watch(client: Client, republish: Republish) {
    let config = watcher::Config::default().fields(&format!("metadata.name={NAME}"));
    let mutating: Api<PartialObjectMeta<MutatingWebhookConfiguration>> = Api::all(client.clone());
    let validating: Api<PartialObjectMeta<ValidatingWebhookConfiguration>> = Api::all(client);
    let changes = stream::select(
        watcher(mutating, config.clone()).default_backoff().map(|event| event.map(is_change)),
        watcher(validating, config).default_backoff().map(|event| event.map(is_change)),
    );
    let mut changes = pin!(changes);
    while let Some(change) = changes.next().await {
        match change {
            Ok(true) => republish.request(),
            Ok(false) => {}
            Err(error) => {
                let error = lucid_process::with_causes(&error);
                tracing::warn!(error, "failed to watch the registration");
            }
        }
    }
}

/// Whether something changed; the rest of an event is of no interest.
fn is_change<K>(event: Event<K>) -> bool {
    matches!(event, Event::Apply(_) | Event::Delete(_) | Event::InitDone)
}

/// What the two kinds have in common.
trait WebhookConfiguration:
    Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Serialize + Send + Sync
{
    type Webhook: PartialEq;

    fn webhooks(&self) -> &Option<Vec<Self::Webhook>>;

    fn set_webhooks(&mut self, other: Self);
}

impl WebhookConfiguration for MutatingWebhookConfiguration {
    type Webhook = MutatingWebhook;

    fn webhooks(&self) -> &Option<Vec<MutatingWebhook>> {
        &self.webhooks
    }

    fn set_webhooks(&mut self, other: Self) {
        self.webhooks = other.webhooks;
    }
}

impl WebhookConfiguration for ValidatingWebhookConfiguration {
    type Webhook = ValidatingWebhook;

    fn webhooks(&self) -> &Option<Vec<ValidatingWebhook>> {
        &self.webhooks
    }

    fn set_webhooks(&mut self, other: Self) {
        self.webhooks = other.webhooks;
    }
}

#[cfg(test)]
mod tests {
    use lucid_webhook::{AdmissionResponse, Webhook};

    use super::*;

    fn publisher(client: Client) -> Publisher {
        let calls = Calls {
            scope: Scope::new("lucid-system"),
            failure_policy: FailurePolicy::Ignore,
            timeout_seconds: 10,
        };
        let allow = async || AdmissionResponse::allow();
        let mutating = Webhook::mutating(MUTATE_NAME, allow).with_registration(|r| calls.mutating(r));
        let validating = Webhook::validating(VALIDATE_NAME, allow).with_registration(|r| calls.validating(r));
        let router = Router::new().webhook(MUTATE_PATH, mutating).webhook(VALIDATE_PATH, validating);
        Publisher::new(client, Endpoint::service("lucid-system", SERVICE), &router).unwrap()
    }

    #[tokio::test]
    async fn the_validating_webhook_never_fails_open_and_system_namespaces_and_our_own_are_excluded() {
        let cluster = lucid_testbed::Cluster::builder().start().await.unwrap();
        let publisher = publisher(cluster.client());
        let names = lucid_certs::ServingNames::for_services("lucid-system", &[SERVICE]).unwrap();
        let now = std::time::SystemTime::now();
        let bundle = lucid_certs::CertificateAuthority::generate(&names, now).unwrap().trust_bundle();
        publisher.publish(&bundle).await.unwrap();

        let api: Api<MutatingWebhookConfiguration> = Api::all(cluster.client());
        let mutating = api.get(NAME).await.unwrap().webhooks.unwrap().remove(0);
        let api: Api<ValidatingWebhookConfiguration> = Api::all(cluster.client());
        let validating = api.get(NAME).await.unwrap().webhooks.unwrap().remove(0);
        assert_eq!(mutating.failure_policy.unwrap(), "Ignore");
        assert_eq!(validating.failure_policy.unwrap(), "Fail");
        for selector in [mutating.namespace_selector, validating.namespace_selector] {
            let values = selector.unwrap().match_expressions.unwrap().remove(0).values.unwrap();
            assert_eq!(values, ["kube-system", "kube-public", "kube-node-lease", "lucid-system"]);
        }
    }

    #[tokio::test]
    async fn what_somebody_else_wrote_into_the_registration_is_put_back() {
        let cluster = lucid_testbed::Cluster::builder().start().await.unwrap();
        let publisher = publisher(cluster.client());
        let names = lucid_certs::ServingNames::for_services("lucid-system", &[SERVICE]).unwrap();
        let now = std::time::SystemTime::now();
        let bundle = lucid_certs::CertificateAuthority::generate(&names, now).unwrap().trust_bundle();
        publisher.publish(&bundle).await.unwrap();
        let api: Api<MutatingWebhookConfiguration> = Api::all(cluster.client());
        let first = api.get(NAME).await.unwrap();

        publisher.publish(&bundle).await.unwrap();
        let again = api.get(NAME).await.unwrap();
        assert_eq!(
            again.resource_version(),
            first.resource_version(),
            "nothing to put back, but it was written"
        );

        let webhook = &serde_json::to_value(&first).unwrap()["webhooks"][0];
        let mut other = webhook.clone();
        other["name"] = serde_json::json!("other.example.com");
        let never = serde_json::json!([{"name": "never", "expression": "false"}]);
        for damage in [
            serde_json::json!([{"op": "add", "path": "/webhooks/0/objectSelector", "value": {"matchLabels": {"a": "b"}}}]),
            serde_json::json!([{"op": "add", "path": "/webhooks/0/matchConditions", "value": never}]),
            serde_json::json!([{"op": "replace", "path": "/webhooks/0/clientConfig/caBundle", "value": "Cg=="}]),
            serde_json::json!([{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Fail"}]),
            serde_json::json!([{"op": "add", "path": "/webhooks/-", "value": other}]),
            serde_json::json!([{"op": "remove", "path": "/webhooks/0"}]),
        ] {
            let patch: Patch<()> = Patch::Json(serde_json::from_value(damage.clone()).unwrap());
            api.patch(NAME, &PatchParams::default(), &patch).await.unwrap();
            assert_ne!(api.get(NAME).await.unwrap().webhooks, first.webhooks, "{damage} does nothing");
            publisher.publish(&bundle).await.unwrap();
            assert_eq!(api.get(NAME).await.unwrap().webhooks, first.webhooks, "{damage} is not put back");
        }
        api.delete(NAME, &kube::api::DeleteParams::default()).await.unwrap();
        publisher.publish(&bundle).await.unwrap();
        assert_eq!(api.get(NAME).await.unwrap().webhooks, first.webhooks);
    }
}
