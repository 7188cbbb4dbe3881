//! Effects of responses: patches, denials, warnings, audit annotations.

use k8s_openapi::api::core::v1::Pod;
use lucid_e2e::ClusterExt as _;
use lucid_webhook::{AdmissionResponse, FieldErrors, FieldPath, Object, Router, Webhook, WebhookKind};
use serde_json::json;

use super::servers::serve;
use super::{in_namespace, pod, registration};

#[test]
fn a_denial_reaches_the_client_with_code_reason_and_causes() {
    async fn refuse(Object(pod): Object<Pod>) -> Result<AdmissionResponse, FieldErrors> {
        Ok(match pod.metadata.name.as_deref() {
            Some("invalid") => return Err(invalid()),
            Some("forbidden") => AdmissionResponse::deny(403, "Forbidden", "not \"today\"\n(it is Sunday)"),
            Some("busy") => AdmissionResponse::deny(429, "TooManyRequests", "later"),
            Some("code-of-success") => AdmissionResponse::deny(200, "Forbidden", "no"),
            _ => AdmissionResponse::allow(),
        })
    }
    fn invalid() -> FieldErrors {
        let spec = FieldPath::new("spec");
        let mut errors = FieldErrors::new();
        errors.required(spec.child("team"), "it has no owner");
        errors.invalid(spec.child("size"), 9, "at most 3");
        errors
    }
    in_namespace("refusal", async |scene| {
        let webhook = Webhook::validating("refuse.example.com", refuse);
        scene.register_one(WebhookKind::Validating, webhook, json!({"name": "refuse.example.com"})).await;

        scene.create("pods", &pod("valid", json!(null))).await.stored();
        for (name, code, reason, message) in [
            ("invalid", 422, "Invalid", &*format!("Pod \"invalid\" is invalid: {}", invalid())),
            ("forbidden", 403, "Forbidden", "not \"today\"\n(it is Sunday)"),
            ("busy", 429, "TooManyRequests", "later"),
            ("code-of-success", 400, "Forbidden", "no"),
        ] {
            let answer = scene.create("pods", &pod(name, json!(null))).await;
            let denied = format!("admission webhook \"refuse.example.com\" denied the request: {message}");
            answer.refused(code, &denied);
            assert_eq!((&answer.body["reason"], &answer.body["code"]), (&json!(reason), &json!(code)));
            if name == "invalid" {
                let causes = json!([
                    {"reason": "FieldValueRequired", "message": "Required value: it has no owner", "field": "spec.team"},
                    {"reason": "FieldValueInvalid", "message": "Invalid value: 9: at most 3", "field": "spec.size"},
                ]);
                let details = json!({"kind": "Pod", "name": "invalid", "causes": causes});
                assert_eq!(answer.body["details"], details);
            }
            assert_eq!(scene.get(&format!("pods/{name}")).await.code, 404);
        }

        let mut invalid = pod("invalid", json!(null));
        (invalid["apiVersion"], invalid["kind"]) = (json!("v1"), json!("Pod"));
        let create = || scene.cluster.kubectl(&["-n", "refusal", "create", "-f", "-"], &invalid.to_string());
        let output = tokio::task::block_in_place(create).unwrap();
        let printed = "The Pod \"invalid\" is invalid: \n* spec.team: Required value: it has no owner\n\
                       * spec.size: Invalid value: 9: at most 3\n";
        assert_eq!(String::from_utf8_lossy(&output.stderr), printed);
    });
}

#[test]
fn warnings_of_allowed_and_denied_requests_arrive() {
    async fn warn(Object(pod): Object<Pod>) -> AdmissionResponse {
        let answer = match pod.metadata.name.as_deref() {
            Some("refused") => AdmissionResponse::deny(403, "Forbidden", "no"),
            Some("long") => {
                let warnings = (0..40).map(|i| format!("{i} {}", "é".repeat(300)));
                return AdmissionResponse::allow().with_warnings(warnings);
            }
            _ => AdmissionResponse::allow(),
        };
        answer.with_warnings(["plain", "a \"quoted\\\" é", "two\nlines\u{7}", "\n"])
    }
    in_namespace("warnings", async |scene| {
        let webhook = Webhook::validating("warn.example.com", warn);
        scene.register_one(WebhookKind::Validating, webhook, json!({"name": "warn.example.com"})).await;

        for (name, code) in [("allowed", 201), ("refused", 403)] {
            let answer = scene.create("pods", &pod(name, json!(null))).await;
            assert_eq!(answer.code, code, "{answer:?}");
            assert_eq!(answer.warnings, ["plain", "a \"quoted\\\" é", "two lines"]);
        }
        let answer = scene.create("pods", &pod("long", json!(null))).await;
        let expected = (0..15).map(|i| i.to_string()).chain(["and".to_owned()]);
        let starts = answer.warnings.iter().map(|it| it.split(' ').next().unwrap_or_default().to_owned());
        assert_eq!(starts.collect::<Vec<_>>(), expected.collect::<Vec<_>>(), "none is dropped in silence");
        assert_eq!(answer.warnings[15], "and 25 more warnings");
        assert!(answer.warnings[..15].iter().all(|it| it.chars().count() == 256 && it.ends_with('…')));
    });
}

#[test]
fn audit_annotations_are_in_the_audit_log_of_the_api_server() {
    async fn annotate(Object(pod): Object<Pod>) -> AdmissionResponse {
        let answer = match pod.metadata.name.as_deref() {
            Some("refused") => AdmissionResponse::deny(403, "Forbidden", "no"),
            _ => AdmissionResponse::allow(),
        };
        answer.with_audit_annotation("plan.v1", "two\nlines").with_audit_annotation("not/a name", "dropped")
    }
    in_namespace("audit", async |scene| {
        let router = Router::new()
            .webhook("/mutate", Webhook::mutating("first.example.com", annotate))
            .webhook("/validate", Webhook::validating("second.example.com", annotate));
        let server = serve(router).await;
        let first = registration(&server, "/mutate", json!({"name": "first.example.com"}));
        let second = registration(&server, "/validate", json!({"name": "second.example.com"}));
        scene.register(WebhookKind::Mutating, [first]).await;
        scene.register(WebhookKind::Validating, [second]).await;

        for (name, code, expected) in [
            ("allowed", 201, vec!["first.example.com/plan.v1", "second.example.com/plan.v1"]),
            ("refused", 403, vec!["first.example.com/plan.v1"]),
        ] {
            assert_eq!(scene.create("pods", &pod(name, json!(null))).await.code, code);
            let annotations = scene.audited("create", name);
            let ours = annotations.iter().filter(|(key, _)| key.contains(".example.com/"));
            let expected: Vec<_> = expected.into_iter().map(|key| (key, "two\nlines")).collect();
            let found: Vec<_> = ours.map(|(key, value)| (key.as_str(), value.as_str().unwrap())).collect();
            assert_eq!(found, expected);
        }
    });
}
