//! `spec.conversion` of a CustomResourceDefinition.

use std::error::Error;
use std::fmt;

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use k8s_openapi::ByteString;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceConversion, CustomResourceDefinition, ServiceReference, WebhookClientConfig,
    WebhookConversion,
};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use lucid_certs::TrustBundle;
use lucid_certs::target::{ObjectTarget, Reading, TargetError, TrustTarget};
use serde_json::json;

use super::object::{AlternativeService, version};
use super::presence::PartPresence;

#[derive(Clone)]
pub(super) struct Conversion {
    api: Api<CustomResourceDefinition>,
    definition: String,
    manager: String,
    wanted: WebhookClientConfig,
    pub(super) bundle: ObjectTarget,
    pub(super) alternative: Option<AlternativeService>,
    presence: PartPresence,
}

impl Conversion {
    pub(super) fn new(
        client: &Client,
        manager: &str,
        definition: String,
        wanted: k8s_openapi::api::admissionregistration::v1::WebhookClientConfig,
        presence: PartPresence,
    ) -> Self {
        let service = wanted.service.map(|service| ServiceReference {
            name: service.name,
            namespace: service.namespace,
            path: service.path,
            port: service.port,
        });
        Self {
            api: Api::all(client.clone()),
            bundle: ObjectTarget::crd_conversion(client.clone(), manager, &definition),
            definition,
            manager: manager.to_owned(),
            wanted: WebhookClientConfig { ca_bundle: None, service, url: wanted.url },
            alternative: None,
            presence,
        }
    }

    fn wanted(&self, found: Option<&WebhookClientConfig>, bundle: &[u8]) -> CustomResourceConversion {
        let mut client_config = self.wanted.clone();
        if let (Some(service), Some(alternative)) = (&mut client_config.service, &self.alternative) {
            let found = found.and_then(|config| config.service.as_ref());
            let found = found.map(|service| &*service.name);
            if let Some(alternative) = alternative.replacing(&service.name, found) {
                alternative.clone_into(&mut service.name);
            }
        }
        client_config.ca_bundle = (!bundle.is_empty()).then(|| ByteString(bundle.to_owned()));
        CustomResourceConversion {
            strategy: "Webhook".to_owned(),
            webhook: Some(WebhookConversion {
                client_config: Some(client_config),
                conversion_review_versions: vec!["v1".to_owned()],
            }),
        }
    }

    fn reading(&self, found: &CustomResourceDefinition) -> Reading {
        let (config, bundle) = (client_config(found), bundle(found));
        let is_as_wanted = found.spec.conversion == Some(self.wanted(config, &bundle));
        self.presence.set(is_as_wanted);
        let mut reading = Reading::present(version(found), [("conversion".to_owned(), bundle)]);
        reading.stale = !is_as_wanted;
        reading
    }

    async fn get(&self) -> Result<Option<CustomResourceDefinition>, TargetError> {
        let found = self.api.get_opt(&self.definition).await;
        found.map_err(|error| self.failed_to("get", error))
    }

    fn failed_to(&self, action: &'static str, error: impl Error + Send + Sync + 'static) -> TargetError {
        TargetError::Api { action, target: self.name().to_owned(), source: Box::new(error) }
    }

    /// Replaces the conversion, unless the definition has changed since `version`.
    async fn replace(&self, wanted: CustomResourceConversion, version: &str) -> Result<Reading, TargetError> {
        let patch = serde_json::from_value(json!([
            {"op": "replace", "path": "/metadata/resourceVersion", "value": resource_version(version)},
            {"op": "add", "path": "/spec/conversion", "value": wanted},
        ]));
        let patch = patch.map_err(|error| self.failed_to("write", error))?;
        let params = PatchParams { field_manager: Some(self.manager.clone()), ..PatchParams::default() };
        match self.api.patch(&self.definition, &params, &Patch::<()>::Json(patch)).await {
            Ok(written) => Ok(self.reading(&written)),
            Err(kube::Error::Api(status)) if status.is_conflict() => {
                Err(TargetError::Changed { target: self.name().to_owned() })
            }
            Err(error) => Err(self.failed_to("write", error)),
        }
    }
}

impl TrustTarget for Conversion {
    fn name(&self) -> &str {
        self.bundle.name()
    }

    fn read(&self) -> BoxFuture<'_, Result<Reading, TargetError>> {
        Box::pin(async {
            if let Some(found) = self.get().await? {
                return Ok(self.reading(&found));
            }
            // It causes no calls.
            self.presence.set(true);
            Ok(Reading::absent())
        })
    }

    fn write<'a>(
        &'a self,
        bundle: &'a TrustBundle,
        reading: &'a Reading,
    ) -> BoxFuture<'a, Result<Reading, TargetError>> {
        Box::pin(async {
            // A definition that does not exist is not created.
            let Some(version) = reading.version() else { return Ok(Reading::absent()) };
            self.replace(self.wanted(None, bundle.to_pem().as_bytes()), version).await
        })
    }

    fn restore<'a>(&'a self, _: &'a Reading) -> BoxFuture<'a, Result<Option<Reading>, TargetError>> {
        Box::pin(async {
            let Some(found) = self.get().await? else { return Ok(None) };
            let wanted = self.wanted(client_config(&found), &bundle(&found));
            self.replace(wanted, &version(&found)).await.map(Some)
        })
    }

    fn changes(&self) -> BoxStream<'static, ()> {
        self.bundle.changes()
    }

    fn report_contention<'a>(&'a self, reading: &'a Reading) -> BoxFuture<'a, ()> {
        self.bundle.report_contention(reading)
    }
}

impl fmt::Debug for Conversion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Conversion").field("definition", &self.definition).finish_non_exhaustive()
    }
}

/// The second part of a [`version`].
fn resource_version(version: &str) -> &str {
    version.split_once('/').map_or(version, |(_, resource_version)| resource_version)
}

fn client_config(found: &CustomResourceDefinition) -> Option<&WebhookClientConfig> {
    found.spec.conversion.as_ref()?.webhook.as_ref()?.client_config.as_ref()
}

fn bundle(found: &CustomResourceDefinition) -> Vec<u8> {
    client_config(found).and_then(|config| config.ca_bundle.clone()).unwrap_or_default().0
}
