//! Building blocks of the schema of Auditors.

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSON, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool, ValidationRule,
};
/// Maximum number of members of a map or list, as in an `auditors.yaml`.
pub(super) const MEMBERS: i64 = 64;
/// Maximum length of a string, as in an `auditors.yaml`.
const TEXT: i64 = 4096;

/// Extensions of a schema.
pub(super) trait Schema: Sized {
    fn described(self, text: &str) -> Self;
    fn with_default(self, value: serde_json::Value) -> Self;
    /// Adds a CEL rule and the message for its violation.
    fn with_rule(self, rule: &str, message: &str) -> Self;
    fn required<const N: usize>(self, fields: [&str; N]) -> Self;
}

impl Schema for JSONSchemaProps {
    fn described(self, text: &str) -> Self {
        Self { description: Some(text.to_owned()), ..self }
    }

    fn with_default(self, value: serde_json::Value) -> Self {
        Self { default: Some(JSON(value)), ..self }
    }

    fn with_rule(mut self, rule: &str, message: &str) -> Self {
        self.x_kubernetes_validations.get_or_insert_default().push(ValidationRule {
            rule: rule.to_owned(),
            message: Some(message.to_owned()),
            ..ValidationRule::default()
        });
        self
    }

    fn required<const N: usize>(self, fields: [&str; N]) -> Self {
        Self { required: Some(fields.map(str::to_owned).to_vec()), ..self }
    }
}

fn of_type(name: &str) -> JSONSchemaProps {
    JSONSchemaProps { type_: Some(name.to_owned()), ..JSONSchemaProps::default() }
}

pub(super) fn object(fields: impl IntoIterator<Item = (&'static str, JSONSchemaProps)>) -> JSONSchemaProps {
    let fields = fields.into_iter().map(|(name, schema)| (name.to_owned(), schema));
    JSONSchemaProps { properties: Some(fields.collect::<BTreeMap<_, _>>()), ..of_type("object") }
}

/// A map with arbitrary keys.
pub(super) fn map(values: JSONSchemaProps) -> JSONSchemaProps {
    JSONSchemaProps {
        additional_properties: Some(JSONSchemaPropsOrBool::Schema(Box::new(values))),
        max_properties: Some(MEMBERS),
        ..of_type("object")
    }
}

/// A list without items.
pub(super) fn none(items: JSONSchemaProps) -> JSONSchemaProps {
    some(items, 0)
}

/// A list of up to `most` items.
pub(super) fn some(items: JSONSchemaProps, most: i64) -> JSONSchemaProps {
    JSONSchemaProps {
        items: Some(JSONSchemaPropsOrArray::Schema(Box::new(items))),
        max_items: Some(most),
        ..of_type("array")
    }
}

/// A list in which `key` is unique.
pub(super) fn list(items: JSONSchemaProps, key: &str) -> JSONSchemaProps {
    JSONSchemaProps {
        x_kubernetes_list_type: Some("map".to_owned()),
        x_kubernetes_list_map_keys: Some(vec![key.to_owned()]),
        ..some(items, MEMBERS)
    }
}

pub(super) fn text() -> JSONSchemaProps {
    JSONSchemaProps { max_length: Some(TEXT), ..of_type("string") }
}

pub(super) fn short_text(longest: i64) -> JSONSchemaProps {
    JSONSchemaProps { min_length: Some(1), max_length: Some(longest), ..of_type("string") }
}

/// A string out of `values`.
pub(super) fn one_of(values: &[&str]) -> JSONSchemaProps {
    JSONSchemaProps {
        enum_: Some(values.iter().map(|value| JSON((*value).into())).collect()),
        ..of_type("string")
    }
}

pub(super) fn whole_number(least: i32, most: i32) -> JSONSchemaProps {
    JSONSchemaProps {
        format: Some("int32".to_owned()),
        minimum: Some(least.into()),
        maximum: Some(most.into()),
        ..of_type("integer")
    }
}

pub(super) fn any_number() -> JSONSchemaProps {
    JSONSchemaProps { format: Some("int64".to_owned()), ..of_type("integer") }
}

/// A boolean that may only be `value`.
pub(super) fn only(value: bool) -> JSONSchemaProps {
    JSONSchemaProps { enum_: Some(vec![JSON(value.into())]), ..of_type("boolean") }
}

pub(super) fn time() -> JSONSchemaProps {
    JSONSchemaProps { format: Some("date-time".to_owned()), ..of_type("string") }
}

/// A quantity such as `100m`, `0.5` or `256Mi`.
pub(super) fn quantity() -> JSONSchemaProps {
    JSONSchemaProps {
        x_kubernetes_int_or_string: Some(true),
        any_of: Some(vec![of_type("integer"), of_type("string")]),
        pattern: Some(
            r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]+)?$".to_owned(),
        ),
        ..JSONSchemaProps::default()
    }
}
