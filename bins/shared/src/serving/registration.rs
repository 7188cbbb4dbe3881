//! Registration of the webhooks: MutatingWebhookConfiguration and ValidatingWebhookConfiguration.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::fmt;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{StreamExt, stream};
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhook, ValidatingWebhookConfiguration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams, Preconditions};
use kube::runtime::events::Recorder;
use kube::{Api, Client, Resource, ResourceExt};
use lucid_certs::target::{ObjectTarget, Reading, Slot, TargetError, TrustTarget, Webhooks};
use lucid_certs::{ServingNames, TrustBundle};
use lucid_webhook::Router;
use lucid_webhook::registration::Configurations;
use serde::Serialize;
use serde_json::json;
use tokio::sync::watch;

use crate::Error;
use crate::serving::rbac::Needs;
use crate::serving::{NAME_LABEL, Program};

const FAILED: &str = "failed to register the webhooks";

/// Registration of the webhooks of a router, kept as it should be.
pub(crate) struct Registration {
    name: &'static str,
    client: Client,
    configurations: Vec<Arc<Configuration>>,
    names: watch::Receiver<Option<ServingNames>>,
    /// `true` if an earlier registration of the validating webhooks is to be removed.
    withdraws_validating: bool,
}

impl Registration {
    /// Creates the registration of the webhooks that the program registers, under the Service that `names` include.
    ///
    /// # Errors
    ///
    /// Returns an error if the API server would reject it.
    pub(crate) fn new(
        client: Client,
        needs: Needs<'_>,
        router: &Router,
        names: watch::Receiver<Option<ServingNames>>,
    ) -> Result<Self, Error> {
        let Needs { program, serving, validates, .. } = needs;
        let [mutating, validating] =
            configurations(&client, program, &serving.configurations(program), router, &names)?;
        // Another program may register the validating webhooks. Until the removal of an earlier registration has
        // propagated, API servers still call this process.
        let configurations = mutating.into_iter().chain(validating.filter(|_| validates));
        let registers = serving.certificates.registers();
        Ok(Self {
            name: program.name,
            client,
            names,
            configurations: configurations.filter(|_| registers).collect(),
            withdraws_validating: registers && !validates,
        })
    }

    /// Returns the targets of the trust bundle.
    pub(crate) fn trust_targets(&self) -> Vec<Arc<dyn TrustTarget>> {
        self.configurations.iter().map(|target| Arc::clone(target) as Arc<dyn TrustTarget>).collect()
    }

    /// Keeps the registration until `shutdown`, and never returns. A later write would restore objects that an
    /// uninstallation removes. If the process `publishes_trust`, the driver of its certificates writes the configurations,
    /// and this only removes an earlier registration.
    pub(crate) async fn keep(&self, publishes_trust: bool, shutdown: impl Future<Output = ()>) -> Infallible {
        let withdraw = async {
            if self.withdraws_validating {
                withdraw_validating(self.name, self.client.clone()).await;
            }
        };
        let restore = async {
            if !publishes_trust && !self.configurations.is_empty() {
                self.restore().await;
            }
        };
        tokio::select! {
            biased;
            () = shutdown => {}
            _ = futures::future::join(withdraw, restore) => {}
        }
        pending().await
    }

    /// Restores the configurations while a third party manages the bundle.
    async fn restore(&self) {
        /// Minimum and maximum interval between two checks.
        const PACE: std::ops::RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_mins(1);
        let mut changes = stream::select_all(self.configurations.iter().map(|target| target.changes()));
        let mut names = self.names.clone();
        loop {
            names.mark_unchanged();
            for configuration in &self.configurations {
                match configuration.restore().await {
                    Ok(()) | Err(TargetError::Changed { .. }) => {}
                    Err(error) => tracing::warn!(error = crate::with_causes(&error), "{FAILED}"),
                }
            }
            tokio::time::sleep(*PACE.start()).await;
            tokio::select! {
                () = tokio::time::sleep(*PACE.end()) => {}
                _ = changes.next() => {}
                Ok(()) = names.changed() => {}
            }
        }
    }
}

