//! The test kit calls the webhooks that the API server calls.

use std::mem::take;
use std::sync::{Arc, Mutex, PoisonError};

use http::Method;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use lucid_e2e::{ClusterExt as _, eventually};
use lucid_webhook::registration::{Rule, parse_selector};
use lucid_webhook::{AdmissionRequest, AdmissionResponse, BoxError, JsonPatch, Operation, Router, Webhook};
use lucid_webhook_test::{ApiServer, Review, ReviewOutcome};
use serde_json::{Value, json};

use super::{Answer, in_namespace, pod};

const OTHER: &str = "registrations-other";

const READY: [&str; 6] = [
    "a.example.com",
    "b.example.com",
    "c.example.com",
    "a.example.com",
    "c.example.com",
    "v-all.example.com",
];

#[derive(Clone, Default)]
struct Called(Arc<Mutex<Vec<&'static str>>>);

impl Called {
    fn add(&self, name: &'static str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(name);
    }

    /// The mutating webhooks in order, then the validating ones, which the API server calls concurrently, by name.
    fn take(&self) -> Vec<&'static str> {
        let called = take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        let (mut validating, mut all): (Vec<_>, Vec<_>) =
            called.into_iter().partition(|name| name.starts_with("v-"));
        validating.sort_unstable();
        all.append(&mut validating);
        all
    }

    /// Appends its letter to the label `seen`, unless it is the last one.
    fn mutating(&self, name: &'static str) -> Webhook {
        let called = self.clone();
        let handler = move |request: AdmissionRequest| {
            called.add(name);
            async move {
                let object: Value = request.object.ok_or("no object")?.decode()?;
                let mut labels = object["metadata"]["labels"].as_object().cloned().unwrap_or_default();
                let letter = &name[..1];
                let seen = labels.get("seen").and_then(Value::as_str).unwrap_or_default().to_owned();
                if seen.ends_with(letter) {
                    return Ok(AdmissionResponse::allow());
                }
                labels.insert("seen".to_owned(), format!("{seen}{letter}").into());
                let patch = json!([{"op": "add", "path": "/metadata/labels", "value": labels}]);
                Ok::<_, BoxError>(AdmissionResponse::patch(JsonPatch::from_operations(&patch)?))
            }
        };
        Webhook::mutating(name, handler)
    }

    fn validating(&self, name: &'static str) -> Webhook {
        let called = self.clone();
        let handler = move |request: AdmissionRequest| {
            called.add(name);
            async move {
                let object = request.object.or(request.old_object).ok_or("no object")?;
                let object: Value = object.decode()?;
                Ok::<_, BoxError>(match object.pointer("/metadata/labels/deny") {
                    Some(_) => AdmissionResponse::deny(403, "Forbidden", "it has the label deny"),
                    None => AdmissionResponse::allow(),
                })
            }
        };
        Webhook::validating(name, handler)
    }

    fn router(&self) -> Router {
        let create = || Rule::of::<Pod>([Operation::Create]);
        let any = Rule::new("*", ["*"], ["*"], [Operation::Create, Operation::Update, Operation::Delete]);
        let status = Rule::of::<Pod>([Operation::Update]).subresource("status");
        let namespaces = Rule::of::<Namespace>([Operation::Create]).cluster_scoped();
        let webhooks = [
            (self.validating("v-all.example.com"), any.namespaced(), "kit=yes", None, false),
            (self.validating("v-status.example.com"), status, "kit=yes", None, false),
            (self.validating("v-namespace.example.com"), namespaces, "kit=yes", None, false),
            (self.mutating("a.example.com"), create(), "kit=yes", None, true),
            (self.mutating("b.example.com"), create(), "kit=yes,team=a", None, false),
            (self.mutating("c.example.com"), create(), "kit=yes", Some("!skip"), true),
            // The label exists once another webhook has patched the object.
            (self.mutating("d.example.com"), create(), "kit=yes", Some("seen,team=b"), false),
        ];
        let mut router = Router::new();
        for (number, (webhook, rule, namespaces, objects, again)) in webhooks.into_iter().enumerate() {
            let webhook = webhook.with_registration(|mut it| {
                it = it.with_rule(rule).with_namespace_selector(parse_selector(namespaces).unwrap());
                if let Some(objects) = objects {
                    it = it.with_object_selector(parse_selector(objects).unwrap());
                }
                if again { it.with_reinvocation() } else { it }
            });
            router = router.webhook(format!("/{number}"), webhook);
        }
        router
    }
}

