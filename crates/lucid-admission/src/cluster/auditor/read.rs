//! Conversion of Auditor objects to auditors of the catalogue.

use std::fmt::Write;

use kube::ResourceExt;
use kube::api::DynamicObject;
use lucid_chain::{Auditor, Catalogue};
use serde_json::{Map, Value, json};
use snafu::Snafu;

/// Keys of a catalogue entry that an Auditor has in `spec.container`.
const CONTAINER: [&str; 7] = ["port", "env", "files", "resources", "securityContext", "probes", "routes"];

/// An Auditor cannot be used. The message names the object, the field, the expected values and the value found.
#[derive(Clone, Debug, PartialEq, Eq, Snafu)]
#[snafu(display("Auditor {name}: {problem}"))]
pub struct AuditorError {
    name: String,
    problem: String,
}

impl AuditorError {
    pub(crate) fn new(name: &str, problem: impl Into<String>) -> Self {
        Self { name: name.to_owned(), problem: problem.into() }
    }

    /// Returns the problem without the object's name.
    #[must_use]
    pub fn problem(&self) -> &str {
        &self.problem
    }
}

/// Reads an Auditor of version v1 as the equivalent entry of an `auditors.yaml`.
///
/// # Errors
///
/// Returns an error if `spec` is missing or the equivalent entry is invalid.
pub fn read(object: &DynamicObject) -> Result<Auditor, AuditorError> {
    let name = object.name_any();
    let Some(mut entry) = object.data["spec"].as_object().cloned() else {
        return Err(AuditorError::new(&name, "`spec` is missing"));
    };
    if let Some(Value::Object(mut container)) = entry.remove("container") {
        if let Some(Value::Array(variables)) = container.get("env") {
            let value = |it: &Value| match it.get("valueFrom") {
                Some(source) => json!({"valueFrom": source}),
                None => it["value"].clone(),
            };
            let variable = |it: &Value| Some((it["name"].as_str()?.to_owned(), value(it)));
            let env: Map<_, _> = variables.iter().filter_map(variable).collect();
            container.insert("env".to_owned(), env.into());
        }
        entry.extend(container);
    }
    entry.insert("name".to_owned(), json!(name));
    Catalogue::parse_entry(&yaml(&entry.into()))
        .map_err(|error| AuditorError::new(&name, format!("spec.{}", in_terms_of_v1(&error.to_string()))))
}

/// Formats `json` so that a YAML parser reads the same value. YAML rejects some characters that JSON permits, and
/// treats others as line breaks.
fn yaml(json: &Value) -> String {
    let mut text = String::new();
    for character in json.to_string().chars() {
        match character {
            '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}' => {
                // JSON has none of these outside strings. Writing to a `String` never fails.
                write!(text, "\\u{:04x}", u32::from(character)).ok();
            }
            _ => text.push(character),
        }
    }
    text
}

