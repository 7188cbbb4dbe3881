//! How the API server is told of the webhooks: MutatingWebhookConfiguration and ValidatingWebhookConfiguration.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{StreamExt, stream};
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhook, MutatingWebhookConfiguration, ValidatingWebhook, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::events::Recorder;
use kube::{Api, Client, Resource, ResourceExt};
use lucid_certs::TrustBundle;
use lucid_certs::target::{ObjectTarget, Reading, Slot, TargetError, TrustTarget, Webhooks};
use lucid_validator::Scope;
use lucid_webhook::registration::{
    self, Configurations, Registration, RegistrationError, ReinvocationPolicy, Rule, RuleScope,
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

/// One of the two configurations as a whole: what the webhooks are called for, and the trust bundle in each.
pub(crate) struct Registered<K> {
    api: Api<K>,
    wanted: K,
    /// Knows the bundle's fields of such a configuration, who else owns them, and when it changes.
    bundles: ObjectTarget,
}

/// The configurations of what `router` is called for, at `endpoint`, as targets of the trust bundle.
///
/// # Errors
///
/// When the API server would refuse one.
pub(crate) fn registered(
    client: &Client,
    configurations: &Configurations,
    router: &Router,
    recorder: &Recorder,
) -> Result<Vec<Arc<dyn RegistrationTarget>>, RegistrationError> {
    let registrations: Vec<_> = router.registrations().cloned().collect();
    let mut targets: Vec<Arc<dyn RegistrationTarget>> = Vec::new();
    if let Some(wanted) = configurations.mutating(&registrations)? {
        let bundles = ObjectTarget::mutating_webhooks(client.clone(), NAME, NAME, Webhooks::All);
        let bundles = bundles.with_recorder(recorder.clone());
        targets.push(Arc::new(Registered { api: Api::all(client.clone()), wanted, bundles }));
    }
    if let Some(wanted) = configurations.validating(&registrations)? {
        let bundles = ObjectTarget::validating_webhooks(client.clone(), NAME, NAME, Webhooks::All);
        let bundles = bundles.with_recorder(recorder.clone());
        targets.push(Arc::new(Registered { api: Api::all(client.clone()), wanted, bundles }));
    }
    Ok(targets)
}

/// A target that can also be written when somebody else brings the bundle there.
pub(crate) trait RegistrationTarget: TrustTarget {
    /// Puts back everything but the bundle, which stays as it is, if that is needed.
    fn restore(&self) -> BoxFuture<'_, Result<(), TargetError>>;

    /// The same as a target of the bundle.
    fn as_target(self: Arc<Self>) -> Arc<dyn TrustTarget>;
}

impl<K: WebhookConfiguration> Registered<K> {
    async fn get(&self) -> Result<Option<K>, TargetError> {
        self.api.get_opt(NAME).await.map_err(|error| self.failed_to("get", error))
    }

    fn reading(&self, found: Option<K>) -> Reading {
        let Some(found) = found else {
            // Nothing there is as it should be either.
            return Reading::present("", Vec::new()).with_stale(true);
        };
        let slots = found.bundles().into_iter().map(|(name, pem)| Slot::new(name, pem)).collect();
        let owners = found.managed_fields().iter().filter_map(|entry| entry.manager.clone());
        let owners: BTreeSet<_> = owners.filter(|manager| manager != NAME).collect();
        Reading::present(version(&found), slots)
            .with_stale(!self.is_as_wanted(&found))
            .with_other_owners(owners)
    }

    /// Whether everything but the bundles is as it should be, and nothing was added: a webhook, a matchCondition, a
    /// selector's key. Any of them can keep pods away from Lucid.
    fn is_as_wanted(&self, found: &K) -> bool {
        let (found_meta, meta) = (found.meta(), self.wanted.meta());
        found.clone().with_bundles(&BTreeMap::new()).webhooks() == self.wanted.webhooks()
            && holds(found_meta.labels.as_ref(), meta.labels.as_ref())
            && holds(found_meta.annotations.as_ref(), meta.annotations.as_ref())
    }

    /// Writes everything, if nobody wrote since `version`.
    ///
    /// Server-side apply says who owns what; but it leaves what others have added, so the list is replaced when it is
    /// not what was applied.
    async fn write_all(&self, bundles: &BTreeMap<String, Vec<u8>>, version: &str) -> Result<K, TargetError> {
        let mut wanted = self.wanted.clone().with_bundles(bundles);
        if let Some((uid, resource_version)) = version.split_once('/') {
            wanted.meta_mut().uid = Some(uid.to_owned());
            wanted.meta_mut().resource_version = Some(resource_version.to_owned());
        }
        let params = PatchParams::apply(NAME).force();
        let applied = self.api.patch(NAME, &params, &Patch::Apply(&wanted)).await;
        let mut applied = applied.map_err(|error| self.failed_to("write", error))?;
        if applied.webhooks() == wanted.webhooks() {
            return Ok(applied);
        }
        applied.set_webhooks(wanted);
        let params = PostParams { field_manager: Some(NAME.to_owned()), ..PostParams::default() };
        self.api.replace(NAME, &params, &applied).await.map_err(|error| self.failed_to("write", error))
    }

    fn failed_to(&self, action: &'static str, error: kube::Error) -> TargetError {
        match error {
            kube::Error::Api(status) if status.is_conflict() => TargetError::changed(self.name()),
            error => TargetError::api(action, self.name(), error),
        }
    }
}

impl<K: WebhookConfiguration> RegistrationTarget for Registered<K> {
    fn restore(&self) -> BoxFuture<'_, Result<(), TargetError>> {
        Box::pin(async {
            let found = self.get().await?;
            if found.as_ref().is_some_and(|found| self.is_as_wanted(found)) {
                return Ok(());
            }
            let version = found.as_ref().map(version).unwrap_or_default();
            let bundles = found.iter().flat_map(WebhookConfiguration::bundles).collect();
            self.write_all(&bundles, &version).await?;
            tracing::info!(target = self.name(), "registered");
            Ok(())
        })
    }

    fn as_target(self: Arc<Self>) -> Arc<dyn TrustTarget> {
        self
    }
}

