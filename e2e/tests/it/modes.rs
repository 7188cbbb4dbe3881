//! Each mode of a chain in a pod, as stored by the API server.

use crate::common::{
    ENABLED, annotate_namespace, assert_contains, cluster, create, create_object, env, label_namespace,
    operator, prepare, restricted, secured_with, template, unplanned, until,
};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{Container, Pod};
use kube::api::{ListParams, Patch};
use kube::{Api, ResourceExt};
use lucid_e2e::{Answer, ClusterExt as _, eventually};
use lucid_testbed::Cluster;
use serde_json::{Value, json};

fn manifest(name: &str, annotations: &Value, spec: &Value) -> Value {
    let mut annotations = annotations.clone();
    annotations["lucid.computing/auditor-chain"] = json!("injection,toxicity");
    let mut pod = secured_with(name, annotations);
    pod["spec"].as_object_mut().unwrap().append(&mut spec.as_object().unwrap().clone());
    pod
}

fn inits(pod: &Pod) -> &[Container] {
    pod.spec.as_ref().unwrap().init_containers.as_deref().unwrap_or_default()
}

fn names(containers: &[Container]) -> Vec<&str> {
    containers.iter().map(|container| &*container.name).collect()
}

fn named<'p>(pod: &'p Pod, name: &str) -> &'p Container {
    let containers = &pod.spec.as_ref().unwrap().containers;
    containers
        .iter()
        .chain(inits(pod))
        .find(|container| container.name == name)
        .unwrap_or_else(|| panic!("{name}"))
}

/// Fails unless the pod is stored without a chain, with a warning that contains `reason`.
fn assert_no_chain(response: &Answer, reason: &[&str]) {
    let warning = response.warnings.iter().find(|warning| warning.starts_with("no auditors: "));
    assert_contains(warning.unwrap_or_else(|| panic!("{response:?}")), reason);
    let pod = response.clone().stored().unwrap();
    assert_eq!((names(&pod.spec.as_ref().unwrap().containers), inits(&pod).len()), (vec!["model"], 0));
}

const AUDITORS: [&str; 2] = ["lucid-injection-auditor", "lucid-toxicity-auditor"];

/// In one cluster, with the default settings.
#[tokio::test]
async fn modes_follow_the_annotations_the_pod_and_the_namespace() {
    let cluster = cluster().await;
    let _operator = operator(&cluster, |operator| operator).await;
    sidecar_mode_and_interception(&cluster).await;
    one_auditor_observes(&cluster).await;
    pod_security_rules_out_redirection(&cluster).await;
}

/// Annotations and spec of a pod, and whether its auditors are native and its traffic is redirected. A second plan agrees with
/// what the API server has stored.
async fn sidecar_mode_and_interception(cluster: &Cluster) {
    let mode = |mode: &str| json!({"lucid.computing/sidecar-mode": mode});
    let env = || json!({"lucid.computing/intercept": "env"});
    let observe = || json!({"lucid.computing/audit-mode": "observe"});
    let job = || json!({"restartPolicy": "Never"});
    for (name, annotations, spec, is_native, is_redirected) in [
        ("always", json!({}), json!({}), false, true),
        ("never", json!({}), job(), true, true),
        ("native", mode("native"), json!({}), true, true),
        ("containers", mode("containers"), job(), false, true),
        ("env-native", env(), job(), true, false),
        ("host", env(), json!({"hostNetwork": true}), false, false),
        ("observe-plain", observe(), json!({}), false, true),
        ("observe-native", observe(), job(), true, true),
    ] {
        let response = create(cluster, "shop", &manifest(name, &annotations, &spec)).await;
        let warnings = response.warnings.join("\n");
        let stored = response.stored().unwrap_or_else(|error| panic!("{name}: {error}"));
        for auditor in AUDITORS {
            let policy = named(&stored, auditor).restart_policy.as_deref();
            assert_eq!(policy, is_native.then_some("Always"), "{name}");
        }
        assert_eq!(names(inits(&stored)).contains(&"lucid-init"), is_redirected, "{name}");
        assert_eq!(warnings.contains("completing"), name == "containers", "{name}: {warnings}");
        assert_eq!(unplanned(&stored), "", "{name}");
    }
    // Rules in the node's network would affect the whole node.
    let host = manifest("on-node", &json!({}), &json!({"hostNetwork": true}));
    let response = create(cluster, "shop", &host).await;
    assert_no_chain(&response, &["spec.hostNetwork is true", "lucid.computing/intercept", "\"env\""]);
}

