//! Clients of handlers with a real cluster.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use k8s_openapi::api::authorization::v1::{SelfSubjectAccessReview, SubjectAccessReview};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, ServiceAccount};
use kube::api::{DeleteParams, EvictParams, ListParams, Patch, PatchParams, PostParams};
use kube::client::Body;
use kube::{Api, Client, ResourceExt};
use lucid_testbed::Cluster;
use lucid_webhook::client::ClusterClient;
use lucid_webhook::{AdmissionResponse, Router, Webhook};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tower::service_fn;

use crate::common::post;
use crate::handlers::review;

fn object<K: DeserializeOwned>(object: Value) -> K {
    serde_json::from_value(object).unwrap()
}

fn config_map(name: &str) -> ConfigMap {
    object(json!({"metadata": {"name": name, "labels": {"test": "dry-run"}}, "data": {"a": "1"}}))
}

fn counting(client: &Client) -> (Client, Arc<AtomicUsize>) {
    let (real, count) = (client.clone(), Arc::new(AtomicUsize::new(0)));
    let counter = count.clone();
    let service = service_fn(move |request: http::Request<Body>| {
        counter.fetch_add(1, Ordering::SeqCst);
        let real = real.clone();
        async move { real.send(request).await }
    });
    (Client::new(service, client.default_namespace()), count)
}

#[test]
fn webhooks_are_built_outside_of_a_runtime() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let client = {
        let _inside = runtime.enter();
        Client::new(service_fn(async |_: http::Request<Body>| Err::<http::Response<Body>, _>("away")), "a")
    };
    let webhook = Webhook::validating("a.example.com", async || AdmissionResponse::allow());
    let router = Router::new().webhook("/", webhook.with_client(client));
    assert_eq!(router.registrations().count(), 1);
    assert!(lucid_webhook::shutdown_signal().is_err());
}

/// The client given to the handler of a webhook without side effects.
async fn dry_run(client: &Client) -> Client {
    let given = Arc::new(Mutex::new(None));
    let received = given.clone();
    let handler = move |ClusterClient(client): ClusterClient| {
        *received.lock().unwrap() = Some(client);
        std::future::ready(AdmissionResponse::allow())
    };
    let webhook = Webhook::validating("a.example.com", handler).with_client(client.clone());
    post(&Router::new().webhook("/", webhook), "/", &review(json!({}))).await;
    given.lock().unwrap().take().unwrap()
}

