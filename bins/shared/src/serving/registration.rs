//! Registration of the webhooks: MutatingWebhookConfiguration and ValidatingWebhookConfiguration.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::fmt::Debug;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{StreamExt, stream};
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhook, MutatingWebhookConfiguration, ValidatingWebhook, ValidatingWebhookConfiguration,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::runtime::events::Recorder;
use kube::{Api, Client, Resource, ResourceExt};
use lucid_certs::TrustBundle;
use lucid_certs::target::{ObjectTarget, Reading, Slot, TargetError, TrustTarget, Webhooks};
use lucid_webhook::Router;
use lucid_webhook::registration::{Configurations, RegistrationError};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::serving::Program;
use crate::serving::rbac::Needs;

/// Label that marks a configuration as the program's own.
pub const NAME_LABEL: &str = "app.kubernetes.io/name";

/// Registration of the webhooks of a router, kept as it should be.
pub(crate) struct Registration {
    name: &'static str,
    client: Client,
    targets: Vec<Arc<dyn RegistrationTarget>>,
    /// `true` if an earlier registration of the validating webhooks is to be removed.
    withdraws_validating: bool,
}

impl Registration {
    /// Creates the registration of the webhooks that the program registers.
    ///
    /// # Errors
    ///
    /// Returns an error if the API server would reject it.
    pub(crate) fn new(client: Client, needs: Needs<'_>, router: &Router) -> Result<Self, RegistrationError> {
        let Needs { program, serving, validates, .. } = needs;
        let registers = serving.certificates.registers();
        let targets = targets(&client, program, &serving.configurations(program), router)?;
        // Another program may register the validating webhooks. Until the removal of an earlier registration has
        // propagated, API servers still call this process.
        let targets =
            targets.into_iter().filter(|(is_validating, _)| registers && (validates || !is_validating));
        Ok(Self {
            name: program.name,
            client,
            targets: targets.map(|(_, target)| target).collect(),
            withdraws_validating: registers && !validates,
        })
    }

    /// Returns the targets of the trust bundle.
    pub(crate) fn trust_targets(&self) -> Vec<Arc<dyn TrustTarget>> {
        let upcast = |target: &Arc<dyn RegistrationTarget>| -> Arc<dyn TrustTarget> { target.clone() };
        self.targets.iter().map(upcast).collect()
    }

    /// Keeps the registration until `shutdown`, and never returns. A later write would restore objects that an
    /// uninstallation removes. If the process `publishes_trust`, the driver of its certificates writes the targets, and
    /// this only removes an earlier registration.
    pub(crate) async fn keep(&self, publishes_trust: bool, shutdown: impl Future<Output = ()>) -> Infallible {
        let withdraw = async {
            if self.withdraws_validating {
                withdraw_validating(self.name, self.client.clone()).await;
            }
        };
        let restore = async {
            if !publishes_trust && !self.targets.is_empty() {
                restore(&self.targets).await;
            }
        };
        tokio::select! {
            biased;
            () = shutdown => {}
            _ = futures::future::join(withdraw, restore) => {}
        }
        pending().await
    }
}

/// Returns the configurations of the webhooks of `router`, with `true` for that of the validating ones.
fn targets(
    client: &Client,
    program: Program,
    configurations: &Configurations,
    router: &Router,
) -> Result<Vec<(bool, Arc<dyn RegistrationTarget>)>, RegistrationError> {
    let name = program.name;
    let recorder = Recorder::new(client.clone(), program.reporter());
    let mut targets = Vec::<(bool, Arc<dyn RegistrationTarget>)>::new();
    if let Some(wanted) = configurations.mutating(router.registrations())? {
        let bundles = ObjectTarget::mutating_webhooks(client.clone(), name, name, Webhooks::All);
        targets.push((false, Registered::new(name, client, wanted, bundles.with_recorder(recorder.clone()))));
    }
    if let Some(wanted) = configurations.validating(router.registrations())? {
        let bundles = ObjectTarget::validating_webhooks(client.clone(), name, name, Webhooks::All);
        targets.push((true, Registered::new(name, client, wanted, bundles.with_recorder(recorder))));
    }
    Ok(targets)
}

/// A trust target whose other fields can be written while a third party manages the bundle.
trait RegistrationTarget: TrustTarget {
    /// Restores all fields but the bundle, if they differ from the wanted ones.
    fn restore(&self) -> BoxFuture<'_, Result<(), TargetError>>;
}

