//! Files of auditors, and variables from objects.

use lucid_chain::{Catalogue, Configuration};
use serde_json::{Value, json};

use super::{containers, injected, install, refused, variables};
use crate::common::{cluster, create, dry_run, has_kubernetes, secured};

fn entry(reference: &str) -> String {
    format!(
        "chain:
  - name: reader
    image: example.com/reader@sha256:{digest}
    env:
      TOKEN: {{valueFrom: {{secretKeyRef: {{name: detector, key: token}}}}}}
      LEVEL: {{valueFrom: {{configMapKeyRef: {{name: detector, key: level, optional: true}}}}}}
      AWS_REGION: {{valueFrom: {{configMapKeyRef: {{name: detector, key: region}}}}}}
    files:
      - {{mountPath: /models, image: {{reference: '{reference}'}}}}
      - {{mountPath: /rules, configMap: {{name: rules}}}}
      - {{mountPath: /keys, secret: {{secretName: keys}}}}
",
        digest = "1".repeat(64)
    )
}

fn weights(digit: char) -> String {
    format!("example.com/weights@sha256:{}", digit.to_string().repeat(64))
}

fn reader(pod: &mut Value) -> &mut Value {
    containers(pod).iter_mut().find(|container| container["name"] == "reader").unwrap()
}

fn mounts(pod: &mut Value) -> &mut Vec<Value> {
    reader(pod)["volumeMounts"].as_array_mut().unwrap()
}

fn volumes(pod: &mut Value) -> &mut Vec<Value> {
    pod["spec"]["volumes"].as_array_mut().unwrap()
}

fn volume<'p>(pod: &'p mut Value, source: &str) -> &'p mut Value {
    volumes(pod).iter_mut().find(|volume| !volume[source].is_null()).unwrap()
}

fn variable<'p>(pod: &'p mut Value, name: &str) -> &'p mut Value {
    variables(reader(pod)).iter_mut().find(|variable| variable["name"] == name).unwrap()
}

#[tokio::test]
async fn files_and_variables_are_those_of_the_catalogue() {
    let cluster = cluster().await;
    if !has_kubernetes(&cluster, 35, "an image volume").await {
        return;
    }
    let file = cluster.folder().join("auditors.yaml");
    std::fs::write(&file, entry(&weights('2'))).unwrap();
    let own = Catalogue::parse("auditors.yaml", &entry(&weights('2'))).unwrap();
    let chain = ["reader".to_owned()];
    let configuration = Configuration::new(Catalogue::builtin().overlay(&own), Some(&chain)).unwrap();
    install(
        &cluster,
        &[
            "--catalogue",
            &file.display().to_string(),
            "--chain=reader",
            "--exact-chain",
            "--strict-notarization",
        ],
    )
    .await;
    let complete = injected(&secured("web"), &configuration);
    let stored = create(&cluster, "shop", &complete).await.stored().unwrap();
    assert_eq!(stored.spec.unwrap().volumes.unwrap().len(), 4);
    // The plugin AlwaysPullImages.
    let mut pulled = complete.clone();
    pulled["metadata"]["name"] = json!("pulled");
    volume(&mut pulled, "image")["image"]["pullPolicy"] = json!("Always");
    assert_eq!(dry_run(&cluster, "shop", &pulled).await.status, 201);

    type Change = fn(&mut Value);
    let changes: [(&str, Change); 16] = [
        ("a mount that is missing", |it| drop(mounts(it).pop())),
        ("no mounts", |it| mounts(it).truncate(1)),
        ("a mount elsewhere", |it| mounts(it)[1]["mountPath"] = json!("/other")),
        ("a part of the files", |it| mounts(it)[1]["subPath"] = json!("empty")),
        ("a mount of the pod", |it| {
            volumes(it).push(json!({"name": "own", "emptyDir": {}}));
            mounts(it).push(json!({"name": "own", "mountPath": "/app", "readOnly": true}));
        }),
        ("another digest", |it| volume(it, "image")["image"]["reference"] = json!(weights('3'))),
        ("a tag", |it| volume(it, "image")["image"]["reference"] = json!("example.com/weights:1")),
        ("another ConfigMap", |it| volume(it, "configMap")["configMap"]["name"] = json!("mine")),
        ("an optional ConfigMap", |it| volume(it, "configMap")["configMap"]["optional"] = json!(true)),
        ("some items", |it| {
            volume(it, "secret")["secret"]["items"] = json!([{"key": "a", "path": "b"}]);
        }),
        ("another kind", |it| {
            let secret = volume(it, "secret");
            *secret = json!({"name": secret["name"], "emptyDir": {}});
        }),
        ("an empty volume", |it| {
            let secret = volume(it, "secret");
            *secret = json!({"name": secret["name"], "downwardAPI": {}});
        }),
        ("another Secret's key", |it| {
            variable(it, "TOKEN")["valueFrom"]["secretKeyRef"]["key"] = json!("mine");
        }),
        ("an optional key", |it| {
            variable(it, "TOKEN")["valueFrom"]["secretKeyRef"]["optional"] = json!(true);
        }),
        ("text", |it| {
            *variable(it, "TOKEN") = json!({"name": "TOKEN", "value": "secretKeyRef detector/token"});
        }),
        ("a region of the pod", |it| {
            variables(reader(it)).push(json!({"name": "AWS_REGION", "value": "eu-west-1"}));
        }),
    ];
    for (what, change) in changes {
        let mut pod = complete.clone();
        pod["metadata"]["name"] = json!("changed");
        change(&mut pod);
        let response = dry_run(&cluster, "shop", &pod).await;
        assert_ne!(response.status, 201, "{what}");
        refused(&response, &["does not have its chain", "no auditors as they are known here: reader"]);
    }
}

#[tokio::test]
async fn strict_notarization_needs_digests_of_image_volumes() {
    let cluster = cluster().await;
    if !has_kubernetes(&cluster, 35, "an image volume").await {
        return;
    }
    let file = cluster.folder().join("auditors.yaml");
    let tagged = entry("example.com/weights:1");
    std::fs::write(&file, &tagged).unwrap();
    let own = Catalogue::parse("auditors.yaml", &tagged).unwrap();
    let chain = ["reader".to_owned()];
    let configuration = Configuration::new(Catalogue::builtin().overlay(&own), Some(&chain)).unwrap();
    let arguments = ["--catalogue", &file.display().to_string(), "--chain=reader"];
    install(&cluster, &[&arguments[..], &["--strict-notarization"]].concat()).await;
    let pod = injected(&secured("web"), &configuration);
    let response = create(&cluster, "shop", &pod).await;
    refused(&response, &["auditor containers without digest: lucid-files-"]);
}
