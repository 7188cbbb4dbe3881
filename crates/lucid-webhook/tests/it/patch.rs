//! Patches: differences, changed objects, allowed paths.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Container, EnvVar, Pod};
use lucid_webhook::{AllowedPaths, JsonPatch, RawObject};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};

fn operations(patch: &JsonPatch) -> Value {
    serde_json::to_value(patch.operations()).unwrap()
}

pub(crate) fn patched(before: &Value, patch: &JsonPatch) -> Value {
    let mut value = before.clone();
    json_patch::patch(&mut value, patch.operations())
        .unwrap_or_else(|e| panic!("{e} in {}", operations(patch)));
    value
}

fn change<T: Serialize + serde::de::DeserializeOwned>(raw: &Value, edit: impl FnOnce(&mut T)) -> JsonPatch {
    let raw = RawObject::from_value(raw);
    let mut object: T = raw.decode().unwrap();
    edit(&mut object);
    JsonPatch::of_change(&raw, &object).unwrap()
}

/// The patch of a handler that returns `after` for `before`, of a type that knows everything.
fn difference(before: &Value, after: &Value) -> JsonPatch {
    JsonPatch::of_change(&RawObject::from_value(before), after).unwrap()
}

#[test]
fn inserting_or_removing_a_container_is_one_operation() {
    let pod = |containers: &[&Value]| json!({"spec": {"containers": containers}});
    let [a, b, c] = ["a", "b", "c"].map(|name| json!({"name": name, "image": name, "env": [{"name": "X"}]}));
    let mut other = b.clone();
    other["env"][0]["value"] = json!("1");
    let two = [&a, &b];
    let at = |n: usize| format!("/spec/containers/{n}");
    let add = |n: usize| json!({"op": "add", "path": at(n), "value": c});
    let remove = |n: usize| json!({"op": "remove", "path": at(n)});
    let value = json!({"op": "add", "path": "/spec/containers/2/env/0/value", "value": "1"});
    let swap = json!([{"op": "replace", "path": "/spec/containers", "value": [b, a]}]);
    for (case, before, after, expected) in [
        ("prepend", two.to_vec(), vec![&c, &a, &b], json!([add(0)])),
        ("insert", two.to_vec(), vec![&a, &c, &b], json!([add(1)])),
        ("append", two.to_vec(), vec![&a, &b, &c], json!([add(2)])),
        ("remove", two.to_vec(), vec![&b], json!([remove(0)])),
        ("swap", two.to_vec(), vec![&b, &a], swap),
        ("change, below one that was prepended", two.to_vec(), vec![&c, &a, &other], json!([add(0), value])),
        ("another one in its place", two.to_vec(), vec![&a, &c], json!([remove(1), add(1)])),
        ("into an empty list", vec![], vec![&c], json!([add(0)])),
    ] {
        let (before, after) = (pod(&before), pod(&after));
        let patch = difference(&before, &after);
        assert_eq!(patched(&before, &patch), after, "{case}");
        assert_eq!(operations(&patch), expected, "{case}");
    }
}

#[test]
fn plain_values_are_patched_one_by_one() {
    let replace = |path: &str, value: Value| json!([{"op": "replace", "path": path, "value": value}]);
    let removal = json!([{"op": "remove", "path": "/args/0"}]);
    for (before, after, expected) in [
        (json!({"a": null}), json!({}), json!([{"op": "remove", "path": "/a"}])),
        (json!({}), json!({"a": null}), json!([{"op": "add", "path": "/a", "value": null}])),
        (json!({"a": 1}), json!({"a": 1.0}), replace("/a", json!(1.0))),
        (json!({"a": u64::MAX}), json!({"a": i64::MIN}), replace("/a", json!(i64::MIN))),
        (json!({"a/b~": {"": 1}}), json!({"a/b~": {"": 2}}), replace("/a~1b~0/", json!(2))),
        (json!({"a": 1}), json!([1]), replace("", json!([1]))),
        (json!({"args": ["a", "b", "c"]}), json!({"args": ["b", "c"]}), removal),
        (json!({"args": ["a", "b"]}), json!({"args": ["a", "d"]}), replace("/args/1", json!("d"))),
    ] {
        let patch = difference(&before, &after);
        assert_eq!(operations(&patch), expected);
        assert_eq!(patched(&before, &patch), after);
        assert_eq!(patch.apply(&before).unwrap(), after);
    }
}