#[tokio::test]
async fn a_dry_run_client_changes_nothing_and_a_real_one_does() {
    let cluster = Cluster::builder().start().await.unwrap();
    let real = cluster.client();
    let dry = dry_run(&real).await;
    let maps = |client: &Client| Api::<ConfigMap>::namespaced(client.clone(), "default");
    let (before, dry_maps) = (maps(&real), maps(&dry));
    let (post, delete) = (PostParams::default(), DeleteParams::default());

    // The object is in the response, but is not created.
    let answer = dry_maps.create(&post, &config_map("new")).await.unwrap();
    assert!(answer.uid().is_some());
    assert!(before.get_opt("new").await.unwrap().is_none());
    let apply = Patch::Apply(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "new"}}));
    dry_maps.patch("new", &PatchParams::apply("test"), &apply).await.unwrap();
    assert!(before.get_opt("new").await.unwrap().is_none());

    // The existing object is unchanged.
    let stored = before.create(&post, &config_map("old")).await.unwrap();
    let merge = Patch::Merge(json!({"data": {"a": "2"}}));
    let patched = dry_maps.patch("old", &PatchParams::default(), &merge).await.unwrap();
    assert_eq!(patched.data.unwrap()["a"], "2");
    let mut changed = stored.clone();
    changed.data.as_mut().unwrap().insert("a".to_owned(), "3".to_owned());
    let replaced = dry_maps.replace("old", &post, &changed).await.unwrap();
    assert_eq!(replaced.data.unwrap()["a"], "3");
    // With options in the body, as kube always sends them, and in the query.
    dry_maps.delete("old", &delete).await.unwrap();
    dry_maps.delete("old", &delete.clone().grace_period(0)).await.unwrap();
    let path = "/api/v1/namespaces/default/configmaps/old";
    dry.send(http::Request::delete(path).body(Body::empty()).unwrap()).await.unwrap();
    dry_maps.delete_collection(&delete, &ListParams::default().labels("test=dry-run")).await.unwrap();
    dry_maps.delete_collection(&delete.clone().grace_period(0), &ListParams::default()).await.unwrap();
    let still = before.get("old").await.unwrap();
    assert_eq!(still, stored, "a dry run changed something");

    // Subresources as well.
    let pods = |client: &Client| Api::<Pod>::namespaced(client.clone(), "default");
    let pod =
        object(json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}));
    let stored = pods(&real).create(&post, &pod).await.unwrap();
    let status = Patch::Merge(json!({"status": {"phase": "Failed"}}));
    let answer = pods(&dry).patch_status("p", &PatchParams::default(), &status).await.unwrap();
    assert_eq!(answer.status.unwrap().phase.as_deref(), Some("Failed"));
    pods(&dry).evict("p", &EvictParams::default()).await.unwrap();
    let binding = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}}).to_string();
    let bind = http::Request::post("/api/v1/namespaces/default/pods/p/binding")
        .header("Content-Type", "application/json")
        .body(binding.into_bytes());
    dry.request_text(bind.unwrap()).await.unwrap();
    assert_eq!(pods(&real).get("p").await.unwrap(), stored, "a dry run changed the pod");

    // The API server's own validation still applies.
    let twice = dry_maps.create(&post, &config_map("old")).await.unwrap_err();
    assert!(matches!(twice, kube::Error::Api(status) if status.code == 409));

    // Reviews are sent.
    let review: SelfSubjectAccessReview =
        object(json!({"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}}));
    let review = Api::all(dry.clone()).create(&post, &review).await.unwrap();
    assert!(review.status.unwrap().allowed);
    let review: SubjectAccessReview = object(json!({"spec": {"user": "system:serviceaccount:a:b",
        "resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "shop"}}}));
    let review = Api::all(dry.clone()).create(&post, &review).await.unwrap();
    assert!(!review.status.unwrap().allowed);

    before.delete("old", &delete).await.unwrap();
    assert!(before.get_opt("old").await.unwrap().is_none());
}

#[tokio::test]
async fn requests_without_dry_run_are_not_sent() {
    let cluster = Cluster::builder().start().await.unwrap();
    let accounts = Api::<ServiceAccount>::namespaced(cluster.client(), "default");
    let account = object(json!({"metadata": {"name": "robot"}}));
    accounts.create(&PostParams::default(), &account).await.unwrap();
    let token = "/api/v1/namespaces/default/serviceaccounts/robot/token";
    let post = |path: &str| {
        let request = http::Request::post(path).header("Content-Type", "application/json");
        request.body(br#"{"spec": {}}"#.to_vec()).unwrap()
    };
    let answer: Value = cluster.client().request(post(&format!("{token}?dryRun=All"))).await.unwrap();
    assert!(
        answer["status"]["token"].is_string(),
        "the API server has learned a dry run of tokens: allow it"
    );

    let (counted, count) = counting(&cluster.client());
    let dry = dry_run(&counted).await;
    let get = |path: &str| http::Request::get(path).body(Vec::new()).unwrap();
    let upgrade = http::Request::get("/apis/subresources.example.com/v1/namespaces/a/machines/b/console")
        .header("Upgrade", "websocket")
        .body(Vec::new());
    for request in [
        post(token),
        post("/api/v1/namespaces/default/pods/p/exec?command=reboot"),
        get("/api/v1/namespaces/default/pods/p/exec?command=reboot"),
        get("/api/v1/namespaces/default/services/s/proxy/reset"),
        http::Request::put("/debug/flags/v").body(b"5".to_vec()).unwrap(),
        upgrade.unwrap(),
    ] {
        let uri = request.uri().clone();
        match dry.request_text(request).await.unwrap_err() {
            kube::Error::Service(error) => {
                let error = error.to_string();
                assert!(error.contains("effects that dryRun does not prevent"), "{uri}: {error}");
            }
            error => panic!("{uri}: {error}"),
        }
    }
    let protobuf = http::Request::delete("/api/v1/namespaces/default/serviceaccounts/robot")
        .header("Content-Type", "application/vnd.kubernetes.protobuf")
        .body(b"k8s\0".to_vec());
    assert!(dry.request_text(protobuf.unwrap()).await.is_err());
    assert_eq!(count.load(Ordering::SeqCst), 0);
    Api::<ServiceAccount>::namespaced(dry, "default").get("robot").await.unwrap();
    assert_eq!(count.load(Ordering::SeqCst), 1);
}
