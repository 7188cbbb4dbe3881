use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use super::*;

fn drawn(strategy: &BoxedStrategy<Value>, count: usize) -> Vec<Value> {
    let mut runner = TestRunner::deterministic();
    (0..count).map(|_| strategy.new_tree(&mut runner).unwrap().current()).collect()
}

fn all_and_some(schema: Value, all: impl Fn(&Value) -> bool, some: &[&dyn Fn(&Value) -> bool]) {
    let values = drawn(&values("", &schema).unwrap(), 400);
    for value in &values {
        assert!(all(value), "{schema}: {value}");
    }
    for (index, some) in some.iter().enumerate() {
        assert!(values.iter().any(some), "{schema}: none of kind {index}");
    }
}

#[test]
fn scalars_cover_the_range_of_their_bounds() {
    let int = |value: &Value| value.as_i64().unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    all_and_some(
        json!({"type": "integer", "minimum": 1, "maximum": 3}),
        |value| (1..=3).contains(&int(value)),
        &[&|value| int(value) == 1, &|value| int(value) == 3],
    );
    let exclusive = json!({"type": "integer", "minimum": 1, "exclusiveMinimum": true, "maximum": 3, "exclusiveMaximum": true});
    all_and_some(exclusive, |value| int(value) == 2, &[]);
    all_and_some(
        json!({"type": "integer", "format": "int32"}),
        |value| i32::try_from(int(value)).is_ok(),
        &[&|value| int(value) < -1_000_000, &|value| (0..100).contains(&int(value))],
    );
    all_and_some(json!({"type": "integer"}), |value| value.is_i64(), &[&|value| int(value) > 1 << 53]);
    let negative = json!({"type": "integer", "maximum": -5});
    all_and_some(negative, |value| int(value) <= -5, &[&|value| int(value) == -5 || int(value) < -1000]);
    all_and_some(
        json!({"type": "number", "minimum": 0.01, "maximum": 0.02}),
        |value| *value == 0.015625,
        &[],
    );
    all_and_some(
        json!({"type": "number"}),
        Value::is_number,
        &[&|value| value.as_f64().unwrap().fract() != 0.0],
    );
    all_and_some(json!({"type": "boolean"}), Value::is_boolean, &[&|value| *value == true]);
    all_and_some(
        json!({"type": "string", "maxLength": 2}),
        |value| text(value).chars().count() <= 2,
        &[&|value| text(value).is_empty(), &|value| !text(value).is_ascii()],
    );
    all_and_some(
        json!({"type": "string", "pattern": "^[a-c]{0,9}$", "minLength": 2, "maxLength": 3}),
        |value| (2..=3).contains(&text(value).len()),
        &[],
    );
    all_and_some(
        json!({"type": "string", "enum": ["a", "b"]}),
        Value::is_string,
        &[&|v| v == "a", &|v| v == "b"],
    );
    all_and_some(
        json!({"type": "string", "nullable": true}),
        |_| true,
        &[&Value::is_null, &Value::is_string],
    );
    all_and_some(json!({"type": "string", "format": "date-time"}), |value| text(value).ends_with('Z'), &[]);
    let is_ipv4 = |value: &Value| text(value).parse::<std::net::Ipv4Addr>().is_ok();
    all_and_some(json!({"type": "string", "format": "ipv4"}), is_ipv4, &[]);
    let is_ipv6 = |value: &Value| text(value).parse::<std::net::Ipv6Addr>().is_ok();
    all_and_some(json!({"type": "string", "format": "ipv6"}), is_ipv6, &[]);
    all_and_some(
        json!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]}),
        |_| true,
        &[&Value::is_i64, &Value::is_string],
    );
}

