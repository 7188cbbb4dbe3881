//! Validates values against schemas, for the supported keywords.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use serde_json::{Map, Value};

use super::pattern;

pub(super) fn accepts(schema: &JSONSchemaProps, value: &Value) -> bool {
    if value.is_null() && schema.nullable == Some(true) {
        return true;
    }
    let branches_fit = schema.all_of.iter().flatten().all(|branch| accepts(branch, value))
        && schema.any_of.as_ref().is_none_or(|any| any.iter().any(|branch| accepts(branch, value)))
        && schema
            .one_of
            .as_ref()
            .is_none_or(|one| one.iter().filter(|branch| accepts(branch, value)).count() == 1)
        && schema.not.as_ref().is_none_or(|not| !accepts(not, value));
    let listed = schema.enum_.as_ref().is_none_or(|values| values.iter().any(|listed| listed.0 == *value));
    branches_fit
        && listed
        && has_type(schema, value)
        && match value {
            Value::Object(object) => accepts_object(schema, object),
            Value::Array(items) => accepts_array(schema, items),
            Value::String(text) => accepts_text(schema, text),
            Value::Number(number) => accepts_number(schema, number.as_f64().unwrap_or(f64::NAN)),
            Value::Bool(_) | Value::Null => true,
        }
}

fn has_type(schema: &JSONSchemaProps, value: &Value) -> bool {
    if schema.x_kubernetes_int_or_string == Some(true) {
        return value.is_i64() || value.is_string();
    }
    match schema.type_.as_deref() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("integer") => value.is_i64(),
        Some("number") => value.is_number(),
        Some("boolean") => value.is_boolean(),
        _ => true,
    }
}

fn within(count: usize, least: Option<i64>, most: Option<i64>) -> bool {
    let count = i64::try_from(count).unwrap_or(i64::MAX);
    least.is_none_or(|least| least <= count) && most.is_none_or(|most| count <= most)
}

fn accepts_object(schema: &JSONSchemaProps, object: &Map<String, Value>) -> bool {
    let properties = schema.properties.as_ref();
    let member = |(name, value): (&String, &Value)| match properties.and_then(|known| known.get(name)) {
        Some(known) => accepts(known, value),
        None => match &schema.additional_properties {
            Some(JSONSchemaPropsOrBool::Schema(values)) => accepts(values, value),
            _ => true,
        },
    };
    within(object.len(), schema.min_properties, schema.max_properties)
        && schema.required.iter().flatten().all(|name| object.contains_key(name))
        && object.iter().all(member)
}

fn accepts_array(schema: &JSONSchemaProps, items: &[Value]) -> bool {
    let fits = |value: &Value| match &schema.items {
        Some(JSONSchemaPropsOrArray::Schema(item)) => accepts(item, value),
        _ => true,
    };
    within(items.len(), schema.min_items, schema.max_items) && items.iter().all(fits)
}

fn accepts_text(schema: &JSONSchemaProps, text: &str) -> bool {
    within(text.chars().count(), schema.min_length, schema.max_length)
        && schema.pattern.as_ref().is_none_or(|pattern| pattern::matches(pattern, text))
}

fn accepts_number(schema: &JSONSchemaProps, number: f64) -> bool {
    let above = schema.minimum.is_none_or(|minimum| match schema.exclusive_minimum {
        Some(true) => number > minimum,
        _ => number >= minimum,
    });
    let below = schema.maximum.is_none_or(|maximum| match schema.exclusive_maximum {
        Some(true) => number < maximum,
        _ => number <= maximum,
    });
    above && below && schema.multiple_of.is_none_or(|step| (number / step).fract() == 0.0)
}
