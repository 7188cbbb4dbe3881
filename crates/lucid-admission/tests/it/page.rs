//! The examples of docs/auditors.md.

use kube::api::DynamicObject;
use lucid_admission::auditor;
use lucid_chain::Catalogue;

const PAGE: &str = include_str!("../../../../docs/auditors.md");
const FILE: &str = include_str!("../../../../docs/auditors-yaml.md");

fn examples(page: &str) -> Vec<&str> {
    page.split("```yaml\n").skip(1).filter_map(|rest| rest.split_once("```")).map(|(yaml, _)| yaml).collect()
}

#[test]
fn an_object_and_a_file_entry_define_the_same_auditor() {
    let [object] = &examples(PAGE)[..] else { panic!("there is not one example") };
    let object: DynamicObject = serde_yaml::from_str(object).unwrap();
    let auditor = auditor::read(&object).unwrap();
    let found = examples(FILE).into_iter().filter_map(|yaml| Catalogue::parse("auditors.yaml", yaml).ok());
    let entries: Vec<_> = found.flat_map(|catalogue| catalogue.auditors().to_vec()).collect();
    assert!(entries.iter().any(|entry| entry.image() == auditor.image()), "{entries:#?}");
}
