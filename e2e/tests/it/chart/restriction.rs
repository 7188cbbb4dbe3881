//! The policy that restricts the accounts of the programs to their own registration.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use lucid_e2e::{ClusterExt as _, Process, eventually};
use lucid_testbed::Cluster;
use serde_json::{Value, json};

use super::upgrade;
use crate::cli::{kubeconfig_of, kubectl, kubectl_until};
use crate::common::{ENABLED, STRATEGIC_MERGE};
use crate::story::Story;

/// Runs kubectl as the ServiceAccount `account` in a dry run. Returns the denial of the API server.
fn run_as(cluster: &Cluster, account: &str, arguments: &[&str], input: &str) -> Result<(), String> {
    let user = format!("--as=system:serviceaccount:lucid-system:{account}");
    let groups = ["--as-group=system:serviceaccounts", "--as-group=system:authenticated"];
    let arguments = [arguments, &["--dry-run=server", &user], &groups].concat();
    let output = cluster.kubectl(&arguments, input).unwrap();
    if output.status.success() { Ok(()) } else { Err(String::from_utf8(output.stderr).unwrap()) }
}

fn apply_as(cluster: &Cluster, account: &str, object: &Value) -> Result<(), String> {
    let arguments = ["apply", "--server-side", "--force-conflicts", "--validate=false", "-f", "-"];
    run_as(cluster, account, &arguments, &object.to_string())
}

#[track_caller]
fn is_refused(cluster: &Cluster, account: &str, object: &Value, why: &str) {
    let error = apply_as(cluster, account, object).expect_err(&format!("{account}: {object}"));
    assert!(error.contains(why), "{account}: {why:?} is not in {error}");
}

fn registration(kind: &str, account: &str) -> Value {
    let names = ["kube-system", "kube-public", "kube-node-lease", "lucid-system"];
    let excluded = json!([{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": names}]);
    let rule =
        json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]});
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": account},
        "webhooks": [{
            "name": "probe.lucid.computing", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "failurePolicy": "Ignore",
            "clientConfig": {"service": {"namespace": "lucid-system", "name": format!("{account}-webhook")}},
            "namespaceSelector": {"matchExpressions": excluded}, "rules": [rule],
        }],
    })
}

fn changed(object: &Value, change: impl FnOnce(&mut Value)) -> Value {
    let mut object = object.clone();
    change(&mut object["webhooks"][0]);
    object
}

fn secret(name: &str, of_type: &str) -> Value {
    let annotations = json!({"kubernetes.io/service-account.name": "default"});
    json!({"apiVersion": "v1", "kind": "Secret", "type": of_type,
        "metadata": {"name": name, "namespace": "lucid-system", "annotations": annotations},
        "stringData": {"tls.crt": "", "tls.key": ""}})
}

#[tokio::test]
async fn accounts_write_only_their_own_objects() {
    let cluster = Cluster::builder().start().await.unwrap();
    cluster.create_namespace("lucid-system", &[]).await.unwrap();
    let actions = "keeper.actions={update,evict,rollout}";
    upgrade(&cluster, &["webhooks.validating.by=both", "cainjector.enabled=true", actions]);
    let mut story = Story::default();
    story
        .step("registrations are of their own service", registrations_are_of_their_own_service(&cluster))
        .await;
    story.step("secrets are no tokens", secrets_are_no_tokens(&cluster)).await;
    story
        .step("running pods get images of auditors only", running_pods_get_images_of_auditors_only(&cluster))
        .await;
    story.step("the injector changes ca bundles only", the_injector_changes_ca_bundles_only(&cluster)).await;
    story.end();
}