/// One of the two configurations as a whole: the rules of its webhooks, and the trust bundle in each.
struct Registered<K> {
    name: &'static str,
    api: Api<K>,
    wanted: K,
    /// Reads the bundle fields of the configuration and their owners, and watches it.
    bundles: ObjectTarget,
}

impl<K: WebhookConfiguration> Registered<K> {
    fn new(name: &'static str, client: &Client, wanted: K, bundles: ObjectTarget) -> Arc<Self> {
        Arc::new(Self { name, api: Api::all(client.clone()), wanted, bundles })
    }

    async fn get(&self) -> Result<Option<K>, TargetError> {
        self.api.get_opt(self.name).await.map_err(|error| self.failed_to("get", error))
    }

    fn reading(&self, found: Option<K>) -> Reading {
        let Some(found) = found else {
            // A missing configuration is stale.
            return Reading::present("", Vec::new()).with_stale(true);
        };
        let slots = found.bundles().into_iter().map(|(name, pem)| Slot::new(name, pem)).collect();
        let owners = found.managed_fields().iter().filter_map(|entry| entry.manager.clone());
        // The manager of `make` is this program, too.
        let is_own = |manager: &String| manager.strip_suffix("-create").unwrap_or(manager) == self.name;
        let owners: BTreeSet<_> = owners.filter(|manager| !is_own(manager)).collect();
        Reading::present(version(&found), slots)
            .with_stale(!self.is_as_wanted(&found))
            .with_other_owners(owners)
    }

    /// Returns `true` if all fields but the bundles have the wanted values and nothing was added: a webhook, a
    /// matchCondition or a selector's key. Each of them could bypass Lucid.
    fn is_as_wanted(&self, found: &K) -> bool {
        let (found_meta, meta) = (found.meta(), self.wanted.meta());
        found.clone().with_bundles(&BTreeMap::new()).webhooks() == self.wanted.webhooks()
            && holds(found_meta.labels.as_ref(), meta.labels.as_ref())
            && holds(found_meta.annotations.as_ref(), meta.annotations.as_ref())
            && !self.applied_more_annotations(found)
    }

    /// Returns `true` if the object has an annotation that this program applied and no longer wants, for example after
    /// a change of the certificate source. Annotations of other managers are ignored.
    fn applied_more_annotations(&self, found: &K) -> bool {
        let wanted = self.wanted.meta().annotations.as_ref();
        let ours = |entry: &&ManagedFieldsEntry| {
            entry.manager.as_deref() == Some(self.name) && entry.operation.as_deref() == Some("Apply")
        };
        let fields = found.managed_fields().iter().filter(ours).filter_map(|entry| entry.fields_v1.as_ref());
        fields
            .filter_map(|fields| fields.0.pointer("/f:metadata/f:annotations")?.as_object())
            .flat_map(|annotations| annotations.keys())
            .filter_map(|key| key.strip_prefix("f:"))
            .any(|key| !wanted.is_some_and(|wanted| wanted.contains_key(key)))
    }

    /// Writes all fields, unless the object has changed since version `found`.
    ///
    /// Server-side apply declares the ownership but keeps additions of other managers. The list is therefore replaced
    /// if it differs from the applied one.
    async fn write_all(&self, bundles: &BTreeMap<String, Vec<u8>>, found: &str) -> Result<K, TargetError> {
        let found = if found.is_empty() { self.make().await? } else { found.to_owned() };
        let mut wanted = self.wanted.clone().with_bundles(bundles);
        if let Some((uid, resource_version)) = found.split_once('/') {
            wanted.meta_mut().uid = Some(uid.to_owned());
            wanted.meta_mut().resource_version = Some(resource_version.to_owned());
        }
        let params = PatchParams::apply(self.name).force();
        let applied = self.api.patch(self.name, &params, &Patch::Apply(&wanted)).await;
        let mut applied = applied.map_err(|error| self.failed_to("write", error))?;
        if applied.webhooks() == wanted.webhooks() {
            return Ok(applied);
        }
        applied.set_webhooks(wanted);
        let params = PostParams { field_manager: Some(self.name.to_owned()), ..PostParams::default() };
        self.api.replace(self.name, &params, &applied).await.map_err(|error| self.failed_to("write", error))
    }

