//! ConfigMaps that distribute a trust bundle.

use k8s_openapi::api::core::v1;
use kube::{Client, api::ApiResource};
use serde_json::Value;

use crate::target::{
    field_path::FieldPath,
    object::{Carrier, ObjectTarget},
};

/// Conventional key of the bundle in a ConfigMap.
pub const CONFIG_MAP_KEY: &str = "ca.crt";

#[derive(Debug)]
struct Data {
    key: String,
}

impl Carrier for Data {
    fn slots(&self, object: &Value) -> Result<Vec<String>, String> {
        let Self { key } = self;
        if !object["binaryData"][key].is_null() {
            return Err(format!(
                "{key} stands in binaryData; a bundle is text and stands in data: remove it there"
            ));
        }
        Ok(vec![key.clone()])
    }

    fn path(&self, slot: &str) -> FieldPath {
        FieldPath::of(["data", slot])
    }

    fn is_text(&self) -> bool {
        true
    }
}

impl ObjectTarget {
    /// Creates a target for a key of a ConfigMap, such as [`CONFIG_MAP_KEY`], which holds the bundle as text.
    /// The target does not create the ConfigMap; it reads as absent until then.
    #[must_use]
    pub fn config_map(client: Client, field_manager: &str, namespace: &str, name: &str, key: &str) -> Self {
        let resource = ApiResource::erase::<v1::ConfigMap>(&());
        Self::new(client, resource, Some(namespace), name, field_manager, Data { key: key.to_owned() })
    }
}
