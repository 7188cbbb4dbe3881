//! `lucid manifests --backstop --static`: policies from a file of the API server (KEP-5793).

use std::fs;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::Method;
use lucid_testbed::Cluster;
use serde_json::{Value, json};

use crate::cli::run;
use crate::common::{dry_run, has_kubernetes, prepare, secured};

const OPERATOR: &str = "system:serviceaccount:lucid-system:lucid-operator";
const CAINJECTOR: &str = "system:serviceaccount:cert-manager:cert-manager-cainjector";
const ADMIN: &str = "kubernetes-admin";

#[tokio::test]
async fn static_policies_protect_pods_and_registrations() {
    let plain = Cluster::builder().start().await.unwrap();
    if !has_kubernetes(&plain, 36, "a policy in a file of the API server").await {
        return;
    }
    drop(plain);
    let folder = tempfile::tempdir().unwrap();
    let policies = folder.path().join("policies");
    fs::create_dir(&policies).unwrap();
    let printed = run("lucid", &["manifests", "--backstop", "--static"]);
    fs::write(policies.join("lucid.yaml"), printed.printed()).unwrap();
    let admission = folder.path().join("admission.yaml");
    let configuration = json!({
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AdmissionConfiguration",
        "plugins": [{"name": "ValidatingAdmissionPolicy", "configuration": {
            "apiVersion": "apiserver.config.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicyConfiguration",
            "staticManifestsDir": policies,
        }}],
    });
    fs::write(&admission, configuration.to_string()).unwrap();
    let builder = Cluster::builder().api_server_args([
        "--feature-gates=ManifestBasedAdmissionControlConfig=true".to_owned(),
        format!("--admission-control-config-file={}", admission.display()),
    ]);
    let cluster = prepare(builder.start().await.unwrap()).await;

    let denied = dry_run(&cluster, "shop", &secured("web")).await;
    for part in ["'lucid-backstop.static.k8s.io'", "the pod must have auditors"] {
        assert!(denied.refusal().contains(part), "{denied:?}");
    }

    let path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
    let registration = |name: &str, policy: &str, bundle: &str| {
        json!({"metadata": {"name": name}, "webhooks": [{
            "name": "pods.lucid.computing", "failurePolicy": policy, "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "clientConfig": {"service": {"namespace": "lucid-system", "name": "lucid"}, "caBundle": bundle},
        }]})
    };
    // CAs in base64; the API server checks PEM.
    let [first, second] = [(); 2].map(|()| {
        let pair = rcgen::generate_simple_self_signed(["lucid".to_owned()]).unwrap();
        BASE64_STANDARD.encode(pair.cert.pem())
    });
    let own = format!("{path}/lucid-operator");
    let empty = json!({"metadata": {"name": "lucid-validator"}});
    let label = json!({"metadata": {"labels": {"helm.sh/chart": "lucid-0.2.0"}}});
    let steps: [(&str, Method, &str, Value, bool); 12] = [
        (ADMIN, Method::POST, path, empty, true),
        (ADMIN, Method::POST, path, registration("lucid-operator", "Fail", &first), false),
        (ADMIN, Method::POST, path, registration("other", "Fail", &first), true),
        (OPERATOR, Method::POST, path, registration("lucid-operator", "Fail", &first), true),
        (ADMIN, Method::PATCH, &own, registration("lucid-operator", "Ignore", &first), false),
        (ADMIN, Method::PATCH, &own, label, true),
        (ADMIN, Method::PATCH, &own, registration("lucid-operator", "Fail", &second), false),
        (CAINJECTOR, Method::PATCH, &own, registration("lucid-operator", "Ignore", &first), false),
        (CAINJECTOR, Method::PATCH, &own, registration("lucid-operator", "Fail", &second), true),
        (ADMIN, Method::DELETE, &own, Value::Null, false),
        (ADMIN, Method::DELETE, path, Value::Null, false),
        (OPERATOR, Method::DELETE, &own, Value::Null, true),
    ];
    for (number, (user, method, path, body, is_allowed)) in steps.into_iter().enumerate() {
        let response = call(&cluster, user, method, path, &body).await;
        assert_eq!(response.is_ok(), is_allowed, "{number}: {response:?}");
        if let Err(error) = response {
            assert!(error.contains("'lucid-registrations.static.k8s.io'"), "{number}: {error}");
        }
    }
}

/// Calls the API server as `user` with all permissions.
async fn call(
    cluster: &Cluster,
    user: &str,
    method: Method,
    path: &str,
    body: &Value,
) -> Result<Value, String> {
    let kind = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
    let request = http::Request::builder().method(method).uri(path);
    let request = request.header("Content-Type", kind);
    let request = request.header("Impersonate-User", user).header("Impersonate-Group", "system:masters");
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    cluster.client().request(request.body(body).unwrap()).await.map_err(|error| error.to_string())
}
