//! MutatingWebhookConfigurations and ValidatingWebhookConfigurations

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

/// Which webhooks of a configuration get the bundle
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Webhooks {
    /// All that are in it whenever it is looked at
    #[default]
    All,
    /// Those with these names; a name that is not there is nobody's
    Named(BTreeSet<String>),
}

impl Webhooks {
    /// Those with these names. The others in the configuration call servers under another authority.
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
    /// The `webhooks[].clientConfig.caBundle` of a MutatingWebhookConfiguration. The API server takes any bytes there,
    /// such as the placeholder `Cg==`, and only the calls fail.
    #[must_use]
    pub fn mutating_webhooks(client: Client, field_manager: &str, name: &str, webhooks: Webhooks) -> Self {
        let resource = ApiResource::erase::<MutatingWebhookConfiguration>(&());
        Self::new(client, resource, None, name, field_manager, Configuration(webhooks))
    }

    /// The `webhooks[].clientConfig.caBundle` of a ValidatingWebhookConfiguration, as of a
    /// [MutatingWebhookConfiguration](Self::mutating_webhooks)
    #[must_use]
    pub fn validating_webhooks(client: Client, field_manager: &str, name: &str, webhooks: Webhooks) -> Self {
        let resource = ApiResource::erase::<ValidatingWebhookConfiguration>(&());
        Self::new(client, resource, None, name, field_manager, Configuration(webhooks))
    }
}
