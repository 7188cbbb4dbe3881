//! Applies JSON patches as the API server does.
//!
//! Its library (`gopkg.in/evanphx/json-patch.v4`) is older than the errata of RFC 6902 and more lenient: `replace` adds
//! a missing key, a negative index counts from the end, and text before the first `/` of a path is ignored. This
//! implementation matches it. The library is stricter in one case: `test` compares serialized texts, and Go escapes
//! `<`, `>`, `&`, U+2028 and U+2029 in objects. (Texts set by the same patch are not distinguished from those of the
//! object here.)

use std::collections::BTreeMap;

use serde_json::value::RawValue;
use serde_json::{Map, Value};

#[derive(Debug, Default, PartialEq)]
pub(super) struct Operation {
    fields: Map<String, Value>,
    /// `true` if the value has text that Go would have escaped.
    is_unescaped: bool,
}

pub(super) fn decode(patch: &[u8]) -> Result<Vec<Operation>, String> {
    let operations: Option<Vec<Option<BTreeMap<String, &RawValue>>>> =
        serde_json::from_slice(patch).map_err(|error| error.to_string())?;
    operations.unwrap_or_default().into_iter().map(|fields| operation(fields.unwrap_or_default())).collect()
}

fn operation(raw: BTreeMap<String, &RawValue>) -> Result<Operation, String> {
    // In JSON, these only occur in texts.
    const ESCAPED_BY_GO: [char; 5] = ['<', '>', '&', '\u{2028}', '\u{2029}'];
    let is_unescaped = raw.get("value").is_some_and(|value| value.get().contains(ESCAPED_BY_GO));
    let value = |(field, raw): (String, &RawValue)| Ok((field, serde_json::from_str(raw.get())?));
    let fields: Result<_, serde_json::Error> = raw.into_iter().map(value).collect();
    Ok(Operation { fields: fields.map_err(|error| error.to_string())?, is_unescaped })
}

/// Applies all operations, or returns the error of the first that fails.
pub(super) fn apply(mut document: Value, patch: &[Operation]) -> Result<Value, String> {
    for operation in patch {
        apply_one(&mut document, operation)?;
    }
    Ok(document)
}

fn apply_one(document: &mut Value, operation: &Operation) -> Result<(), String> {
    let Operation { fields: operation, is_unescaped } = operation;
    let value = || operation.get("value").cloned().unwrap_or(Value::Null);
    let text = |field: &str| {
        let found = operation.get(field).and_then(Value::as_str);
        found.ok_or_else(|| format!("operation failed to decode {field}: missing value"))
    };
    match operation.get("op").and_then(Value::as_str).unwrap_or("unknown") {
        "add" => add(document, text("path")?, value()).map_err(|error| format!("add operation {error}")),
        "remove" => {
            remove(document, text("path")?).map(drop).map_err(|error| format!("remove operation {error}"))
        }
        "replace" => {
            replace(document, text("path")?, value()).map_err(|error| format!("replace operation {error}"))
        }
        "move" => remove(document, text("from")?)
            .and_then(|moved| add(document, text("path")?, moved))
            .map_err(|error| format!("move operation {error}")),
        "copy" => get(document, text("from")?)
            .and_then(|copied| add(document, text("path")?, copied))
            .map_err(|error| format!("copy operation {error}")),
        "test" => {
            let path = text("path")?;
            let found = if path.is_empty() { Ok(document.clone()) } else { get(document, path) };
            match found {
                Ok(found) if found == value() && !is_unescaped => Ok(()),
                Ok(_) => Err(format!("testing value {path} failed: test failed")),
                Err(error) => Err(format!("test operation {error}")),
            }
        }
        other => Err(format!("Unexpected kind: {other}")),
    }
}

fn missing(path: &str) -> String {
    format!("does not apply: doc is missing path: {path:?}: missing value")
}

/// Returns the container that a path points into, and the key in it.
fn find<'a>(document: &'a mut Value, path: &str) -> Result<(&'a mut Value, String), String> {
    let (_, path_keys) = path.split_once('/').ok_or_else(|| missing(path))?;
    let mut keys: Vec<String> =
        path_keys.split('/').map(|key| key.replace("~1", "/").replace("~0", "~")).collect();
    let last = keys.pop().ok_or_else(|| missing(path))?;
    let mut container = document;
    for key in keys {
        container = match container {
            Value::Object(fields) => fields.get_mut(&key),
            Value::Array(items) => index(&key, items.len(), path).ok().and_then(|index| items.get_mut(index)),
            _ => None,
        }
        .ok_or_else(|| missing(path))?;
    }
    if container.is_object() || container.is_array() { Ok((container, last)) } else { Err(missing(path)) }
}

/// Parses an index below `length`; a negative one counts from the end.
fn index(key: &str, length: usize, path: &str) -> Result<usize, String> {
    let invalid = || format!("has an invalid index {key:?} in path {path:?}: invalid index detected");
    let number: isize = key.parse().map_err(|_error| invalid())?;
    let found = if number < 0 { length.checked_add_signed(number) } else { number.try_into().ok() };
    found.filter(|index| *index < length).ok_or_else(invalid)
}

fn get(document: &mut Value, path: &str) -> Result<Value, String> {
    match find(document, path)? {
        // An absent key counts as null.
        (Value::Object(fields), key) => Ok(fields.get(&key).cloned().unwrap_or(Value::Null)),
        (Value::Array(items), key) => Ok(items[index(&key, items.len(), path)?].clone()),
        _ => Err(missing(path)),
    }
}

