//! Interoperability with kube's admission types and with axum.

use axum::body::Body;
use axum::routing::get;
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, Patch, PatchOperation};
use k8s_openapi::api::core::v1::Pod;
use kube_core::DynamicObject;
use kube_core::admission::{self, AdmissionReview};
use lucid_webhook::registration::Rule;
use lucid_webhook::{AdmissionRequest, AdmissionResponse, Changed, Object, Operation, Router, Webhook};
use lucid_webhook_test::{ApiServer, Review};
use serde_json::{Value, json};
use tower::ServiceExt;

const NAME: &str = "a.example.com";

fn pod() -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "shop"}, "spec": {"containers": []}})
}

fn review() -> Review {
    Review::update(&pod(), &pod())
        .user("jane", ["dev"])
        .user_extra("scopes", ["a"])
        .subresource("status")
        .uid("u-1")
        .dry_run()
}

#[test]
fn a_request_survives_conversion_to_kube_and_back() {
    let sent: Value = serde_json::from_slice(&review().to_bytes()).unwrap();
    let by_kube: AdmissionReview<DynamicObject> = serde_json::from_value(sent).unwrap();
    let request = AdmissionRequest::try_from(by_kube.clone()).unwrap();
    let converted: AdmissionReview<DynamicObject> = (&request).try_into().unwrap();
    let value = |review: &AdmissionReview<DynamicObject>| {
        let mut review = serde_json::to_value(review).unwrap();
        for resource in ["resource", "requestResource"] {
            // kube computes it, or leaves it empty.
            review["request"][resource].as_object_mut().unwrap().remove("api_version");
        }
        review
    };
    assert_eq!(value(&converted), value(&by_kube));

    let typed: admission::AdmissionRequest<Pod> = (&request).try_into().unwrap();
    assert_eq!(typed.object.as_ref().unwrap().metadata.name.as_deref(), Some("web"));
    let back = AdmissionRequest::try_from(typed).unwrap();
    assert_eq!((back.uid, back.kind, back.user_info), (request.uid, request.kind, request.user_info));

    let empty =
        AdmissionReview::<Pod> { request: None, ..serde_json::from_slice(&review().to_bytes()).unwrap() };
    assert_eq!(
        AdmissionRequest::try_from(empty).unwrap_err().to_string(),
        "the AdmissionReview has no request"
    );
}

#[tokio::test]
async fn handlers_for_kube_types_are_accepted() {
    fn mutate(request: &admission::AdmissionRequest<DynamicObject>) -> admission::AdmissionResponse {
        let mut response = admission::AdmissionResponse::from(request);
        if request.user_info.username.as_deref() == Some("guest") {
            return response.deny("no guests");
        }
        response.warnings = Some(vec!["labelled".to_owned()]);
        response.audit_annotations.insert("label".to_owned(), "team".to_owned());
        let add = AddOperation {
            path: PointerBuf::from_tokens(["metadata", "labels"]),
            value: json!({"team": "a"}),
        };
        response.with_patch(Patch(vec![PatchOperation::Add(add)])).unwrap()
    }
    async fn handle(request: admission::AdmissionRequest<DynamicObject>) -> admission::AdmissionResponse {
        mutate(&request)
    }
    let pods = || Rule::of::<Pod>([Operation::Create, Operation::Update]);
    async fn typed(_: admission::AdmissionRequest<Pod>) -> AdmissionResponse {
        AdmissionResponse::allow()
    }
    let router = Router::new()
        .webhook("/mutate", Webhook::mutating(NAME, handle).with_registration(|it| it.with_rule(pods())))
        .webhook(
            "/typed",
            Webhook::validating("b.example.com", typed).with_registration(|it| it.with_rule(pods())),
        );
    let api_server = ApiServer::registered(&router).namespace::<&str, &str>("shop", []);
    let outcome = api_server.review(&Review::create(&pod())).await;
    assert_eq!(outcome.warnings, ["labelled"]);
    assert_eq!(outcome.expect_admitted()["metadata"]["labels"], json!({"team": "a"}));
    let rejection = api_server.review(&Review::create(&pod()).user("guest", ["dev"])).await.expect_rejected();
    assert_eq!(rejection.code, 400);
    assert!(rejection.message.ends_with("denied the request: no guests"), "{rejection}");

    let mut broken = pod();
    broken["spec"]["containers"] = json!(7);
    let rejection = api_server.review(&Review::create(&broken)).await.expect_rejected();
    assert_eq!((rejection.code, rejection.causes[0].field.as_deref()), (400, Some("spec.containers")));
    assert!(rejection.message.contains("the object, core/v1 Pod shop/web: failed to decode"), "{rejection}");
    let rejection = api_server.review(&Review::update(&broken, &pod())).await.expect_rejected();
    assert!(
        rejection.message.contains("the old object, core/v1 Pod shop/web: failed to decode"),
        "{rejection}"
    );
}

#[tokio::test]
async fn a_router_is_mounted_in_axum() {
    async fn label(Object(mut pod): Object<Pod>) -> Changed<Pod> {
        pod.metadata.labels.get_or_insert_default().insert("seen".into(), "true".into());
        Changed::new(pod)
    }
    let webhooks = Router::new().webhook("/label", Webhook::mutating(NAME, label));
    let app = axum::Router::new()
        .route("/version", get(async || "1"))
        .nest_service("/nested", webhooks.clone())
        .fallback_service(webhooks);

    for path in ["/label?timeout=5s", "/nested/label"] {
        let request = Request::post(path).header("content-type", "application/json");
        let request = request.body(Body::from(Review::create(&pod()).uid("u-1").to_bytes())).unwrap();
        let response = app.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let review: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(
            (&review["response"]["uid"], &review["response"]["patchType"]),
            (&json!("u-1"), &json!("JSONPatch"))
        );
    }
    for (path, status) in [("/version", StatusCode::OK), ("/other", StatusCode::NOT_FOUND)] {
        let request = Request::get(path).body(Body::empty()).unwrap();
        assert_eq!(app.clone().oneshot(request).await.unwrap().status(), status, "{path}");
    }
}
