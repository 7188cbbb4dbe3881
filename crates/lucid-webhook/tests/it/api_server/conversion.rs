//! A CustomResourceDefinition of two versions.

use http::Method;
use serde_json::{Value, json};

use super::{Scene, in_namespace, until};

/// `crontabs.<group>`: v1, which is stored, has `spec: "* * * * *"`, v2 has `spec: {minute, hour, …}`.
fn crontabs(group: &str, conversion: Value) -> Value {
    let version = |name: &str, storage: bool, spec: Value| {
        let schema = json!({"type": "object", "properties": {"spec": spec}});
        json!({"name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema": schema}})
    };
    let field = json!({"type": "string"});
    let fields = json!({"minute": field, "hour": field, "day": field, "month": field, "weekday": field});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("crontabs.{group}")},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": "CronTab", "plural": "crontabs", "singular": "crontab"},
            "conversion": conversion,
            "versions": [
                version("v1", true, json!({"type": "string"})),
                version("v2", false, json!({"type": "object", "properties": fields})),
            ],
        },
    })
}

async fn define(scene: &Scene, crd: &Value) {
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    scene.send(Method::POST, path, "application/json", crd).await.stored();
    let (group, namespace) = (crd["spec"]["group"].as_str().unwrap(), scene.namespace);
    until(async || {
        for version in ["v1", "v2"] {
            let list = format!("/apis/{group}/{version}/namespaces/{namespace}/crontabs");
            let answer = scene.send(Method::GET, &list, "application/json", &Value::Null).await;
            if answer.code != 200 {
                return Err(answer);
            }
        }
        Ok(())
    })
    .await;
}

#[test]
fn without_a_converter_only_the_api_version_changes() {
    in_namespace("unconverted", async |scene| {
        let group = "unconverted.example.com";
        define(scene, &crontabs(group, json!({"strategy": "None"}))).await;

        let path = |version| format!("/apis/{group}/{version}/namespaces/{}/crontabs", scene.namespace);
        let object = json!({"apiVersion": format!("{group}/v1"), "kind": "CronTab",
            "metadata": {"name": "nightly"}, "spec": "5 4 * * *"});
        scene.send(Method::POST, &path("v1"), "application/json", &object).await.stored();
        let nightly = format!("{}/nightly", path("v2"));
        let read = scene.send(Method::GET, &nightly, "application/json", &Value::Null).await.stored();
        assert_eq!(read["apiVersion"], format!("{group}/v2"));
        assert_eq!(read["spec"], "5 4 * * *", "which v2 does not allow: a converter is needed");
    });
}
