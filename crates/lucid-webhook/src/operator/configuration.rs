//! A MutatingWebhookConfiguration or ValidatingWebhookConfiguration as a whole: the rules of its webhooks, and the
//! trust bundle in each.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use futures::future::BoxFuture;
use futures::stream::{self, BoxStream, StreamExt};
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhook;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client, Resource, ResourceExt};
use lucid_certs::TrustBundle;
use lucid_certs::target::{ObjectTarget, Reading, TargetError, TrustTarget};
use serde::Serialize;
use serde_json::json;

use super::object::{AlternativeService, NAME_LABEL, version};
use super::presence::PartPresence;
use crate::registration::WebhookRegistration;

#[derive(Clone)]
pub(super) struct Configuration {
    api: Api<DynamicObject>,
    /// Wanted object without bundles. Without webhooks, the object is to be removed.
    wanted: DynamicObject,
    /// Registrations of the wanted webhooks, in the same order.
    registrations: Vec<WebhookRegistration>,
    /// Watches the configuration, and reports contention.
    pub(super) bundles: ObjectTarget,
    pub(super) alternative: Option<AlternativeService>,
    presence: PartPresence,
}

/// Trust bundles by webhook name; an empty value means no bundle.
type Bundles = BTreeMap<String, Vec<u8>>;

impl Configuration {
    pub(super) fn new<K: Resource<DynamicType = ()> + Serialize>(
        client: &Client,
        wanted: &K,
        registrations: Vec<WebhookRegistration>,
        bundles: ObjectTarget,
        presence: PartPresence,
    ) -> Result<Self, serde_json::Error> {
        let wanted = serde_json::to_value(wanted).and_then(serde_json::from_value)?;
        let api = Api::all_with(client.clone(), &ApiResource::erase::<K>(&()));
        Ok(Self { api, wanted, registrations, bundles, alternative: None, presence })
    }

    fn object(&self) -> String {
        self.wanted.name_any()
    }

    pub(super) fn withdraw(&mut self) {
        self.wanted.data = json!({});
        self.presence.set(true);
    }

    async fn removed(&self) -> Reading {
        let removed = self.remove().await;
        removed.map_or_else(|error| self.not_removed(&error), |()| Reading::absent())
    }

    /// Logs a failure to remove the object. The certificates do not wait for that.
    fn not_removed(&self, error: &TargetError) -> Reading {
        tracing::warn!(
            target = self.name(),
            error = lucid_text::with_causes(error),
            "failed to remove the registration"
        );
        Reading::absent()
    }

    fn is_removed(&self) -> bool {
        webhooks(&self.wanted).is_empty()
    }

    /// Returns the wanted webhooks, called by the Service for which the certificate is valid, and the alternative
    /// Service if it is that. Before the first certificate, an existing registration keeps its Service.
    fn wanted_webhooks(&self, found: Option<&DynamicObject>) -> (Vec<MutatingWebhook>, Option<&str>) {
        let mut wanted = webhooks(&self.wanted);
        for (webhook, registration) in wanted.iter_mut().zip(&self.registrations) {
            webhook.match_conditions = registration.match_conditions();
        }
        let (Some(alternative), Some(service)) = (&self.alternative, service(&self.wanted)) else {
            return (wanted, None);
        };
        let alternative = alternative.replacing(&service, found.and_then(self::service).as_deref());
        if let Some(alternative) = alternative {
            let services = wanted.iter_mut().filter_map(|it| it.client_config.service.as_mut());
            services.for_each(|service| alternative.clone_into(&mut service.name));
        }
        (wanted, alternative)
    }

    async fn get(&self) -> Result<Option<DynamicObject>, TargetError> {
        self.api.get_opt(&self.object()).await.map_err(|error| self.failed_to("get", error))
    }

    fn reading(&self, found: Option<&DynamicObject>) -> Reading {
        if self.is_removed() {
            let mut absent = Reading::absent();
            absent.stale = found.is_some_and(|found| self.is_own(found));
            return absent;
        }
        let Some(found) = found else {
            self.presence.set(false);
            // A missing configuration is stale.
            let mut missing = Reading::present("", []);
            missing.stale = true;
            return missing;
        };
        let slots = webhooks(found).into_iter().map(|webhook| {
            let bundle = webhook.client_config.ca_bundle.unwrap_or_default();
            (webhook.name, bundle.0)
        });
        let owners = found.managed_fields().iter().filter_map(|entry| entry.manager.clone());
        let owners: BTreeSet<_> = owners.filter(|manager| !self.is_own_manager(manager)).collect();
        let is_as_wanted = self.is_as_wanted(found);
        self.presence.set(is_as_wanted);
        let mut reading = Reading::present(version(found), slots);
        reading.stale = !is_as_wanted;
        reading.other_owners = owners.into_iter().collect();
        reading
    }