async fn registrations_are_of_their_own_service(cluster: &Cluster) {
    for (account, kind) in [
        ("lucid-operator", "MutatingWebhookConfiguration"),
        ("lucid-operator", "ValidatingWebhookConfiguration"),
        ("lucid-validator", "ValidatingWebhookConfiguration"),
    ] {
        let own = registration(kind, account);
        let service =
            |name: &str, namespace: &str| json!({"service": {"name": name, "namespace": namespace}});
        let own_name = format!("{account}-webhook");
        for client in [
            service("evil", "lucid-system"),
            service(&own_name, "default"),
            json!({"url": "https://evil.test/mutate"}),
        ] {
            let object = changed(&own, |it| it["clientConfig"] = client);
            // The policy takes effect some time after its creation.
            eventually("the policy is in force", async || apply_as(cluster, account, &object).is_err()).await;
            is_refused(cluster, account, &object, "may only register its own Service");
        }
        for (group, resource) in [("", "secrets"), ("", "*"), ("*", "pods"), ("apps", "deployments/scale")] {
            let object = changed(&own, |it| {
                it["rules"][0]["apiGroups"] = json!([group]);
                it["rules"][0]["resources"] = json!([resource]);
            });
            is_refused(cluster, account, &object, "may only register for pods and workloads");
        }
        let everywhere = changed(&own, |it| it["namespaceSelector"] = json!({}));
        is_refused(cluster, account, &everywhere, "may not register for kube-system");
        let some = changed(&own, |it| {
            it["namespaceSelector"]["matchExpressions"][0]["values"] = json!(["kube-system"]);
        });
        is_refused(cluster, account, &some, "may not register for kube-system");
        if account == "lucid-operator" {
            let alternative = changed(&own, |it| it["clientConfig"] = service(account, "lucid-system"));
            apply_as(cluster, account, &alternative).unwrap();
        }
        apply_as(cluster, account, &own).unwrap();
        let mut other = own.clone();
        other["metadata"]["name"] = json!("another");
        is_refused(cluster, account, &other, "forbidden");
    }
}

async fn secrets_are_no_tokens(cluster: &Cluster) {
    for account in ["lucid-operator", "lucid-validator"] {
        let own = format!("{account}-ca");
        let token = secret(&own, "kubernetes.io/service-account-token");
        let in_force = async || apply_as(cluster, account, &token).is_err();
        eventually("the policy is in force", in_force).await;
        is_refused(cluster, account, &token, "may only write Secrets of type");
        apply_as(cluster, account, &secret(&own, "kubernetes.io/tls")).unwrap();
        is_refused(cluster, account, &secret("another", "kubernetes.io/tls"), "forbidden");
    }
}

