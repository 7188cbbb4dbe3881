//! Metadata of objects for guards.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::raw_object::{DecodeError, RawObject};
use crate::review::AdmissionRequest;

/// Empty for objects of `CONNECT`, such as `PodExecOptions`.
#[derive(Debug, Default)]
pub(crate) struct Metadata {
    pub(crate) object: Option<ObjectMeta>,
    pub(crate) old_object: Option<ObjectMeta>,
}

/// The fields that guards depend on: unlike those of k8s-openapi, these decode whatever the others contain.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ObjectMeta {
    name: Option<String>,
    generate_name: Option<String>,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
}

impl Metadata {
    /// Decodes the metadata and skips the rest.
    pub(crate) fn of(request: &AdmissionRequest) -> Result<Self, DecodeError> {
        #[derive(Deserialize)]
        struct View {
            metadata: Option<ObjectMeta>,
        }
        let read = |object: &Option<RawObject>| match object {
            Some(object) => object.decode().map(|view: View| view.metadata),
            None => Ok(None),
        };
        Ok(Self { object: read(&request.object)?, old_object: read(&request.old_object)? })
    }

    /// Present metadata, that of the object first.
    pub(crate) fn each(&self) -> impl Iterator<Item = &ObjectMeta> {
        [&self.object, &self.old_object].into_iter().flatten()
    }

    /// Name of the object, or its `generateName`: mutating webhooks see objects before the name is generated.
    pub(crate) fn name(&self) -> Option<&str> {
        let mut names = self.each().flat_map(|metadata| [&metadata.name, &metadata.generate_name]);
        names.find_map(|name| name.as_deref().filter(|name| !name.is_empty()))
    }
}

impl ObjectMeta {
    pub(crate) fn label(&self, key: &str) -> Option<&str> {
        self.labels.as_ref()?.get(key).map(String::as_str)
    }

    pub(crate) fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations.as_ref()?.get(key).map(String::as_str)
    }
}