/// Returns the configurations of the mutating and of the validating webhooks of `router`; `None` without such webhooks.
fn configurations(
    client: &Client,
    program: Program,
    wanted: &Configurations,
    router: &Router,
    names: &watch::Receiver<Option<ServingNames>>,
) -> Result<[Option<Arc<Configuration>>; 2], Error> {
    let name = program.name;
    let recorder = Recorder::new(client.clone(), program.reporter());
    let mutating = wanted.mutating(router.registrations()).map_err(Error::with_context(FAILED))?;
    let validating = wanted.validating(router.registrations()).map_err(Error::with_context(FAILED))?;
    let mutating = mutating.map(|wanted| {
        let bundles = ObjectTarget::mutating_webhooks(client.clone(), name, name, Webhooks::All);
        Configuration::new(program, client, &wanted, bundles.with_recorder(recorder.clone()), names)
    });
    let validating = validating.map(|wanted| {
        let bundles = ObjectTarget::validating_webhooks(client.clone(), name, name, Webhooks::All);
        Configuration::new(program, client, &wanted, bundles.with_recorder(recorder.clone()), names)
    });
    Ok([mutating.transpose()?, validating.transpose()?])
}

/// One of the two configurations as a whole: the rules of its webhooks, and the trust bundle in each.
struct Configuration {
    program: Program,
    api: Api<DynamicObject>,
    /// Wanted object and its webhooks, without bundles. A mutating webhook has all fields of a validating one.
    wanted: DynamicObject,
    webhooks: Vec<MutatingWebhook>,
    /// Reads the bundle fields of the configuration and their owners, and watches it.
    bundles: ObjectTarget,
    names: watch::Receiver<Option<ServingNames>>,
}

/// Trust bundles by webhook name; an empty value means no bundle.
type Bundles = BTreeMap<String, Vec<u8>>;

impl Configuration {
    fn new<K: Resource<DynamicType = ()> + Serialize>(
        program: Program,
        client: &Client,
        wanted: &K,
        bundles: ObjectTarget,
        names: &watch::Receiver<Option<ServingNames>>,
    ) -> Result<Arc<Self>, Error> {
        let wanted = serde_json::to_value(wanted).and_then(serde_json::from_value);
        let wanted: DynamicObject = wanted.map_err(Error::with_context(FAILED))?;
        let api = Api::all_with(client.clone(), &ApiResource::erase::<K>(&()));
        let webhooks = webhooks(&wanted);
        Ok(Arc::new(Self { program, api, webhooks, wanted, bundles, names: names.clone() }))
    }

    /// Returns the wanted webhooks, called by the Service for which the certificate is valid. Before the first
    /// certificate, an existing registration keeps its Service.
    fn wanted_webhooks(&self, found: &[MutatingWebhook]) -> Vec<MutatingWebhook> {
        let mut webhooks = self.webhooks.clone();
        let is_alternative = match &*self.names.borrow() {
            Some(names) => !names.dns_names().any(|name| name == self.program.service),
            None => self.alternative_in(found).is_some(),
        };
        if let (true, Some(alternative)) = (is_alternative, self.program.alternative_service) {
            let services = webhooks.iter_mut().filter_map(|it| it.client_config.service.as_mut());
            services.for_each(|service| alternative.clone_into(&mut service.name));
        }
        webhooks
    }

