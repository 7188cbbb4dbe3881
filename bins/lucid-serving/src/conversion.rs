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

#[cfg(test)]
mod tests {
    use kube::api::{DeleteParams, PostParams};
    use kube::runtime::events::Reporter;
    use lucid_certs::{CertificateAuthority, ServingNames};
    use lucid_testbed::Cluster;

    use super::*;

    const DEFINITION: &str = "widgets.example.com";
    const MANAGER: &str = "lucid-operator";

    fn definition() -> CustomResourceDefinition {
        let schema = json!({"openAPIV3Schema": {"type": "object"}});
        serde_json::from_value(json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": DEFINITION},
            "spec": {
                "group": "example.com", "scope": "Cluster",
                "names": {"kind": "Widget", "plural": "widgets", "singular": "widget"},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}],
            },
        }))
        .unwrap()
    }

    fn bundle() -> TrustBundle {
        let names = ServingNames::for_services("lucid-system", &["lucid-operator-webhook"]).unwrap();
        CertificateAuthority::generate(&names, std::time::SystemTime::now()).unwrap().trust_bundle()
    }

    fn target(cluster: &Cluster, url: Option<&str>, annotation: Option<&str>) -> Conversion {
        let url = url.map(|url| url.parse().unwrap());
        let called = client_config(url.as_ref(), "lucid-system", "lucid-operator-webhook", "/convert");
        let reporter = Reporter { controller: MANAGER.to_owned(), instance: None };
        let annotation = annotation.map(|value| ("cert-manager.io/inject-ca-from", value.to_owned()));
        let recorder = Recorder::new(cluster.client(), reporter);
        Conversion::new(&cluster.client(), MANAGER, DEFINITION, called, annotation, &recorder)
    }

    async fn publish(target: &Conversion, bundle: &TrustBundle) {
        let mut reading = target.read().await.unwrap();
        while !reading.holds(bundle) {
            reading = match target.write(bundle, &reading).await {
                // The API server writes the status of what is new.
                Err(TargetError::Changed { .. }) => target.read().await.unwrap(),
                written => written.unwrap(),
            };
        }
    }

    fn called(found: &CustomResourceDefinition) -> WebhookClientConfig {
        let webhook = found.spec.conversion.clone().unwrap().webhook.unwrap();
        assert_eq!(webhook.conversion_review_versions, ["v1"]);
        webhook.client_config.unwrap()
    }

    #[tokio::test]
    async fn only_a_definition_that_is_there_gets_a_webhook_and_keeps_it() {
        let cluster = Cluster::builder().start().await.unwrap();
        let api: Api<CustomResourceDefinition> = Api::all(cluster.client());
        let (by_service, bundle) = (target(&cluster, None, None), bundle());
        assert_eq!(by_service.read().await.unwrap(), Reading::Absent);
        by_service.restore().await.unwrap();
        let absent = by_service.write(&bundle, &Reading::Absent).await.unwrap();
        assert_eq!((absent, api.get_opt(DEFINITION).await.unwrap()), (Reading::Absent, None));

        api.create(&PostParams::default(), &definition()).await.unwrap();
        publish(&by_service, &bundle).await;
        let first = api.get(DEFINITION).await.unwrap();
        let service = called(&first).service.unwrap();
        assert_eq!((service.path.as_deref(), service.port), (Some("/convert"), Some(443)));
        assert_eq!(called(&first).ca_bundle.unwrap().0, bundle.to_pem().into_bytes());
        for damage in [
            json!({"strategy": "None", "webhook": null}),
            json!({"webhook": {"conversionReviewVersions": ["v1beta1"]}}),
            json!({"webhook": {"clientConfig": {"service": {"path": "/other"}}}}),
            json!({"webhook": {"clientConfig": {"service": null, "url": "https://example.com/"}}}),
            json!({"webhook": {"clientConfig": {"caBundle": null}}}),
        ] {
            let patch = Patch::Merge(json!({"spec": {"conversion": damage}}));
            api.patch(DEFINITION, &PatchParams::default(), &patch).await.unwrap();
            assert_ne!(api.get(DEFINITION).await.unwrap().spec, first.spec, "{damage} does nothing");
            publish(&by_service, &bundle).await;
            assert_eq!(api.get(DEFINITION).await.unwrap().spec, first.spec, "{damage} is not put back");
        }
        let version = api.get(DEFINITION).await.unwrap().resource_version();
        publish(&by_service, &bundle).await;
        by_service.restore().await.unwrap();
        assert_eq!(api.get(DEFINITION).await.unwrap().resource_version(), version, "nothing to put back");

        // What was read before somebody wrote is not written over.
        let before = by_service.read().await.unwrap();
        let note = Patch::Merge(json!({"metadata": {"annotations": {"team": "blue"}}}));
        api.patch(DEFINITION, &PatchParams::default(), &note).await.unwrap();
        let refused = by_service.write(&bundle, &before).await.unwrap_err();
        assert!(matches!(refused, TargetError::Changed { .. }), "{refused}");

        // Somebody else brings the bundle, of an operator outside the cluster; and back.
        let by_url = target(&cluster, Some("https://192.0.2.1:8443/base/"), Some("lucid-system/cert"));
        by_url.restore().await.unwrap();
        let found = api.get(DEFINITION).await.unwrap();
        assert_eq!(called(&found).url.as_deref(), Some("https://192.0.2.1:8443/base/convert"));
        assert_eq!(called(&found).service, None);
        assert_eq!(called(&found).ca_bundle, called(&first).ca_bundle, "it is another's");
        assert_eq!(found.annotations()["cert-manager.io/inject-ca-from"], "lucid-system/cert");
        publish(&by_service, &bundle).await;
        let found = api.get(DEFINITION).await.unwrap();
        assert_eq!(found.spec, first.spec);
        assert_eq!(found.annotations().keys().collect::<Vec<_>>(), ["team"]);

        api.delete(DEFINITION, &DeleteParams::default()).await.unwrap();
    }
}
