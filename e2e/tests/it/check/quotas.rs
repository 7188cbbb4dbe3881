//! ResourceQuotas and LimitRanges, as the API server applies them and as the check reports them.

use k8s_openapi::api::core::v1::{LimitRange, ResourceQuota};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use lucid_e2e::eventually;
use lucid_testbed::Cluster;
use serde_json::{Value, json};

use super::check;
use crate::common::{cluster, config_map, dry_run, operator, secured};

/// Creates the object in the namespace shop. The quota controller, which writes the status, does not run.
async fn set(cluster: &Cluster, kind: &str, spec: &Value) {
    let object = |status: Value| {
        let mut object =
            json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": "sizes"}, "spec": spec});
        json_patch::merge(&mut object, &status);
        Patch::Apply(object)
    };
    let params = PatchParams::apply("e2e").force();
    if kind == "LimitRange" {
        let api: Api<LimitRange> = Api::namespaced(cluster.client(), "shop");
        api.patch("sizes", &params, &object(json!({}))).await.unwrap();
    } else {
        let api: Api<ResourceQuota> = Api::namespaced(cluster.client(), "shop");
        api.patch("sizes", &params, &object(json!({}))).await.unwrap();
        let used = spec["hard"].as_object().unwrap().keys().map(|key| (key.clone(), json!("0")));
        let used: Value = used.collect::<serde_json::Map<_, _>>().into();
        let status = json!({"status": {"hard": spec["hard"], "used": used}});
        api.patch_status("sizes", &params, &object(status)).await.unwrap();
    }
}

async fn unset(cluster: &Cluster) {
    let ranges: Api<LimitRange> = Api::namespaced(cluster.client(), "shop");
    let quotas: Api<ResourceQuota> = Api::namespaced(cluster.client(), "shop");
    // One of them exists.
    let (range, quota) = (
        ranges.delete("sizes", &DeleteParams::default()).await.is_ok(),
        quotas.delete("sizes", &DeleteParams::default()).await.is_ok(),
    );
    assert!(range || quota);
}

#[tokio::test]
async fn quotas_that_refuse_every_pod_with_auditors_are_named() {
    let cluster = cluster().await;
    let running = operator(&cluster, |it| it).await;
    let mut pod = secured("sized");
    let sizes = json!({"cpu": "200m", "memory": "128Mi"});
    pod["spec"]["containers"][0]["resources"] = json!({"requests": sizes, "limits": sizes});
    let response = async || {
        let stored = dry_run(&cluster, "shop", &pod).await.stored();
        stored.map(|pod| json!(pod).to_string()).map_err(|error| format!("{error:?}"))
    };
    let container = |item: Value| {
        let mut item = item;
        item["type"] = json!("Container");
        ("LimitRange", json!({"limits": [item]}))
    };
    let whole = |max: Value| ("LimitRange", json!({"limits": [{"type": "Pod", "max": max}]}));
    let quota = |hard: Value| ("ResourceQuota", json!({"hard": hard}));
    let builtin = "defaults: {audit-mode: enforce}";
    let cpu = "defaults: {resources: {requests: {cpu: 100m}}}";
    let set_all = "defaults: {resources: {requests: {cpu: 150m, memory: 128Mi, ephemeral-storage: 64Mi}, \
                   limits: {cpu: 600m, memory: 256Mi, ephemeral-storage: 128Mi}}}";
    let all = json!({"requests.cpu": "4", "requests.memory": "8Gi", "limits.cpu": "8", "limits.memory": "16Gi",
        "requests.ephemeral-storage": "10Gi", "limits.ephemeral-storage": "20Gi", "pods": "20"});
    let sizes = json!({"min": {"cpu": "150m", "memory": "64Mi"}, "max": {"cpu": "4", "memory": "8Gi"},
        "maxLimitRequestRatio": {"cpu": "4"}});
    for (catalogue, (kind, spec), expected, status, texts) in [
        (
            builtin,
            container(sizes.clone()),
            Err("minimum cpu usage per Container is 150m, but request is 100m"),
            "failed",
            &[
                "expected at least 150m, found 100m",
                "expected at most 4 times requests.cpu, found 500m and 100m",
            ][..],
        ),
        (builtin, container(json!({"maxLimitRequestRatio": {"cpu": "5"}})), Ok(""), "ok", &[]),
        (
            builtin,
            container(json!({"maxLimitRequestRatio": {"cpu": "4"}})),
            Err("cpu max limit to request ratio per Container is 4, but provided ratio is 5"),
            "failed",
            &["lucid-guardrails-auditor, lucid-guardrails-auditor-2, lucid-init", "auditors.yaml"],
        ),
        (
            builtin,
            whole(json!({"cpu": "900m"})),
            Err("maximum cpu usage per Pod is 900m, but limit is"),
            "failed",
            &["limits.cpu: expected at most 900m in a pod, found 1 in the chain alone"],
        ),
        (
            builtin,
            quota(json!({"limits.cpu": "900m"})),
            Err("exceeded quota"),
            "failed",
            &["limits.cpu: expected at most 900m, found 1 in the chain alone"],
        ),
        (builtin, quota(json!({"requests.cpu": "4", "limits.memory": "8Gi"})), Ok(""), "ok", &[]),
        // The API server counts what is set, and requires only cpu and memory.
        (
            builtin,
            quota(json!({"requests.ephemeral-storage": "10Gi"})),
            Ok(""),
            "warning",
            &["requests.ephemeral-storage: expected a quantity, found none in"],
        ),
        (
            cpu,
            quota(json!({"memory": "8Gi"})),
            Err("must specify memory for"),
            "failed",
            &["requests.memory: expected a quantity, found none in"],
        ),
        (
            cpu,
            quota(json!({"limits.cpu": "8"})),
            Err("must specify limits.cpu for"),
            "failed",
            &["limits.cpu: expected a quantity, found none in"],
        ),
        (
            cpu,
            container(json!({"max": {"memory": "1Gi"}, "default": {"memory": "255Mi"}})),
            Ok(r#""memory":"255Mi""#),
            "ok",
            &[],
        ),
        (set_all, container(sizes), Ok(""), "ok", &[]),
        (set_all, quota(all), Ok(""), "ok", &[]),
    ] {
        config_map(&cluster, "lucid-system", "lucid-auditors", "auditors.yaml", catalogue).await;
        set(&cluster, kind, &spec).await;
        // Informers of the API server and the operator are late.
        eventually("the object is applied", async || {
            let found = response().await;
            let is_expected = match (&found, expected) {
                (Ok(found), Ok(text)) | (Err(found), Err(text)) => found.contains(text),
                _ => false,
            };
            if is_expected { Ok(()) } else { Err(format!("{catalogue} {spec}: {found:?}")) }
        })
        .await;
        let object = if status == "ok" { "" } else { "shop/sizes" };
        check(&cluster).await.assert("quotas", object, status, texts);
        unset(&cluster).await;
        eventually("the object no longer applies", async || response().await.is_ok()).await;
    }
    drop(running);
}
