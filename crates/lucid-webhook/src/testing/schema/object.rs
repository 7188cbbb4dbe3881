//! Whole objects, with apiVersion, kind and metadata.

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use proptest::prelude::*;
use serde_json::{Value, json};
use snafu::OptionExt;

use super::{NoSchemaSnafu, SchemaError, arbitrary};

/// Whole objects of a version: what the schema says, and metadata with a name, uid, labels and annotations.
///
/// # Errors
///
/// When the version has no schema, or one that nothing can be made from.
pub fn objects(
    definition: &CustomResourceDefinition,
    version: &str,
) -> Result<BoxedStrategy<Value>, SchemaError> {
    let schema = arbitrary(&own_fields(definition, version)?)?;
    let metadata = metadata(definition.spec.scope == "Namespaced").prop_map(Some);
    Ok(whole(definition, version, schema, metadata.boxed()))
}

/// Objects of a version from which any field may be missing, also those that the schema requires, and the metadata.
///
/// The API server sends such objects to a conversion webhook: a server-side apply converts what is left of an object
/// when the fields of a manager were taken from it (kubernetes/kubernetes#117356). Maps and lists that are atomic
/// (`x-kubernetes-map-type`, `x-kubernetes-list-type`; lists are unless said otherwise) are there whole or not at all.
///
/// # Errors
///
/// When the version has no schema, or one that nothing can be made from.
pub fn partial_objects(
    definition: &CustomResourceDefinition,
    version: &str,
) -> Result<BoxedStrategy<Value>, SchemaError> {
    let mut schema = own_fields(definition, version)?;
    require_nothing(&mut schema);
    let metadata = prop::option::of(metadata(definition.spec.scope == "Namespaced"));
    Ok(whole(definition, version, arbitrary(&schema)?, metadata.boxed()))
}

/// The schema of a version without the fields that all objects have.
fn own_fields(definition: &CustomResourceDefinition, version: &str) -> Result<JSONSchemaProps, SchemaError> {
    let versions = definition.spec.versions.iter();
    let schemas: BTreeMap<&str, &JSONSchemaProps> = versions
        .filter_map(|version| Some((&*version.name, version.schema.as_ref()?.open_api_v3_schema.as_ref()?)))
        .collect();
    let schema = schemas.get(version).with_context(|| NoSchemaSnafu {
        version,
        found: schemas.keys().copied().collect::<Vec<_>>().join(", "),
    })?;
    let mut schema = (*schema).clone();
    for own in ["apiVersion", "kind", "metadata"] {
        schema.properties.get_or_insert_default().remove(own);
        schema.required.get_or_insert_default().retain(|required| required != own);
    }
    Ok(schema)
}

fn whole(
    definition: &CustomResourceDefinition,
    version: &str,
    fields: BoxedStrategy<Value>,
    metadata: BoxedStrategy<Option<Value>>,
) -> BoxedStrategy<Value> {
    let (api_version, kind) =
        (format!("{}/{version}", definition.spec.group), definition.spec.names.kind.clone());
    let whole = (fields, metadata).prop_map(move |(mut object, metadata)| {
        if let Value::Object(object) = &mut object {
            object.insert("apiVersion".to_owned(), json!(api_version));
            object.insert("kind".to_owned(), json!(kind));
            object.extend(metadata.map(|metadata| ("metadata".to_owned(), metadata)));
        }
        object
    });
    whole.boxed()
}

/// Makes every field optional that a manager can own by itself: an atomic map or list is owned whole, and so is a list
/// that is not said to be a set or a map. The keys by which the items of a list are told apart stay.
fn require_nothing(schema: &mut JSONSchemaProps) {
    schema.default = None;
    let owned_by_parts = match schema.type_.as_deref() {
        Some("object") => schema.x_kubernetes_map_type.as_deref() != Some("atomic"),
        Some("array") => matches!(schema.x_kubernetes_list_type.as_deref(), Some("set" | "map")),
        _ => false,
    };
    if !owned_by_parts {
        return;
    }
    (schema.required, schema.min_properties, schema.min_items) = (None, None, None);
    (schema.all_of, schema.any_of, schema.one_of, schema.not) = (None, None, None, None);
    schema.properties.iter_mut().flat_map(BTreeMap::values_mut).for_each(require_nothing);
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut schema.additional_properties {
        require_nothing(values);
    }
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        require_nothing(items);
        if let Some(keys) = &schema.x_kubernetes_list_map_keys {
            items.required.get_or_insert_default().extend(keys.iter().cloned());
        }
    }
}

fn metadata(namespaced: bool) -> impl Strategy<Value = Value> {
    let texts = || {
        let pairs = prop::collection::btree_map("([a-z]{1,4}\\.example/)?[a-z]{1,4}", "[a-z0-9]{0,6}", 1..=3);
        prop::option::of(pairs)
    };
    let uid = "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}";
    ("[a-z][a-z0-9]{0,8}", "[a-z][a-z0-9]{0,8}", uid, texts(), texts()).prop_map(
        move |(name, namespace, uid, labels, annotations)| {
            let mut metadata = json!({"name": name, "uid": uid});
            let namespace = namespaced.then(|| json!(namespace));
            let more = [
                ("namespace", namespace),
                ("labels", labels.map(|labels| json!(labels))),
                ("annotations", annotations.map(|annotations| json!(annotations))),
            ];
            for (field, value) in more {
                if let Some(value) = value {
                    metadata[field] = value;
                }
            }
            metadata
        },
    )
}