/// Parameters of an entry are passed to its auditor alone, and an invalid one does not weaken the chain.
async fn one_auditor_observes(cluster: &Cluster) {
    const POLICY: [&str; 3] = ["LUCID_AUDIT_MODE", "LUCID_AUDIT_FAILURE", "LUCID_AUDIT_TIMEOUT_MS"];
    let enforces = [Some("enforce"), None, None];
    for (name, parameters, policy, warning) in [
        (
            "alone",
            "mode=observe&failure=allow&timeout=5s",
            [Some("observe"), Some("allow"), Some("5000")],
            "",
        ),
        ("misspelt", "mode=obseve", enforces, "mode: expected \"enforce\" or \"observe\", found \"obseve\""),
    ] {
        let mut pod = manifest(name, &json!({}), &json!({}));
        let annotations = &mut pod["metadata"]["annotations"];
        annotations["lucid.computing/auditor-chain"] = json!(format!("injection?{parameters},toxicity"));
        annotations["lucid.computing/auditors"] = json!("injection,toxicity");
        let response = create(cluster, "shop", &pod).await;
        let ignored =
            response.warnings.iter().find(|it| it.contains("lucid.computing/auditor-chain is ignored"));
        assert_eq!(ignored.is_none(), warning.is_empty(), "{response:?}");
        assert!(ignored.is_none_or(|ignored| ignored.contains(warning)), "{response:?}");
        let stored = response.stored().unwrap();
        for (auditor, expected) in AUDITORS.into_iter().zip([policy, enforces]) {
            let found = POLICY.map(|variable| env(named(&stored, auditor), variable));
            assert_eq!(found.each_ref().map(Option::as_deref), expected, "{name}: {auditor}");
        }
        assert_eq!(unplanned(&stored), "", "{name}");
    }
}