    /// Returns the alternative Service if these webhooks are called by it.
    fn alternative_in(&self, webhooks: &[MutatingWebhook]) -> Option<&'static str> {
        let mut services = webhooks.iter().filter_map(|it| it.client_config.service.as_ref());
        self.program
            .alternative_service
            .filter(|alternative| services.any(|service| service.name == *alternative))
    }

    async fn get(&self) -> Result<Option<DynamicObject>, TargetError> {
        self.api.get_opt(self.program.name).await.map_err(|error| self.failed_to("get", error))
    }

    fn reading(&self, found: Option<&DynamicObject>) -> Reading {
        let Some(found) = found else {
            // A missing configuration is stale.
            return Reading::present("", Vec::new()).with_stale(true);
        };
        let slots = bundles(&webhooks(found)).into_iter().map(|(name, pem)| Slot::new(name, pem)).collect();
        let owners = found.managed_fields().iter().filter_map(|entry| entry.manager.clone());
        // The manager of `create` is this program, too.
        let is_own =
            |manager: &String| manager.strip_suffix("-create").unwrap_or(manager) == self.program.name;
        let owners: BTreeSet<_> = owners.filter(|manager| !is_own(manager)).collect();
        Reading::present(version(found), slots)
            .with_stale(!self.is_as_wanted(found))
            .with_other_owners(owners)
    }

    /// Returns `true` if all fields but the bundles have the wanted values and nothing was added: a webhook, a
    /// matchCondition or a selector's key. Each of them could bypass Lucid.
    fn is_as_wanted(&self, found: &DynamicObject) -> bool {
        let holds = |found: &BTreeMap<_, _>, wanted: &BTreeMap<String, String>| {
            wanted.iter().all(|(key, value)| found.get(key) == Some(value))
        };
        let found_webhooks = with_bundles(webhooks(found), &Bundles::new());
        found_webhooks == self.wanted_webhooks(&found_webhooks)
            && holds(found.labels(), self.wanted.labels())
            && holds(found.annotations(), self.wanted.annotations())
            && !self.applied_more_annotations(found)
    }

    /// Returns `true` if the object has an annotation that this program applied and no longer wants, for example after
    /// a change of the certificate source. Annotations of other managers are ignored.
    fn applied_more_annotations(&self, found: &DynamicObject) -> bool {
        let ours = |entry: &&ManagedFieldsEntry| {
            entry.manager.as_deref() == Some(self.program.name) && entry.operation.as_deref() == Some("Apply")
        };
        let fields = found.managed_fields().iter().filter(ours).filter_map(|entry| entry.fields_v1.as_ref());
        fields
            .filter_map(|fields| fields.0.pointer("/f:metadata/f:annotations")?.as_object())
            .flat_map(|annotations| annotations.keys())
            .filter_map(|key| key.strip_prefix("f:"))
            .any(|key| !self.wanted.annotations().contains_key(key))
    }

    /// Restores all fields but the bundles, if they differ from the wanted ones.
    async fn restore(&self) -> Result<(), TargetError> {
        let found = self.get().await?;
        if found.as_ref().is_some_and(|found| self.is_as_wanted(found)) {
            return Ok(());
        }
        let bundles = found.as_ref().map(|found| bundles(&webhooks(found))).unwrap_or_default();
        let webhooks = self.wanted_webhooks(&found.as_ref().map(webhooks).unwrap_or_default());
        let webhooks = with_bundles(webhooks, &bundles);
        self.write_all(webhooks, &found.as_ref().map(version).unwrap_or_default()).await?;
        tracing::info!(target = self.name(), "registered");
        Ok(())
    }

    /// Writes all fields, unless the object has changed since version `found`.
    ///
    /// Server-side apply declares the ownership but keeps additions of other managers. The list is therefore replaced
    /// if it differs from the applied one.
    async fn write_all(
        &self,
        wanted_webhooks: Vec<MutatingWebhook>,
        found: &str,
    ) -> Result<DynamicObject, TargetError> {
        let found = if found.is_empty() { self.create().await? } else { found.to_owned() };
        if let Some(alternative) = self.alternative_in(&wanted_webhooks) {
            tracing::warn!(
                target = self.name(),
                "the certificate is not valid for Service {}; the webhooks are registered by Service {alternative}",
                self.program.service
            );
        }
        let mut wanted = self.wanted.clone();
        wanted.data["webhooks"] = json!(wanted_webhooks);
        if let Some((uid, resource_version)) = found.split_once('/') {
            wanted.metadata.uid = Some(uid.to_owned());
            wanted.metadata.resource_version = Some(resource_version.to_owned());
        }
        let params = PatchParams::apply(self.program.name).force();
        let applied = self.api.patch(self.program.name, &params, &Patch::Apply(&wanted)).await;
        let mut applied = applied.map_err(|error| self.failed_to("write", error))?;
        if webhooks(&applied) == wanted_webhooks {
            return Ok(applied);
        }
        applied.data = wanted.data;
        let params =
            PostParams { field_manager: Some(self.program.name.to_owned()), ..PostParams::default() };
        self.api
            .replace(self.program.name, &params, &applied)
            .await
            .map_err(|error| self.failed_to("write", error))
    }

    /// Creates the configuration without webhooks, so that later writes can depend on a version. An apply that creates
    /// an object cannot detect a concurrent creation, and RBAC cannot restrict a POST by name. The apply uses a
    /// separate field manager, or it would remove existing fields. The label lets `uninstall` find the object if the
    /// process ends right after this request.
    async fn create(&self) -> Result<String, TargetError> {
        let mut empty =
            DynamicObject { types: self.wanted.types.clone(), metadata: Default::default(), data: json!({}) };
        empty.metadata.name = Some(self.program.name.to_owned());
        empty.labels_mut().insert(NAME_LABEL.to_owned(), self.program.name.to_owned());
        let params = PatchParams::apply(&format!("{}-create", self.program.name));
        let created = self.api.patch(self.program.name, &params, &Patch::Apply(&empty)).await;
        let created = created.map_err(|error| self.failed_to("create", error))?;
        if !webhooks(&created).is_empty() {
            return Err(TargetError::changed(self.name()));
        }
        Ok(version(&created))
    }

    fn failed_to(&self, action: &'static str, error: kube::Error) -> TargetError {
        match error {
            kube::Error::Api(status) if status.is_conflict() => TargetError::changed(self.name()),
            error => TargetError::api(action, self.name(), error),
        }
    }
}

