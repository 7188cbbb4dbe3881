//! The conversion webhook in a CustomResourceDefinition that somebody else installs.
//!
//! Of the definition only `spec.conversion` is ours: by whom objects are converted, and the trust bundle. Where there is no
//! definition nobody is asked to convert, and it is taken up when it appears.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceConversion, CustomResourceDefinition, ServiceReference, WebhookClientConfig,
};
use kube::api::{Patch, PatchParams};
use kube::runtime::events::Recorder;
use kube::{Api, Client, ResourceExt};
use lucid_certs::TrustBundle;
use lucid_certs::target::{ObjectTarget, Reading, Slot, TargetError, TrustTarget};
use serde_json::{Value, json};

use crate::registration::RegistrationTarget;

/// The name of the only bundle.
const SLOT: &str = "conversion";
/// The only version of ConversionReview that is spoken.
const REVIEW_VERSION: &str = "v1";

/// The conversion webhook of one definition.
pub(crate) struct Conversion {
    manager: &'static str,
    definition: &'static str,
    api: Api<CustomResourceDefinition>,
    /// Without a bundle.
    client_config: WebhookClientConfig,
    annotations: BTreeMap<String, String>,
    /// Knows when the definition changes, and how to say who keeps changing it.
    bundles: ObjectTarget,
}

impl Conversion {
    pub(crate) fn new(
        client: &Client,
        manager: &'static str,
        definition: &'static str,
        client_config: WebhookClientConfig,
        annotation: Option<(&'static str, String)>,
        recorder: &Recorder,
    ) -> Self {
        let bundles = ObjectTarget::crd_conversion(client.clone(), manager, definition);
        Self {
            manager,
            definition,
            api: Api::all(client.clone()),
            client_config,
            annotations: annotation.into_iter().map(|(key, value)| (key.to_owned(), value)).collect(),
            bundles: bundles.with_recorder(recorder.clone()),
        }
    }

    async fn get(&self) -> Result<Option<CustomResourceDefinition>, TargetError> {
        self.api.get_opt(self.definition).await.map_err(|error| self.failed_to("get", error))
    }

    fn reading(&self, found: Option<&CustomResourceDefinition>) -> Reading {
        let Some(found) = found else { return Reading::Absent };
        let owners = found.managed_fields().iter().filter(|entry| {
            let path = "/f:spec/f:conversion/f:webhook/f:clientConfig/f:caBundle";
            entry.fields_v1.as_ref().is_some_and(|fields| fields.0.pointer(path).is_some())
        });
        let owners = owners.filter_map(|entry| entry.manager.clone()).filter(|it| it != self.manager);
        Reading::present(found.resource_version().unwrap_or_default(), vec![Slot::new(SLOT, bundle(found))])
            .with_stale(!self.is_as_wanted(found))
            .with_other_owners(owners)
    }

    /// Whether everything but the bundle is as it should be.
    fn is_as_wanted(&self, found: &CustomResourceDefinition) -> bool {
        let Some(CustomResourceConversion { strategy, webhook: Some(webhook) }) = &found.spec.conversion
        else {
            return false;
        };
        let client_config = webhook.client_config.clone();
        let client_config = client_config.map(|found| WebhookClientConfig { ca_bundle: None, ..found });
        strategy == "Webhook"
            && client_config.as_ref() == Some(&self.client_config)
            && webhook.conversion_review_versions == [REVIEW_VERSION]
            && self.annotations.iter().all(|(key, value)| found.annotations().get(key) == Some(value))
            && self.not_wanted_any_more(found).next().is_none()
    }

    /// Annotations that we have written and do not want any more, as with another source of certificates.
    fn not_wanted_any_more<'a>(
        &'a self,
        found: &'a CustomResourceDefinition,
    ) -> impl Iterator<Item = &'a str> + use<'a> {
        let ours = found.managed_fields().iter().filter(|it| it.manager.as_deref() == Some(self.manager));
        ours.filter_map(|entry| entry.fields_v1.as_ref()?.0.pointer("/f:metadata/f:annotations")?.as_object())
            .flat_map(|annotations| annotations.keys())
            .filter_map(|key| key.strip_prefix("f:"))
            .filter(|key| !self.annotations.contains_key(*key))
    }