#[tokio::test]
async fn the_direction_selects_the_redirected_traffic() {
    let cluster = cluster().await;
    let operator = operator(&cluster, |operator| {
        operator
            .env("LUCID_IMAGE_PULL_SECRETS", "registry,mirror")
            .env("LUCID_INIT_IMAGE", "example.com/init:2")
    });
    let _operator = operator.await;
    for (direction, inbound, outbound) in
        [("inbound", true, json!([])), ("outbound", false, json!([8000])), ("both", true, json!([8000]))]
    {
        let annotations =
            json!({"lucid.computing/direction": direction, "lucid.computing/target-port": "5000"});
        let mut manifest = manifest(direction, &annotations, &json!({"imagePullSecrets": [{"name": "own"}]}));
        let of_their_own = json!({"name": "chosen", "image": "example.com/x:1",
            "env": [{"name": "AUDITOR_URL", "value": "http://elsewhere.test"}]});
        manifest["spec"]["containers"].as_array_mut().unwrap().push(of_their_own);
        let response = create(&cluster, "shop", &manifest).await;
        let warnings = response.warnings.join("\n");
        let stored = response.stored().unwrap();
        let is_outbound = outbound != json!([]);
        let first = if inbound { 8090 } else { 8081 };
        let url = is_outbound.then(|| format!("http://localhost:{first}"));
        assert_eq!(env(named(&stored, "model"), "AUDITOR_URL"), url, "{direction}");
        let chosen = env(named(&stored, "chosen"), "AUDITOR_URL");
        assert_eq!(chosen.as_deref(), Some("http://elsewhere.test"), "{direction}");
        assert_eq!(
            warnings.contains("container \"chosen\" sets AUDITOR_URL itself"),
            is_outbound,
            "{warnings}"
        );
        let init = named(&stored, "lucid-init");
        assert_eq!(init.image.as_deref(), Some("example.com/init:2"));
        let plan: Value = serde_json::from_str(&env(init, "LUCID_REDIRECT").unwrap()).unwrap();
        assert_eq!((&plan["inbound"], &plan["outbound"]), (&json!(inbound), &outbound), "{direction}");
        let secrets = stored.spec.as_ref().unwrap().image_pull_secrets.as_ref().unwrap();
        let secrets: Vec<_> = secrets.iter().map(|secret| &*secret.name).collect();
        assert_eq!(secrets, ["own", "registry", "mirror"], "{direction}");
    }

    // A chain without a destination is not injected.
    let outbound = |name: &str, more: Value| {
        let mut annotations = json!({"lucid.computing/direction": "outbound"});
        annotations.as_object_mut().unwrap().append(&mut more.as_object().unwrap().clone());
        let mut pod = manifest(name, &annotations, &json!({}));
        pod["spec"]["containers"][0].as_object_mut().unwrap().remove("ports");
        pod
    };
    for (name, more, reason) in [
        ("nowhere", json!({"lucid.computing/intercept": "env"}), "lucid.computing/upstream"),
        ("in-pod", json!({"lucid.computing/upstream": "http://localhost:8081"}), "http://localhost:8081"),
        (
            "not-allowed",
            json!({"lucid.computing/upstream": "http://llm", "lucid.computing/allowed-hosts": "*.models.svc"}),
            "http://llm",
        ),
    ] {
        assert_no_chain(&create(&cluster, "shop", &outbound(name, more)).await, &[reason]);
    }

    // The upstream of the namespace.
    let upstream = json!({"lucid.computing/upstream": "https://api.example.com/v1"});
    annotate_namespace(&cluster, "shop", upstream).await;
    let leads_there = |response: &Answer| {
        response.clone().stored().is_ok_and(|pod| env(named(&pod, "model"), "OPENAI_BASE_URL").is_some())
    };
    let pod = until(&cluster, "shop", |name| outbound(name, json!({})), leads_there).await.stored().unwrap();
    let of_model = |name| env(named(&pod, "model"), name);
    assert_eq!(of_model("OPENAI_BASE_URL").as_deref(), Some("http://localhost:8081/v1"));
    for name in ["ANTHROPIC_BASE_URL", "AUDITOR_URL"] {
        assert_eq!(of_model(name).as_deref(), Some("http://localhost:8081"), "{name}");
    }
    let settings = env(named(&pod, "lucid-egress"), "LUCID_EGRESS").unwrap();
    assert!(settings.contains(r#""upstream":"https://api.example.com/v1""#), "{settings}");

    // Closed ports of the namespace, which a pod cannot open.
    annotate_namespace(&cluster, "shop", json!({"lucid.computing/other-ports": "closed"})).await;
    let opening = json!({"lucid.computing/other-ports": "open", "lucid.computing/open-ports": "9090"});
    let rules = |response: &Answer| {
        let init = response.clone().stored().map(|pod| env(named(&pod, "lucid-init"), "LUCID_REDIRECT"));
        init.ok().flatten().unwrap_or_default()
    };
    let closes = |response: &Answer| rules(response).ends_with(r#","open":[9090]}"#);
    let response = until(&cluster, "shop", |name| manifest(name, &opening, &json!({})), closes).await;
    let ignored = "annotation lucid.computing/other-ports is ignored";
    assert!(response.warnings.iter().any(|it| it.contains(ignored)), "{:?}", response.warnings);
}

/// An application that satisfies Pod Security `restricted`.
fn hardened(name: &str, annotations: &Value) -> Value {
    let mut pod = manifest(name, annotations, &json!({}));
    pod["spec"]["containers"][0]["securityContext"] = restricted();
    pod
}

async fn pod_security_rules_out_redirection(cluster: &Cluster) {
    for level in ["privileged", "baseline", "restricted"] {
        let labels = [ENABLED, ("pod-security.kubernetes.io/enforce", level)];
        cluster.create_namespace(level, &labels).await.unwrap();
        let is_redirected = level == "privileged";
        for (name, spec) in [("plain", json!({})), ("native", json!({"restartPolicy": "Never"}))] {
            let mut pod = hardened(name, &json!({}));
            pod["spec"].as_object_mut().unwrap().append(&mut spec.as_object().unwrap().clone());
            let response = create(cluster, level, &pod).await;
            let warnings = response.warnings.join("\n");
            let stored = response.stored().unwrap_or_else(|error| panic!("{level}, {name}: {error}"));
            assert_eq!(names(inits(&stored)).contains(&"lucid-init"), is_redirected, "{level}, {name}");
            let is_said = warnings.contains(&format!("Pod Security level {level}"));
            assert_eq!(is_said, !is_redirected, "{level}, {name}: {warnings}");
            for auditor in AUDITORS {
                named(&stored, auditor);
            }
        }
        // A pod that requests rules anyway gets a warning from us, and the API server denies it.
        let redirect = json!({"lucid.computing/intercept": "redirect"});
        let response = create(cluster, level, &hardened("asked", &redirect)).await;
        if is_redirected {
            response.stored().unwrap();
        } else {
            let warnings = response.warnings.join("\n");
            assert_eq!(response.status, 403, "{level}: {response:?}");
            assert!(response.refusal().contains("violates PodSecurity"), "{level}: {response:?}");
            assert!(response.refusal().contains("NET_ADMIN"), "{level}: {response:?}");
            assert!(warnings.contains("needs NET_ADMIN"), "{level}: {warnings}");
        }
    }
    // The level may change: the next pod is planned for the new one.
    let stricter = json!({"pod-security.kubernetes.io/enforce": "restricted"});
    label_namespace(cluster, "privileged", stricter).await;
    let is_let_in = |response: &Answer| response.status == 201;
    let again = |name: &str| hardened(name, &json!({}));
    until(cluster, "privileged", again, is_let_in).await;
}

#[tokio::test]
async fn auditors_end_with_their_job() {
    let cluster = prepare(Cluster::builder().controller_manager().start().await.unwrap()).await;
    let _operator = operator(&cluster, |operator| operator).await;
    let template_of =
        |app: &str| template(&manifest("", &json!({}), &json!({"restartPolicy": "Never"})), app);
    let job = json!({"metadata": {"name": "once"}, "spec": {"template": template_of("once")}});
    create_object::<Job>(&cluster, job).await;
    let spec = json!({"schedule": "* * * * *", "jobTemplate": {"spec": {"template": template_of("often")}}});
    create_object::<CronJob>(&cluster, json!({"metadata": {"name": "often"}, "spec": spec})).await;
    // After a missed run, the next one is due at once.
    let last = jiff::Timestamp::now() - jiff::SignedDuration::from_secs(120);
    let status = Patch::Merge(json!({"status": {"lastScheduleTime": last.strftime("%FT%TZ").to_string()}}));
    let cron_jobs: Api<CronJob> = Api::namespaced(cluster.client(), "shop");
    cron_jobs.patch_status("often", &Default::default(), &status).await.unwrap();
    let pods: Api<Pod> = Api::namespaced(cluster.client(), "shop");
    for app in ["once", "often"] {
        let pod = eventually("a pod of the Deployment", async || {
            let found = pods.list(&ListParams::default().labels(&format!("app={app}"))).await.unwrap();
            found.items.into_iter().next().ok_or_else(|| format!("{app} has no pod"))
        })
        .await;
        let spec = pod.spec.as_ref().unwrap();
        assert_eq!(names(&spec.containers), ["model"], "{app}: a Job waits for all of these");
        for auditor in AUDITORS {
            assert_eq!(named(&pod, auditor).restart_policy.as_deref(), Some("Always"), "{app}");
        }
        assert!(names(inits(&pod)).contains(&"lucid-init"), "{app}");
        assert_eq!(unplanned(&pod), "", "{app}: {}", pod.name_any());
    }
}
