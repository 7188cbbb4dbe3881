//! Conversion of a CustomResourceDefinition with two versions by a real API server.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::stream::{self, StreamExt, TryStreamExt};
use http::Method;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, WatchEvent, WatchParams};
use lucid_e2e::eventually;
use lucid_webhook::{BoxError, Converter, Router};
use prometheus_client::registry::Registry;
use serde_json::{Value, json};

use super::servers::{CA_BUNDLE, serve};
use super::{Answer, Scene, in_namespace};
use crate::common::exposed;
use crate::cron_tab::{definition, v1_to_v2, v2_to_v1};
use crate::widget;

/// Number of objects that a test reads at once.
const OBJECTS: usize = 500;
const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

/// CronTabs of one group in a scene's namespace. v2 is stored.
struct CronTabs<'a> {
    scene: &'a Scene,
    group: &'static str,
    registry: Registry,
}

impl<'a> CronTabs<'a> {
    async fn define(scene: &'a Scene, converter: Converter, group: &'static str) -> Self {
        let mut registry = Registry::default();
        let router = Router::new().convert("/convert", converter).with_metrics(&mut registry);
        let url = format!("{}/convert", serve(router).await);
        let mut definition = json!(definition_in(group));
        definition["spec"]["conversion"]["webhook"]["clientConfig"] =
            json!({"url": url, "caBundle": *CA_BUNDLE});
        define(scene, &definition).await;
        Self { scene, group, registry }
    }

    /// Returns `/apis/<group>/<version>/namespaces/<namespace>/crontabs<rest>`.
    fn path(&self, version: &str, rest: &str) -> String {
        format!("/apis/{}/{version}/namespaces/{}/crontabs{rest}", self.group, self.scene.namespace)
    }

    async fn send(
        &self,
        method: Method,
        (version, rest): (&str, &str),
        content_type: &str,
        body: &Value,
    ) -> Answer {
        self.scene.send(method, &self.path(version, rest), content_type, body).await
    }

    async fn get(&self, version: &str, rest: &str) -> Answer {
        self.send(Method::GET, (version, rest), JSON, &Value::Null).await
    }

    async fn create(&self, version: &str, object: &Value) -> Answer {
        self.send(Method::POST, (version, ""), JSON, object).await
    }

    fn v1(&self, name: &str, cron_spec: &str) -> Value {
        json!({
            "apiVersion": format!("{}/v1", self.group), "kind": "CronTab", "metadata": {"name": name},
            "spec": {"cronSpec": cron_spec, "image": "backup:1"},
        })
    }

    fn v2(&self, name: &str, time_zone: &str) -> Value {
        let schedule = json!({"minute": "5", "hour": "4", "dayOfMonth": "*", "month": "*", "dayOfWeek": "*"});
        json!({
            "apiVersion": format!("{}/v2", self.group), "kind": "CronTab", "metadata": {"name": name},
            "spec": {"schedule": schedule, "image": "backup:1", "timeZone": time_zone},
        })
    }

