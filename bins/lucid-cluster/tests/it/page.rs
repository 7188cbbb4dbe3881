//! The examples of docs/auditors.md.

use kube::api::DynamicObject;
use lucid_chain::Catalogue;
use lucid_cluster::auditor;
use serde_json::Value;

const PAGE: &str = include_str!("../../../../docs/auditors.md");
const FILE: &str = include_str!("../../../../docs/auditors-yaml.md");

fn examples(page: &str) -> Vec<&str> {
    page.split("```yaml\n").skip(1).filter_map(|rest| rest.split_once("```")).map(|(yaml, _)| yaml).collect()
}

#[test]
fn both_forms_are_the_same_object_and_what_the_entry_of_a_file_is() {
    let objects: Vec<Value> =
        examples(PAGE).into_iter().map(|yaml| serde_yaml::from_str(yaml).unwrap()).collect();
    let [v1, v1alpha1] = &objects[..] else { panic!("{objects:?}") };
    let converter = auditor::converter().unwrap();
    assert_eq!(&converter.convert_object(v1, "v1alpha1").unwrap(), v1alpha1);
    assert_eq!(&converter.convert_object(v1alpha1, "v1").unwrap(), v1);

    let mut entry = v1alpha1["spec"].clone();
    entry["name"] = v1alpha1["metadata"]["name"].clone();
    let file = serde_json::json!({ "chain": [entry] }).to_string();
    let object: DynamicObject = serde_json::from_value(v1.clone()).unwrap();
    let file = Catalogue::parse("auditors.yaml", &file).unwrap();
    assert_eq!(auditor::read(&object).unwrap(), file.auditors()[0]);
    // The page of the file has the same image.
    assert!(FILE.contains(file.auditors()[0].image()));
}
