//! Objects with an injected CA bundle.

use std::fmt;

use kube::{Client, api::ApiResource};

use super::FIELD_MANAGER;
use crate::target::{BundleFields, ObjectTarget};

const CONFIG_MAP_KEY: &str = "service-ca.crt";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    MutatingWebhookConfiguration,
    ValidatingWebhookConfiguration,
    CustomResourceDefinition,
    ApiService,
    ConfigMap,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.resource().kind)
    }
}

impl Kind {
    pub(super) const ALL: [Self; 5] = [
        Self::MutatingWebhookConfiguration,
        Self::ValidatingWebhookConfiguration,
        Self::CustomResourceDefinition,
        Self::ApiService,
        Self::ConfigMap,
    ];

    pub(super) fn resource(self) -> ApiResource {
        self.fields().resource()
    }

    fn fields(self) -> BundleFields {
        match self {
            Self::MutatingWebhookConfiguration => BundleFields::Mutating,
            Self::ValidatingWebhookConfiguration => BundleFields::Validating,
            Self::CustomResourceDefinition => BundleFields::Conversion,
            Self::ApiService => BundleFields::ApiService,
            Self::ConfigMap => BundleFields::Data(CONFIG_MAP_KEY.to_owned()),
        }
    }

    /// Returns the target for the bundle of an object; `namespace` is that of a ConfigMap.
    pub(super) fn target(self, client: Client, namespace: Option<&str>, name: &str) -> ObjectTarget {
        ObjectTarget::new(client, self.fields(), namespace, name, FIELD_MANAGER)
    }
}