    fn counted(&self, operation: &str, outcome: &str) -> u64 {
        let text = exposed(&self.registry);
        let webhook = format!("CronTab.{}", self.group);
        let labels = format!(r#"webhook="{webhook}",operation="{operation}",outcome="{outcome}""#);
        let series = format!("admission_requests_total{{{labels}}} ");
        let count = text.lines().find_map(|line| line.strip_prefix(&series));
        count.unwrap_or_else(|| panic!("{series}is not in {text}")).parse().unwrap()
    }
}

fn definition_in(group: &str) -> CustomResourceDefinition {
    let mut definition = definition();
    definition.metadata.name = Some(format!("crontabs.{group}"));
    group.clone_into(&mut definition.spec.group);
    definition
}

fn converter(
    group: &str,
    to_v1: impl Fn(Value) -> Result<Value, BoxError> + Send + Sync + 'static,
) -> Converter {
    let converter = Converter::dynamic(group, "CronTab", "v2");
    converter.spoke_dynamic("v1", to_v2, to_v1).build(&definition_in(group)).unwrap()
}

fn to_v2(v1: Value) -> Result<Value, BoxError> {
    Ok(serde_json::to_value(v1_to_v2(serde_json::from_value(v1)?)?)?)
}

fn to_v1(v2: Value) -> Result<Value, BoxError> {
    Ok(serde_json::to_value(v2_to_v1(serde_json::from_value(v2)?))?)
}

fn items(list: &Value) -> &[Value] {
    list["items"].as_array().unwrap()
}

async fn define(scene: &Scene, crd: &Value) {
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    scene.send(Method::POST, path, "application/json", crd).await.stored();
    let (group, namespace) = (crd["spec"]["group"].as_str().unwrap(), scene.namespace);
    eventually("both versions are served", async || {
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
fn hundreds_of_objects_are_read_in_either_version() {
    in_namespace("converted", async |scene| {
        let group = "converted.example.com";
        let objects = Arc::new(AtomicU64::new(0));
        let counting = Arc::clone(&objects);
        let counted_to_v1 = move |object| {
            counting.fetch_add(1, Ordering::Relaxed);
            to_v1(object)
        };
        let tabs = CronTabs::define(scene, converter(group, counted_to_v1), group).await;
        let tabs = &tabs;
        let create = |number: usize| async move {
            let mut object = tabs.v1(&format!("tab-{number:03}"), &format!("{} 4 * * *", number % 60));
            object["metadata"]["labels"] = json!({"tens": format!("{}", number / 10)});
            tabs.create("v1", &object).await.stored()
        };
        let created: Vec<_> = stream::iter((0..OBJECTS).map(create)).buffered(16).collect().await;

        // Objects in the storage version are not converted, and are the reference for the others.
        let v2 = tabs.get("v2", "").await.stored();
        assert_eq!(items(&v2).len(), OBJECTS);
        for (number, (v1, v2)) in created.iter().zip(items(&v2)).enumerate() {
            assert_eq!(v1["metadata"], v2["metadata"]);
            assert!(v2["metadata"]["managedFields"].is_array(), "{v2}");
            let schedule = &v2["spec"]["schedule"];
            assert_eq!(
                (&schedule["minute"], &schedule["hour"]),
                (&json!((number % 60).to_string()), &json!("4"))
            );
        }

        let one = tabs.get("v1", "/tab-017").await.stored();
        assert_eq!(one, created[17]);
        let v1 = tabs.get("v1", "").await.stored();
        assert!(items(&v1) == created, "the list is another than what was created");
        assert_eq!(v1["apiVersion"], format!("{group}/v1"));

        let (mut pages, mut token) = (Vec::new(), String::new());
        while pages.is_empty() || !token.is_empty() {
            let page = tabs.get("v1", &format!("?limit=120&continue={token}")).await.stored();
            page["metadata"]["continue"].as_str().unwrap_or_default().clone_into(&mut token);
            pages.push(page);
        }
        let sizes: Vec<_> = pages.iter().map(|page| items(page).len()).collect();
        assert_eq!(sizes, [120, 120, 120, 120, 20]);
        assert!(pages.iter().flat_map(items).eq(&created));
        let tens = tabs.get("v1", "?labelSelector=tens=7").await.stored();
        assert_eq!(items(&tens), &created[70..80]);

        // One object per review: the API server converts objects as it reads them from etcd.
        let (converted, to_v1) = (tabs.counted("CONVERT", "converted"), objects.load(Ordering::Relaxed));
        assert_eq!(converted, OBJECTS as u64 + to_v1, "to v2 for each that was created, and to v1");
        assert_eq!(tabs.counted("CONVERT", "errored"), 0);
    });
}

#[test]
fn a_watch_reports_objects_in_its_own_version() {
    in_namespace("watched", async |scene| {
        let group = "watched.example.com";
        let tabs = CronTabs::define(scene, converter(group, to_v1), group).await;
        let tabs = &tabs;
        let create = |number: usize| async move {
            tabs.create("v2", &tabs.v2(&format!("tab-{number:03}"), "Europe/Rome")).await.stored()
        };
        let created: Vec<_> = stream::iter((0..OBJECTS).map(create)).buffered(16).collect().await;
        assert_eq!(created.len(), OBJECTS);
        let kind = GroupVersionKind::gvk(group, "v1", "CronTab");
        let resource = ApiResource::from_gvk_with_plural(&kind, "crontabs");
        let api = Api::<DynamicObject>::namespaced_with(scene.client(), scene.namespace, &resource);
        let mut events = loop {
            let events = api.watch(&WatchParams::default().initial_events(), "").await.unwrap();
            let mut events = Box::pin(events.peekable());
            // A busy API server may not have observed the last objects yet.
            if !matches!(events.as_mut().peek().await, Some(Ok(WatchEvent::Error(_)))) {
                break events;
            }
        };
        let mut next = async || events.try_next().await.unwrap().unwrap();
        let mut told = BTreeSet::new();
        for _ in 0..OBJECTS {
            let event = next().await;
            let WatchEvent::Added(object) = event else { panic!("{event:?} after {}", told.len()) };
            assert_eq!(object.data["spec"], tabs.v1("", "5 4 * * *")["spec"]);
            let annotations = object.metadata.annotations.unwrap_or_default();
            assert_eq!(annotations["stable.example.com/time-zone"], "Europe/Rome");
            told.insert(object.metadata.name);
        }
        assert!(told.into_iter().eq((0..OBJECTS).map(|number| Some(format!("tab-{number:03}")))));
        let end = next().await;
        let WatchEvent::Bookmark(bookmark) = end else { panic!("{end:?}") };
        assert!(bookmark.metadata.annotations.contains_key("k8s.io/initial-events-end"));

        // The API server sends further bookmarks, about one a minute.
        let mut next_change = async || loop {
            match next().await {
                WatchEvent::Bookmark(_) => (),
                change => break change,
            }
        };
        let patch = json!({"spec": {"schedule": {"minute": "6"}}});
        tabs.send(Method::PATCH, ("v2", "/tab-001"), MERGE, &patch).await.stored();
        let event = next_change().await;
        let WatchEvent::Modified(object) = event else { panic!("{event:?}") };
        assert_eq!(object.data["spec"]["cronSpec"], "6 4 * * *");
        tabs.send(Method::DELETE, ("v1", "/tab-002"), JSON, &Value::Null).await.stored();
        let event = next_change().await;
        let WatchEvent::Deleted(object) = event else { panic!("{event:?}") };
        assert_eq!(object.data["spec"]["cronSpec"], "5 4 * * *");
    });
}

#[test]
fn writes_in_one_version_keep_fields_of_the_other() {
    in_namespace("written", async |scene| {
        let group = "written.example.com";
        let tabs = CronTabs::define(scene, converter(group, to_v1), group).await;
        let stored = tabs.create("v2", &tabs.v2("nightly", "Europe/Rome")).await.stored();

        let mut v1 = tabs.get("v1", "/nightly").await.stored();
        assert_eq!(v1["metadata"]["annotations"], json!({"stable.example.com/time-zone": "Europe/Rome"}));
        v1["spec"]["cronSpec"] = json!("0 3 * * 1");
        v1["metadata"]["labels"] = json!({"from": "v1", "other": "x"});
        tabs.send(Method::PUT, ("v1", "/nightly"), JSON, &v1).await.stored();
        let v2 = tabs.get("v2", "/nightly").await.stored();
        assert_eq!(v2["spec"]["timeZone"], "Europe/Rome");
        assert_eq!(v2["spec"]["schedule"]["dayOfWeek"], "1");
        assert_eq!(v2["metadata"]["labels"], json!({"from": "v1", "other": "x"}));
        assert_eq!(v2["metadata"]["annotations"], json!(null));
        assert_eq!(v2["metadata"]["uid"], stored["metadata"]["uid"]);

        let labels = json!({"metadata": {"labels": {"other": null, "from": "v1-again"}}});
        tabs.send(Method::PATCH, ("v1", "/nightly"), MERGE, &labels).await.stored();
        let v2 = tabs.get("v2", "/nightly").await.stored();
        assert_eq!(v2["metadata"]["labels"], json!({"from": "v1-again"}));
        assert_eq!(v2["spec"]["timeZone"], "Europe/Rome");

        // Removing the annotation removes the time zone.
        let patch = json!({"metadata": {"annotations": null}});
        tabs.send(Method::PATCH, ("v1", "/nightly"), MERGE, &patch).await.stored();
        let v2 = tabs.get("v2", "/nightly").await.stored();
        assert_eq!(v2["spec"]["timeZone"], json!(null));
    });
}

#[test]
fn two_managers_apply_objects_of_derived_types() {
    in_namespace("derived", async |scene| {
        // A type that fills in a default keeps values that no manager applies any longer.
        for (converter, size) in [(widget::builder(), 1), (widget::strict(), 5)] {
            apply_widgets(scene, converter.build(&widget::definition()).unwrap(), size).await;
        }
    });
}

/// `size` is that of an object whose owner no longer applies it.
async fn apply_widgets(scene: &Scene, converter: Converter, size: u32) {
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let url = format!("{}/convert", serve(Router::new().convert("/convert", converter)).await);
    let mut definition = serde_json::to_value(widget::definition()).unwrap();
    definition["spec"]["conversion"] = json!({"strategy": "Webhook", "webhook": {
        "conversionReviewVersions": ["v1"], "clientConfig": {"url": url, "caBundle": *CA_BUNDLE}}});
    eventually("the definition is created", async || {
        let answer = scene.send(Method::POST, definitions, JSON, &definition).await;
        if answer.code == 201 { Ok(()) } else { Err(answer) }
    })
    .await;
    let apply = async |manager: &str, version: &str, fields: Value| {
        let mut object = json!({
            "apiVersion": format!("widgets.example.com/{version}"), "kind": "Widget", "metadata": {"name": "a"},
        });
        object.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let path = format!("/apis/widgets.example.com/{version}/namespaces/{}/widgets", scene.namespace);
        let path = format!("{path}/a?fieldManager={manager}");
        scene.send(Method::PATCH, &path, APPLY, &object).await
    };
    let owned = |spec: Value| json!({"spec": spec});
    let labelled = |team: &str| json!({"metadata": {"name": "a", "labels": {"team": team}}});
    eventually("the object is applied", async || {
        let answer = apply("owner", "v1", owned(json!({"image": "app:1", "size": 5}))).await;
        if matches!(answer.code, 200 | 201) { Ok(()) } else { Err(answer) }
    })
    .await;
    // Other managers with fields in the other version.
    apply("labeller", "v2", labelled("a")).await.stored();
    let answer = apply("intruder", "v2", owned(json!({"image": "app:1", "replicas": 9}))).await;
    assert!(answer.code == 409 && answer.message().contains("\"owner\""), "{answer:?}");
    let stored = apply("owner", "v1", owned(json!({"image": "app:2"}))).await.stored();
    assert_eq!(stored["spec"], json!({"image": "app:2", "size": size}));
    // In another version: without the owner's former fields, the object has no spec.
    let stored = apply("owner", "v2", owned(json!({"image": "app:3", "replicas": 2}))).await.stored();
    assert_eq!(stored["spec"], json!({"image": "app:3", "replicas": 2}));
    let stored = apply("labeller", "v1", labelled("b")).await.stored();
    assert_eq!(stored["metadata"]["labels"], json!({"team": "b"}));
    assert_eq!(stored["spec"], json!({"image": "app:3", "size": 2}));
    let managers: BTreeMap<_, _> = stored["metadata"]["managedFields"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| (entry["manager"].as_str().unwrap(), entry["apiVersion"].as_str().unwrap()))
        .collect();
    let expected = [("owner", "widgets.example.com/v2"), ("labeller", "widgets.example.com/v1")];
    assert_eq!(managers, BTreeMap::from(expected));
    let path = format!("{definitions}/widgets.widgets.example.com");
    scene.send(Method::DELETE, &path, JSON, &Value::Null).await.stored();
}

#[test]
fn a_failed_conversion_names_object_and_cause() {
    in_namespace("unconvertible", async |scene| {
        let group = "unconvertible.example.com";
        let particular = |object: Value| {
            let spec = object["spec"].clone();
            let mut v1 = to_v1(object)?;
            match spec["timeZone"].as_str().unwrap() {
                "refused" => return Err("v1 has no word for it".into()),
                "panic" => panic!("on purpose"),
                "renamed" => v1["metadata"]["name"] = json!("another"),
                "unowned" => {
                    v1["metadata"] = json!({"name": v1["metadata"]["name"],
                    "namespace": v1["metadata"]["namespace"], "uid": v1["metadata"]["uid"],
                    "labels": {"made": "up"}})
                }
                _ => {}
            }
            Ok(v1)
        };
        let tabs = CronTabs::define(scene, converter(group, particular), group).await;
        let create =
            async |name: &str, time_zone| tabs.create("v2", &tabs.v2(name, time_zone)).await.stored();
        create("good", "UTC").await;
        tabs.get("v1", "").await.stored();

        for (time_zone, cause) in [
            ("refused", ": v1 has no word for it"),
            ("panic", ": the conversion function panicked"),
            (
                "renamed",
                ": metadata.name must stay as it is, and was changed from \"z-renamed\" to \"another\"",
            ),
        ] {
            let name = format!("z-{time_zone}");
            create(&name, time_zone).await;
            let object = format!("failed to convert CronTab unconvertible/{name} from v2 to v1{cause}");
            let message =
                format!("conversion webhook for {group}/v2, Kind=CronTab failed: objects[0]: {object}");
            for path in [String::new(), format!("/{name}")] {
                let answer = tabs.get("v1", &path).await;
                // From Kubernetes 1.37 after the words of its storage.
                let is_told = answer.message().ends_with(&message);
                assert!(answer.code == 500 && is_told, "expected {message}, found {answer:?}");
            }
            tabs.get("v1", "/good").await.stored();
            tabs.send(Method::DELETE, ("v2", &format!("/{name}")), JSON, &Value::Null).await.stored();
        }
        assert!(tabs.counted("CONVERT", "errored") > 1 && tabs.counted("CONVERT", "panicked") > 1);

        // The API server restores all metadata except labels and annotations.
        let mut expected = create("unowned", "unowned").await["metadata"].clone();
        expected["labels"] = json!({"made": "up"});
        assert_eq!(tabs.get("v1", "/unowned").await.stored()["metadata"], expected);
    });
}
