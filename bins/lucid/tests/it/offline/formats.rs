//! Forms of the result.

use serde_json::Value;

use super::common::*;

/// Memory for a list of 6 MB. Values of all its pods would take four times as much.
const LIMIT: u64 = 100 << 20;

#[test]
fn yaml_and_json_output_are_equal() {
    for name in ["helm.yaml", "kinds.yaml", "stored.json"] {
        let before = manifest(name);
        let as_it_came = values(&piped(&["inject"], &before));
        let json = piped(&["inject", "-o", "json"], &before);
        assert!(json.starts_with('{'), "{json}");
        assert_eq!(values(&json), as_it_came, "{name}");
        let yaml = piped(&["inject", "-o", "yaml"], &before);
        assert!(!yaml.starts_with('{'), "{yaml}");
        assert_eq!(values(&yaml), as_it_came, "{name}");
    }
}

#[test]
fn a_patch_makes_the_document_what_inject_makes_of_it() {
    for name in ["helm.yaml", "kinds.yaml", "foreign.yaml", "stored.json"] {
        let before = manifest(name);
        let patches = piped(&["inject", "-o", "patch"], &before);
        let mut documents = values(&before);
        assert_eq!(patches.lines().count(), documents.len(), "{name}");
        for (document, patch) in documents.iter_mut().zip(patches.lines()) {
            let patch: json_patch::Patch = serde_json::from_str(patch).unwrap();
            json_patch::patch(document, &patch).unwrap();
        }
        assert_eq!(documents, values(&piped(&["inject"], &before)), "{name}");
    }
}

#[test]
fn several_files_make_one_stream() {
    let (pod, stored) = (path("helm.yaml"), path("stored.json"));
    let (pod, stored) = (pod.to_str().unwrap(), stored.to_str().unwrap());
    for format in ["yaml", "json"] {
        let ran = run(&["inject", "-f", pod, "-f", stored, "-f", pod, "-o", format], "");
        assert_eq!(ran.code, 0);
        assert_eq!(values(&ran.output).len(), 9, "{}", ran.output);
    }
    let once: Vec<Value> = values(&run(&["inject", "-f", pod, "-f", "-"], POD).output);
    assert_eq!(once.len(), 5);
}

#[test]
fn json_in_one_line_stays_in_one_line() {
    let pod = serde_json::to_string(&values(POD)[0]).unwrap();
    let injected = piped(&["inject"], &pod);
    assert_eq!(injected.lines().count(), 1);
    assert_eq!(piped(&["uninject"], &injected), pod);
}

#[test]
fn json_values_in_one_line_stay_as_they_are() {
    for text in ["{\"a\": 1}{\"b\": 2}", "{\"a\": 1}\n\n{\"b\": 2}", "---\n{\"a\": 1}\n---\nb: 1"] {
        assert_eq!(piped(&["inject"], text), text);
    }
    assert_eq!(piped(&["inject", "-o", "yaml"], "{\"a\": 1}{\"b\": 2}"), "a: 1\n---\nb: 2\n");
    assert_eq!(piped(&["inject", "-o", "json"], "a: 1\n---\n{\"b\": 2}"), "{\n    \"a\": 1\n}\n{\"b\": 2}\n");
}

#[test]
fn lists_of_thousands_of_pods_take_bounded_memory() {
    let mut list = "apiVersion: v1\nkind: List\nitems:\n".to_owned();
    for pod in 0..12_000 {
        let is_secured = pod % 12 == 0;
        list += &format!(
            "- {{kind: Pod, apiVersion: v1, metadata: {{name: p{pod}, labels: {{lucid.io/secured: '{is_secured}'}}}}, "
        );
        list += "spec: {containers: [{name: model, image: m}";
        list += &", {name: a, image: b, env: [{name: c, value: d}, {name: e, value: f}]}".repeat(6);
        list += "]}}\n";
    }
    for command in ["inject", "explain"] {
        let ran = run_within(&[command, "-f", "-"], &list, Some(LIMIT));
        assert_eq!(ran.code, 0, "{command}: {}", ran.messages);
        assert!(ran.output.len() > 1 << 20, "{command}");
    }
}