    /// Returns `true` for an object that this registration has written. Charts also set the label.
    fn is_own(&self, found: &DynamicObject) -> bool {
        let mut managers = found.managed_fields().iter().filter_map(|entry| entry.manager.as_ref());
        found.labels().get(NAME_LABEL) == Some(&self.object())
            && managers.any(|manager| self.is_own_manager(manager))
    }

    /// Returns `true` for the field manager of this registration and for that of `create`.
    fn is_own_manager(&self, manager: &str) -> bool {
        let object = self.object();
        manager == object || manager == creator(&object)
    }

    /// Returns `true` if all fields but the bundles have the wanted values and nothing was added: a webhook, a
    /// matchCondition or a selector's key. Each of them could bypass the webhooks.
    fn is_as_wanted(&self, found: &DynamicObject) -> bool {
        let holds = |found: &BTreeMap<_, _>, wanted: &BTreeMap<String, String>| {
            wanted.iter().all(|(key, value)| found.get(key) == Some(value))
        };
        with_bundles(webhooks(found), &Bundles::new()) == self.wanted_webhooks(Some(found)).0
            && holds(found.labels(), self.wanted.labels())
            && holds(found.annotations(), self.wanted.annotations())
            && !self.applied_more_annotations(found)
    }

    /// Returns `true` if the object has an annotation that this program applied and no longer wants, for example after
    /// a change of the certificate source. Annotations of other managers are ignored.
    fn applied_more_annotations(&self, found: &DynamicObject) -> bool {
        let object = self.object();
        let ours = |entry: &&ManagedFieldsEntry| {
            entry.manager.as_ref() == Some(&object) && entry.operation.as_deref() == Some("Apply")
        };
        let fields = found.managed_fields().iter().filter(ours).filter_map(|entry| entry.fields_v1.as_ref());
        fields
            .filter_map(|fields| fields.0.pointer("/f:metadata/f:annotations")?.as_object())
            .flat_map(|annotations| annotations.keys())
            .filter_map(|key| key.strip_prefix("f:"))
            .any(|key| !self.wanted.annotations().contains_key(key))
    }

    /// Writes all fields, unless the object has changed since version `found`.
    ///
    /// Server-side apply declares the ownership but keeps additions of other managers. The list is therefore replaced
    /// if it differs from the applied one.
    async fn write_all(&self, webhooks: Vec<MutatingWebhook>, found: &str) -> Result<Reading, TargetError> {
        let object = self.object();
        let found = if found.is_empty() { self.create().await? } else { found.to_owned() };
        let mut wanted = self.wanted.clone();
        wanted.data["webhooks"] = json!(webhooks);
        if let Some((uid, resource_version)) = found.split_once('/') {
            wanted.metadata.uid = Some(uid.to_owned());
            wanted.metadata.resource_version = Some(resource_version.to_owned());
        }
        let params = PatchParams::apply(&object).force();
        let applied = self.api.patch(&object, &params, &Patch::Apply(&wanted)).await;
        let mut written = applied.map_err(|error| self.failed_to("write", error))?;
        if self::webhooks(&written) != webhooks {
            written.data = wanted.data;
            let params = PostParams { field_manager: Some(object.clone()), ..PostParams::default() };
            let replaced = self.api.replace(&object, &params, &written).await;
            written = replaced.map_err(|error| self.failed_to("write", error))?;
        }
        Ok(self.reading(Some(&written)))
    }

    /// Returns the wanted webhooks to write. Warns if an alternative Service is registered.
    fn webhooks_to_write(&self, found: Option<&DynamicObject>) -> Vec<MutatingWebhook> {
        let (wanted, alternative) = self.wanted_webhooks(found);
        if let Some(alternative) = alternative {
            tracing::warn!(
                target = self.name(),
                "the certificate is not valid for Service {}; the webhooks are registered by Service {alternative}",
                service(&self.wanted).unwrap_or_default()
            );
        }
        wanted
    }