impl<K: WebhookConfiguration> TrustTarget for Registered<K> {
    fn name(&self) -> &str {
        self.bundles.name()
    }

    fn read(&self) -> BoxFuture<'_, Result<Reading, TargetError>> {
        Box::pin(async { Ok(self.reading(self.get().await?)) })
    }

    fn write<'a>(
        &'a self,
        bundle: &'a TrustBundle,
        reading: &'a Reading,
    ) -> BoxFuture<'a, Result<Reading, TargetError>> {
        Box::pin(async {
            let pem = bundle.to_pem().into_bytes();
            let webhooks = self.wanted.bundles().into_iter();
            let bundles = webhooks.map(|(name, _)| (name, pem.clone())).collect();
            let written = self.write_all(&bundles, reading.version().unwrap_or_default()).await?;
            Ok(self.reading(Some(written)))
        })
    }

    fn changes(&self) -> BoxStream<'static, ()> {
        self.bundles.changes()
    }

    fn report_contention<'a>(&'a self, reading: &'a Reading) -> BoxFuture<'a, ()> {
        self.bundles.report_contention(reading)
    }
}

impl<K> Debug for Registered<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registered").field("name", &self.bundles.name()).finish_non_exhaustive()
    }
}

/// What a write depends on, as an [`ObjectTarget`] reads it too: with the uid, or an object that was deleted meanwhile
/// would be made again.
fn version(found: &impl ResourceExt) -> String {
    format!("{}/{}", found.uid().unwrap_or_default(), found.resource_version().unwrap_or_default())
}

fn holds(found: Option<&BTreeMap<String, String>>, wanted: Option<&BTreeMap<String, String>>) -> bool {
    wanted.into_iter().flatten().all(|(key, value)| found.and_then(|found| found.get(key)) == Some(value))
}

/// Keeps the webhooks registered where somebody else brings the bundle, for as long as it is polled.
pub(crate) async fn keep(targets: Vec<Arc<dyn RegistrationTarget>>) {
    /// How often it is looked when nothing seems to happen, and at most how often when much does.
    const PACE: std::ops::RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_mins(1);
    let mut changes = stream::select_all(targets.iter().map(|target| target.changes()));
    loop {
        for target in &targets {
            match target.restore().await {
                Ok(()) | Err(TargetError::Changed { .. }) => {}
                Err(error) => {
                    let error = lucid_process::with_causes(&error);
                    tracing::warn!(error, "failed to register the webhooks");
                }
            }
        }
        tokio::time::sleep(*PACE.start()).await;
        tokio::time::timeout(*PACE.end(), changes.next()).await.ok();
    }
}

/// What the two kinds have in common.
pub(crate) trait WebhookConfiguration:
    Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Serialize + Send + Sync + 'static
{
    type Webhook: PartialEq;

    fn webhooks(&self) -> &Option<Vec<Self::Webhook>>;

    fn set_webhooks(&mut self, other: Self);

    /// By the webhook's name; empty where there is none.
    fn bundles(&self) -> BTreeMap<String, Vec<u8>>;

    /// With these bundles instead of its own.
    fn with_bundles(self, bundles: &BTreeMap<String, Vec<u8>>) -> Self;
}