#[test]
fn a_long_list_with_many_changes_is_replaced() {
    let numbers = |step: u64| -> Value { (0..20_000_u64).map(|n| json!(n * step % 20_011)).collect() };
    let objects =
        |step: u64| -> Value { (0..20_000_u64).map(|n| json!({"image": n * step % 20_011 / 3})).collect() };
    let keyed =
        |step: u64| -> Value { (0..20_000_u64).map(|n| json!({"name": n * step % 20_011})).collect() };
    let ones: Value = (0..20_000).map(|n| json!(n % 2)).collect();
    for (before, after) in [
        (numbers(1), numbers(7)),
        (objects(1), objects(9)),
        (keyed(1), keyed(5)),
        (ones.clone(), numbers(1)),
        (ones, json!([])),
    ] {
        let patch = difference(&before, &after);
        assert_eq!(patched(&before, &patch), after);
        assert_eq!(patch.operations().len(), 1, "appliers shift the list for each");
        let mut one_less = before.clone();
        one_less.as_array_mut().unwrap().remove(9_000);
        assert_eq!(difference(&one_less, &before).operations().len(), 1);
    }
}

#[test]
fn repeated_copies_nest_a_value_to_a_limit() {
    // Each copy of a value to its deepest location doubles its depth.
    let doubling =
        (0..18).map(|n| json!({"op": "copy", "from": "/a", "path": format!("/a{}", "/b".repeat(1 << n))}));
    let doubling = JsonPatch::from_operations(&doubling.collect::<Vec<_>>()).unwrap();
    let error = doubling.apply(&json!({"a": {"b": {}}})).unwrap_err().to_string();
    assert!(error.contains("deeper than 256"), "{error}");
}

#[test]
fn patches_that_the_api_server_rejects_do_not_apply() {
    let object = json!({"a": {"b": [1]}, "big": "x".repeat(1 << 20)});
    for (operation, expected) in [
        (json!({"op": "add", "path": "", "value": {}}), "for the whole object"),
        (json!({"op": "replace", "path": "", "value": 1}), "for the whole object"),
        (json!({"op": "move", "from": "/a", "path": ""}), "for the whole object"),
        (json!({"op": "copy", "from": "", "path": "/c"}), "for the whole object"),
        (json!({"op": "replace", "path": "/a/c", "value": 1}), "failed at \"/a/c\": path is invalid"),
        (json!({"op": "add", "path": "/c/d", "value": 1}), "failed at \"/c/d\": path is invalid"),
        (json!({"op": "remove", "path": "/a/b/-"}), "failed at \"/a/b/-\": path is invalid"),
        (json!({"op": "remove", "path": "/a/b/-1"}), "failed at \"/a/b/-1\": path is invalid"),
        (json!({"op": "test", "path": "/a/b/0", "value": 2}), "value did not match"),
    ] {
        let patch = JsonPatch::from_operations(&[&operation]).unwrap();
        let error = patch.apply(&object).unwrap_err().to_string();
        assert!(error.contains("operation 0") && error.contains(expected), "{operation}: {error}");
    }
    let copies: Vec<_> =
        (0..4).map(|n| json!({"op": "copy", "from": "/big", "path": format!("/{n}")})).collect();
    let error = JsonPatch::from_operations(&copies).unwrap().apply(&object).unwrap_err().to_string();
    assert_eq!(
        error,
        "operation 2 of the patch copies too much: in all copies, the API server accepts 3145728 bytes"
    );
    // A failing operation whose rollback fails as well.
    let hopeless = json!([
        {"op": "add", "path": "/a/c", "value": 1},
        {"op": "move", "from": "/a", "path": "/nowhere/at/all"},
    ]);
    assert!(JsonPatch::from_operations(&hopeless).unwrap().apply(&object).is_err());
}