async fn running_pods_get_images_of_auditors_only(cluster: &Cluster) {
    let model = json!({"name": "model", "image": "example.com/model:1"});
    let auditor = json!({"name": "injection", "image": "example.com/injection:1",
        "env": [{"name": "LUCID_AUDITOR_ID", "value": "injection"}]});
    let spec = json!({"containers": [model, auditor]});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": spec});
    let template = json!({"metadata": {"labels": {"app": "web"}}, "spec": spec});
    let workload = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": template}});
    cluster.create_namespace("shop", &[ENABLED]).await.unwrap();
    cluster.create_namespace("other", &[]).await.unwrap();
    for namespace in ["shop", "other"] {
        for object in [&pod, &workload] {
            kubectl(cluster, &["create", "-n", namespace, "-f", "-"], &object.to_string());
        }
    }
    // kubectl would read the object, which the account may not.
    let patch = async |path: &str, patch: &Value| {
        let request = http::Request::patch(format!("{path}/web?dryRun=All"))
            .header("Content-Type", STRATEGIC_MERGE)
            .header("Impersonate-User", "system:serviceaccount:lucid-system:lucid-operator");
        let request = request.body(patch.to_string().into_bytes()).unwrap();
        cluster.client().request::<Value>(request).await.map(drop).map_err(|error| error.to_string())
    };
    let (pods, others) = ("/api/v1/namespaces/shop/pods", "/api/v1/namespaces/other/pods");
    let deployments = "/apis/apps/v1/namespaces/shop/deployments";
    let other_deployments = "/apis/apps/v1/namespaces/other/deployments";
    let image =
        |container: &str| json!({"spec": {"containers": [{"name": container, "image": "example.com/x:2"}]}});
    let template = |metadata: Value| json!({"spec": {"template": {"metadata": metadata}}});
    let restart =
        template(json!({"annotations": {"kubectl.kubernetes.io/restartedAt": "2026-01-01T00:00:00Z"}}));
    let skip = template(json!({"annotations": {"lucid.computing/skip-audit": "true"}}));
    let orphan = json!({"metadata": {"labels": {"app": "web"}}});
    eventually("the policy is in force", async || patch(pods, &image("model")).await.is_err()).await;
    for (path, change, refusal) in [
        (pods, image("injection"), None),
        (pods, image("model"), Some("may only change images of auditors")),
        (pods, orphan, Some("may only change images of auditors")),
        (others, image("injection"), Some("may only act in enabled namespaces")),
        (deployments, restart.clone(), None),
        (other_deployments, restart, Some("may only act in enabled namespaces")),
        (deployments, skip, Some("may only restart workloads")),
        (deployments, json!({"spec": {"replicas": 0}}), Some("may only restart workloads")),
        (deployments, json!({"spec": {"template": image("model")}}), Some("may only restart workloads")),
    ] {
        let found = patch(path, &change).await;
        match refusal {
            None => assert_eq!(found, Ok(()), "{change}"),
            Some(why) => {
                assert!(found.as_ref().is_err_and(|error| error.contains(why)), "{change}: {found:?}")
            }
        }
    }
    for (namespace, refusal) in [("shop", ""), ("other", "may only act in enabled namespaces")] {
        let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "web"}});
        let request =
            http::Request::post(format!("/api/v1/namespaces/{namespace}/pods/web/eviction?dryRun=All"))
                .header("Content-Type", "application/json")
                .header("Impersonate-User", "system:serviceaccount:lucid-system:lucid-operator");
        let request = request.body(eviction.to_string().into_bytes()).unwrap();
        let found = cluster.client().request::<Value>(request).await.map(drop);
        let error = found.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error.contains(refusal) && error.is_empty() == refusal.is_empty(), "{namespace}: {error}");
    }
}

fn foreign_objects() -> Value {
    let client = json!({"service": {"namespace": "default", "name": "theirs"}});
    let webhook = |name: &str| {
        json!({"name": name, "sideEffects": "None", "admissionReviewVersions": ["v1"], "clientConfig": client,
        "failurePolicy": "Ignore", "rules": [
            {"apiGroups": ["example.com"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["things"]},
        ]})
    };
    let registration = |kind: &str| {
        json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": "theirs"},
            "webhooks": [webhook("a.example.com"), webhook("b.example.com")]})
    };
    let schema = json!({"openAPIV3Schema": {"type": "object"}});
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
    "metadata": {"name": "things.example.com"}, "spec": {
        "group": "example.com", "scope": "Namespaced",
        "names": {"kind": "Thing", "plural": "things", "singular": "thing"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}],
        "conversion": {"strategy": "Webhook", "webhook": {
            "conversionReviewVersions": ["v1"], "clientConfig": client,
        }},
    }});
    let service = json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": {"name": "v1.theirs.example.org"}, "spec": {"group": "theirs.example.org", "version": "v1",
            "service": {"namespace": "default", "name": "theirs"}, "groupPriorityMinimum": 100, "versionPriority": 100}});
    let config_map = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "theirs", "namespace": "default"}, "data": {"other": "", "spec": ""}});
    json!({"apiVersion": "v1", "kind": "List", "items": [
        registration("MutatingWebhookConfiguration"), registration("ValidatingWebhookConfiguration"),
        definition, service, config_map,
    ]})
}

