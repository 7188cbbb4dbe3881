use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use kube::core::crd::merge_crds;
use lucid_webhook_test::ApiServer;
use serde::Deserialize;
use serde_json::{Value, json};

use super::*;

fn api_server() -> ApiServer {
    ApiServer::registered(&router().unwrap()).namespace("shop", [("{{group}}/enabled", "true")])
}

fn team(version: &str, members: Value) -> Value {
    let version = format!("{{group}}/{version}");
    json!({"apiVersion": version, "kind": "Team", "metadata": {"name": "blue"}, "spec": {"members": members}})
}

#[tokio::test]
async fn pods_of_enabled_namespaces_get_an_owner() {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "shop"}});
    let pod: Pod = api_server().create(&pod).await.expect_object();
    assert!(pod.metadata.annotations.unwrap().contains_key("{{group}}/owner"));
}

#[tokio::test]
async fn teams_have_members() {
    assert!(api_server().create(&team("v2", json!(["alice"]))).await.is_admitted());
    let rejection = api_server().create(&team("v2", json!([]))).await.expect_rejected();
    assert_eq!(rejection.causes[0].field.as_deref(), Some("spec.members"));
}

#[tokio::test]
async fn teams_convert_in_both_directions() {
    let [old, new] = [team("v1", json!("alice, bob")), team("v2", json!(["alice", "bob"]))];
    let webhook = api_server().converting("/convert");
    assert_eq!(webhook.convert(&[old.clone()], "{{group}}/v2").await.unwrap(), [new.clone()]);
    assert_eq!(webhook.convert(&[new], "{{group}}/v1").await.unwrap(), [old]);
}

#[test]
fn the_manifest_defines_teams() {
    let wanted = merge_crds(vec![OldTeam::crd(), Team::crd()], "v2").unwrap();
    let documents = serde_yaml::Deserializer::from_str(include_str!("../deploy.yaml"));
    let mut documents = documents.map(|document| serde_yaml::Value::deserialize(document).unwrap());
    let found = documents.find(|document| document["kind"] == "CustomResourceDefinition").unwrap();
    let found: CustomResourceDefinition = serde_yaml::from_value(found).unwrap();
    assert_eq!(found, wanted, "{}", serde_yaml::to_string(&wanted).unwrap());
}