#[test]
fn a_patched_object_stays_an_object_of_its_kind() {
    let replace = |path: &str, value: Value| json!({"op": "replace", "path": path, "value": value});
    let remove = |path: &str| json!({"op": "remove", "path": path});
    for (operation, expected) in [
        (replace("", json!([])), Err("the object a list, which was an object")),
        (replace("", json!({})), Err("apiVersion absent, which was \"v1\"")),
        (remove("/kind"), Err("kind absent, which was \"Pod\"")),
        (replace("/kind", json!("Secret")), Err("kind \"Secret\", which was \"Pod\"")),
        (replace("/apiVersion", json!(2)), Err("apiVersion null, a number or a boolean")),
        (remove("/metadata"), Err("metadata absent, which was an object")),
        (replace("/metadata", json!("x")), Err("metadata \"x\", which was an object")),
        (replace("/metadata", json!({})), Ok("/metadata")),
        (replace("/kind", json!("Pod")), Ok("/kind")),
    ] {
        let patch = JsonPatch::from_operations(&[&operation]).unwrap();
        match (patch.apply_to_object(&pod()), expected) {
            (Ok(after), Ok(place)) => assert_eq!(after.pointer(place), operation.pointer("/value")),
            (Err(error), Err(expected)) => {
                assert!(error.to_string().contains(expected), "{operation}: {error}")
            }
            (found, expected) => panic!("{operation}: {found:?}, expected {expected:?}"),
        }
    }
    let absent = json!({"apiVersion": "v1", "kind": "PodExecOptions"});
    let patch = JsonPatch::from_operations(&json!([{"op": "add", "path": "/stdin", "value": true}])).unwrap();
    assert_eq!(patch.apply_to_object(&absent).unwrap()["stdin"], true);
}

fn pod() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web", "creationTimestamp": null, "annotations": {"a/b": "1"}},
        "spec": {
            "containers": [
                {
                    "name": "app",
                    "image": "app:1",
                    "env": [{"name": "A", "value": "1", "fromTheFuture": 1}, {"name": "B", "value": "2"}],
                    "resources": {"limits": {"cpu": "1000m"}, "fromTheFuture": {"x": 1}},
                    "fromTheFuture": {"deep": [1, 2.0]},
                },
                {"name": "log", "image": "log:1", "resources": {}, "fromTheFuture": 2},
            ],
            "fromTheFuture": [{"name": "x"}],
        },
        "status": {},
    })
}

