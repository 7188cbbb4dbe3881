//! Generates objects from the schema of a CustomResourceDefinition.

use std::collections::HashSet;
use std::fmt::Display;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::Union;
use proptest::string::string_regex;
use serde_json::{Map, Value, json};
use snafu::{OptionExt, Snafu, ensure};

/// No objects can be generated from the schema.
#[derive(Debug, Snafu)]
#[snafu(display("{problem}"))]
pub struct SchemaError {
    problem: String,
}

fn invalid(path: &str, problem: impl Display) -> SchemaSnafu<String> {
    SchemaSnafu { problem: format!("{path}: {problem}") }
}

type Values = Result<BoxedStrategy<Value>, SchemaError>;

/// Generates complete objects of a version: the fields of the schema, and metadata with a name, uid, labels and
/// annotations.
///
/// Fields with a default are always present, as after defaulting by the API server. Maps are never empty, since many
/// types do not distinguish empty from absent. One branch of `anyOf` is chosen, as of `oneOf`. Not supported are CEL
/// rules (`x-kubernetes-validations`), `not`, `multipleOf`, and bounds of the number of fields: add a
/// [`Strategy::prop_filter`] or [`Strategy::prop_map`] if they matter.
///
/// # Errors
///
/// A [`SchemaError`] if the version has no schema, or the schema contradicts itself or has an unsupported pattern.
pub fn objects(definition: &CustomResourceDefinition, version: &str) -> Values {
    complete(definition, version, |schema| merge(schema, &json!({"required": ["metadata"]})))
}

/// Generates objects of a version in which any field may be missing, including required fields and the metadata.
pub(crate) fn partial_objects(definition: &CustomResourceDefinition, version: &str) -> Values {
    complete(definition, version, require_nothing)
}

fn complete(definition: &CustomResourceDefinition, version: &str, change: fn(&mut Value)) -> Values {
    let found = definition.spec.versions.iter().find(|found| found.name == version);
    let schema = found.and_then(|found| found.schema.as_ref()?.open_api_v3_schema.as_ref());
    let mut schema = json!(schema.with_context(|| invalid(version, "the version has no schema"))?);
    change(&mut schema);
    let name = json!({"type": "string", "pattern": "[a-z][a-z0-9]{0,8}"});
    let texts = json!({"type": "object", "additionalProperties": name, "maxProperties": 3});
    let uid = json!({"type": "string", "format": "uuid"});
    let mut metadata = json!({"name": name, "uid": uid, "labels": texts, "annotations": texts});
    if definition.spec.scope == "Namespaced" {
        metadata["namespace"] = name;
    }
    let common = json!({"required": ["apiVersion", "kind"], "properties": {
        "apiVersion": {"enum": [format!("{}/{version}", definition.spec.group)]},
        "kind": {"enum": [definition.spec.names.kind]},
        "metadata": {"type": "object", "required": ["name", "namespace", "uid"], "properties": metadata},
    }});
    merge(&mut schema, &common);
    values("", &schema)
}

/// Makes every field optional that a manager can own separately. Atomic maps and lists are owned as a whole, and so are
/// lists that are not declared as a set or a map. Keys of list items are kept.
fn require_nothing(schema: &mut Value) {
    let is_owned_by_parts = match schema["type"].as_str() {
        Some("object") => schema["x-kubernetes-map-type"] != "atomic",
        Some("array") => ["set", "map"].iter().any(|kind| schema["x-kubernetes-list-type"] == *kind),
        _ => false,
    };
    let keys = schema["x-kubernetes-list-map-keys"].clone();
    let Some(keywords) = schema.as_object_mut() else { return };
    keywords.remove("default");
    if !is_owned_by_parts {
        return;
    }
    for constraint in ["required", "minProperties", "minItems", "allOf", "anyOf", "oneOf"] {
        keywords.remove(constraint);
    }
    let fields = keywords.get_mut("properties").and_then(Value::as_object_mut);
    fields.into_iter().flat_map(Map::values_mut).for_each(require_nothing);
    for part in ["additionalProperties", "items"] {
        keywords.get_mut(part).into_iter().for_each(require_nothing);
    }
    schema["items"]["required"] = keys;
}

fn values(path: &str, schema: &Value) -> Values {
    let null = (schema["nullable"] == true).then(|| Ok((1, Just(Value::Null).boxed())));
    let values = alternatives(schema).into_iter().map(|schema| Ok((9, typed(path, &schema)?)));
    Ok(Union::new_weighted(null.into_iter().chain(values).collect::<Result<_, _>>()?).boxed())
}

