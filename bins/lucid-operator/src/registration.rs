//! How the API server is told of the webhooks: MutatingWebhookConfiguration and ValidatingWebhookConfiguration.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures::{StreamExt, stream};
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MatchCondition, MutatingWebhook, MutatingWebhookConfiguration, RuleWithOperations, ServiceReference,
    ValidatingWebhook, ValidatingWebhookConfiguration, WebhookClientConfig,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement, ObjectMeta};
use kube::api::{PartialObjectMeta, Patch, PatchParams, PostParams};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use lucid_certs::{PublishError, PublishTrust, Republish, TrustBundle};
use lucid_validator::Scope;
use serde::Serialize;
use serde::de::DeserializeOwned;
use url::Url;

/// Name of both configurations, and the owner of the fields in them.
pub(crate) const NAME: &str = "lucid-operator";
/// The Service in front of the webhooks.
pub(crate) const SERVICE: &str = "lucid-operator-webhook";
/// The port of that Service.
const SERVICE_PORT: i32 = 443;
/// The webhook that mutates pods.
pub(crate) const MUTATE_NAME: &str = "mutate.lucid.computing";
/// The webhook that validates pods.
pub(crate) const VALIDATE_NAME: &str = "validate.lucid.computing";
/// Where pods are mutated.
pub(crate) const MUTATE_PATH: &str = "/mutate";
/// Where pods are validated.
pub(crate) const VALIDATE_PATH: &str = "/validate";
/// How the API server reaches the webhooks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Endpoint {
    /// Through the Service [`SERVICE`] in this namespace.
    Service {
        /// The operator's namespace.
        namespace: String,
    },
    /// At a URL, for an operator that runs outside the cluster.
    Url(Url),
}

impl Endpoint {
    fn client_config(&self, path: &str, ca_bundle: &str) -> WebhookClientConfig {
        let ca_bundle = Some(ByteString(ca_bundle.as_bytes().to_vec()));
        match self {
            Self::Service { namespace } => WebhookClientConfig {
                ca_bundle,
                service: Some(ServiceReference {
                    name: SERVICE.to_owned(),
                    namespace: namespace.clone(),
                    path: Some(path.to_owned()),
                    port: Some(SERVICE_PORT),
                }),
                url: None,
            },
            Self::Url(url) => {
                let base = url.as_str().trim_end_matches('/');
                WebhookClientConfig { ca_bundle, service: None, url: Some(format!("{base}{path}")) }
            }
        }
    }
}

/// What happens to a request when the webhook cannot be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
#[value(rename_all = "PascalCase")]
pub(crate) enum FailurePolicy {
    /// It is refused: no pod runs without audit.
    Fail,
    /// It passes: pods may then run without audit.
    Ignore,
}

impl FailurePolicy {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Fail => "Fail",
            Self::Ignore => "Ignore",
        }
    }
}

/// Everything that the two configurations say.
#[derive(Clone, Debug)]
pub(crate) struct Registration {
    /// How the webhooks are reached.
    pub(crate) endpoint: Endpoint,
    /// Which namespaces are looked at.
    pub(crate) scope: Scope,
    /// For the mutating webhook; the validating one is always `Fail`.
    pub(crate) failure_policy: FailurePolicy,
    /// How long the API server waits for an answer, 1 to 30.
    pub(crate) timeout_seconds: i32,
}

impl Registration {
    /// The configuration of the mutating webhook.
    #[must_use]
    pub(crate) fn mutating(&self, ca_bundle: &str) -> MutatingWebhookConfiguration {
        MutatingWebhookConfiguration {
            metadata: Self::metadata(),
            webhooks: Some(vec![MutatingWebhook {
                name: MUTATE_NAME.to_owned(),
                client_config: self.endpoint.client_config(MUTATE_PATH, ca_bundle),
                rules: Some(vec![rule(&["CREATE"], &["pods"])]),
                namespace_selector: Some(self.namespace_selector()),
                object_selector: Some(LabelSelector::default()),
                failure_policy: Some(self.failure_policy.as_str().to_owned()),
                // An injector that comes later may add containers or ports.
                reinvocation_policy: Some("IfNeeded".to_owned()),
                side_effects: "None".to_owned(),
                timeout_seconds: Some(self.timeout_seconds),
                admission_review_versions: vec!["v1".to_owned()],
                match_policy: Some("Equivalent".to_owned()),
                ..Default::default()
            }]),
        }
    }