    /// Writes everything, with a bundle or with that which is there, if nobody wrote since `found`.
    ///
    /// Not by server-side apply: that would leave a Service that another manager has applied beside our URL.
    async fn write_all(
        &self,
        bundle: Option<&str>,
        found: &CustomResourceDefinition,
    ) -> Result<CustomResourceDefinition, TargetError> {
        let config = &self.client_config;
        let mut client_config = json!({ "url": config.url, "service": config.service });
        if let Some(bundle) = bundle {
            client_config["caBundle"] = json!(k8s_openapi::ByteString(bundle.as_bytes().to_vec()));
        }
        let mut annotations: BTreeMap<_, _> =
            self.annotations.iter().map(|(key, value)| (key.as_str(), json!(value))).collect();
        annotations.extend(self.not_wanted_any_more(found).map(|key| (key, Value::Null)));
        let patch = json!({
            "metadata": { "resourceVersion": found.resource_version(), "annotations": annotations },
            "spec": { "conversion": {
                "strategy": "Webhook",
                "webhook": {
                    "clientConfig": client_config,
                    "conversionReviewVersions": [REVIEW_VERSION],
                },
            } },
        });
        let params = PatchParams { field_manager: Some(self.manager.to_owned()), ..PatchParams::default() };
        let written = self.api.patch(self.definition, &params, &Patch::Merge(patch)).await;
        written.map_err(|error| self.failed_to("write", error))
    }

    fn failed_to(&self, action: &'static str, error: kube::Error) -> TargetError {
        match error {
            // Also when it is gone since.
            kube::Error::Api(status) if matches!(status.code, 404 | 409) => TargetError::changed(self.name()),
            error => TargetError::api(action, self.name(), error),
        }
    }
}

fn bundle(found: &CustomResourceDefinition) -> Vec<u8> {
    let webhook = found.spec.conversion.as_ref().and_then(|conversion| conversion.webhook.as_ref());
    let config = webhook.and_then(|webhook| webhook.client_config.as_ref());
    config.and_then(|config| config.ca_bundle.clone()).unwrap_or_default().0
}

/// How the API server reaches a path of the webhooks' server.
pub(crate) fn client_config(
    webhook_url: Option<&url::Url>,
    namespace: &str,
    service: &str,
    path: &str,
) -> WebhookClientConfig {
    match webhook_url {
        Some(base) => WebhookClientConfig {
            url: Some(format!("{}{path}", base.as_str().trim_end_matches('/'))),
            ..WebhookClientConfig::default()
        },
        None => WebhookClientConfig {
            service: Some(ServiceReference {
                namespace: namespace.to_owned(),
                name: service.to_owned(),
                path: Some(path.to_owned()),
                port: Some(443),
            }),
            ..WebhookClientConfig::default()
        },
    }
}

impl RegistrationTarget for Conversion {
    fn restore(&self) -> BoxFuture<'_, Result<(), TargetError>> {
        Box::pin(async {
            let Some(found) = self.get().await?.filter(|found| !self.is_as_wanted(found)) else {
                return Ok(());
            };
            self.write_all(None, &found).await?;
            tracing::info!(target = self.name(), "registered");
            Ok(())
        })
    }

    fn as_target(self: Arc<Self>) -> Arc<dyn TrustTarget> {
        self
    }
}

impl TrustTarget for Conversion {
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
            let Some(version) = reading.version() else { return Ok(Reading::Absent) };
            let found =
                self.get().await?.filter(|found| found.resource_version().as_deref() == Some(version));
            let found = found.ok_or_else(|| TargetError::changed(self.name()))?;
            let written = self.write_all(Some(&bundle.to_pem()), &found).await?;
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

impl fmt::Debug for Conversion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Conversion").field("definition", &self.definition).finish_non_exhaustive()
    }
}