impl TrustTarget for Configuration {
    fn name(&self) -> &str {
        self.bundles.name()
    }

    fn read(&self) -> BoxFuture<'_, Result<Reading, TargetError>> {
        Box::pin(async { Ok(self.reading(self.get().await?.as_ref())) })
    }

    fn write<'a>(
        &'a self,
        bundle: &'a TrustBundle,
        reading: &'a Reading,
    ) -> BoxFuture<'a, Result<Reading, TargetError>> {
        Box::pin(async {
            let pem = bundle.to_pem().into_bytes();
            let bundles = self.webhooks.iter().map(|webhook| (webhook.name.clone(), pem.clone())).collect();
            let webhooks = with_bundles(self.wanted_webhooks(&[]), &bundles);
            let written = self.write_all(webhooks, reading.version().unwrap_or_default()).await?;
            Ok(self.reading(Some(&written)))
        })
    }

    fn changes(&self) -> BoxStream<'static, ()> {
        self.bundles.changes()
    }

    fn report_contention<'a>(&'a self, reading: &'a Reading) -> BoxFuture<'a, ()> {
        self.bundles.report_contention(reading)
    }
}

impl fmt::Debug for Configuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Configuration").field("name", &self.bundles.name()).finish_non_exhaustive()
    }
}

/// Version that a write depends on, in the format of [`ObjectTarget`]. The uid prevents a write from recreating a
/// deleted object.
fn version(found: &DynamicObject) -> String {
    format!("{}/{}", found.uid().unwrap_or_default(), found.resource_version().unwrap_or_default())
}

/// Returns the webhooks of a configuration; an unreadable list counts as empty.
fn webhooks(found: &DynamicObject) -> Vec<MutatingWebhook> {
    serde_json::from_value(found.data["webhooks"].clone()).unwrap_or_default()
}

fn bundles(webhooks: &[MutatingWebhook]) -> Bundles {
    let bundle = |webhook: &MutatingWebhook| webhook.client_config.ca_bundle.clone().unwrap_or_default().0;
    webhooks.iter().map(|webhook| (webhook.name.clone(), bundle(webhook))).collect()
}