    /// The configuration of the validating webhook.
    #[must_use]
    pub(crate) fn validating(&self, ca_bundle: &str) -> ValidatingWebhookConfiguration {
        ValidatingWebhookConfiguration {
            metadata: Self::metadata(),
            webhooks: Some(vec![ValidatingWebhook {
                name: VALIDATE_NAME.to_owned(),
                client_config: self.endpoint.client_config(VALIDATE_PATH, ca_bundle),
                rules: Some(vec![
                    rule(&["CREATE", "UPDATE"], &["pods"]),
                    rule(&["UPDATE"], &["pods/ephemeralcontainers"]),
                ]),
                // What is checked stands in the spec. Labels and finalizers must be changeable while the webhook is
                // down, or pods could not even be deleted.
                match_conditions: Some(vec![MatchCondition {
                    name: "spec-changed".to_owned(),
                    expression: "request.operation != 'UPDATE' || object.spec != oldObject.spec".to_owned(),
                }]),
                namespace_selector: Some(self.namespace_selector()),
                object_selector: Some(LabelSelector::default()),
                failure_policy: Some(FailurePolicy::Fail.as_str().to_owned()),
                side_effects: "None".to_owned(),
                timeout_seconds: Some(self.timeout_seconds),
                admission_review_versions: vec!["v1".to_owned()],
                match_policy: Some("Equivalent".to_owned()),
            }]),
        }
    }

    fn metadata() -> ObjectMeta {
        let label = ("app.kubernetes.io/name".to_owned(), NAME.to_owned());
        ObjectMeta { name: Some(NAME.to_owned()), labels: Some([label].into()), ..Default::default() }
    }

    fn namespace_selector(&self) -> LabelSelector {
        LabelSelector {
            match_labels: Some([(lucid_chain::keys::ENABLED_LABEL.to_owned(), "true".to_owned())].into()),
            match_expressions: Some(vec![LabelSelectorRequirement {
                key: "kubernetes.io/metadata.name".to_owned(),
                operator: "NotIn".to_owned(),
                values: Some(self.scope.excluded().map(str::to_owned).collect()),
            }]),
        }
    }
}

fn rule(operations: &[&str], resources: &[&str]) -> RuleWithOperations {
    let owned = |names: &[&str]| Some(names.iter().map(|&name| name.to_owned()).collect());
    RuleWithOperations {
        api_groups: owned(&[""]),
        api_versions: owned(&["v1"]),
        operations: owned(operations),
        resources: owned(resources),
        scope: Some("Namespaced".to_owned()),
    }
}

/// Writes both configurations to the API server, each as a whole.
#[derive(Clone)]
pub(crate) struct Publisher {
    client: Client,
    registration: Registration,
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
    /// A publisher of `registration`.
    #[must_use]
    pub(crate) fn new(client: Client, registration: Registration) -> Self {
        Self { client, registration, written: Arc::default() }
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
        self.apply(self.registration.mutating(&ca_bundle), &ca_bundle).await?;
        self.apply(self.registration.validating(&ca_bundle), &ca_bundle).await?;
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
    use super::*;

    fn registration(endpoint: Endpoint) -> Registration {
        Registration {
            endpoint,
            scope: Scope::new("lucid-system"),
            failure_policy: FailurePolicy::Ignore,
            timeout_seconds: 10,
        }
    }

    #[test]
    fn a_url_loses_its_last_slash_before_the_path_is_added() {
        for url in ["https://127.0.0.1:8443", "https://127.0.0.1:8443/"] {
            let endpoint = Endpoint::Url(url.parse().unwrap());
            let config = endpoint.client_config(MUTATE_PATH, "");
            assert_eq!(config.url.as_deref(), Some("https://127.0.0.1:8443/mutate"));
        }
    }

    #[test]
    fn the_validating_webhook_never_fails_open() {
        let registration = registration(Endpoint::Service { namespace: "lucid-system".to_owned() });
        let policy = |policy: Option<String>| policy.unwrap();
        let mutating = registration.mutating("").webhooks.unwrap().remove(0);
        let validating = registration.validating("").webhooks.unwrap().remove(0);
        assert_eq!(policy(mutating.failure_policy), "Ignore");
        assert_eq!(policy(validating.failure_policy), "Fail");
    }

    #[test]
    fn system_namespaces_and_our_own_are_excluded() {
        let selector =
            registration(Endpoint::Service { namespace: "lucid-system".to_owned() }).namespace_selector();
        let values = selector.match_expressions.unwrap().remove(0).values.unwrap();
        assert_eq!(values, ["kube-system", "kube-public", "kube-node-lease", "lucid-system"]);
    }

    #[tokio::test]
    async fn what_somebody_else_wrote_into_the_registration_is_put_back() {
        let cluster = lucid_testbed::Cluster::builder().start().await.unwrap();
        let endpoint = Endpoint::Service { namespace: "lucid-system".to_owned() };
        let publisher = Publisher::new(cluster.client(), registration(endpoint));
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
