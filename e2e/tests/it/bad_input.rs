//! Malformed requests to the operator, and invalid pods to the API server.

use crate::common::{
    GUARDRAILS, ca_bundle, chain, client_of, cluster, create, env, expected, log, operator, secured,
    secured_with, unplanned,
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
async fn bad_input_is_answered() {
    let cluster = cluster().await;
    let operator = operator(&cluster, |operator| operator).await;
    invalid_annotations_are_warnings(&cluster, &operator).await;
    forged_status_and_names_are_ignored(&cluster).await;
    malformed_requests_are_answered(&cluster, &operator).await;
    log_lines_cannot_be_forged(&cluster, &operator).await;
    escaping_does_not_make_a_pod_too_large(&cluster).await;
}

/// Name, content type, body, HTTP status, and for 200 the expected `allowed`.
type Case = (&'static str, &'static str, Vec<u8>, u16, Option<bool>);

async fn malformed_requests_are_answered(cluster: &Cluster, operator: &Operator) {
    let client = client_of(&ca_bundle(cluster).await);
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
            "pod without spec",
            "application/json",
            request("CREATE", pod_kind.clone(), json!({})),
            200,
            Some(false),
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
    create(cluster, "shop", &pod).await.stored().unwrap();
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
        for (number, value) in nonsense.iter().enumerate() {
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

async fn forged_status_and_names_are_ignored(cluster: &Cluster) {
    let status =
        json!({"version": 1, "chain": ["lucid-guardrails-auditor"], "hash": "x", "added": []}).to_string();
    let values = [
        status.as_str(),
        "{}",
        "",
        "[",
        "injected",
        &"{\"a\":".repeat(10_000),
        "{\"added\": [\"/spec/containers\"]}",
    ];
    for (number, value) in values.into_iter().enumerate() {
        let name = format!("forged-{number}");
        let forged = json!({"lucid.computing/status": value});
        let answer = create(cluster, "shop", &secured_with(&name, forged)).await;
        let stored = answer.stored().unwrap_or_else(|error| panic!("{value:.20}: {error}"));
        assert_eq!(chain(&stored), expected(GUARDRAILS), "{value:.20}");
        let status = &stored.metadata.annotations.as_ref().unwrap()["lucid.computing/status"];
        assert!(status.contains("lucid-guardrails-auditor-2"), "{status}");
        assert_eq!(unplanned(&stored), "", "{value:.20}");
    }

    // A container that only has our name.
    for (list, restart_policy) in
        [("containers", "Always"), ("initContainers", "Always"), ("initContainers", "Never")]
    {
        let name = format!("impostor-{}-{}", list.to_lowercase(), restart_policy.to_lowercase());
        let mut manifest = secured(&name);
        manifest["spec"]["restartPolicy"] = json!(restart_policy);
        let impostors = ["lucid-guardrails-auditor", "lucid-guardrails-auditor-2", "lucid-init"].map(
            |name| json!({"name": name, "image": "example.com/sleep:1", "command": ["sleep", "infinity"]}),
        );
        let spec = manifest["spec"].as_object_mut().unwrap();
        let containers = spec.entry(list).or_insert(json!([])).as_array_mut().unwrap();
        containers.extend(impostors);
        let answer = create(cluster, "shop", &manifest).await;
        let warnings = answer.warnings.join("\n");
        let stored = answer.stored().unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(unplanned(&stored), "", "{name}");
        let spec = stored.spec.unwrap();
        let auditors: Vec<_> = spec
            .containers
            .iter()
            .chain(spec.init_containers.iter().flatten())
            .filter(|container| env(container, "LUCID_CHAIN_NEXT").is_some())
            .collect();
        assert_eq!(auditors.len(), 2, "{name}");
        for auditor in auditors {
            let image = auditor.image.as_deref();
            assert_eq!(image, Some("ghcr.io/lucid/lucid-guardrails-auditor:latest"), "{name}");
            assert_eq!(auditor.command, None, "{name}");
        }
        assert!(warnings.contains("lucid-guardrails-auditor"), "{name}: {warnings}");
        assert!(warnings.contains("is replaced") || warnings.contains("is in use"), "{name}: {warnings}");
    }
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