    /// Creates the configuration without webhooks, so that later writes can depend on a version. An apply that creates
    /// an object cannot detect a concurrent creation, and RBAC cannot restrict a POST by name. The apply uses a
    /// separate field manager, or it would remove existing fields. The label lets `uninstall` find the object if the
    /// process ends right after this request.
    async fn make(&self) -> Result<String, TargetError> {
        let empty = serde_json::json!({
            "apiVersion": K::api_version(&()), "kind": K::kind(&()), "metadata": { "name": self.name, "labels": { NAME_LABEL: self.name } },
        });
        let params = PatchParams::apply(&format!("{}-create", self.name));
        let made = self.api.patch(self.name, &params, &Patch::Apply(&empty)).await;
        let made = made.map_err(|error| self.failed_to("create", error))?;
        if made.webhooks().as_ref().is_some_and(|webhooks| !webhooks.is_empty()) {
            return Err(TargetError::changed(self.name()));
        }
        Ok(version(&made))
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

/// Version that a write depends on, in the format of [`ObjectTarget`]. The uid prevents a write from recreating a
/// deleted object.
fn version(found: &impl ResourceExt) -> String {
    format!("{}/{}", found.uid().unwrap_or_default(), found.resource_version().unwrap_or_default())
}

fn holds(found: Option<&BTreeMap<String, String>>, wanted: Option<&BTreeMap<String, String>>) -> bool {
    wanted.into_iter().flatten().all(|(key, value)| found.and_then(|found| found.get(key)) == Some(value))
}

/// Keeps the webhooks registered while a third party manages the bundle, for as long as it is polled.
async fn restore(targets: &[Arc<dyn RegistrationTarget>]) {
    /// Minimum and maximum interval between two checks.
    const PACE: std::ops::RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_mins(1);
    let mut changes = stream::select_all(targets.iter().map(|target| target.changes()));
    loop {
        for target in targets {
            match target.restore().await {
                Ok(()) | Err(TargetError::Changed { .. }) => {}
                Err(error) => {
                    let error = crate::with_causes(&error);
                    tracing::warn!(error, "failed to register the webhooks");
                }
            }
        }
        tokio::time::sleep(*PACE.start()).await;
        tokio::time::timeout(*PACE.end(), changes.next()).await.ok();
    }
}

/// Deletes the ValidatingWebhookConfiguration of an earlier configuration of this program, for as long as it is polled.
/// The check repeats, because an older replica may create the object again.
async fn withdraw_validating(name: &'static str, client: Client) {
    const PACE: Duration = Duration::from_mins(1);
    let api: Api<ValidatingWebhookConfiguration> = Api::all(client);
    let once = async || {
        let Some(found) = api.get_opt(name).await? else { return Ok(()) };
        // Deletes only an object of this program that has not changed since.
        if found.labels().get(NAME_LABEL).is_none_or(|found| found != name) {
            return Ok(());
        }
        let seen = Preconditions { uid: found.uid(), resource_version: found.resource_version() };
        api.delete(name, &DeleteParams::default().preconditions(seen)).await?;
        tracing::info!(name, "removed the registration of the validating webhook");
        Ok::<_, kube::Error>(())
    };
    loop {
        if let Err(error) = once().await {
            let error = crate::with_causes(&error);
            tracing::warn!(name, error, "failed to remove the registration of the validating webhook");
        }
        tokio::time::sleep(PACE).await;
    }
}

/// Common interface of both kinds.
trait WebhookConfiguration:
    Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Serialize + Send + Sync + 'static
{
    type Webhook: PartialEq;

    fn webhooks(&self) -> &Option<Vec<Self::Webhook>>;

    fn set_webhooks(&mut self, other: Self);

    /// Bundles by webhook name; an empty value means no bundle.
    fn bundles(&self) -> BTreeMap<String, Vec<u8>>;

    /// Replaces the bundles.
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
    use k8s_openapi::api::core::v1::Pod;
    use lucid_webhook::registration::{Endpoint, FailurePolicy, Rule};
    use lucid_webhook::{AdmissionResponse, Operation, Webhook};

    use super::*;

    const NAME: &str = "lucid-example";
    const SERVICE: &str = "lucid-example-webhook";
    const MUTATE_NAME: &str = "mutate.example.com";

    fn targets(client: Client) -> Vec<Arc<dyn RegistrationTarget>> {
        targets_of(client, Configurations::new(NAME, Endpoint::service("lucid-system", SERVICE)))
    }

    fn targets_of(client: Client, configurations: Configurations) -> Vec<Arc<dyn RegistrationTarget>> {
        let allow = async || AdmissionResponse::allow();
        let pods = || Rule::of::<Pod>([Operation::Create]);
        let mutating = Webhook::mutating(MUTATE_NAME, allow)
            .with_registration(|it| it.with_rule(pods()).with_failure_policy(FailurePolicy::Ignore));
        let validating =
            Webhook::validating("validate.example.com", allow).with_registration(|it| it.with_rule(pods()));
        let router = Router::new().webhook("/mutate", mutating).webhook("/validate", validating);
        let program = Program { name: NAME, service: SERVICE };
        let targets = super::targets(&client, program, &configurations, &router).unwrap();
        targets.into_iter().map(|(_, target)| target).collect()
    }

    fn bundle() -> TrustBundle {
        let names = lucid_certs::ServingNames::for_services("lucid-system", &[SERVICE]).unwrap();
        let now = std::time::SystemTime::now();
        lucid_certs::CertificateAuthority::generate(&names, now).unwrap().trust_bundle()
    }

    /// Writes the bundle as `Certificates` does.
    async fn publish(targets: &[Arc<dyn RegistrationTarget>], bundle: &TrustBundle) {
        for target in targets {
            let reading = target.read().await.unwrap();
            if !reading.holds(bundle) {
                assert!(target.write(bundle, &reading).await.unwrap().holds(bundle));
            }
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
        api.delete(NAME, &DeleteParams::default()).await.unwrap();
        publish(&targets, &bundle).await;
        assert_eq!(api.get(NAME).await.unwrap().webhooks, first.webhooks);
    }

    #[tokio::test]
    async fn a_configuration_that_is_not_filled_yet_is_known_as_ours() {
        let cluster = lucid_testbed::Cluster::builder().start().await.unwrap();
        let client = cluster.client();
        let target = Registered::<MutatingWebhookConfiguration> {
            name: NAME,
            api: Api::all(client.clone()),
            wanted: MutatingWebhookConfiguration::default(),
            bundles: ObjectTarget::mutating_webhooks(client, NAME, NAME, Webhooks::All),
        };
        target.make().await.unwrap();
        let made = target.get().await.unwrap().unwrap();
        assert_eq!(made.labels()[NAME_LABEL], NAME);
    }

    #[tokio::test]
    async fn what_was_made_since_it_was_found_missing_is_not_overwritten() {
        let cluster = lucid_testbed::Cluster::builder().start().await.unwrap();
        let targets = targets(cluster.client());
        let missing = targets[0].read().await.unwrap();
        let (old, new) = (bundle(), bundle());
        publish(&targets, &new).await;
        let refused = targets[0].write(&old, &missing).await.unwrap_err();
        assert!(matches!(refused, TargetError::Changed { .. }), "{refused}");
        assert!(targets[0].read().await.unwrap().holds(&new));
    }

    #[tokio::test]
    async fn an_annotation_of_the_source_before_goes_and_what_others_annotate_stays() {
        let cluster = lucid_testbed::Cluster::builder().start().await.unwrap();
        let configurations = Configurations::new(NAME, Endpoint::service("lucid-system", SERVICE));
        let annotated = configurations.with_annotation("cert-manager.io/inject-ca-from", "lucid-system/x");
        targets_of(cluster.client(), annotated)[0].restore().await.unwrap();
        let api: Api<MutatingWebhookConfiguration> = Api::all(cluster.client());
        let note = Patch::Merge(serde_json::json!({"metadata": {"annotations": {"team": "blue"}}}));
        api.patch(NAME, &PatchParams::default(), &note).await.unwrap();

        let (targets, bundle) = (targets(cluster.client()), bundle());
        publish(&targets, &bundle).await;
        let found = api.get(NAME).await.unwrap();
        assert_eq!(
            found.annotations().iter().collect::<Vec<_>>(),
            [(&"team".to_owned(), &"blue".to_owned())]
        );
        assert!(targets[0].read().await.unwrap().holds(&bundle));
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
