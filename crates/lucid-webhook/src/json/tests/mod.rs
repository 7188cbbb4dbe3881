//! What is read here is what serde_json reads.

#![allow(clippy::panic, reason = "helpers of tests")]

mod reading;
mod scanning;

use proptest::prelude::*;
use serde_json::Value;

/// Text that the scanner has to look at closely: quotes, backslashes, brackets.
fn tricky_text() -> impl Strategy<Value = String> {
    prop_oneof![r#"[\\"{}\[\],:a é]{0,12}"#, r#"[\\"a]{0,150}"#, any::<String>()]
}

fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        tricky_text().prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 60, 6, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            proptest::collection::btree_map(tricky_text(), inner, 0..6)
                .prop_map(|map| map.into_iter().collect()),
        ]
    })
}

/// JSON text with spaces wherever there may be some.
fn write(value: &Value, space: &str, text: &mut String) {
    text.push_str(space);
    match value {
        Value::Array(values) => {
            text.push('[');
            for (index, value) in values.iter().enumerate() {
                text.push_str(if index == 0 { "" } else { "," });
                write(value, space, text);
            }
            text.push_str(space);
            text.push(']');
        }
        Value::Object(members) => {
            text.push('{');
            for (index, (key, value)) in members.iter().enumerate() {
                text.push_str(if index == 0 { "" } else { "," });
                write(&Value::from(key.as_str()), space, text);
                text.push(':');
                write(value, space, text);
            }
            text.push_str(space);
            text.push('}');
        }
        scalar => text.push_str(&scalar.to_string()),
    }
    text.push_str(space);
}

fn written(value: &Value, space: &str) -> String {
    let mut text = String::new();
    write(value, space, &mut text);
    text
}
