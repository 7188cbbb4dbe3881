//! Generates objects from the schema of a CustomResourceDefinition.

#![allow(clippy::missing_panics_doc)]
mod accepts;
mod object;
mod pattern;
mod scalar;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Map, Value, json};
use snafu::Snafu;

use accepts::accepts;
pub use object::{objects, partial_objects};

/// No objects can be generated from the schema.
#[derive(Debug, Snafu)]
#[snafu(display("{problem}"))]
pub struct SchemaError {
    problem: String,
}

/// A problem of the schema at `path`.
fn invalid(path: &str, problem: impl Display) -> SchemaSnafu<String> {
    SchemaSnafu { problem: format!("{path}: {problem}") }
}

/// Probability that an optional field is present.
const PRESENT: f64 = 0.75;

/// Generates values that a structural schema accepts.
///
/// Fields with a default are always present, as after defaulting by the API server. Maps are never empty, since many
/// types do not distinguish empty from absent. CEL rules (`x-kubernetes-validations`) are not supported: add a
/// [`Strategy::prop_filter`] or [`Strategy::prop_map`] if they matter.
///
/// ```
/// use lucid_webhook_test::schema;
/// use proptest::prelude::*;
/// use serde_json::json;
///
/// let port = json!({"type": "integer", "minimum": 1, "maximum": 65535});
/// let port = schema::arbitrary(&serde_json::from_value(port)?)?;
/// proptest!(|(port in port)| prop_assert!((1..65536).contains(&port.as_i64().unwrap())));
/// # Ok::<(), lucid_webhook::BoxError>(())
/// ```
///
/// # Errors
///
/// A [`SchemaError`] if the schema contradicts itself or has an unsupported pattern.
pub fn arbitrary(schema: &JSONSchemaProps) -> Result<BoxedStrategy<Value>, SchemaError> {
    at("", schema)
}

fn at(path: &str, schema: &JSONSchemaProps) -> Result<BoxedStrategy<Value>, SchemaError> {
    let plain = match &schema.enum_ {
        Some(values) if !values.is_empty() => {
            select(values.iter().map(|value| value.0.clone()).collect::<Vec<_>>()).boxed()
        }
        _ => with_branches(path, schema)?,
    };
    Ok(match schema.nullable {
        Some(true) => prop_oneof![1 => Just(Value::Null), 9 => plain].boxed(),
        _ => plain,
    })
}

/// Handles `allOf`, `anyOf` and `oneOf`, which only narrow the surrounding schema: merges one branch of each and
/// validates the result.
fn with_branches(path: &str, schema: &JSONSchemaProps) -> Result<BoxedStrategy<Value>, SchemaError> {
    let mut base = schema.clone();
    base.not = None;
    for branch in base.all_of.take().into_iter().flatten() {
        merge(&mut base, &branch);
    }
    let any_of = base.any_of.take().unwrap_or_default();
    let one_of = base.one_of.take().unwrap_or_default();
    let is_plain = schema.all_of.is_none() && any_of.is_empty() && one_of.is_empty() && schema.not.is_none();
    if is_plain || schema.x_kubernetes_int_or_string == Some(true) {
        return typed(path, &base);
    }
    let mut alternatives = vec![base];
    for (branches, exclusive) in [(any_of, false), (one_of, true)] {
        if !branches.is_empty() {
            alternatives = alternatives
                .iter()
                .flat_map(|base| (0..branches.len()).map(move |chosen| (base, chosen)))
                .map(|(base, chosen)| narrowed(base, &branches, chosen, exclusive))
                .collect();
        }
    }
    let alternatives: Vec<_> =
        alternatives.iter().map(|schema| typed(path, schema)).collect::<Result<_, _>>()?;
    let whole = JSONSchemaProps { nullable: Some(false), ..schema.clone() };
    let chosen = proptest::strategy::Union::new(alternatives);
    Ok(chosen
        .prop_filter(format!("{path}: allOf, anyOf, oneOf, not"), move |value| accepts(&whole, value))
        .boxed())
}