/// The schemas that one branch each of `anyOf` and `oneOf` makes of the schema around them.
fn alternatives(schema: &Value) -> Vec<Value> {
    let branches = |kind: &str| schema[kind].as_array().cloned().unwrap_or_default();
    let mut whole = schema.clone();
    branches("allOf").iter().for_each(|branch| merge(&mut whole, branch));
    let mut found = vec![whole];
    for branches in [branches("anyOf"), branches("oneOf")].iter().filter(|branches| !branches.is_empty()) {
        let others: Vec<&str> = branches.iter().flat_map(required).collect();
        let mut narrowed = Vec::new();
        for branch in branches.iter() {
            for schema in &found {
                let mut schema = schema.clone();
                merge(&mut schema, branch);
                let kept: Vec<String> = required(&schema).map(str::to_owned).collect();
                if let Some(fields) = schema["properties"].as_object_mut() {
                    // Fields of other branches would match those as well.
                    fields.retain(|name, _| kept.contains(name) || !others.contains(&name.as_str()));
                }
                narrowed.push(schema);
            }
        }
        found = narrowed;
    }
    found
}

fn required(schema: &Value) -> impl Iterator<Item = &str> {
    schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str)
}

fn merge(schema: &mut Value, branch: &Value) {
    for (keyword, narrower) in branch.as_object().into_iter().flatten() {
        match (keyword.as_str(), &mut schema[keyword], narrower) {
            ("required", Value::Array(own), Value::Array(more)) => own.extend_from_slice(more),
            (_, own @ Value::Object(_), Value::Object(_)) => merge(own, narrower),
            (_, own, narrower) => *own = narrower.clone(),
        }
    }
}

fn typed(path: &str, schema: &Value) -> Values {
    if let Some(listed) = schema["enum"].as_array().filter(|listed| !listed.is_empty()) {
        return Ok(select(listed.clone()).boxed());
    }
    match schema["type"].as_str() {
        Some("object") => object(path, schema),
        Some("array") => array(path, schema),
        Some("string") => text(path, schema),
        Some("integer") => Ok(multiples(path, schema, 1.0)?.prop_map(Value::from).boxed()),
        // Such fractions have a short decimal form that every parser reads exactly.
        Some("number") => {
            Ok(multiples(path, schema, 64.0)?.prop_map(|parts| json!(parts as f64 / 64.0)).boxed())
        }
        Some("boolean") => Ok(any::<bool>().prop_map(Value::from).boxed()),
        None if schema["x-kubernetes-int-or-string"] == true => {
            Ok(prop_oneof![multiples(path, schema, 1.0)?.prop_map(Value::from), text(path, schema)?].boxed())
        }
        None => Ok(btree_map("[a-z]{1,4}", "[a-z]{0,4}", 1..=2).prop_map(|fields| json!(fields)).boxed()),
        Some(found) => invalid(path, format!("the type {found:?} is not supported")).fail(),
    }
}

fn object(path: &str, schema: &Value) -> Values {
    let mut fields = Vec::new();
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let value = values(&format!("{path}.{name}"), field)?;
        let is_required = required(schema).any(|required| required == name) || !field["default"].is_null();
        let present = if is_required { Just(true).boxed() } else { prop::bool::weighted(0.75).boxed() };
        fields.push((Just(name.clone()), value, present));
    }
    let other = &schema["additionalProperties"];
    let keeps_unknown = schema["x-kubernetes-preserve-unknown-fields"] == true || *other == true;
    let (least, most) = bounds(path, schema, "Properties")?;
    let lengths = match other {
        Value::Object(_) => least.max(1)..=most.max(1),
        _ if keeps_unknown => least..=most,
        _ => 0..=0,
    };
    let others = values(&format!("{path}.*"), other)?;
    let others = btree_map("[a-z][a-z0-9-]{0,6}[a-z0-9]", others, lengths);
    let all = (fields, others).prop_map(|(fields, others)| {
        let fields = fields.into_iter().filter_map(|(name, value, present)| present.then_some((name, value)));
        Value::Object(others.into_iter().chain(fields).collect())
    });
    Ok(all.boxed())
}

fn array(path: &str, schema: &Value) -> Values {
    let (least, most) = bounds(path, schema, "Items")?;
    let is_unique = ["set", "map"].iter().any(|kind| schema["x-kubernetes-list-type"] == *kind);
    let keys = schema["x-kubernetes-list-map-keys"].as_array().cloned().unwrap_or_default();
    let items = values(&format!("{path}[]"), &schema["items"])?;
    let list = vec(items, least..=most).prop_map(move |mut list| {
        let members =
            |item: &Value| keys.iter().filter_map(Value::as_str).map(|key| item[key].clone()).collect();
        let key = |item: &Value| if keys.is_empty() { item.clone() } else { members(item) };
        let mut seen = HashSet::new();
        list.retain(|item| !is_unique || seen.insert(key(item)));
        list
    });
    let list = list.prop_filter(format!("{path}: enough items that differ"), move |list| list.len() >= least);
    Ok(list.prop_map(Value::from).boxed())
}

