//! Edits change what they must and nothing else.

use lucid_document::documents;
use serde_json::{Value, json};

fn patched(text: &str, patch: Value) -> String {
    let documents = documents(text);
    let document = documents.iter().find(|document| document.value().unwrap().is_some()).unwrap();
    let patch = serde_json::from_value(patch).unwrap();
    document.patch(&patch).unwrap().text()
}

fn add(path: &str, value: Value) -> Value {
    json!([{"op": "add", "path": path, "value": value}])
}

/// Adds, looks at the result, and takes away again, which gives the text as it was.
fn there_and_back(text: &str, path: &str, value: Value, expected: &str) {
    let added = patched(text, add(path, value));
    assert_eq!(added, expected);
    // `-` is the end of a list.
    let removed = path.strip_suffix('-').map_or_else(
        || path.to_owned(),
        |list| {
            let value: Value = documents(&added)[0].value().unwrap().unwrap().clone();
            format!(
                "{list}{}",
                value.pointer(list.trim_end_matches('/')).unwrap().as_array().unwrap().len() - 1
            )
        },
    );
    assert_eq!(patched(&added, json!([{"op": "remove", "path": removed}])), text);
}

#[test]
fn what_is_added_stands_where_it_belongs_and_leaves_no_trace() {
    let item = json!({"name": "x", "env": [{"name": "A", "value": "1"}]});
    there_and_back(
        "# top\nspec: # spec\n  containers: # list\n  # first\n  - name: web # web\n    image: 'a'   # image\n  # - name: off\n\n  volumes: []\n",
        "/spec/containers/-",
        item.clone(),
        "# top\nspec: # spec\n  containers: # list\n  # first\n  - name: web # web\n    image: 'a'   # image\n  - name: x\n    env:\n    - name: A\n      value: \"1\"\n  # - name: off\n\n  volumes: []\n",
    );
    there_and_back(
        "spec:\n    containers:\n        -   name: web\n            image: a\n    other: 1\n",
        "/spec/containers/0",
        item.clone(),
        "spec:\n    containers:\n        - name: x\n          env:\n              - name: A\n                value: \"1\"\n        -   name: web\n            image: a\n    other: 1\n",
    );
    there_and_back(
        "spec:\n  list:\n  # of the first\n  - a\n  - b\n",
        "/spec/list/0",
        json!("new"),
        "spec:\n  list:\n  - new\n  # of the first\n  - a\n  - b\n",
    );
    there_and_back(
        "list: []\nz: 1\n",
        "/list/-",
        item,
        "list:\n- name: x\n  env:\n  - name: A\n    value: \"1\"\nz: 1\n",
    );
    there_and_back("a: {}\n", "/a/b~1c", json!("{\"d\":1}"), "a:\n  b/c: '{\"d\":1}'\n");
    there_and_back("a: {b: 1}\n", "/a/c", json!("d"), "a: {b: 1, \"c\": \"d\"}\n");
    there_and_back("a: [{b: 1}, ]\n", "/a/-", json!({"c": "d"}), "a: [{b: 1}, {\"c\": \"d\"}, ]\n");
    there_and_back("a: [1, 2]\n", "/a/0", json!(3), "a: [3, 1, 2]\n");
    there_and_back(
        "a:\r\n- b\r\nc: 1\r\n",
        "/a/-",
        json!({"d": 1, "e": 2}),
        "a:\r\n- b\r\n- d: 1\r\n  e: 2\r\nc: 1\r\n",
    );
    there_and_back("a: |\n  text\n\n# end\n", "/b", json!(1), "a: |\n  text\nb: 1\n\n# end\n");
    there_and_back("a: |+\n  text\n\n", "/b", json!(1), "a: |+\n  text\n\nb: 1\n");
    there_and_back("a: >-\n\nz: 1\n", "/b", json!(1), "a: >-\n\nz: 1\nb: 1\n");
    there_and_back("a:\n  b: # nothing\n", "/a/c", json!(1), "a:\n  b: # nothing\n  c: 1\n");
    there_and_back("- - a\n  - b\n- c\n", "/0/-", json!("new"), "- - a\n  - b\n  - new\n- c\n");
    there_and_back("a: \"é\n  x\" # c\nb: ü\n", "/c", json!(1), "a: \"é\n  x\" # c\nb: ü\nc: 1\n");
    there_and_back("a:\n- &x {b: 1}\n- *x\n", "/a/-", json!(1), "a:\n- &x {b: 1}\n- *x\n- 1\n");
}

