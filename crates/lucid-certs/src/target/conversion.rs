//! CustomResourceDefinitions with a conversion webhook.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Client, api::ApiResource};
use serde_json::Value;

use crate::target::{
    field_path::FieldPath,
    object::{Carrier, ObjectTarget},
};

#[derive(Debug)]
struct Conversion;

impl Carrier for Conversion {
    fn slots(&self, object: &Value) -> Result<Vec<String>, String> {
        let conversion = &object["spec"]["conversion"];
        // Without a client configuration the webhook cannot be called.
        let is_called =
            conversion["strategy"] == "Webhook" && conversion["webhook"]["clientConfig"].is_object();
        Ok(is_called.then(|| "conversion".to_owned()).into_iter().collect())
    }

    fn path(&self, _slot: &str) -> FieldPath {
        FieldPath::of(["spec", "conversion", "webhook", "clientConfig", "caBundle"])
    }
}

impl ObjectTarget {
    /// Creates a target for `spec.conversion.webhook.clientConfig.caBundle` of a CustomResourceDefinition,
    /// such as `widgets.example.com`. A definition with a conversion strategy other than `Webhook` reads as
    /// absent.
    ///
    /// Omit the field from the manifest. The API server rejects an update that replaces a valid bundle by an
    /// invalid one. However, a definition *created* with an invalid bundle, such as the placeholder `Cg==`,
    /// is not established (reason `InvalidCABundle`) and not served until the bundle is replaced.
    #[must_use]
    pub fn crd_conversion(client: Client, field_manager: &str, name: &str) -> Self {
        let resource = ApiResource::erase::<CustomResourceDefinition>(&());
        Self::new(client, resource, None, name, field_manager, Conversion)
    }
}