    /// Creates the configuration without webhooks, so that later writes can depend on a version. An apply that creates
    /// an object cannot detect a concurrent creation, and RBAC cannot restrict a POST by name. The apply uses a
    /// separate field manager, or it would remove existing fields.
    async fn create(&self) -> Result<String, TargetError> {
        let object = self.object();
        let mut empty =
            DynamicObject { types: self.wanted.types.clone(), metadata: Default::default(), data: json!({}) };
        empty.metadata.name = Some(object.clone());
        empty.labels_mut().insert(NAME_LABEL.to_owned(), object.clone());
        let params = PatchParams::apply(&creator(&object));
        let created = self.api.patch(&object, &params, &Patch::Apply(&empty)).await;
        let created = created.map_err(|error| self.failed_to("create", error))?;
        if !webhooks(&created).is_empty() {
            return Err(self.changed());
        }
        Ok(version(&created))
    }

    pub(super) async fn remove(&self) -> Result<(), TargetError> {
        let Some(found) = self.get().await?.filter(|found| self.is_own(found)) else { return Ok(()) };
        let seen = Preconditions { uid: found.uid(), resource_version: found.resource_version() };
        let params = DeleteParams::default().preconditions(seen);
        match self.api.delete(&self.object(), &params).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            deleted => drop(deleted.map_err(|error| self.failed_to("delete", error))?),
        }
        self.presence.set(self.is_removed());
        Ok(())
    }

    fn changed(&self) -> TargetError {
        TargetError::Changed { target: self.name().to_owned() }
    }

    fn failed_to(&self, action: &'static str, error: kube::Error) -> TargetError {
        match error {
            kube::Error::Api(status) if status.is_conflict() => self.changed(),
            error => TargetError::Api { action, target: self.name().to_owned(), source: Box::new(error) },
        }
    }
}

impl TrustTarget for Configuration {
    fn name(&self) -> &str {
        self.bundles.name()
    }

    fn read(&self) -> BoxFuture<'_, Result<Reading, TargetError>> {
        Box::pin(async {
            match self.get().await {
                Err(error) if self.is_removed() => Ok(self.not_removed(&error)),
                found => Ok(self.reading(found?.as_ref())),
            }
        })
    }

    fn write<'a>(
        &'a self,
        bundle: &'a TrustBundle,
        reading: &'a Reading,
    ) -> BoxFuture<'a, Result<Reading, TargetError>> {
        Box::pin(async {
            if self.is_removed() {
                return Ok(self.removed().await);
            }
            // Only an alternative Service depends on the found one.
            let found = if self.alternative.is_some() { self.get().await? } else { None };
            let pem = bundle.to_pem().into_bytes();
            let wanted = self.webhooks_to_write(found.as_ref());
            let bundles = wanted.iter().map(|webhook| (webhook.name.clone(), pem.clone())).collect();
            self.write_all(with_bundles(wanted, &bundles), reading.version().unwrap_or_default()).await
        })
    }

    fn restore<'a>(&'a self, _: &'a Reading) -> BoxFuture<'a, Result<Option<Reading>, TargetError>> {
        Box::pin(async {
            if self.is_removed() {
                return Ok(Some(self.removed().await));
            }
            let found = self.get().await?;
            let bundle = |webhook: MutatingWebhook| {
                (webhook.name, webhook.client_config.ca_bundle.unwrap_or_default().0)
            };
            let bundles = found.iter().flat_map(webhooks).map(bundle).collect();
            let wanted = with_bundles(self.webhooks_to_write(found.as_ref()), &bundles);
            let version = found.as_ref().map(version).unwrap_or_default();
            self.write_all(wanted, &version).await.map(Some)
        })
    }

    fn changes(&self) -> BoxStream<'static, ()> {
        let conditions = self.registrations.iter().map(|registration| registration.changes().boxed());
        stream::select(self.bundles.changes(), stream::select_all(conditions)).boxed()
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

fn creator(object: &str) -> String {
    format!("{object}-create")
}

/// An unreadable list counts as empty. A mutating webhook has all fields of a validating one.
fn webhooks(found: &DynamicObject) -> Vec<MutatingWebhook> {
    serde_json::from_value(found.data["webhooks"].clone()).unwrap_or_default()
}

fn service(found: &DynamicObject) -> Option<String> {
    webhooks(found).into_iter().find_map(|webhook| webhook.client_config.service).map(|service| service.name)
}

fn with_bundles(mut webhooks: Vec<MutatingWebhook>, bundles: &Bundles) -> Vec<MutatingWebhook> {
    for webhook in &mut webhooks {
        let bundle = bundles.get(&webhook.name).filter(|bundle| !bundle.is_empty());
        webhook.client_config.ca_bundle = bundle.cloned().map(ByteString);
    }
    webhooks
}
