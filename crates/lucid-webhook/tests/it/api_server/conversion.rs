//! Conversion of a CustomResourceDefinition's versions, as the API server asks for it.

use std::collections::BTreeMap;

use futures::{StreamExt, TryStreamExt, stream};
use http::Method;
use kube::api::{ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::core::DynamicObject;
use kube::discovery::ApiResource;
use kube::{Api, ResourceExt as _};
use lucid_webhook::Router;
use serde_json::{Value, json};

use super::servers::{CA_BUNDLE, serve};
use super::{PATIENCE, Scene, in_namespace, until};
use crate::cron_tab;

const GROUP: &str = "stable.example.com";
const COUNT: usize = 500;

fn minute(index: usize) -> String {
    format!("{}", index % 60)
}

fn v1(index: usize) -> Value {
    let spec =
        json!({"cronSpec": format!("{} 4 * * *", minute(index)), "image": "cron:1", "replicas": index});
    json!({"apiVersion": format!("{GROUP}/v1"), "kind": "CronTab",
        "metadata": {"name": format!("tab-{index:03}"), "labels": {"index": index.to_string()}}, "spec": spec})
}

fn v2_spec(index: usize) -> Value {
    let minute = minute(index);
    let schedule = json!({"minute": minute, "hour": "4", "dayOfMonth": "*", "month": "*", "dayOfWeek": "*"});
    json!({"schedule": schedule, "image": "cron:1", "replicas": index})
}

/// CronTabs of one version, whatever version is stored.
fn api(scene: &Scene, version: &str) -> Api<DynamicObject> {
    let resource = ApiResource {
        group: GROUP.into(),
        version: version.into(),
        api_version: format!("{GROUP}/{version}"),
        kind: "CronTab".into(),
        plural: "crontabs".into(),
    };
    Api::namespaced_with(scene.client(), scene.namespace, &resource)
}

/// Serves the converter and creates the definition; v2 is stored.
async fn define(scene: &Scene) {
    let definition = cron_tab::definition();
    let converter = cron_tab::builder().build(&definition).unwrap();
    let server = serve(Router::new().convert("/convert", converter)).await;
    let mut definition = serde_json::to_value(definition).unwrap();
    // So that there is something that cannot be converted.
    let cron_spec = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/cronSpec";
    definition.pointer_mut(cron_spec).unwrap().as_object_mut().unwrap().remove("pattern").unwrap();
    definition["spec"]["conversion"]["webhook"]["clientConfig"] =
        json!({"url": format!("{server}/convert"), "caBundle": *CA_BUNDLE});
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    scene.send(Method::POST, path, "application/json", &definition).await.stored();
    for version in ["v1", "v2"] {
        until(async || api(scene, version).list(&ListParams::default()).await).await;
    }
}

#[track_caller]
fn assert_spec(object: &DynamicObject, version: &str, spec: &Value) {
    assert_eq!(object.types.as_ref().unwrap().api_version, format!("{GROUP}/{version}"));
    assert_eq!(&object.data["spec"], spec, "{}", object.name_any());
}

#[test]
fn custom_resources_are_read_in_each_version() {
    in_namespace("conversion", async |scene| {
        define(scene).await;
        let (old, new) = (api(scene, "v1"), api(scene, "v2"));
        let create = |index| {
            let (old, object) = (old.clone(), serde_json::from_value(v1(index)).unwrap());
            async move { old.create(&PostParams::default(), &object).await }
        };
        let created: Vec<_> = stream::iter(0..COUNT).map(create).buffered(16).try_collect().await.unwrap();
        let created: BTreeMap<_, _> = created.iter().map(|it| (it.name_any(), it)).collect();
        assert_eq!(created.len(), COUNT);

        // Get.
        assert_spec(&old.get("tab-007").await.unwrap(), "v1", &v1(7)["spec"]);
        assert_spec(&new.get("tab-007").await.unwrap(), "v2", &v2_spec(7));

        // List, whole and in pages.
        for page in [None, Some(200)] {
            for (api, version) in [(&old, "v1"), (&new, "v2")] {
                let mut parameters = ListParams { limit: page, ..ListParams::default() };
                let mut listed = Vec::new();
                loop {
                    let list = api.list(&parameters).await.unwrap();
                    listed.extend(list.items);
                    parameters.continue_token = list.metadata.continue_.filter(|token| !token.is_empty());
                    if parameters.continue_token.is_none() {
                        break;
                    }
                }
                assert_eq!(listed.len(), COUNT);
                for (index, object) in listed.iter().enumerate() {
                    let spec = if version == "v1" { v1(index)["spec"].clone() } else { v2_spec(index) };
                    assert_spec(object, version, &spec);
                    let (found, created) = (&object.metadata, &created[&object.name_any()].metadata);
                    assert_eq!(
                        (&found.labels, &found.uid, &found.resource_version),
                        (&created.labels, &created.uid, &created.resource_version)
                    );
                }
            }
        }
        watched(&old, &new).await;
    });
}

/// A change of the new version is seen by who watches the old one.
async fn watched(old: &Api<DynamicObject>, new: &Api<DynamicObject>) {
    let since = old.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
    let parameters = WatchParams::default().disable_bookmarks();
    let everything = old.watch(&parameters, "0").await.unwrap();
    let changes = old.watch(&parameters, &since).await.unwrap();

    let zone = json!({"spec": {"timeZone": "Europe/Berlin", "schedule": {"hour": "5"}}});
    new.patch("tab-007", &PatchParams::default(), &Patch::Merge(&zone)).await.unwrap();

    // What is there when a watch begins, and then the change.
    let everything = everything.take(COUNT + 1).try_collect::<Vec<_>>();
    let everything = tokio::time::timeout(PATIENCE, everything).await.unwrap().unwrap();
    let added = everything.iter().filter(|event| matches!(event, WatchEvent::Added(_))).count();
    assert_eq!(added, COUNT);
    let change = tokio::time::timeout(PATIENCE, changes.boxed().next()).await.unwrap().unwrap().unwrap();
    for event in [&change, &everything[COUNT]] {
        let WatchEvent::Modified(object) = event else { panic!("{event:?}") };
        let spec = json!({"cronSpec": "7 5 * * *", "image": "cron:1", "replicas": 7});
        assert_spec(object, "v1", &spec);
        assert_eq!(object.annotations()["stable.example.com/time-zone"], "Europe/Berlin");
    }

    // Written back in the old version, nothing of the new one is lost.
    let image = json!({"spec": {"image": "cron:2"}});
    old.patch("tab-007", &PatchParams::default(), &Patch::Merge(&image)).await.unwrap();
    let mut spec = v2_spec(7);
    (spec["image"], spec["timeZone"]) = ("cron:2".into(), "Europe/Berlin".into());
    spec["schedule"]["hour"] = "5".into();
    assert_spec(&new.get("tab-007").await.unwrap(), "v2", &spec);

    // What cannot be converted is refused with the reason.
    let mut wrong = v1(COUNT);
    wrong["spec"]["cronSpec"] = "every now and then".into();
    let wrong = serde_json::from_value(wrong).unwrap();
    let error = old.create(&PostParams::default(), &wrong).await.unwrap_err();
    let kube::Error::Api(status) = error else { panic!("{error}") };
    let text = "spec.cronSpec has 4 fields, accepted are 5: \"every now and then\"";
    assert!(status.message.contains(text) && status.message.contains("tab-500"), "{}", status.message);
}
