//! Kubernetes objects, parsed as far as a conversion requires.

use std::borrow::Cow;

use tower::BoxError;

use super::members::{Members, ObjectWriter, text};
use super::metadata::Metadata;

#[derive(Debug)]
pub(super) struct Object<'a> {
    pub(super) api_version: Option<Cow<'a, str>>,
    pub(super) kind: Option<Cow<'a, str>>,
    pub(super) metadata: Option<Metadata<'a>>,
    rest: Members<'a>,
}

impl<'a> Object<'a> {
    pub(super) fn read(json: &'a str) -> Result<Self, BoxError> {
        let mut rest: Members<'a> =
            serde_json::from_str(json).map_err(|error| format!("it is no JSON object: {error}"))?;
        Ok(Self {
            api_version: text(rest.take("apiVersion")?, "apiVersion")?,
            kind: text(rest.take("kind")?, "kind")?,
            metadata: rest.take("metadata")?.map(|raw| Metadata::read(raw.get())).transpose()?,
            rest,
        })
    }

    /// Writes the object for conversion functions, without `managedFields`: the API server restores them in any case,
    /// and they are often the larger part of an object.
    pub(super) fn write_bare(&self, out: &mut Vec<u8>) {
        let mut object = ObjectWriter::begin(out);
        for (key, value) in [("apiVersion", &self.api_version), ("kind", &self.kind)] {
            if let Some(value) = value {
                object.text(key, value);
            }
        }
        let metadata = object.nested("metadata");
        match &self.metadata {
            Some(own) => own.write_bare(metadata),
            None => metadata.extend_from_slice(b"{}"),
        }
        object.members(&self.rest);
        object.end();
    }

    /// Writes this converted object with the metadata that the API server will use.
    pub(super) fn write_converted(
        &self,
        api_version: &str,
        kind: &str,
        original: Option<&Metadata<'_>>,
        own: &Metadata<'_>,
        out: &mut Vec<u8>,
    ) {
        let mut object = ObjectWriter::begin(out);
        object.text("apiVersion", api_version);
        object.text("kind", kind);
        own.write_restored(original, object.nested("metadata"));
        object.members(&self.rest);
        object.end();
    }
}