fn add(document: &mut Value, path: &str, value: Value) -> Result<(), String> {
    match find(document, path)? {
        (Value::Object(fields), key) => drop(fields.insert(key, value)),
        (Value::Array(items), key) if key == "-" => items.push(value),
        (Value::Array(items), key) => items.insert(index(&key, items.len() + 1, path)?, value),
        _ => return Err(missing(path)),
    }
    Ok(())
}

fn remove(document: &mut Value, path: &str) -> Result<Value, String> {
    match find(document, path)? {
        (Value::Object(fields), key) => fields.remove(&key).ok_or_else(|| {
            format!("for path {path:?}: Unable to remove nonexistent key: {key}: missing value")
        }),
        (Value::Array(items), key) => Ok(items.remove(index(&key, items.len(), path)?)),
        _ => Err(missing(path)),
    }
}

fn replace(document: &mut Value, path: &str, value: Value) -> Result<(), String> {
    if path.is_empty() {
        if !value.is_object() && !value.is_array() {
            return Err("value must be object or array".to_owned());
        }
        *document = value;
        return Ok(());
    }
    match find(document, path)? {
        (Value::Object(fields), key) => drop(fields.insert(key, value)),
        (Value::Array(items), key) => {
            let index = index(&key, items.len(), path)?;
            items[index] = value;
        }
        _ => return Err(missing(path)),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_patch_applies_as_the_api_server_applies_it() {
        let document = || json!({"a": {"b": null, "c/d": 1}, "list": [1, 2, 3]});
        let cases = [
            (json!([{"op": "add", "path": "/a/x", "value": 1}]), Ok(("/a/x", json!(1)))),
            (json!([{"op": "add", "path": "/a/x"}]), Ok(("/a/x", json!(null)))),
            (json!([{"op": "add", "path": "/list/-", "value": 4}]), Ok(("/list", json!([1, 2, 3, 4])))),
            (json!([{"op": "add", "path": "/list/-1", "value": 4}]), Ok(("/list", json!([1, 2, 3, 4])))),
            (json!([{"op": "add", "path": "/list/0", "value": 4}]), Ok(("/list", json!([4, 1, 2, 3])))),
            (json!([{"op": "add", "path": "/list/4", "value": 4}]), Err("invalid index")),
            (json!([{"op": "add", "path": "/missing/x", "value": 1}]), Err("missing path: \"/missing/x\"")),
            (json!([{"op": "add", "path": "/a/b/x", "value": 1}]), Err("missing path")),
            (json!([{"op": "add", "path": "", "value": {}}]), Err("missing path")),
            (json!([{"op": "remove", "path": "/a/x"}]), Err("nonexistent key")),
            (json!([{"op": "remove", "path": "/list/-1"}]), Ok(("/list", json!([1, 2])))),
            (json!([{"op": "replace", "path": "/a/x", "value": 1}]), Ok(("/a/x", json!(1)))),
            (json!([{"op": "replace", "path": "/list/3", "value": 1}]), Err("invalid index")),
            (json!([{"op": "replace", "path": "", "value": {"y": 1}}]), Ok(("/y", json!(1)))),
            (json!([{"op": "replace", "path": "", "value": 1}]), Err("object or array")),
            (json!([{"op": "move", "from": "/a/c~1d", "path": "/z"}]), Ok(("/z", json!(1)))),
            (json!([{"op": "move", "from": "/a/x", "path": "/z"}]), Err("nonexistent key")),
            (json!([{"op": "copy", "from": "/a/x", "path": "/z"}]), Ok(("/z", json!(null)))),
            (json!([{"op": "test", "path": "/a/x"}]), Ok(("/a/c~1d", json!(1)))),
            (json!([{"op": "test", "path": "/list/0", "value": 2}]), Err("test failed")),
            (json!([{"op": "frobnicate", "path": "/a"}]), Err("Unexpected kind: frobnicate")),
            (json!([{"op": "add"}]), Err("decode path")),
            (json!([null]), Err("Unexpected kind: unknown")),
        ];
        for (patch, expected) in cases {
            let decoded = decode(patch.to_string().as_bytes()).unwrap();
            match (apply(document(), &decoded), expected) {
                (Ok(patched), Ok((path, value))) => {
                    assert_eq!(patched.pointer(path), Some(&value), "{patch}");
                }
                (Err(error), Err(part)) => assert!(error.contains(part), "{patch}: {error}"),
                (found, expected) => panic!("{patch}: {found:?}, expected {expected:?}"),
            }
        }
    }

    #[test]
    fn a_test_compares_texts_as_go_writes_them() {
        let document = json!({"a": "<b>&\u{2028}\u{2029}", "c": "d"});
        let escaped = r#""\u003cb\u003e\u0026\u2028\u2029""#;
        let plain = document["a"].to_string();
        for (value, passes) in [(escaped, true), (&*plain, false)] {
            let patch = format!(r#"[{{"op": "test", "path": "/a", "value": {value}}}]"#);
            assert_eq!(
                apply(document.clone(), &decode(patch.as_bytes()).unwrap()).is_ok(),
                passes,
                "{patch}"
            );
        }
        let elsewhere = br#"[{"op": "test", "path": "/c", "value": "d", "comment": "<"}]"#;
        assert!(apply(document, &decode(elsewhere).unwrap()).is_ok());
    }

    #[test]
    fn a_patch_is_a_list_of_objects() {
        for patch in ["", "{}", "[1]", "nonsense"] {
            assert!(decode(patch.as_bytes()).is_err(), "{patch}");
        }
        assert_eq!(decode(b"null").unwrap(), Vec::new());
    }
}