#[test]
fn a_patch_of_a_pod_contains_only_the_change() {
    let containers =
        |pod: &mut Pod, edit: fn(&mut Vec<Container>)| edit(&mut pod.spec.as_mut().unwrap().containers);
    type Edit = fn(&mut Vec<Container>);
    let edits: [(Edit, Value); 6] = [
        (|_| (), json!([])),
        (
            |list| list.insert(0, Container { name: "proxy".into(), ..Container::default() }),
            json!([{"op": "add", "path": "/spec/containers/0", "value": {"name": "proxy"}}]),
        ),
        (
            |list| list[1].image = Some("log:2".into()),
            json!([{"op": "replace", "path": "/spec/containers/1/image", "value": "log:2"}]),
        ),
        (
            |list| drop(list[0].env.as_mut().unwrap().remove(0)),
            json!([{"op": "remove", "path": "/spec/containers/0/env/0"}]),
        ),
        (|list| drop(list.remove(0)), json!([{"op": "remove", "path": "/spec/containers/0"}])),
        // Compared by position, the proxy would get the unknown fields of the app, and the app those of the log.
        (
            |list| {
                list[0].image = Some("app:2".into());
                list.insert(0, Container { name: "proxy".into(), ..Container::default() });
            },
            json!([
                {"op": "add", "path": "/spec/containers/0", "value": {"name": "proxy"}},
                {"op": "replace", "path": "/spec/containers/1/image", "value": "app:2"},
            ]),
        ),
    ];
    for (edit, expected) in edits {
        assert_eq!(operations(&change::<Pod>(&pod(), |pod| containers(pod, edit))), expected);
    }

    // Moved, changed, and with a new neighbor: unknown fields are kept.
    let all = change::<Pod>(&pod(), |pod| {
        containers(pod, |list| {
            list.reverse();
            list[1].env.as_mut().unwrap().insert(0, EnvVar { name: "Z".into(), ..EnvVar::default() });
            list[1].resources = None;
        });
    });
    let pod_after = patched(&pod(), &all);
    let app = &pod_after["spec"]["containers"][1];
    assert_eq!(app["fromTheFuture"], json!({"deep": [1, 2.0]}));
    assert_eq!(app["env"][1]["fromTheFuture"], 1);
    assert_eq!(app.get("resources"), None, "a removed value goes with everything in it");
    assert_eq!(pod_after["spec"]["fromTheFuture"], json!([{"name": "x"}]));
}

#[test]
fn a_label_is_added_to_any_metadata() {
    for (labels, expected) in [
        (None, json!([{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}])),
        (Some(Value::Null), json!([{"op": "replace", "path": "/metadata/labels", "value": {"a": "b"}}])),
        (Some(json!({})), json!([{"op": "add", "path": "/metadata/labels/a", "value": "b"}])),
        (Some(json!({"c": "d"})), json!([{"op": "add", "path": "/metadata/labels/a", "value": "b"}])),
    ] {
        let mut raw = pod();
        if let Some(labels) = labels {
            raw["metadata"]["labels"] = labels;
        }
        let add = |labels: &mut BTreeMap<String, String>| drop(labels.insert("a".into(), "b".into()));
        let full = change::<Pod>(&raw, |pod| add(pod.metadata.labels.get_or_insert_default()));
        assert_eq!(operations(&full), expected);
        let view = change::<View>(&raw, |view| add(view.metadata.labels.get_or_insert_default()));
        assert_eq!(operations(&view), expected);
        let eager = change::<EagerView>(&raw, |view| add(&mut view.metadata.labels));
        assert_eq!(operations(&eager), expected);
    }
}

/// Serializes absent values as null.
#[derive(Serialize, Deserialize)]
struct View {
    metadata: Metadata,
}

#[derive(Serialize, Deserialize)]
struct Metadata {
    labels: Option<BTreeMap<String, String>>,
    generation: Option<u64>,
}

/// Serializes defaults for absent values, and skips a part that holds only defaults.
#[derive(Serialize, Deserialize)]
struct EagerView {
    #[serde(default, skip_serializing_if = "EagerMetadata::is_default")]
    metadata: EagerMetadata,
}

#[derive(Default, PartialEq, Serialize, Deserialize)]
struct EagerMetadata {
    #[serde(default, deserialize_with = "null_is_default")]
    labels: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    finalizers: BTreeSet<String>,
}