fn text(path: &str, schema: &Value) -> Values {
    let (least, most) = bounds(path, schema, "Length")?;
    let format = match schema["format"].as_str() {
        Some("date-time") => Some("20[0-9]{2}-0[1-9]-[12][0-9]T1[0-9](:[0-5][0-9]){2}Z"),
        Some("date") => Some("20[0-9]{2}-0[1-9]-[12][0-9]"),
        Some("duration") => Some("[1-9][0-9]?(ms|s|m|h)"),
        Some("ipv4") => Some("10(\\.[1-9]?[0-9]){3}"),
        Some("ipv6") => Some("fd00(:[1-9a-f][0-9a-f]{0,3}){7}"),
        Some("uri") => Some("https://[a-z]{1,6}\\.example/[a-z0-9]{0,6}"),
        Some("byte") => Some("([A-Za-z0-9+/]{4}){0,4}"),
        Some("uuid") => Some("[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"),
        _ => None,
    };
    let Some(pattern) = schema["pattern"].as_str().or(format) else {
        let character = prop_oneof![8 => prop::char::range(' ', '~'), 1 => any::<char>()];
        return Ok(vec(character, least..=most).prop_map(|text| String::from_iter(text).into()).boxed());
    };
    let texts = string_regex(&without_anchors(pattern)).or_else(|error| {
        invalid(path, format!("failed to generate texts for the pattern {pattern:?}: {error}")).fail()
    })?;
    let most = schema["maxLength"].as_u64().unwrap_or(u64::MAX);
    let fits = move |text: &String| (least as u64..=most).contains(&(text.chars().count() as u64));
    Ok(texts.prop_filter(format!("{path}: minLength, maxLength"), fits).prop_map(Value::from).boxed())
}

/// Removes anchors, which generate no text, and translates `\d` and `\w`: in Go, they are ASCII.
fn without_anchors(pattern: &str) -> String {
    let (mut rust, mut in_class) = (String::new(), false);
    let mut characters = pattern.chars();
    while let Some(character) = characters.next() {
        match character {
            '^' | '$' if !in_class => {}
            '\\' => match characters.next() {
                Some('d') => rust.push_str("[0-9]"),
                Some('w') => rust.push_str("[0-9A-Za-z_]"),
                escaped => rust.extend(['\\'].into_iter().chain(escaped)),
            },
            _ => {
                in_class = character == '[' || in_class && character != ']';
                rust.push(character);
            }
        }
    }
    rust
}

/// Generates the numerators of fractions with the denominator `parts` that the schema accepts.
fn multiples(path: &str, schema: &Value, parts: f64) -> Result<BoxedStrategy<i64>, SchemaError> {
    let (least, most) = match schema["format"].as_str() {
        Some("int32") => (i32::MIN.into(), i32::MAX.into()),
        _ => (i64::MIN, i64::MAX),
    };
    // Casts saturate, as required for bounds beyond all integers.
    let first = schema["minimum"].as_f64().map_or(least, |bound| (bound * parts).ceil() as i64);
    let last = schema["maximum"].as_f64().map_or(most, |bound| (bound * parts).floor() as i64);
    let first = first.saturating_add((schema["exclusiveMinimum"] == true).into());
    let last = last.saturating_sub((schema["exclusiveMaximum"] == true).into());
    ensure!(first <= last, invalid(path, "minimum is above maximum"));
    // Small numbers are as likely as all others together.
    let zero = 0.clamp(first, last);
    Ok(prop_oneof![zero..=last.min(zero.saturating_add(100)), first..=last].boxed())
}

/// Least and most elements of a list, members of a map or characters of a text: at most 4 more than necessary.
fn bounds(path: &str, schema: &Value, of: &str) -> Result<(usize, usize), SchemaError> {
    let bound = |name: String| schema[name].as_u64().and_then(|count| usize::try_from(count).ok());
    let least = bound(format!("min{of}")).unwrap_or(0);
    let most = bound(format!("max{of}")).unwrap_or(usize::MAX);
    ensure!(least <= most, invalid(path, format!("min{of} is above max{of}")));
    Ok((least, most.min(least.saturating_add(4))))
}

#[cfg(test)]
mod tests;