fn narrowed(
    base: &JSONSchemaProps,
    branches: &[JSONSchemaProps],
    chosen: usize,
    exclusive: bool,
) -> JSONSchemaProps {
    let mut schema = base.clone();
    branches.get(chosen).into_iter().for_each(|branch| merge(&mut schema, branch));
    if exclusive {
        // Fields that would match another branch.
        let kept: BTreeSet<_> = schema.required.iter().flatten().cloned().collect();
        let others = branches.iter().enumerate().filter(|(index, _)| *index != chosen);
        for field in others.flat_map(|(_, branch)| branch.required.iter().flatten()) {
            if !kept.contains(field) {
                schema.properties.get_or_insert_default().remove(field);
            }
        }
    }
    schema
}

/// Adds the requirements of `branch` to `schema`.
fn merge(schema: &mut JSONSchemaProps, branch: &JSONSchemaProps) {
    schema.required.get_or_insert_default().extend(branch.required.iter().flatten().cloned());
    for (field, narrower) in branch.properties.iter().flatten() {
        merge(schema.properties.get_or_insert_default().entry(field.clone()).or_default(), narrower);
    }
    if let (Some(JSONSchemaPropsOrArray::Schema(items)), Some(JSONSchemaPropsOrArray::Schema(narrower))) =
        (&mut schema.items, &branch.items)
    {
        merge(items, narrower);
    }
    let narrower = branch.clone();
    let take = |own: &mut Option<i64>, other: Option<i64>| *own = other.or(*own);
    take(&mut schema.min_length, narrower.min_length);
    take(&mut schema.max_length, narrower.max_length);
    take(&mut schema.min_items, narrower.min_items);
    take(&mut schema.max_items, narrower.max_items);
    take(&mut schema.min_properties, narrower.min_properties);
    take(&mut schema.max_properties, narrower.max_properties);
    if narrower.minimum.is_some() {
        (schema.minimum, schema.exclusive_minimum) = (narrower.minimum, narrower.exclusive_minimum);
    }
    if narrower.maximum.is_some() {
        (schema.maximum, schema.exclusive_maximum) = (narrower.maximum, narrower.exclusive_maximum);
    }
    schema.enum_ = narrower.enum_.or(schema.enum_.take());
    schema.pattern = narrower.pattern.or(schema.pattern.take());
    schema.format = narrower.format.or(schema.format.take());
    schema.multiple_of = narrower.multiple_of.or(schema.multiple_of);
    schema.type_ = schema.type_.take().or(narrower.type_);
}

fn typed(path: &str, schema: &JSONSchemaProps) -> Result<BoxedStrategy<Value>, SchemaError> {
    if schema.x_kubernetes_int_or_string == Some(true) {
        return Ok(prop_oneof![scalar::integer(path, schema)?, scalar::string(path, schema)?].boxed());
    }
    match schema.type_.as_deref() {
        Some("object") => object(path, schema),
        Some("array") => array(path, schema),
        Some("string") => scalar::string(path, schema),
        Some("integer") => scalar::integer(path, schema),
        Some("number") => scalar::number(path, schema),
        Some("boolean") => Ok(any::<bool>().prop_map(Value::from).boxed()),
        Some("") | None => Ok(anything()),
        Some(found) => {
            let problem =
                format!("the type {found:?} is not one of object, array, string, integer, number, boolean");
            invalid(path, problem).fail()
        }
    }
}

/// Any JSON, but small.
fn anything() -> BoxedStrategy<Value> {
    let leaf = prop_oneof![
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        "[a-z]{0,4}".prop_map(Value::from)
    ];
    leaf.prop_recursive(2, 8, 2, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 1..=2).prop_map(Value::from),
            prop::collection::btree_map("[a-z]{1,4}", inner, 1..=2).prop_map(|map| json!(map)),
        ]
    })
    .boxed()
}

/// Name of a field, and its value if present.
type Field = (String, Option<Value>);