#[test]
fn json_keeps_its_layout() {
    there_and_back(
        r#"{"a":[1],"b":{}}"#,
        "/a/-",
        json!({"c": [true, null]}),
        r#"{"a":[1,{"c":[true,null]}],"b":{}}"#,
    );
    there_and_back(r#"{"a":[1],"b":{}}"#, "/b/c", json!("x"), r#"{"a":[1],"b":{"c":"x"}}"#);
    there_and_back(
        "{\n\t\"a\": [\n\t\t{\n\t\t\t\"b\": 1.10\n\t\t}\n\t]\n}\n",
        "/a/-",
        json!({"c": [1]}),
        "{\n\t\"a\": [\n\t\t{\n\t\t\t\"b\": 1.10\n\t\t},\n\t\t{\n\t\t\t\"c\": [\n\t\t\t\t1\n\t\t\t]\n\t\t}\n\t]\n}\n",
    );
    there_and_back("{\n    \"a\": 1\n}", "/b", json!({}), "{\n    \"a\": 1,\n    \"b\": {}\n}");
}

#[test]
fn what_an_alias_shares_is_changed_for_one_alone() {
    let text = "# top\nbase: &base\n- a # c\none: *base\ntwo: *base # two\n";
    assert_eq!(
        patched(text, add("/one/-", json!("b"))),
        "# top\nbase: &base\n- a # c\none:\n- a\n- b\ntwo: *base # two\n"
    );
    // There the others would change too.
    let anew = patched(text, add("/base/-", json!("b")));
    assert_eq!(anew, "# top\nbase:\n- a\n- b\none:\n- a\ntwo:\n- a\n");
    let merged = "a: &a {env: [1], x: 1.10}\nb:\n  <<: *a\n  y: 2\n";
    assert_eq!(
        patched(merged, add("/b/env/-", json!(2))),
        "a: &a {env: [1], x: 1.10}\nb:\n  <<: *a\n  y: 2\n  env:\n  - 1\n  - 2\n"
    );
}

#[test]
fn removing_and_replacing_touch_one_place() {
    let text = "a:\n- b: 1 # one\n  c: 2\n- b: 3\nd: {e: 1, f: 2, g: 3}\n";
    let remove = |path: &str| patched(text, json!([{"op": "remove", "path": path}]));
    assert_eq!(remove("/a/0/b"), "a:\n- c: 2\n- b: 3\nd: {e: 1, f: 2, g: 3}\n");
    assert_eq!(remove("/a/0"), "a:\n- b: 3\nd: {e: 1, f: 2, g: 3}\n");
    assert_eq!(remove("/a/1/b"), "a:\n- b: 1 # one\n  c: 2\n- {}\nd: {e: 1, f: 2, g: 3}\n");
    assert_eq!(remove("/d/e"), "a:\n- b: 1 # one\n  c: 2\n- b: 3\nd: {f: 2, g: 3}\n");
    assert_eq!(remove("/d/f"), "a:\n- b: 1 # one\n  c: 2\n- b: 3\nd: {e: 1, g: 3}\n");
    assert_eq!(remove("/d"), "a:\n- b: 1 # one\n  c: 2\n- b: 3\n");
    assert_eq!(remove("/a"), "d: {e: 1, f: 2, g: 3}\n");
    let replace =
        |path: &str, value: Value| patched(text, json!([{"op": "replace", "path": path, "value": value}]));
    assert_eq!(
        replace("/a/0/c", json!("yes")),
        "a:\n- b: 1 # one\n  c: \"yes\"\n- b: 3\nd: {e: 1, f: 2, g: 3}\n"
    );
    assert_eq!(
        replace("/a/1", json!({"x": [1]})),
        "a:\n- b: 1 # one\n  c: 2\n- x:\n  - 1\nd: {e: 1, f: 2, g: 3}\n"
    );
    assert_eq!(
        replace("/d/f", json!([])),
        "a:\n- b: 1 # one\n  c: 2\n- b: 3\nd: {e: 1, \"f\": [], g: 3}\n".replace("\"f\"", "f")
    );
    let several = json!([
        {"op": "remove", "path": "/a/0"}, {"op": "add", "path": "/a/0", "value": 1}, {"op": "add", "path": "/a/-", "value": {"z": "|"}},
        {"op": "add", "path": "/a/2/k", "value": "multi\nline\n"}, {"op": "replace", "path": "/d/g", "value": "x"}, {"op": "add", "path": "/new", "value": {"m": {}}},
    ]);
    assert_eq!(
        patched(text, several),
        "a:\n- 1\n- b: 3\n- z: \"|\"\n  k: |\n    multi\n    line\nd: {e: 1, f: 2, g: \"x\"}\nnew:\n  m: {}\n"
    );
}

#[test]
fn an_operation_that_does_not_apply_is_an_error() {
    let documents = documents("a: 1\n");
    let patch = serde_json::from_value(json!([{"op": "remove", "path": "/b"}])).unwrap();
    assert!(documents[0].patch(&patch).unwrap_err().to_string().contains("/b"));
}