async fn the_injector_changes_ca_bundles_only(cluster: &Cluster) {
    kubectl(cluster, &["apply", "-f", "-"], &foreign_objects().to_string());
    let patch = |object: &str, operation: &str, path: &str, value: Value| {
        let patch = json!([{"op": operation, "path": path, "value": value}]).to_string();
        run_as(cluster, "lucid-cainjector", &["patch", object, "--type=json", "-p", &patch], "")
    };
    let [mutating, validating] =
        ["mutatingwebhookconfiguration/theirs", "validatingwebhookconfiguration/theirs"];
    let (definition, service, map) = (
        "customresourcedefinition/things.example.com",
        "apiservice/v1.theirs.example.org",
        "configmap/theirs",
    );
    let attack = ("replace", "/webhooks/1/clientConfig/service/name", json!("evil"));
    eventually("the policy is in force", async || {
        patch(validating, attack.0, attack.1, attack.2.clone()).is_err()
    })
    .await;
    let url = json!({"url": "https://evil.test/"});
    let rules = json!([{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"]}]);
    for (object, operation, path, value) in [
        (validating, attack.0, attack.1, attack.2),
        (validating, "replace", "/webhooks/0/clientConfig", url.clone()),
        (validating, "replace", "/webhooks/0/rules", rules.clone()),
        (validating, "replace", "/webhooks/0/failurePolicy", json!("Fail")),
        (validating, "add", "/webhooks/0/objectSelector", json!({"matchLabels": {"a": "b"}})),
        (validating, "remove", "/webhooks/1", json!(null)),
        (validating, "add", "/metadata/annotations/evil", json!("true")),
        (validating, "add", "/metadata/labels", json!({"evil": "true"})),
        (mutating, "replace", "/webhooks/0/clientConfig", url.clone()),
        (mutating, "replace", "/webhooks/1/rules", rules),
        (definition, "replace", "/spec/conversion/webhook/clientConfig", url),
        (definition, "replace", "/spec/conversion/webhook/conversionReviewVersions", json!(["v1", "v2"])),
        (definition, "replace", "/spec/conversion", json!({"strategy": "None"})),
        (definition, "replace", "/spec/versions/0/served", json!(false)),
        (service, "replace", "/spec/service/name", json!("evil")),
        (service, "add", "/spec/insecureSkipTLSVerify", json!(true)),
        (map, "replace", "/data/other", json!("evil")),
        (map, "replace", "/data/spec", json!("evil")),
        (map, "remove", "/data/other", json!(null)),
        (map, "add", "/data/metadata", json!("evil")),
        (map, "add", "/binaryData", json!({"evil": "AA=="})),
        (map, "add", "/immutable", json!(true)),
    ] {
        let refusal = patch(object, operation, path, value).expect_err(&format!("{object} {path}"));
        assert!(
            refusal.contains("lucid-cainjector may only change CA bundles"),
            "{object} {path}: {refusal}"
        );
    }
    let authority = std::fs::read(cluster.authority_path()).unwrap();
    let bundle = BASE64_STANDARD.encode(&authority);
    for (object, path, value) in [
        (validating, "/webhooks/0/clientConfig/caBundle", &bundle),
        (mutating, "/webhooks/1/clientConfig/caBundle", &bundle),
        (definition, "/spec/conversion/webhook/clientConfig/caBundle", &bundle),
        (service, "/spec/caBundle", &bundle),
        (map, "/data/service-ca.crt", &String::from_utf8_lossy(&authority).into_owned()),
    ] {
        patch(object, "add", path, json!(value)).unwrap();
    }

    let mut command = lucid_e2e::command(lucid_e2e::program("lucid-operator").unwrap());
    command.arg("cainjector").env("KUBECONFIG", kubeconfig_of(cluster, "lucid-cainjector"));
    command.env("LUCID_ADMIN_LISTEN", "127.0.0.1:0");
    let log = cluster.folder().join("logs/restricted-cainjector.log");
    let _injector = Process::start("cainjector", command, log).unwrap();
    let objects = [validating, mutating, definition, service];
    let annotation = "cert-manager.io/inject-apiserver-ca=true";
    kubectl(cluster, &[&["annotate"][..], &objects, &[annotation]].concat(), "");
    for object in objects {
        kubectl_until(cluster, &["get", object, "-o", "yaml"], |text| text.contains(&bundle)).await;
    }
}