/// Replaces the bundles.
fn with_bundles(mut webhooks: Vec<MutatingWebhook>, bundles: &Bundles) -> Vec<MutatingWebhook> {
    for webhook in &mut webhooks {
        let bundle = bundles.get(&webhook.name).filter(|bundle| !bundle.is_empty());
        webhook.client_config.ca_bundle = bundle.cloned().map(ByteString);
    }
    webhooks
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

#[cfg(test)]
mod tests {
    use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
    use k8s_openapi::api::core::v1::Pod;
    use lucid_webhook::registration::{Endpoint, FailurePolicy, Rule};
    use lucid_webhook::{AdmissionResponse, Operation, Webhook};

    use super::*;

    const NAME: &str = "lucid-example";
    const SERVICE: &str = "lucid-example-webhook";
    const PROGRAM: Program = Program { name: NAME, service: SERVICE, alternative_service: Some(NAME) };
    const MUTATE_NAME: &str = "mutate.example.com";

    /// Names before the first certificate.
    fn unknown() -> watch::Receiver<Option<ServingNames>> {
        watch::Sender::new(None).subscribe()
    }

    fn targets(client: Client) -> Vec<Arc<Configuration>> {
        targets_of(client, Configurations::new(NAME, Endpoint::service("lucid-system", SERVICE)))
    }

    fn targets_of(client: Client, configurations: Configurations) -> Vec<Arc<Configuration>> {
        let allow = async || AdmissionResponse::allow();
        let pods = || Rule::of::<Pod>([Operation::Create]);
        let mutating = Webhook::mutating(MUTATE_NAME, allow)
            .with_registration(|it| it.with_rule(pods()).with_failure_policy(FailurePolicy::Ignore));
        let validating =
            Webhook::validating("validate.example.com", allow).with_registration(|it| it.with_rule(pods()));
        let router = Router::new().webhook("/mutate", mutating).webhook("/validate", validating);
        let configurations =
            super::configurations(&client, PROGRAM, &configurations, &router, &unknown()).unwrap();
        configurations.into_iter().flatten().collect()
    }

    fn bundle() -> TrustBundle {
        let names = ServingNames::for_services("lucid-system", &[SERVICE]).unwrap();
        let now = std::time::SystemTime::now();
        lucid_certs::CertificateAuthority::generate(&names, now).unwrap().trust_bundle()
    }

    /// Writes the bundle as `Certificates` does.
    async fn publish(targets: &[Arc<Configuration>], bundle: &TrustBundle) {
        for target in targets {
            let reading = target.read().await.unwrap();
            if !reading.holds(bundle) {
                assert!(target.write(bundle, &reading).await.unwrap().holds(bundle));
            }
        }
    }

    #[tokio::test]
    async fn foreign_changes_of_the_registration_are_reverted() {
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
    async fn an_empty_configuration_is_recognized_as_managed() {
        let cluster = lucid_testbed::Cluster::builder().start().await.unwrap();
        let client = cluster.client();
        let bundles = ObjectTarget::mutating_webhooks(client.clone(), NAME, NAME, Webhooks::All);
        let wanted = MutatingWebhookConfiguration::default();
        let target = Configuration::new(PROGRAM, &client, &wanted, bundles, &unknown()).unwrap();
        target.create().await.unwrap();
        let made = target.get().await.unwrap().unwrap();
        assert_eq!(made.labels()[NAME_LABEL], NAME);
    }

    #[tokio::test]
    async fn concurrently_created_configurations_are_kept() {
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
    async fn annotations_of_former_sources_are_removed() {
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
    async fn external_bundles_are_kept_when_changes_are_reverted() {
        let cluster = lucid_testbed::Cluster::builder().start().await.unwrap();
        let (targets, bundle) = (targets(cluster.client()), bundle());
        for target in &targets {
            target.restore().await.unwrap();
        }
        let api: Api<MutatingWebhookConfiguration> = Api::all(cluster.client());
        let bundle_of = |found: MutatingWebhookConfiguration| {
            bundles(&found.webhooks.unwrap()).remove(MUTATE_NAME).unwrap()
        };
        assert_eq!(bundle_of(api.get(NAME).await.unwrap()), b"");
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
        assert_eq!(bundle_of(found.clone()), ca_bundle.0);
        assert_eq!(found.webhooks.unwrap()[0].failure_policy.as_deref(), Some("Ignore"));
    }
}
