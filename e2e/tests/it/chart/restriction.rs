//! The policy that restricts the accounts of the programs to their own registration.

use lucid_testbed::Cluster;
use serde_json::{Value, json};

use super::upgrade;

/// Applies `object` as the ServiceAccount `account` in a dry run. Returns the refusal of the API server.
fn apply_as(cluster: &Cluster, account: &str, object: &Value) -> Result<(), String> {
    let user = format!("--as=system:serviceaccount:lucid-system:{account}");
    let groups = ["--as-group=system:serviceaccounts", "--as-group=system:authenticated"];
    let arguments = ["apply", "--server-side", "--dry-run=server", "--force-conflicts", "--validate=false"];
    let arguments = [&arguments[..], &["-f", "-", &user], &groups].concat();
    let output = cluster.kubectl(&arguments, &object.to_string()).unwrap();
    if output.status.success() { Ok(()) } else { Err(String::from_utf8(output.stderr).unwrap()) }
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
async fn the_accounts_register_only_their_own_service_for_pods_and_workloads() {
    let cluster = Cluster::builder().start().await.unwrap();
    cluster.create_namespace("lucid-system", &[]).await.unwrap();
    upgrade(&cluster, &["webhooks.validating.by=both"]);
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
            // The policy is in force some time after it is created.
            crate::common::eventually_holds("the policy is not in force", async || {
                apply_as(&cluster, account, &object).is_err()
            })
            .await;
            is_refused(&cluster, account, &object, "may only register its own Service");
        }
        for (group, resource) in [("", "secrets"), ("", "*"), ("*", "pods"), ("apps", "deployments/scale")] {
            let object = changed(&own, |it| {
                it["rules"][0]["apiGroups"] = json!([group]);
                it["rules"][0]["resources"] = json!([resource]);
            });
            is_refused(&cluster, account, &object, "may only register for pods and workloads");
        }
        let everywhere = changed(&own, |it| it["namespaceSelector"] = json!({}));
        is_refused(&cluster, account, &everywhere, "may not register for kube-system");
        let some = changed(&own, |it| {
            it["namespaceSelector"]["matchExpressions"][0]["values"] = json!(["kube-system"]);
        });
        is_refused(&cluster, account, &some, "may not register for kube-system");
        apply_as(&cluster, account, &own).unwrap();
        let mut other = own.clone();
        other["metadata"]["name"] = json!("another");
        is_refused(&cluster, account, &other, "forbidden");
    }
    let conversion = json!({"strategy": "Webhook", "webhook": {
        "conversionReviewVersions": ["v1"],
        "clientConfig": {"service": {"namespace": "default", "name": "evil", "path": "/convert", "port": 443}},
    }});
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "auditors.lucid.computing"}, "spec": {"conversion": conversion}});
    is_refused(&cluster, "lucid-operator", &definition, "may only register its own Service");
}

#[tokio::test]
async fn the_accounts_cannot_make_a_secret_into_a_token_of_another_account() {
    let cluster = Cluster::builder().start().await.unwrap();
    cluster.create_namespace("lucid-system", &[]).await.unwrap();
    upgrade(&cluster, &["webhooks.validating.by=both"]);
    for account in ["lucid-operator", "lucid-validator"] {
        let own = format!("{account}-ca");
        let token = secret(&own, "kubernetes.io/service-account-token");
        let in_force = async || apply_as(&cluster, account, &token).is_err();
        crate::common::eventually_holds("the policy is not in force", in_force).await;
        is_refused(&cluster, account, &token, "may only write Secrets of type");
        apply_as(&cluster, account, &secret(&own, "kubernetes.io/tls")).unwrap();
        is_refused(&cluster, account, &secret("another", "kubernetes.io/tls"), "forbidden");
    }
}
