//! Metadata by which records and events name the object of a request.

use std::borrow::Cow;

use lucid_chain::PodView;
use lucid_webhook::AdmissionRequest;
use serde::Deserialize;
use serde_json::value::RawValue;

/// Name and owners of an object. Empty if they cannot be parsed.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Metadata<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    generate_name: Cow<'a, str>,
    #[serde(borrow)]
    pub(crate) owner_references: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Object<'a> {
    #[serde(borrow)]
    metadata: Metadata<'a>,
}

impl<'a> Metadata<'a> {
    /// Returns the metadata of `pod`, or else parses that of the request's object.
    pub(crate) fn of(request: &'a AdmissionRequest, pod: Option<&'a PodView<'_>>) -> Self {
        match pod {
            Some(pod) => Self {
                name: pod.name().unwrap_or_default().into(),
                generate_name: pod.generate_name().unwrap_or_default().into(),
                owner_references: pod.owner_references(),
            },
            None => {
                let object = request.object.as_ref().and_then(|object| object.view::<Object<'a>>().ok());
                object.unwrap_or_default().metadata
            }
        }
    }

    /// Returns the name as far as it is known: an object may have only `generateName` during its creation.
    pub(crate) fn name(&self) -> &str {
        if self.name.is_empty() { &self.generate_name } else { &self.name }
    }
}