/// Converts the path at the start of a message to the layout of v1.
fn in_terms_of_v1(problem: &str) -> String {
    let key = problem.split(['.', ':', '[']).next().unwrap_or_default();
    if CONTAINER.contains(&key) { format!("container.{problem}") } else { problem.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn auditor(name: &str, spec: Value) -> Result<Auditor, AuditorError> {
        let object = json!({
            "apiVersion": "lucid.computing/v1", "kind": "Auditor", "metadata": {"name": name}, "spec": spec,
        });
        read(&serde_json::from_value(object).unwrap())
    }

    #[test]
    fn an_object_and_a_file_entry_make_the_same_auditor() {
        let file = r#"
chain:
  - name: lucid-topics-auditor
    description: "Finds \"names\": äöü"
    image: registry.example/topics:1.0
    port: 9000
    env:
      {B: "0.80", A: "yes", EMPTY: "", CONTROL: "\x07\x7f\n", KEY: {valueFrom: {secretKeyRef: {name: s, key: k, optional: true}}}}
    files:
      - {mountPath: /a, configMap: {name: a}}
      - {mountPath: /b, secret: {secretName: b}}
      - {mountPath: /c, image: {reference: r.test/c, pullPolicy: Never}}
    labels: {tier: core}
    resources: {requests: {cpu: 1, memory: 64Mi}, min: {cpu: 100m}, max: {memory: 1Gi}}
    probes: {readiness: {}, startup: {path: /up, periodSeconds: 2}}
    securityContext: {runAsGroup: 3000, seccompProfile: {type: Localhost, localhostProfile: a.json}}
    routes: true
    mode: observe
    failure: allow
    timeout: 1500ms
"#;
        let spec = json!({
            "description": "Finds \"names\": äöü", "image": "registry.example/topics:1.0", "labels": {"tier": "core"},
            "mode": "observe", "failure": "allow", "timeout": "1500ms",
            "container": {
                "port": 9000,
                "env": [
                    {"name": "B", "value": "0.80"}, {"name": "A", "value": "yes"}, {"name": "EMPTY", "value": ""},
                    {"name": "CONTROL", "value": "\u{7}\u{7f}\n"},
                    {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k", "optional": true}}},
                ],
                "files": [
                    {"mountPath": "/a", "configMap": {"name": "a"}},
                    {"mountPath": "/b", "secret": {"secretName": "b"}},
                    {"mountPath": "/c", "image": {"reference": "r.test/c", "pullPolicy": "Never"}},
                ],
                "resources": {
                    "requests": {"cpu": 1, "memory": "64Mi"}, "min": {"cpu": "100m"}, "max": {"memory": "1Gi"},
                },
                "probes": {"readiness": {}, "startup": {"path": "/up", "periodSeconds": 2}},
                "securityContext": {
                    "runAsGroup": 3000, "seccompProfile": {"type": "Localhost", "localhostProfile": "a.json"},
                },
                "routes": true,
            },
        });
        let of_file = Catalogue::parse("auditors.yaml", file).unwrap();
        assert_eq!(auditor("lucid-topics-auditor", spec).unwrap(), of_file.auditors()[0]);

        let of_file =
            Catalogue::parse("auditors.yaml", "chain: [{name: topics, image: r.test/topics}]").unwrap();
        assert_eq!(auditor("topics", json!({"image": "r.test/topics"})).unwrap(), of_file.auditors()[0]);
    }

    #[test]
    fn invalid_fields_are_rejected_with_their_path() {
        let cpu = |amount: &str| json!({"cpu": amount});
        for (spec, expected) in [
            (json!({}), "`image` is missing"),
            (Value::Null, "`spec` is missing"),
            (json!({"image": "Not An Image"}), "spec.image"),
            (
                json!({"image": "a", "container": {"resources": {"requests": cpu("2"), "limits": cpu("1")}}}),
                "spec.container.resources: `requests.cpu`: expected at most `limits.cpu` 1, found 2",
            ),
            (
                json!({"image": "a", "container": {"env": [{"name": "PORT", "value": "1"}]}}),
                "spec.container.env",
            ),
            (
                json!({"image": "a", "container": {"files": [{"mountPath": "/a"}]}}),
                "spec.container.files[0]: expected one of configMap, secret, image; found 0 sources",
            ),
            (
                json!({"image": "a", "container": {"port": 70000}}),
                "spec.container.port: expected 1 to 65535, found 70000",
            ),
            (json!({"image": "a", "timeout": "5"}), "spec.timeout: expected 1 to 9999 with the unit"),
            (json!({"image": "a", "extra": 1}), "unknown key \"extra\""),
        ] {
            let error = auditor("topics", spec.clone()).unwrap_err().to_string();
            assert!(error.starts_with("Auditor topics: ") && error.contains(expected), "{spec}: {error}");
        }
    }

    #[test]
    fn texts_with_any_characters_are_read_unchanged() {
        let characters: Vec<char> =
            ('\0'..='\u{2fff}').chain('\u{d7f0}'..='\u{e010}').chain('\u{fef0}'..='\u{1f600}').collect();
        for some in characters.chunks(512) {
            let text: String = some.iter().collect();
            let read = auditor("topics", json!({"image": "a", "description": text}));
            assert_eq!(read.unwrap().description(), text);
        }
    }
}
