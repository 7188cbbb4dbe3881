//! ConfigMaps from which clients read what to trust

use k8s_openapi::api::core::v1;
use kube::{Client, api::ApiResource};
use serde_json::Value;

use crate::target::{
    field_path::FieldPath,
    object::{Carrier, ObjectTarget},
};

/// Under which key a bundle stands if nothing else is said
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
    /// A key of a ConfigMap, which holds the bundle as text, such as [`CONFIG_MAP_KEY`]. The ConfigMap is made by
    /// who wants the bundle; it is absent until then.
    #[must_use]
    pub fn config_map(client: Client, field_manager: &str, namespace: &str, name: &str, key: &str) -> Self {
        let resource = ApiResource::erase::<v1::ConfigMap>(&());
        Self::new(client, resource, Some(namespace), name, field_manager, Data { key: key.to_owned() })
    }
}