fn object(path: &str, schema: &JSONSchemaProps) -> Result<BoxedStrategy<Value>, SchemaError> {
    let required: BTreeSet<_> = schema.required.iter().flatten().cloned().collect();
    let known: BTreeMap<_, _> = schema.properties.clone().unwrap_or_default();
    let mut fields: Vec<BoxedStrategy<Field>> = Vec::new();
    for (name, field) in &known {
        let value = at(&join(path, name), field)?;
        let value = match required.contains(name) || field.default.is_some() {
            true => value.prop_map(Some).boxed(),
            false => prop::option::weighted(PRESENT, value).boxed(),
        };
        let name = name.clone();
        fields.push(value.prop_map(move |value| (name.clone(), value)).boxed());
    }
    for name in required.into_iter().filter(|name| !known.contains_key(name)) {
        fields.push(anything().prop_map(move |value| (name.clone(), Some(value))).boxed());
    }
    if schema.x_kubernetes_embedded_resource == Some(true) {
        let embedded =
            [("apiVersion", json!("v1")), ("kind", json!("Embedded")), ("metadata", json!({"name": "a"}))];
        fields.extend(embedded.map(|(name, value)| Just((name.to_owned(), Some(value))).boxed()));
    }
    let (least, most) = scalar::bounds(path, schema.min_properties, schema.max_properties)?;
    let unknown = match &schema.additional_properties {
        Some(JSONSchemaPropsOrBool::Schema(values)) => Some((at(&join(path, "*"), values)?, least.max(1))),
        Some(JSONSchemaPropsOrBool::Bool(true)) => Some((anything(), least.max(1))),
        _ if schema.x_kubernetes_preserve_unknown_fields == Some(true) => Some((anything(), least)),
        _ => None,
    };
    let unknown = match unknown {
        Some((values, least)) if least <= most => {
            prop::collection::btree_map("[a-z][a-z0-9-]{0,6}[a-z0-9]", values, least..=most).boxed()
        }
        _ => Just(BTreeMap::new()).boxed(),
    };
    let (min, max) = (schema.min_properties.unwrap_or(0), schema.max_properties.unwrap_or(i64::MAX));
    let whole = (fields, unknown).prop_map(move |(fields, unknown)| {
        let unknown = unknown.into_iter().filter(|(name, _)| !known.contains_key(name));
        let fields = fields.into_iter().filter_map(|(name, value)| Some((name, value?)));
        unknown.chain(fields).collect::<Map<_, _>>()
    });
    let fits = move |object: &Map<String, Value>| {
        (min..=max).contains(&i64::try_from(object.len()).unwrap_or(i64::MAX))
    };
    Ok(whole.prop_filter(format!("{path}: minProperties, maxProperties"), fits).prop_map(Value::from).boxed())
}

fn array(path: &str, schema: &JSONSchemaProps) -> Result<BoxedStrategy<Value>, SchemaError> {
    let (least, most) = scalar::bounds(path, schema.min_items, schema.max_items)?;
    let item = match &schema.items {
        Some(JSONSchemaPropsOrArray::Schema(item)) => at(&format!("{path}[]"), item)?,
        _ => anything(),
    };
    let list = prop::collection::vec(item, least..=most);
    let keys = schema.x_kubernetes_list_map_keys.clone().unwrap_or_default();
    let is_set = schema.x_kubernetes_list_type.as_deref() == Some("set") || schema.unique_items == Some(true);
    if !is_set && keys.is_empty() {
        return Ok(list.prop_map(Value::from).boxed());
    }
    let unique = list.prop_map(move |list| {
        let key = |item: &Value| match keys.is_empty() {
            true => item.to_string(),
            false => keys.iter().map(|key| format!("{},", item[key])).collect(),
        };
        let mut seen = BTreeSet::new();
        list.into_iter().filter(|item| seen.insert(key(item))).collect::<Vec<_>>()
    });
    let enough = move |list: &Vec<Value>| list.len() >= least;
    Ok(unique.prop_filter(format!("{path}: enough items that differ"), enough).prop_map(Value::from).boxed())
}

fn join(path: &str, field: &str) -> String {
    if path.is_empty() { field.to_owned() } else { format!("{path}.{field}") }
}

#[cfg(test)]
mod tests;
