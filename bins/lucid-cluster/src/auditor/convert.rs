//! Between the two versions of an Auditor.
//!
//! v1 keeps in `spec.container` what v1alpha1 has in `spec`, and its `env` is a list where v1alpha1 has a map. A list has
//! an order: in v1alpha1 the annotation [`ENV_ORDER`] keeps one that is not that of the names. All else stands in both
//! versions as it is, also what is not known here.

use std::collections::BTreeSet;

use lucid_webhook::{Converter, ConverterError};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{GROUP, KIND, V1, V1ALPHA1};

/// The annotation of a v1alpha1 Auditor with the order of `spec.container.env` in v1, where that is not the order of the
/// names: JSON, `{"order":["B","A"]}`. An order that does not name exactly the variables of `env` means nothing.
pub const ENV_ORDER: &str = "lucid.computing/env-order";

/// The fields of the container.
pub(super) const CONTAINER: [&str; 5] = ["port", "env", "resources", "securityContext", "probes"];

/// Converts between v1alpha1 and v1.
///
/// # Errors
///
/// Never: both versions are registered.
pub fn converter() -> Result<Converter, ConverterError> {
    Converter::dynamic(GROUP, KIND, V1).spoke_dynamic(V1ALPHA1, to_v1, to_v1alpha1).build_for([V1, V1ALPHA1])
}

fn to_v1(mut object: Value) -> Value {
    let Some(Value::Object(spec)) = object.get_mut("spec") else { return object };
    let mut container = Map::new();
    for key in CONTAINER {
        container.extend(spec.remove(key).map(|value| (key.to_owned(), value)));
    }
    let env = match container.get_mut("env") {
        Some(Value::Object(env)) => std::mem::take(env),
        _ => Map::new(),
    };
    if !env.is_empty() {
        let order = annotation(&object).and_then(|text| EnvOrder::read(text, &names(&env)));
        let mut env = env;
        let order = order.map_or_else(
            || names(&env).into_iter().collect(),
            |found| {
                set_annotation(&mut object, found.was);
                found.order
            },
        );
        let item = |name: String| env.remove(&name).map(|value| json!({ "name": name, "value": value }));
        container.insert("env".to_owned(), order.into_iter().filter_map(item).collect());
    } else if let Some(env @ Value::Object(_)) = container.get_mut("env") {
        *env = json!([]);
    }
    if let Some(Value::Object(spec)) = object.get_mut("spec").filter(|_| !container.is_empty()) {
        spec.insert("container".to_owned(), container.into());
    }
    object
}

fn to_v1alpha1(mut object: Value) -> Value {
    let Some(spec) = object.get_mut("spec") else { return object };
    let order = flatten(spec);
    let was = annotation(&object);
    let is_one_of_ours =
        |text: &str| EnvOrder::read(text, &order.iter().cloned().collect::<BTreeSet<_>>()).is_some();
    if !order.is_sorted() || was.is_some_and(is_one_of_ours) {
        let was = was.map(str::to_owned);
        set_annotation(&mut object, EnvOrder { order, was }.text());
    }
    object
}

/// `spec` of v1alpha1 out of that of v1.
pub(super) fn flat_spec(mut spec: Value) -> Value {
    flatten(&mut spec);
    spec
}

/// Makes `spec` of v1 that of v1alpha1; returns the names of the variables in their order.
fn flatten(spec: &mut Value) -> Vec<String> {
    let mut order = Vec::new();
    let Value::Object(spec) = spec else { return order };
    let Some(Value::Object(mut container)) = spec.remove("container") else { return order };
    if let Some(env @ Value::Array(_)) = container.get_mut("env") {
        let mut map = Map::new();
        for variable in env.as_array_mut().into_iter().flatten() {
            // A server-side apply converts also what is left of an object when fields were taken from it.
            let Some(name) = variable["name"].as_str().map(str::to_owned) else { continue };
            let value = variable.get_mut("value").map(Value::take).unwrap_or_default();
            if map.insert(name.clone(), value).is_none() {
                order.push(name);
            }
        }
        *env = map.into();
    }
    spec.extend(container);
    order
}

/// What [`ENV_ORDER`] holds.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct EnvOrder {
    order: Vec<String>,
    /// What the annotation of the v1 object held: it is the user's there, and may look like one of ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    was: Option<String>,
}

impl EnvOrder {
    /// Reads what [`to_v1alpha1`] has written for variables of these `names`, and nothing else: so that every text a user
    /// may have put there comes back as it was.
    fn read(text: &str, names: &BTreeSet<String>) -> Option<Self> {
        let found: Self = serde_json::from_str(text).ok()?;
        let is_of = found.order.len() == names.len()
            && found.order.iter().cloned().collect::<BTreeSet<_>>() == *names;
        let is_needed = !found.order.is_sorted()
            || found.was.as_ref().is_some_and(|was| Self::read(was, names).is_some());
        (is_of && is_needed && found.text().as_deref() == Some(text)).then_some(found)
    }

    fn text(&self) -> Option<String> {
        serde_json::to_string(self).ok()
    }
}

fn names(env: &Map<String, Value>) -> BTreeSet<String> {
    env.keys().cloned().collect()
}

