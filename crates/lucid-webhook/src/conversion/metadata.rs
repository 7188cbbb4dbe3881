//! Rules for metadata of converted objects, as in kube-apiserver (`validateConvertedObject` and `restoreObjectMeta` in
//! `apiextensions-apiserver/pkg/apiserver/conversion/webhook_converter.go`).

use std::borrow::Cow;
use std::collections::BTreeMap;

use lucid_text::names::{is_annotation_key, is_label_value, is_qualified_name};
use serde::Serialize;
use serde_json::value::RawValue;
use tower::BoxError;

use super::members::Members;

/// Maximum size in bytes of all keys and values.
const ANNOTATIONS_TOTAL: usize = 256 * 1024;

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Metadata<'a> {
    #[serde(skip)]
    name: Option<Cow<'a, str>>,
    #[serde(skip)]
    namespace: Option<Cow<'a, str>>,
    #[serde(skip)]
    uid: Option<Cow<'a, str>>,
    #[serde(skip)]
    generate_name: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) managed_fields: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    labels: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    annotations: Option<&'a RawValue>,
    /// All other members, including those that are decoded above.
    #[serde(flatten)]
    rest: Members<'a>,
}

impl<'a> Metadata<'a> {
    pub(super) fn read(json: &'a str) -> Result<Self, BoxError> {
        let mut rest: Members<'a> =
            serde_json::from_str(json).map_err(|error| format!("metadata is not a JSON object: {error}"))?;
        Ok(Self {
            name: rest.text("name", "metadata.name")?,
            namespace: rest.text("namespace", "metadata.namespace")?,
            uid: rest.text("uid", "metadata.uid")?,
            generate_name: rest.text("generateName", "metadata.generateName")?,
            managed_fields: rest.take("managedFields")?,
            labels: rest.take("labels")?,
            annotations: rest.take("annotations")?,
            rest,
        })
    }

    pub(super) fn full_name(&self) -> String {
        let name = match (self.name.as_deref(), self.generate_name.as_deref()) {
            (Some(name), _) => name.to_owned(),
            (None, Some(prefix)) => format!("{prefix}*"),
            (None, None) => "(no name)".to_owned(),
        };
        match self.namespace.as_deref() {
            Some(namespace) => format!("{namespace}/{name}"),
            None => name,
        }
    }

    /// The metadata that the API server will use: this one with the labels and annotations of `converted`.
    pub(super) fn restored(self, managed_fields: Option<&'a RawValue>, converted: &Self) -> Self {
        Self { managed_fields, labels: converted.labels, annotations: converted.annotations, ..self }
    }

    pub(super) fn check(&self, original: &Metadata<'_>) -> Result<(), BoxError> {
        type Field = for<'m> fn(&'m Metadata<'_>) -> Option<&'m str>;
        let fixed: [(&'static str, Field); 3] = [
            ("metadata.name", |metadata| metadata.name.as_deref()),
            ("metadata.namespace", |metadata| metadata.namespace.as_deref()),
            ("metadata.uid", |metadata| metadata.uid.as_deref()),
        ];
        for (field, value) in fixed {
            let before = value(original).unwrap_or_default();
            let after = value(self).unwrap_or_default();
            if before != after {
                let problem =
                    format!("{field} must stay as it is, and was changed from {before:?} to {after:?}");
                return Err(problem.into());
            }
        }
        if let Some(labels) = changed("labels", original.labels, self.labels)? {
            check_labels(&labels)?;
        }
        match changed("annotations", original.annotations, self.annotations)? {
            Some(annotations) => check_annotations(&annotations),
            None => Ok(()),
        }
    }
}

type Texts = BTreeMap<String, String>;

/// Returns the map if it changed. Like the API server, unchanged ones are not validated.
fn changed(
    field: &str,
    before: Option<&RawValue>,
    after: Option<&RawValue>,
) -> Result<Option<Texts>, BoxError> {
    let Some(after) = after else { return Ok(None) };
    if before.is_some_and(|before| before.get() == after.get()) {
        return Ok(None);
    }
    let decode = |raw: &RawValue| serde_json::from_str::<Texts>(raw.get());
    let texts =
        decode(after).map_err(|error| format!("metadata.{field} must map texts to texts: {error}"))?;
    let unchanged = before.and_then(|before| decode(before).ok()).is_some_and(|before| before == texts);
    Ok(if unchanged { None } else { Some(texts) })
}

fn check_labels(labels: &Texts) -> Result<(), BoxError> {
    for (key, value) in labels {
        check_key("labels", key, is_qualified_name)?;
        if !is_label_value(value) {
            let problem = format!(
                "metadata.labels has the value {value:?} at {key:?}: expected at most 63 of [A-Za-z0-9._-], alphanumeric \
                 at both ends"
            );
            return Err(problem.into());
        }
    }
    Ok(())
}

fn check_annotations(annotations: &Texts) -> Result<(), BoxError> {
    annotations.keys().try_for_each(|key| check_key("annotations", key, is_annotation_key))?;
    let found: usize = annotations.iter().map(|(key, value)| key.len() + value.len()).sum();
    if found > ANNOTATIONS_TOTAL {
        let largest = annotations.iter().max_by_key(|(_, value)| value.len());
        let largest = largest.map(|(key, _)| key.as_str()).unwrap_or_default();
        let problem = format!(
            "metadata.annotations: expected at most {ANNOTATIONS_TOTAL} bytes in total, found {found}; the largest is {largest:?}"
        );
        return Err(problem.into());
    }
    Ok(())
}

fn check_key(field: &str, key: &str, is_key: fn(&str) -> bool) -> Result<(), BoxError> {
    if is_key(key) {
        return Ok(());
    }
    let problem = format!(
        "metadata.{field} has the key {key:?}, which is not a qualified name: expected at most 63 of [A-Za-z0-9._-], \
         alphanumeric at both ends, with an optional prefix of a DNS name of up to 253 characters and a slash"
    );
    Err(problem.into())
}
