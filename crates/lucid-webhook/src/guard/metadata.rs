//! Metadata of objects for guards, borrowed from the JSON text.

use std::borrow::{Borrow, Cow};
use std::collections::BTreeMap;

use serde::Deserialize;

use crate::raw_object::{DecodeError, RawObject};
use crate::review::AdmissionRequest;

/// Metadata of the object and of the old object, if present.
///
/// Objects of `CONNECT`, such as `PodExecOptions`, have no metadata.
#[derive(Debug, Default)]
pub(crate) struct Metadata<'a> {
    pub(crate) object: Option<ObjectMeta<'a>>,
    pub(crate) old_object: Option<ObjectMeta<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ObjectMeta<'a> {
    #[serde(borrow, default)]
    name: Option<Text<'a>>,
    #[serde(borrow, default)]
    generate_name: Option<Text<'a>>,
    #[serde(borrow, default)]
    labels: Option<BTreeMap<Text<'a>, Text<'a>>>,
    #[serde(borrow, default)]
    annotations: Option<BTreeMap<Text<'a>, Text<'a>>>,
}

/// A `Cow` that also borrows inside a map; serde does so for plain fields only.
#[derive(Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

impl Borrow<str> for Text<'_> {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl<'a> Metadata<'a> {
    /// Decodes the metadata and skips the rest.
    pub(crate) fn of(request: &'a AdmissionRequest) -> Result<Self, DecodeError> {
        let read = |object: &'a Option<RawObject>| match object {
            Some(object) => object.view().map(|view: View<'_>| view.metadata),
            None => Ok(None),
        };
        Ok(Self { object: read(&request.object)?, old_object: read(&request.old_object)? })
    }

    /// Present metadata, that of the object first.
    pub(crate) fn each(&self) -> impl Iterator<Item = &ObjectMeta<'a>> {
        [&self.object, &self.old_object].into_iter().flatten()
    }

    /// Name of the object, or its `generateName`: mutating webhooks see objects before the name is generated.
    pub(crate) fn name(&self) -> Option<&str> {
        self.each().find_map(|metadata| {
            let texts = [&metadata.name, &metadata.generate_name];
            texts.into_iter().flatten().map(|text| &*text.0).find(|text| !text.is_empty())
        })
    }
}

#[derive(Deserialize)]
struct View<'a> {
    #[serde(borrow, default)]
    metadata: Option<ObjectMeta<'a>>,
}

impl ObjectMeta<'_> {
    pub(crate) fn label(&self, key: &str) -> Option<&str> {
        get(self.labels.as_ref(), key)
    }

    pub(crate) fn annotation(&self, key: &str) -> Option<&str> {
        get(self.annotations.as_ref(), key)
    }
}

fn get<'m>(map: Option<&'m BTreeMap<Text<'_>, Text<'_>>>, key: &str) -> Option<&'m str> {
    map?.get(key).map(|value| &*value.0)
}