macro_rules! webhook_configuration {
    ($configuration:ty, $webhook:ty) => {
        impl WebhookConfiguration for $configuration {
            type Webhook = $webhook;

            fn webhooks(&self) -> &Option<Vec<$webhook>> {
                &self.webhooks
            }

            fn set_webhooks(&mut self, other: Self) {
                self.webhooks = other.webhooks;
            }

            fn bundles(&self) -> BTreeMap<String, Vec<u8>> {
                let bundle =
                    |webhook: &$webhook| webhook.client_config.ca_bundle.clone().unwrap_or_default().0;
                self.webhooks
                    .iter()
                    .flatten()
                    .map(|webhook| (webhook.name.clone(), bundle(webhook)))
                    .collect()
            }

            fn with_bundles(mut self, bundles: &BTreeMap<String, Vec<u8>>) -> Self {
                for webhook in self.webhooks.iter_mut().flatten() {
                    let bundle = bundles.get(&webhook.name).filter(|bundle| !bundle.is_empty());
                    webhook.client_config.ca_bundle = bundle.cloned().map(ByteString);
                }
                self
            }
        }
    };
}

webhook_configuration!(MutatingWebhookConfiguration, MutatingWebhook);
webhook_configuration!(ValidatingWebhookConfiguration, ValidatingWebhook);

#[cfg(test)]
mod tests {
    use kube::runtime::events::Reporter;
    use lucid_webhook::registration::Endpoint;
    use lucid_webhook::{AdmissionResponse, Webhook};

    use super::*;

    fn targets(client: Client) -> Vec<Arc<dyn RegistrationTarget>> {
        let calls = Calls {
            scope: Scope::new("lucid-system"),
            failure_policy: FailurePolicy::Ignore,
            timeout_seconds: 10,
        };
        let allow = async || AdmissionResponse::allow();
        let mutating = Webhook::mutating(MUTATE_NAME, allow).with_registration(|r| calls.mutating(r));
        let validating = Webhook::validating(VALIDATE_NAME, allow).with_registration(|r| calls.validating(r));
        let router = Router::new().webhook(MUTATE_PATH, mutating).webhook(VALIDATE_PATH, validating);
        let configurations = Configurations::new(NAME, Endpoint::service("lucid-system", SERVICE));
        let recorder = Recorder::new(client.clone(), Reporter::from(NAME.to_owned()));
        registered(&client, &configurations, &router, &recorder).unwrap()
    }

    fn bundle() -> TrustBundle {
        let names = lucid_certs::ServingNames::for_services("lucid-system", &[SERVICE]).unwrap();
        let now = std::time::SystemTime::now();
        lucid_certs::CertificateAuthority::generate(&names, now).unwrap().trust_bundle()
    }

    /// As `Certificates` does it
    async fn publish(targets: &[Arc<dyn RegistrationTarget>], bundle: &TrustBundle) {
        for target in targets {
            let reading = target.read().await.unwrap();
            if !reading.holds(bundle) {
                assert!(target.write(bundle, &reading).await.unwrap().holds(bundle));
            }
        }
    }

    #[tokio::test]
    async fn the_validating_webhook_never_fails_open_and_system_namespaces_and_our_own_are_excluded() {
        let cluster = lucid_testbed::Cluster::builder().start().await.unwrap();
        let (targets, bundle) = (targets(cluster.client()), bundle());
        publish(&targets, &bundle).await;

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
        let (targets, bundle) = (targets(cluster.client()), bundle());
        publish(&targets, &bundle).await;
        let api: Api<MutatingWebhookConfiguration> = Api::all(cluster.client());
        let first = api.get(NAME).await.unwrap();

        publish(&targets, &bundle).await;
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
            publish(&targets, &bundle).await;
            assert_eq!(api.get(NAME).await.unwrap().webhooks, first.webhooks, "{damage} is not put back");
        }
        api.delete(NAME, &kube::api::DeleteParams::default()).await.unwrap();
        publish(&targets, &bundle).await;
        assert_eq!(api.get(NAME).await.unwrap().webhooks, first.webhooks);
    }

    #[tokio::test]
    async fn where_somebody_else_brings_the_bundle_everything_but_that_is_put_back() {
        let cluster = lucid_testbed::Cluster::builder().start().await.unwrap();
        let (targets, bundle) = (targets(cluster.client()), bundle());
        for target in &targets {
            target.restore().await.unwrap();
        }
        let api: Api<MutatingWebhookConfiguration> = Api::all(cluster.client());
        assert_eq!(api.get(NAME).await.unwrap().bundles()[MUTATE_NAME], b"");
        let ca_bundle = ByteString(bundle.to_pem().into_bytes());
        let patch = serde_json::json!([
            {"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": ca_bundle},
            {"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Fail"},
        ]);
        let patch: Patch<()> = Patch::Json(serde_json::from_value(patch).unwrap());
        api.patch(NAME, &PatchParams::default(), &patch).await.unwrap();
        for target in &targets {
            target.restore().await.unwrap();
        }
        let found = api.get(NAME).await.unwrap();
        assert_eq!(found.bundles()[MUTATE_NAME], ca_bundle.0);
        assert_eq!(found.webhooks.unwrap()[0].failure_policy.as_deref(), Some("Ignore"));
    }
}
