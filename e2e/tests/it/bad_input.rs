//! Requests that make no sense, sent to the operator itself.

use crate::common::{cluster, create, operator, secured};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::Api;
use lucid_testbed::Cluster;
use serde_json::{Value, json};

fn review(request: Value) -> Vec<u8> {
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})
        .to_string()
        .into_bytes()
}

pub(crate) fn request(operation: &str, kind: Value, object: Value) -> Vec<u8> {
    review(json!({
        "uid": "u-1", "kind": kind, "resource": {"group": "", "version": "v1", "resource": "pods"},
        "namespace": "shop", "operation": operation, "userInfo": {}, "object": object,
    }))
}

/// A client that trusts the operator as the API server does.
pub(crate) async fn client(cluster: &Cluster) -> reqwest::Client {
    let api: Api<ValidatingWebhookConfiguration> = Api::all(cluster.client());
    let webhook = api.get("lucid-operator").await.unwrap().webhooks.unwrap().remove(0);
    let roots = reqwest::Certificate::from_pem_bundle(&webhook.client_config.ca_bundle.unwrap().0).unwrap();
    reqwest::Client::builder().tls_certs_only(roots).no_proxy().build().unwrap()
}

/// Name, content type, body, HTTP status, and for 200 whether it is allowed.
type Case = (&'static str, &'static str, Vec<u8>, u16, Option<bool>);

#[tokio::test]
async fn every_bad_request_is_answered_and_the_operator_lives_on() {
    let cluster = cluster().await;
    let operator = operator(&cluster, |operator| operator).await;
    let client = client(&cluster).await;
    let pod_kind = json!({"group": "", "version": "v1", "kind": "Pod"});
    let pod = secured("web");
    let whole = request("CREATE", pod_kind.clone(), pod.clone());
    let deployment = json!({"group": "apps", "version": "v1", "kind": "Deployment"});
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let cases: Vec<Case> = vec![
        ("a good one", "application/json", whole.clone(), 200, Some(true)),
        ("empty body", "application/json", vec![], 400, None),
        ("wrong content type", "application/x-yaml", whole.clone(), 415, None),
        ("truncated JSON", "application/json", whole[..whole.len() - 20].to_vec(), 400, None),
        (
            "review without request",
            "application/json",
            br#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}"#.to_vec(),
            400,
            None,
        ),
        ("wrong kind of review", "application/json", pod.to_string().into_bytes(), 400, None),
        (
            "conversion review",
            "application/json",
            br#"{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","request":{"uid":"u-1"}}"#
                .to_vec(),
            400,
            None,
        ),
        ("10 MB body", "application/json", vec![b'x'; 10 * 1024 * 1024], 400, None),
        ("30 MB body", "application/json", vec![b'x'; 30 * 1024 * 1024], 413, None),
        ("deep nesting", "application/json", deep.into_bytes(), 400, None),
        (
            "unknown operation",
            "application/json",
            request("PATCH", pod_kind.clone(), pod.clone()),
            200,
            Some(false),
        ),
        (
            "object of another kind",
            "application/json",
            request("CREATE", deployment, pod.clone()),
            200,
            Some(false),
        ),
        (
            "object null on DELETE",
            "application/json",
            request("DELETE", pod_kind.clone(), Value::Null),
            200,
            Some(true),
        ),
        (
            "object null on CREATE",
            "application/json",
            request("CREATE", pod_kind.clone(), Value::Null),
            200,
            Some(true),
        ),
        (
            "object that is a string",
            "application/json",
            request("CREATE", pod_kind.clone(), json!("pod")),
            200,
            Some(false),
        ),
        (
            "containers that are a string",
            "application/json",
            request("CREATE", pod_kind.clone(), json!({"spec": {"containers": "many"}})),
            200,
            Some(false),
        ),
        (
            "pod without anything",
            "application/json",
            request("CREATE", pod_kind.clone(), json!({})),
            200,
            Some(true),
        ),
    ];
    for path in ["/mutate", "/validate"] {
        for (name, content_type, body, status, allowed) in &cases {
            let url = format!("{}{path}", operator.url());
            let request = client.post(url).header("content-type", *content_type).body(body.clone());
            let response = request.send().await.unwrap_or_else(|error| panic!("{path}, {name}: {error:?}"));
            assert_eq!(response.status(), *status, "{path}, {name}");
            let text = response.text().await.unwrap();
            let Some(allowed) = allowed else {
                assert!(!text.trim().is_empty(), "{path}, {name}: no reason is given");
                continue;
            };
            let answer: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(answer["response"]["uid"], "u-1", "{path}, {name}: {text}");
            assert_eq!(answer["response"]["allowed"], *allowed, "{path}, {name}: {text}");
            let code = answer["response"]["status"]["code"].as_u64();
            assert_eq!(code.is_none(), *allowed, "{path}, {name}: {text}");
        }
    }
    create(&cluster, "shop", &pod).await.stored().unwrap();
    assert!(!std::fs::read_to_string(operator.log()).unwrap().contains("panicked"));
}