impl EagerMetadata {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

fn null_is_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(de: D) -> Result<T, D::Error> {
    Option::deserialize(de).map(Option::unwrap_or_default)
}

#[test]
fn a_set_that_reorders_a_list_changes_only_its_element() {
    let raw = json!({"metadata": {"name": "a", "finalizers": ["c", "a", "b"]}, "spec": 1});
    let changed = change::<EagerView>(&raw, |view| {
        view.metadata.finalizers.remove("a");
        view.metadata.finalizers.insert("d".into());
    });
    let expected = json!({"metadata": {"name": "a", "finalizers": ["b", "c", "d"]}, "spec": 1});
    assert_eq!(patched(&raw, &changed), expected);
}

#[test]
fn decoding_errors_of_the_original_have_a_path() {
    let raw = RawObject::from_value(&json!({"metadata": {"labels": {"a": 1}}}));
    let view = View { metadata: Metadata { labels: None, generation: None } };
    let error = JsonPatch::of_change(&raw, &view).unwrap_err().to_string();
    assert!(error.contains("View: at metadata.labels.a: invalid type: integer"), "{error}");
}

#[test]
fn allowed_paths_are_parsed_strictly() {
    for (path, expected) in [
        ("", Some("is empty")),
        ("metadata", Some("not a JSON pointer")),
        ("/metadata/~2", Some("not a JSON pointer")),
        ("/metadata/labels/", Some("empty segment")),
        ("//a", Some("empty segment")),
        ("/", Some("empty segment")),
        ("/metadata/annotations/a~1b", None),
        ("/spec/containers/*/env", None),
    ] {
        let error = AllowedPaths::parse([path]).err().map(|error| error.to_string());
        let holds = match (&error, expected) {
            (Some(error), Some(expected)) => error.contains(expected),
            (found, expected) => found.is_none() && expected.is_none(),
        };
        assert!(holds, "{path:?}: {error:?}");
        assert_eq!(serde_json::from_value::<AllowedPaths>(json!([path])).is_ok(), expected.is_none());
    }
}

#[test]
fn a_patch_changes_only_allowed_fields() {
    let allowed = [
        "/metadata/labels",
        "/metadata/annotations/me~1seen",
        "/spec/containers/*/env",
        "/spec/tolerations/*",
    ];
    let allowed = AllowedPaths::parse(allowed).unwrap();
    let before = json!({
        "metadata": {"name": "a", "labels": {"x": "y"}},
        "spec": {
            "containers": [{"name": "a", "image": "a", "env": []}, {"name": "b", "image": "b"}],
            "secret": {"env": ["k"]},
        },
    });
    let ok = None;
    let at = Some;
    let add = |path: &str, value: Value| json!([{"op": "add", "path": path, "value": value}]);
    let replace = |path: &str, value: Value| json!([{"op": "replace", "path": path, "value": value}]);
    let remove = |path: &str| json!([{"op": "remove", "path": path}]);
    let from = |op: &str, from: &str, path: &str| json!([{"op": op, "from": from, "path": path}]);
    let there_and_back = json!([
        {"op": "move", "from": "/spec/secret", "path": "/elsewhere"},
        {"op": "move", "from": "/elsewhere", "path": "/spec/secret"},
    ]);
    let shift = json!([
        {"op": "remove", "path": "/spec/containers/0"},
        {"op": "add", "path": "/spec/containers/1", "value": {"name": "c", "env": []}},
    ]);
    let test = json!([{"op": "test", "path": "/spec/secret/env/0", "value": "k"}]);
    let without_spec = json!({"metadata": before["metadata"], "spec": {}});
    let (mine, others) = (json!({"me/seen": ""}), json!({"me/seen": "", "other": ""}));
    let (annotations, first, second) = ("/metadata/annotations", "/spec/containers/0", "/spec/containers/1");
    for (case, operations, forbidden) in [
        ("nothing", json!([]), ok),
        ("an allowed place", remove("/metadata/labels"), ok),
        ("below one", replace("/metadata/labels/x", json!("z")), ok),
        ("beside one", add("/metadata/labelsx", json!("z")), at("/metadata/labelsx")),
        ("parents that only hold it", add(annotations, mine), ok),
        ("parents that hold more", add(annotations, others), at("/metadata/annotations/other")),
        ("empty parents", add(annotations, json!({})), at(annotations)),
        ("test", test, ok),
        ("there and back", there_and_back, ok),
        ("copy into an allowed place", from("copy", "/spec/secret", "/metadata/labels/s"), ok),
        ("copy out of one", from("copy", "/metadata/labels", "/spec/x"), at("/spec/x/x")),
        ("move into one", from("move", "/spec/secret", "/metadata/labels/s"), at("/spec/secret/env/0")),
        (
            "move out of one",
            from("move", "/metadata/labels", "/spec/nodeSelector"),
            at("/spec/nodeSelector/x"),
        ),
        ("the whole object, the same", replace("", before.clone()), ok),
        ("the whole object, another", replace("", without_spec), at(first)),
        ("an element's allowed member", add("/spec/containers/1/env", json!([{"name": "X"}])), ok),
        (
            "an element's other member",
            replace("/spec/containers/1/image", json!("e")),
            at("/spec/containers/1/image"),
        ),
        ("append", add("/spec/containers/-", json!({"env": []})), at("/spec/containers/2")),
        ("remove", remove(first), at(first)),
        ("swap", from("move", first, second), at("/spec/containers/0/image")),
        ("shift, so that another one takes the place", shift, at("/spec/containers/0/image")),
        ("a wildcard is one segment", add("/spec/secret/env/-", json!("l")), at("/spec/secret/env/1")),
        ("new elements of an allowed kind", add("/spec/tolerations", json!([{"key": "x"}])), ok),
        ("an empty list is a change", add("/spec/tolerations", json!([])), at("/spec/tolerations")),
        ("escapes", add("/metadata/labels~1x", json!({})), at("/metadata/labels~1x")),
        ("a key with a slash", add("/metadata/labels/a~1b", json!("")), ok),
        ("null for absent", add("/spec/x", json!(null)), at("/spec/x")),
        ("another spelling", replace("/spec", json!([])), at("/spec")),
    ] {
        let patch = JsonPatch::from_operations(&operations).unwrap();
        match (allowed.check(&before, &patch), forbidden) {
            (Ok(()), None) => {}
            (Err(error), Some(expected))
                if error
                    .to_string()
                    .starts_with(&format!("the patch changes {expected:?}; expected only changes of ")) => {}
            (found, expected) => panic!("{case}: expected {expected:?}, found {found:?}"),
        }
        let none = AllowedPaths::default().check(&before, &patch);
        assert_eq!(none.is_ok(), patch.apply(&before).unwrap() == before, "{case}");
        AllowedPaths::parse(["/metadata", "/spec", "/elsewhere"]).unwrap().check(&before, &patch).unwrap();
    }
    let nowhere =
        JsonPatch::from_operations(&json!([{"op": "remove", "path": "/metadata/labels/none"}])).unwrap();
    let error = allowed.check(&before, &nowhere).unwrap_err().to_string();
    assert!(error.starts_with("operation 0 of the patch"), "{error}");
}

#[test]
fn an_allowed_index_applies_before_and_after_the_patch() {
    let first = AllowedPaths::parse(["/l/0"]).unwrap();
    let before = json!({"l": [{"name": "a"}, {"name": "b"}]});
    for (after, allowed) in [
        (json!([{"name": "a", "x": 1}, {"name": "b"}]), true),
        (json!([{"name": "z"}, {"name": "a"}, {"name": "b"}]), true),
        (json!([{"name": "b"}]), true),
        (json!([{"name": "b", "x": 1}]), false),
        (json!([{"name": "a"}, {"name": "b", "x": 1}]), false),
        (json!([{"name": "b"}, {"name": "a"}]), false),
        (json!([{"name": "z"}, {"name": "a", "x": 1}, {"name": "b"}]), false),
        (json!([{"name": "z"}, {"name": "b"}, {"name": "a"}]), false),
    ] {
        let patch = difference(&before, &json!({"l": after}));
        assert_eq!(first.check(&before, &patch).is_ok(), allowed, "{after}");
    }
}
