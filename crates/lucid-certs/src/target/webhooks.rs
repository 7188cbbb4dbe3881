//! MutatingWebhookConfigurations and ValidatingWebhookConfigurations.

use std::collections::BTreeSet;

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use kube::{Client, api::ApiResource};
use serde_json::Value;

use crate::target::{
    field_path::FieldPath,
    object::{Carrier, ObjectTarget},
};

/// Selection of webhooks in a configuration.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Webhooks {
    /// All webhooks, including ones that are added later.
    #[default]
    All,
    /// The webhooks with these names. Names without a webhook are ignored.
    Named(BTreeSet<String>),
}

impl Webhooks {
    /// Selects webhooks by name. Other webhooks in the configuration may belong to servers with a different
    /// CA.
    pub fn named(names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self::Named(names.into_iter().map(Into::into).collect())
    }

    fn include(&self, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::Named(names) => names.contains(name),
        }
    }
}

#[derive(Debug)]
struct Configuration(Webhooks);

impl Carrier for Configuration {
    fn slots(&self, object: &Value) -> Result<Vec<String>, String> {
        let webhooks = object["webhooks"].as_array().map(Vec::as_slice).unwrap_or_default();
        let names = webhooks.iter().filter_map(|webhook| webhook["name"].as_str());
        Ok(names.filter(|name| self.0.include(name)).map(str::to_owned).collect())
    }

    fn path(&self, slot: &str) -> FieldPath {
        FieldPath::of(["webhooks"]).named(slot).then(["clientConfig", "caBundle"])
    }
}

impl ObjectTarget {
    /// Creates a target for `webhooks[].clientConfig.caBundle` of a MutatingWebhookConfiguration. The API
    /// server accepts any bytes there, such as the placeholder `Cg==`; calls then fail.
    #[must_use]
    pub fn mutating_webhooks(client: Client, field_manager: &str, name: &str, webhooks: Webhooks) -> Self {
        let resource = ApiResource::erase::<MutatingWebhookConfiguration>(&());
        Self::new(client, resource, None, name, field_manager, Configuration(webhooks))
    }

    /// Creates a target for `webhooks[].clientConfig.caBundle` of a ValidatingWebhookConfiguration; see
    /// [`mutating_webhooks`](Self::mutating_webhooks).
    #[must_use]
    pub fn validating_webhooks(client: Client, field_manager: &str, name: &str, webhooks: Webhooks) -> Self {
        let resource = ApiResource::erase::<ValidatingWebhookConfiguration>(&());
        Self::new(client, resource, None, name, field_manager, Configuration(webhooks))
    }
}
