//! Malformed requests to the operator, and invalid pods to the API server.

use crate::common::{
    GUARDRAILS, ca_bundle, chain, client_of, cluster, create, expected, log, operator, secured, secured_with,
    unplanned,
};
use lucid_e2e::Operator;
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

/// In one cluster, with the default settings.
#[tokio::test]
async fn bad_input_gets_a_response() {
    let cluster = cluster().await;
    let operator = operator(&cluster, |operator| operator).await;
    invalid_annotations_are_warnings(&cluster, &operator).await;
    malformed_requests_get_a_response(&cluster, &operator).await;
    log_lines_cannot_be_forged(&cluster, &operator).await;
    escaping_does_not_make_a_pod_too_large(&cluster).await;
}

/// Name, content type, body, HTTP status, and for 200 the expected `allowed`.
type Case = (&'static str, &'static str, Vec<u8>, u16, Option<bool>);

async fn malformed_requests_get_a_response(cluster: &Cluster, operator: &Operator) {
    let client = client_of(&ca_bundle(cluster).await);
    let pod_kind = json!({"group": "", "version": "v1", "kind": "Pod"});
    let pod = secured("web");
    let whole = request("CREATE", pod_kind.clone(), pod.clone());
    let deployment = json!({"group": "apps", "version": "v1", "kind": "Deployment"});
    let json = "application/json";
    let create = |kind: &Value, object: Value| request("CREATE", kind.clone(), object);
    let containers = json!({"spec": {"containers": "many"}});
    let cases: Vec<Case> = vec![
        ("a good one", json, whole.clone(), 200, Some(true)),
        ("empty body", json, vec![], 400, None),
        ("wrong content type", "application/x-yaml", whole.clone(), 415, None),
        ("wrong kind of review", json, pod.to_string().into_bytes(), 400, None),
        ("30 MB body", json, vec![b'x'; 30 * 1024 * 1024], 413, None),
        ("object of another kind", json, create(&deployment, pod.clone()), 200, Some(false)),
        ("object null on DELETE", json, request("DELETE", pod_kind.clone(), Value::Null), 200, Some(true)),
        ("object null on CREATE", json, create(&pod_kind, Value::Null), 200, Some(true)),
        ("object that is a string", json, create(&pod_kind, json!("pod")), 200, Some(false)),
        ("containers that are a string", json, create(&pod_kind, containers), 200, Some(false)),
        ("pod without spec", json, create(&pod_kind, json!({})), 200, Some(false)),
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
    crate::common::create(cluster, "shop", &pod).await.stored().unwrap();
    assert!(!log(operator).contains("panicked"));
}

async fn invalid_annotations_are_warnings(cluster: &Cluster, operator: &Operator) {
    // With its key and the name, this reaches the API server's limit for all annotations of an object.
    let huge = "x".repeat(262_144 - "lucid.computing/auditor-chain".len() - 100);
    let nonsense = [
        "",
        "   ",
        "über ☃ 安全",
        "a\tb\u{1b}[31m\nc",
        ",",
        "0",
        "70000",
        "-1",
        "true false",
        "enforce,observe",
        &huge,
    ];
    let annotations = [
        ("auditors", "auditor"),
        ("auditor-chain", "auditor"),
        ("audit-mode", "\"enforce\" or \"observe\""),
        ("skip-audit", "\"true\" or \"false\""),
        ("target-port", "1 to 65535"),
        ("direction", "\"inbound\", \"outbound\" or \"both\""),
        ("sidecar-mode", "\"auto\", \"containers\" or \"native\""),
        ("intercept", "\"redirect\" or \"env\""),
    ];
    for (key, setting) in annotations {
        let key = format!("lucid.computing/{key}");
        // Every value of one annotation.
        let values = if key.ends_with("auditor-chain") { &nonsense[..] } else { &nonsense[2..4] };
        for (number, value) in values.iter().enumerate() {
            let name = format!("{}-{number}", key.rsplit_once('/').unwrap().1);
            let manifest = secured_with(&name, json!({&key: value}));
            let answer = create(cluster, "shop", &manifest).await;
            let warning = answer.warnings.iter().find(|warning| warning.contains(&key));
            let warning =
                warning.unwrap_or_else(|| panic!("{key}: {value:.20?}: {:?}", answer.warnings)).clone();
            let stored = answer.stored().unwrap_or_else(|error| panic!("{key}: {value:.20?}: {error}"));
            assert_eq!(chain(&stored), expected(GUARDRAILS), "{key}: {value:.20?}");
            assert_eq!(unplanned(&stored), "", "{key}: {value:.20?}");
            let says =
                ["expected", "known: lucid-guardrails-auditor"].iter().any(|says| warning.contains(says));
            assert!(says && warning.contains(setting), "{key}: {value:.20?}: {warning}");
            assert!(warning.contains("found ") && warning.len() < 1_000, "{key}: {value:.20?}: {warning}");
            // Quoted prefix of the invalid value, with unprintable characters escaped.
            let found: String =
                value.chars().take_while(|character| !character.is_control()).take(20).collect();
            assert!(warning.contains(&format!("\"{found}")), "{key}: {value:.20?}: {warning}");
        }
    }
    // Several errors are several warnings; a duplicate auditor causes none.
    let all = json!({"lucid.computing/audit-mode": "loud", "lucid.computing/direction": "up",
        "lucid.computing/target-port": "http", "lucid.computing/auditor-chain": "toxicity, toxicity-auditor"});
    let answer = create(cluster, "shop", &secured_with("all", all)).await;
    let ignored = answer.warnings.iter().filter(|warning| warning.contains("is ignored"));
    assert_eq!(ignored.count(), 3, "{:?}", answer.warnings);
    let names: Vec<_> = chain(&answer.stored().unwrap()).into_iter().map(|(name, ..)| name).collect();
    assert_eq!(names, ["model", "lucid-toxicity-auditor", "lucid-toxicity-auditor-2"]);
    let log = log(operator);
    assert!(
        !log.contains('\u{1b}') && log.lines().all(|line| line.len() < 20_000),
        "the log has it as it was"
    );
}

async fn log_lines_cannot_be_forged(cluster: &Cluster, operator: &Operator) {
    let image = "a\n2026-11-21T06:30:00.000000Z  INFO forged: allowed=true";
    let manifest = json!({
        "metadata": {"name": "x"},
        "spec": {"containers": [{"name": "x", "image": image, "env": [{"name": "LUCID_AUDITOR_ID"}]}]},
    });
    let answer = create(cluster, "shop", &manifest).await;
    assert!(answer.warnings.join("\n").contains("not an image reference"), "{answer:?}");
    let log = log(operator);
    assert!(log.contains("INFO forged") && !log.contains("\n2026-11-21T06:30"), "{log}");
}

async fn escaping_does_not_make_a_pod_too_large(cluster: &Cluster) {
    // The API server writes each of these with six bytes.
    let mut manifest = secured("long");
    manifest["spec"]["containers"][0]["env"] = json!([{"name": "TEMPLATE", "value": "<".repeat(1_250_000)}]);
    let pod = create(cluster, "shop", &manifest).await.stored().unwrap();
    assert_eq!(pod.spec.unwrap().containers.len(), 3);
}
