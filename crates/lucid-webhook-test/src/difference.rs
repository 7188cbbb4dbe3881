//! Differences between two JSON values, by path.

use std::collections::BTreeSet;
use std::fmt;

use serde_json::{Number, Value};

/// A changed field.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Difference {
    /// Path such as `spec.ports[0].name`.
    pub path: String,
    /// Previous value; `None` if absent.
    pub before: Option<Value>,
    /// New value; `None` if absent.
    pub after: Option<Value>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = &self.path;
        match (&self.before, &self.after) {
            (Some(before), Some(after)) => write!(f, "{path}: {before} became {after}"),
            (Some(before), None) => write!(f, "{path}: {before} was lost"),
            (None, Some(after)) => write!(f, "{path}: was not there, became {after}"),
            (None, None) => write!(f, "{path}: is not there"),
        }
    }
}

/// Lists the differences. Null and an empty list count as absent, since most types do not distinguish them; so do empty
/// labels and annotations.
pub(super) fn differences(before: &Value, after: &Value) -> Vec<Difference> {
    let mut found = Vec::new();
    compare("", Some(before), Some(after), &mut found);
    found
}

fn compare(path: &str, before: Option<&Value>, after: Option<&Value>, found: &mut Vec<Difference>) {
    let present = |value: &&Value| match value {
        Value::Null => false,
        Value::Array(items) => !items.is_empty(),
        Value::Object(map) => !map.is_empty() || !["metadata.labels", "metadata.annotations"].contains(&path),
        _ => true,
    };
    match (before.filter(present), after.filter(present)) {
        (None, None) => {}
        (Some(Value::Object(before)), Some(Value::Object(after))) => {
            let keys: BTreeSet<_> = before.keys().chain(after.keys()).collect();
            for key in keys {
                compare(&member(path, key), before.get(key), after.get(key), found);
            }
        }
        (Some(Value::Array(before)), Some(Value::Array(after))) if before.len() == after.len() => {
            for (index, (before, after)) in before.iter().zip(after).enumerate() {
                compare(&format!("{path}[{index}]"), Some(before), Some(after), found);
            }
        }
        (Some(Value::Number(before)), Some(Value::Number(after))) if same_number(before, after) => {}
        (Some(before), Some(after)) if before == after => {}
        (before, after) => {
            found.push(Difference { path: path.to_owned(), before: before.cloned(), after: after.cloned() })
        }
    }
}

fn same_number(before: &Number, after: &Number) -> bool {
    before == after || (before.is_f64() || after.is_f64()) && before.as_f64() == after.as_f64()
}

fn member(path: &str, key: &str) -> String {
    let plain = key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-');
    match (path.is_empty(), plain) {
        (true, true) => key.to_owned(),
        (false, true) => format!("{path}.{key}"),
        (_, false) => format!("{path}[{key:?}]"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn texts(before: Value, after: Value) -> Vec<String> {
        differences(&before, &after).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn each_field_that_differs_is_named_with_both_values() {
        let before = json!({"spec": {"a": 3, "b": [1, {"x.y": true}], "c": "", "d": [1]}, "z": 1.5});
        let after = json!({"spec": {"a": "3", "b": [1, {"x.y": false}], "d": [1, 2], "e": {}}, "z": 1.5});
        assert_eq!(
            texts(before, after),
            [
                r#"spec.a: 3 became "3""#,
                r#"spec.b[1]["x.y"]: true became false"#,
                r#"spec.c: "" was lost"#,
                "spec.d: [1] became [1,2]",
                "spec.e: was not there, became {}",
            ]
        );
    }

    #[test]
    fn equivalent_values_do_not_differ() {
        let before = json!({"a": null, "b": [], "c": 5, "metadata": {"labels": {}}, "f": 18_446_744_073_709_551_615_u64});
        let after = json!({"c": 5.0, "d": [], "e": null, "metadata": {"annotations": {}}, "f": 18_446_744_073_709_551_615_u64});
        assert_eq!(texts(before, after), [""; 0]);
        let large = texts(json!(9_007_199_254_740_993_i64), json!(9_007_199_254_740_992_i64));
        assert_eq!(large, [": 9007199254740993 became 9007199254740992"]);
        assert_eq!(texts(json!({"labels": {}}), json!({})), ["labels: {} was lost"]);
    }
}
