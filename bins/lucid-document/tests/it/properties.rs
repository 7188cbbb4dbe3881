//! What holds for every document and every patch.

use lucid_document::{Format, documents};
use proptest::{collection::vec, prelude::*, sample::Index};
use serde_json::{Map, Value, json};

/// Values as they stand in manifests, with strings that look like something else.
fn value() -> impl Strategy<Value = Value> {
    let text = prop_oneof![
        Just("yes"),
        Just("1.10"),
        Just("~"),
        Just(""),
        Just("a: b"),
        Just("- a"),
        Just("# no"),
        Just("it's"),
        Just("two\nlines\n"),
        Just("\"q\""),
        Just(" x"),
        Just("é\u{1f600}"),
        Just("web"),
        Just("0777"),
        Just("a\n\n")
    ]
    .prop_map(str::to_owned);
    let text = prop_oneof![4 => text, 1 => any::<String>()];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-1000..1000).prop_map(|it| json!(f64::from(it) + 0.125)),
        text.clone().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, move |inner| {
        let key = prop_oneof![3 => "[a-d]", 1 => text.clone()];
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            vec((key, inner), 0..4).prop_map(|members| Value::Object(Map::from_iter(members))),
        ]
    })
}

/// All pointers of a value but its root, and the ends of lists.
fn places(value: &Value, at: &str, found: &mut Vec<(String, bool)>) {
    let escaped = |key: &str| key.replace('~', "~0").replace('/', "~1");
    match value {
        Value::Array(items) => {
            for (place, item) in items.iter().enumerate() {
                found.push((format!("{at}/{place}"), true));
                places(item, &format!("{at}/{place}"), found);
            }
            found.push((format!("{at}/-"), false));
        }
        Value::Object(members) => {
            for (key, member) in members {
                let path = format!("{at}/{}", escaped(key));
                found.push((path.clone(), true));
                places(member, &path, found);
            }
            if !members.contains_key("new") {
                found.push((format!("{at}/new"), false));
            }
        }
        _ => {}
    }
}

/// The value after some operations, each of which applies to what those before it left.
fn operations(value: &Value, choices: &[(Index, u8, Value)]) -> (Value, json_patch::Patch) {
    let mut value = value.clone();
    let mut patch = json_patch::Patch::default();
    for (index, kind, new) in choices {
        let mut found = Vec::new();
        places(&value, "", &mut found);
        if found.is_empty() {
            break;
        }
        let (path, exists) = index.get(&found);
        let operation = match kind % 3 {
            0 if *exists => json!({"op": "remove", "path": path}),
            1 if *exists => json!({"op": "replace", "path": path, "value": new}),
            _ => json!({"op": "add", "path": path, "value": new}),
        };
        let operation: json_patch::PatchOperation = serde_json::from_value(operation).unwrap();
        json_patch::patch(&mut value, std::slice::from_ref(&operation)).unwrap();
        patch.0.push(operation);
    }
    (value, patch)
}

fn check(text: &str, value: &Value, choices: &[(Index, u8, Value)]) -> Result<(), TestCaseError> {
    let documents = documents(text);
    prop_assert_eq!(documents[0].value().unwrap(), Some(value), "{}", text);
    let (expected, patch) = operations(value, choices);
    let patched = documents[0]
        .patch(&patch)
        .map_err(|error| TestCaseError::fail(format!("{error}: {text}\n{patch}")))?;
    prop_assert_eq!(patched.value().unwrap(), Some(&expected), "{}", patched.text());
    Ok(())
}

/// A map, for anything else is no manifest.
fn manifest() -> impl Strategy<Value = Value> {
    vec(("[a-d]", value()), 1..4).prop_map(|members| Value::Object(Map::from_iter(members)))
}

fn choices() -> impl Strategy<Value = Vec<(Index, u8, Value)>> {
    vec((any::<Index>(), any::<u8>(), value()), 0..6)
}

proptest! {
    #[test]
    fn a_patched_document_means_what_the_patch_makes_of_it(value in manifest(), choices in choices()) {
        let compact = value.to_string();
        let pretty = serde_json::to_string_pretty(&value).unwrap();
        check(&compact, &value, &choices)?;
        check(&pretty, &value, &choices)?;
        let yaml = documents(&compact)[0].to_yaml();
        check(&yaml, &value, &choices)?;
        check(&yaml.replace('\n', "\r\n"), &value, &choices)?;
        check(&format!("# a comment\nflow: {compact}\n"), &json!({"flow": value}), &choices)?;
        check(&format!("---\nshared: &shared {compact}\nx: [*shared, {{<<: *shared}}]\n"),
              &json!({"shared": value, "x": [value, value]}), &choices)?;
    }

    #[test]
    fn any_text_is_read_or_refused_without_a_panic(text in any::<String>(), yaml in "[-a:{}\\[\\],#&*!|>'\"% \n\t?~.1]{0,60}", at in any::<Index>()) {
        const MANIFEST: &str = "a: &x\n- b: 'c' # d\n  e: |\n    f\n\ng: *x\nh: {i: [1, 2]}\n---\nj: 1\n";
        let mut broken = MANIFEST.to_owned();
        broken.insert_str(at.index(MANIFEST.len()), &yaml);
        for text in [text, yaml, broken] {
            let documents = documents(&text);
            prop_assert_eq!(documents.iter().map(|it| it.text()).collect::<String>(), text.as_str());
            for document in &documents {
                let Ok(Some(value)) = document.value() else { continue };
                let mut found = Vec::new();
                places(value, "", &mut found);
                for (path, exists) in found {
                    let operation = if exists { "remove" } else { "add" };
                    let patch = serde_json::from_value(json!([{"op": operation, "path": path, "value": {"k": ["v"]}}])).unwrap();
                    document.patch(&patch).map_err(|error| TestCaseError::fail(format!("{error}: {text:?} {operation} {path}")))?;
                }
                let json = document.to_json();
                prop_assert!(serde_json::from_str::<Value>(&json).is_ok(), "{}", json);
                let converted = lucid_document::documents(&json);
                prop_assert_eq!(converted[0].value().unwrap(), Some(value), "{}", json);
                if document.format() == Format::Json {
                    let yaml = document.to_yaml();
                    let converted = lucid_document::documents(&yaml);
                    prop_assert_eq!(converted[0].value().unwrap(), Some(value));
                }
            }
        }
    }
}
