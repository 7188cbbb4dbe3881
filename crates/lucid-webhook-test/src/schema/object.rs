//! Complete objects with apiVersion, kind and metadata.

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use proptest::prelude::*;
use serde_json::{Value, json};
use snafu::OptionExt;

use super::{SchemaError, SchemaSnafu, arbitrary};

/// Generates complete objects of a version: the fields of the schema, and metadata with a name, uid, labels and
/// annotations.
///
/// # Errors
///
/// A [`SchemaError`] if the version has no schema, or no objects can be generated from it.
pub fn objects(
    definition: &CustomResourceDefinition,
    version: &str,
) -> Result<BoxedStrategy<Value>, SchemaError> {
    let schema = arbitrary(&own_fields(definition, version)?)?;
    let metadata = metadata(definition.spec.scope == "Namespaced").prop_map(Some);
    Ok(whole(definition, version, schema, metadata.boxed()))
}

/// Generates objects of a version in which any field may be missing, including required fields and the metadata.
///
/// The API server sends such objects to conversion webhooks: a server-side apply converts the rest of an object after
/// the fields of a manager are removed (kubernetes/kubernetes#117356). Atomic maps and lists (`x-kubernetes-map-type`,
/// `x-kubernetes-list-type`; the default for lists) are either complete or absent.
///
/// # Errors
///
/// A [`SchemaError`] if the version has no schema, or no objects can be generated from it.
pub fn partial_objects(
    definition: &CustomResourceDefinition,
    version: &str,
) -> Result<BoxedStrategy<Value>, SchemaError> {
    let mut schema = own_fields(definition, version)?;
    require_nothing(&mut schema);
    let metadata = prop::option::of(metadata(definition.spec.scope == "Namespaced"));
    Ok(whole(definition, version, arbitrary(&schema)?, metadata.boxed()))
}

/// Schema of a version without the common fields of all objects.
fn own_fields(definition: &CustomResourceDefinition, version: &str) -> Result<JSONSchemaProps, SchemaError> {
    let versions = definition.spec.versions.iter();
    let schemas: BTreeMap<&str, &JSONSchemaProps> = versions
        .filter_map(|version| Some((&*version.name, version.schema.as_ref()?.open_api_v3_schema.as_ref()?)))
        .collect();
    let schema = schemas.get(version).with_context(|| {
        let found = schemas.keys().copied().collect::<Vec<_>>().join(", ");
        let problem =
            format!("the CustomResourceDefinition has no version {version:?} with a schema, it has {found}");
        SchemaSnafu { problem }
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

/// Makes every field optional that a manager can own separately. Atomic maps and lists are owned as a whole, and so are
/// lists that are not declared as a set or a map. Keys of list items are kept.
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