fn annotation(object: &Value) -> Option<&str> {
    object["metadata"]["annotations"][ENV_ORDER].as_str()
}

fn set_annotation(object: &mut Value, text: Option<String>) {
    let Some(Value::Object(metadata)) = object.get_mut("metadata") else { return };
    let annotations = metadata.entry("annotations").or_insert(Value::Null);
    if annotations.is_null() {
        *annotations = json!({});
    }
    let Value::Object(annotations) = annotations else { return };
    match text {
        Some(text) => annotations.insert(ENV_ORDER.to_owned(), text.into()),
        None => annotations.remove(ENV_ORDER),
    };
    if annotations.is_empty() {
        metadata.remove("annotations");
    }
}

#[cfg(test)]
mod tests {
    use lucid_webhook::testing::round_trip;
    use proptest::prelude::*;

    use super::*;

    fn v1alpha1(env: Value, annotations: Value) -> Value {
        json!({
            "apiVersion": "lucid.computing/v1alpha1", "kind": "Auditor",
            "metadata": { "name": "pii", "annotations": annotations },
            "spec": { "image": "r.test/pii", "port": 9000, "env": env },
        })
    }

    #[test]
    fn conversions_lose_nothing() {
        round_trip::crd(&converter().unwrap(), &super::super::crd()).unwrap();
    }

    #[test]
    fn what_a_server_side_apply_leaves_of_an_object_is_converted() {
        round_trip::partial(&converter().unwrap(), &super::super::crd()).unwrap();
    }

    #[test]
    fn the_fields_of_the_container_move_and_status_and_metadata_stay() {
        let mut flat = v1alpha1(json!({"B": "2", "A": "1"}), json!({"team": "blue"}));
        flat["status"] = json!({"notarized": "True"});
        flat["spec"]["labels"] = json!({"tier": "core"});
        let structured = converter().unwrap().convert_object(&flat, "v1").unwrap();
        assert_eq!(
            structured["spec"],
            json!({
                "image": "r.test/pii", "labels": {"tier": "core"},
                "container": {
                    "port": 9000, "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
                },
            })
        );
        assert_eq!((&structured["status"], &structured["metadata"]), (&flat["status"], &flat["metadata"]));
    }

    #[test]
    fn an_order_of_env_is_kept_in_an_annotation_only_where_it_is_none_of_names() {
        let converter = converter().unwrap();
        let env =
            |names: &[&str]| names.iter().map(|name| json!({"name": name, "value": "x"})).collect::<Value>();
        let mut structured = json!({
            "apiVersion": "lucid.computing/v1", "kind": "Auditor", "metadata": { "name": "pii" },
            "spec": { "image": "r.test/pii", "container": { "env": env(&["B", "A"]) } },
        });
        let flat = converter.convert_object(&structured, "v1alpha1").unwrap();
        assert_eq!(flat["metadata"]["annotations"], json!({ENV_ORDER: r#"{"order":["B","A"]}"#}));
        assert_eq!(converter.convert_object(&flat, "v1").unwrap(), structured);
        structured["spec"]["container"]["env"] = env(&["A", "B"]);
        let flat = converter.convert_object(&structured, "v1alpha1").unwrap();
        assert_eq!(flat["metadata"].get("annotations"), None);
    }

    /// Texts that a user may have put where the order is kept, with those that look like ours.
    fn forged() -> impl Strategy<Value = Option<String>> {
        let order = || prop::sample::subsequence(vec!["A", "B", "C"], 0..=3).prop_shuffle();
        let ours = (order(), prop::option::of(order())).prop_map(|(order, was)| {
            let was = was.map(|order| json!({"order": order}).to_string());
            serde_json::to_string(&EnvOrder { order: order.into_iter().map(str::to_owned).collect(), was })
                .unwrap()
        });
        prop::option::of(prop_oneof![
            ours,
            Just(r#"{"order": ["B","A"]}"#.to_owned()),
            ".{0,12}".prop_map(String::from)
        ])
    }

    proptest! {
        #[test]
        fn whatever_stands_in_the_annotation_comes_back(
            order in prop::sample::subsequence(vec!["A", "B", "C"], 0..=3).prop_shuffle(),
            text in forged(),
        ) {
            let converter = converter().unwrap();
            let annotations = || text.as_ref().map_or(json!({"a": "b"}), |text| json!({ENV_ORDER: text}));
            let env: Map<String, Value> = order.iter().map(|name| ((*name).to_owned(), json!("1"))).collect();
            let flat = v1alpha1(env.into(), annotations());
            let away = converter.convert_object(&flat, "v1").unwrap();
            prop_assert_eq!(&converter.convert_object(&away, "v1alpha1").unwrap(), &flat);

            let mut structured = away;
            structured["metadata"]["annotations"] = annotations();
            structured["spec"]["container"]["env"] =
                order.iter().map(|name| json!({"name": name, "value": "1"})).collect();
            let away = converter.convert_object(&structured, "v1alpha1").unwrap();
            prop_assert_eq!(&converter.convert_object(&away, "v1").unwrap(), &structured);
        }
    }
}
