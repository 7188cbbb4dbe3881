//! Kubernetes objects, parsed as far as a conversion requires.

use std::borrow::Cow;

use serde::Serialize;
use tower::BoxError;

use super::members::Members;
use super::metadata::Metadata;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Object<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) api_version: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) kind: Option<Cow<'a, str>>,
    pub(super) metadata: Option<Metadata<'a>>,
    #[serde(flatten)]
    rest: Members<'a>,
}

impl<'a> Object<'a> {
    pub(super) fn read(json: &'a str) -> Result<Self, BoxError> {
        let mut rest: Members<'a> =
            serde_json::from_str(json).map_err(|error| format!("it is not a JSON object: {error}"))?;
        Ok(Self {
            api_version: rest.take_text("apiVersion")?,
            kind: rest.take_text("kind")?,
            metadata: rest.take("metadata")?.map(|raw| Metadata::read(raw.get())).transpose()?,
            rest,
        })
    }

    pub(super) fn remove_spec(&mut self) -> Result<(), BoxError> {
        self.rest.take("spec").map(drop)
    }
}