#[test]
fn patterns_of_the_api_are_matched() {
    let quantity = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";
    let patterns =
        [r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", r"^\d{3}-\w+$", "^a$|^b$", r"\S", r"^[^\\]\\d$", quantity];
    for pattern in patterns {
        let regex = regex::Regex::new(pattern).unwrap();
        let is_ascii = pattern.contains("\\d{3}");
        let matches = |value: &Value| {
            let text = value.as_str().unwrap();
            regex.is_match(text) && (text.is_ascii() || !is_ascii)
        };
        all_and_some(json!({"type": "string", "pattern": pattern}), matches, &[]);
    }
    let schema = json!({"type": "object", "properties": {"a": {"type": "string", "pattern": "(?=x)"}}});
    let error = values("", &schema).unwrap_err().to_string();
    assert!(error.starts_with(".a: failed to generate texts for the pattern \"(?=x)\""), "{error}");
}

#[test]
fn objects_and_lists_have_required_and_optional_parts() {
    let schema = json!({
        "type": "object",
        "required": ["must"],
        "properties": {
            "must": {"type": "boolean"},
            "may": {"type": "boolean"},
            "filled": {"type": "integer", "default": 1},
            "list": {"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 2},
            "set": {"type": "array", "items": {"type": "boolean"}, "x-kubernetes-list-type": "set"},
            "map": {"type": "object", "additionalProperties": {"type": "boolean"}},
            "keyed": {
                "type": "array",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["on"],
                "items": {"type": "object", "required": ["on"], "properties": {"on": {"type": "boolean"}, "x": {"type": "integer"}}},
            },
            "any": {"x-kubernetes-preserve-unknown-fields": true},
            "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        },
    });
    let unique = |value: &Value| {
        let items = value.as_array().into_iter().flatten();
        let mut keys: Vec<_> = items.map(|item| item.get("on").unwrap_or(item).to_string()).collect();
        let count = keys.len();
        keys.sort();
        keys.dedup();
        keys.len() == count
    };
    all_and_some(
        schema,
        |value| {
            value["must"].is_boolean()
                && value["filled"].is_i64()
                && unique(&value["set"])
                && unique(&value["keyed"])
                && value["map"].as_object().is_none_or(|map| !map.is_empty())
        },
        &[
            &|value| value.get("may").is_none(),
            &|value| value["set"].as_array().is_some_and(|set| set.len() == 2),
            &|value| value["keyed"].as_array().is_some_and(|list| list.len() == 2),
            &|value| value["any"].is_object(),
            &|value| value["open"].as_object().is_some_and(|open| !open.is_empty()),
        ],
    );
}

#[test]
fn branches_narrow_the_enclosing_schema() {
    let field = json!({"type": "boolean"});
    let tagged = json!({
        "type": "object",
        "properties": {"a": field, "b": field, "c": field},
        "oneOf": [{"required": ["a"]}, {"required": ["b"]}, {"required": ["c"]}],
    });
    all_and_some(
        tagged,
        |value| value.as_object().is_some_and(|object| object.len() == 1),
        &[&|value| value.get("a").is_some(), &|value| value.get("c").is_some()],
    );
    let narrowed = json!({"type": "integer", "minimum": 0, "maximum": 3, "anyOf": [{"minimum": 2}, {"enum": [0]}], "allOf": [{"maximum": 2}]});
    all_and_some(narrowed, |value| *value == 0 || *value == 2, &[&|value| *value == 0, &|value| *value == 2]);
}

#[test]
fn contradictions_are_reported() {
    for (schema, expected) in [
        (json!({"type": "integer", "minimum": 3, "maximum": 2}), ".a: minimum is above maximum"),
        (json!({"type": "string", "minLength": 3, "maxLength": 2}), ".a: minLength is above maxLength"),
        (json!({"type": "array", "items": {"type": "text"}}), ".a[]: the type \"text\" is not supported"),
    ] {
        let schema = json!({"type": "object", "properties": {"a": schema}});
        let error = values("", &schema).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
}

#[test]
fn partial_objects_are_what_one_manager_can_own() {
    let text = json!({"type": "string", "anyOf": [{"pattern": "^a$"}, {"pattern": "^b$"}]});
    let pair = |more: Value| {
        let mut pair = json!({
            "type": "object", "required": ["x", "y"], "properties": {"x": text, "y": text}, "default": {},
        });
        pair.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        pair
    };
    let list = |kind: Value, items: Value| json!({"type": "array", "minItems": 2, "x-kubernetes-list-type": kind, "items": items});
    let mut keyed = list(json!("map"), pair(json!({})));
    keyed["x-kubernetes-list-map-keys"] = json!(["x"]);
    let spec = json!({
        "type": "object",
        "required": ["whole"],
        "properties": {
            "whole": pair(json!({"x-kubernetes-map-type": "atomic"})),
            "parts": pair(json!({"x-kubernetes-map-type": "granular"})),
            "list": list(json!(null), pair(json!({}))),
            "set": list(json!("set"), text),
            "keyed": keyed,
        },
    });
    let schema = json!({"type": "object", "required": ["spec"], "properties": {"spec": spec}});
    let definition = json!({
        "metadata": {},
        "spec": {
            "group": "example.com", "names": {"kind": "Pair", "plural": "pairs"}, "scope": "Namespaced",
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    });
    let objects = partial_objects(&serde_json::from_value(definition).unwrap(), "v1").unwrap();
    let specs: Vec<_> = drawn(&objects, 400).into_iter().map(|mut object| object["spec"].take()).collect();
    let is_whole = |pair: &Value| ["a", "b"].iter().any(|text| pair["x"] == *text) && pair["y"].is_string();
    let items = |list: &Value| list.as_array().cloned().unwrap_or_default();
    for spec in &specs {
        assert!(spec.get("whole").is_none_or(is_whole), "{spec}");
        assert!(spec.get("list").is_none_or(|list| items(list).len() > 1), "{spec}");
        assert!(items(&spec["list"]).iter().all(is_whole), "{spec}");
        assert!(items(&spec["keyed"]).iter().all(|item| item["x"].is_string()), "{spec}");
    }
    let some: [&dyn Fn(&Value) -> bool; 6] = [
        &Value::is_null,
        &|spec| spec.is_object() && spec.get("whole").is_none(),
        &|spec| spec.get("whole").is_some(),
        &|spec| spec["parts"].is_object() && !is_whole(&spec["parts"]),
        &|spec| items(&spec["set"]).len() == 1,
        &|spec| items(&spec["keyed"]).iter().any(|item| !is_whole(item)),
    ];
    for (index, some) in some.iter().enumerate() {
        assert!(specs.iter().any(some), "none of kind {index}");
    }
}