type Seen = (Result<Value, String>, Vec<&'static str>);

fn real(answer: &Answer, called: &Called) -> Seen {
    let labels = &answer.body["metadata"]["labels"];
    let is_stored = matches!(answer.code, 200 | 201);
    (if is_stored { Ok(labels.clone()) } else { Err(answer.message().to_owned()) }, called.take())
}

fn simulated(outcome: ReviewOutcome, called: &Called) -> Seen {
    let labels = outcome.result.map(|object| object["metadata"]["labels"].clone());
    (labels.map_err(|rejection| rejection.message), called.take())
}

#[test]
fn the_kit_calls_the_webhooks_that_the_api_server_calls() {
    in_namespace("registrations", async |scene| {
        scene.cluster.create_namespace(OTHER, &[("kit", "yes"), ("team", "b")]).await.unwrap();
        let called = Called::default();
        let router = called.router();
        let labels = json!({"metadata": {"labels": {"kit": "yes", "team": "a"}}});
        let namespace = format!("/api/v1/namespaces/{}", scene.namespace);
        scene.send(Method::PATCH, &namespace, "application/merge-patch+json", &labels).await.stored();
        scene.configure(&router).await;
        eventually("the webhooks are called", async || {
            scene.create("pods?dryRun=All", &pod("ready", json!({"deny": "1"}))).await;
            let all = called.take();
            if all == READY { Ok(()) } else { Err(all) }
        })
        .await;
        let kit = ApiServer::registered(&router)
            .namespace(OTHER, [("kit", "yes"), ("team", "b")])
            .namespace(scene.namespace, [("kit", "yes"), ("team", "a")]);

        for (namespace, labels) in [
            (scene.namespace, json!({})),
            (scene.namespace, json!({"skip": "1"})),
            (scene.namespace, json!({"team": "b"})),
            (scene.namespace, json!({"deny": "1"})),
            (OTHER, json!({})),
            (OTHER, json!({"skip": "1", "team": "b"})),
            ("nowhere", json!({})),
        ] {
            let mut object = pod("web", labels.clone());
            object["apiVersion"] = "v1".into();
            object["kind"] = "Pod".into();
            object["metadata"]["namespace"] = namespace.into();
            let path = format!("/api/v1/namespaces/{namespace}/pods?dryRun=All");
            let answer = scene.send(Method::POST, &path, "application/json", &object).await;
            let expected = real(&answer, &called);
            assert_eq!(simulated(kit.create(&object).await, &called), expected, "{namespace} {labels}");
        }

        let config = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "web"}});
        let expected = real(&scene.create("configmaps?dryRun=All", &config).await, &called);
        assert_eq!(simulated(kit.create(&config).await, &called), expected);

        let stored = scene.create("pods", &pod("web", json!({}))).await.stored();
        called.take();
        let mut changed = stored.clone();
        changed["metadata"]["labels"]["more"] = "1".into();
        let expected =
            real(&scene.merge("pods/web", &json!({"metadata": {"labels": {"more": "1"}}})).await, &called);
        assert_eq!(simulated(kit.update(&stored, &changed).await, &called), expected);
        let expected =
            real(&scene.merge("pods/web/status", &json!({"status": {"reason": "x"}})).await, &called);
        let review = Review::update(&changed, &changed).subresource("status");
        assert_eq!(simulated(kit.review(&review).await, &called), expected);
        scene.delete("pods/web").await;
        let mut expected = called.take();
        // The API server repeats the request if its cached object was outdated.
        expected.dedup();
        drop(kit.delete(&changed).await);
        assert_eq!(called.take(), expected);

        for labels in [json!({"kit": "yes"}), json!({"kit": "no"})] {
            let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "new", "labels": labels}});
            let path = "/api/v1/namespaces?dryRun=All";
            scene.send(Method::POST, path, "application/json", &namespace).await.stored();
            let expected = called.take();
            drop(kit.create(&namespace).await);
            assert_eq!(called.take(), expected, "{labels}");
        }
    });
}
