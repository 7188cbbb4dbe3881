//! Pods that request no auditors or may skip them, and size limits.

use lucid_chain::{Catalogue, Configuration};
use lucid_testbed::Cluster;
use serde_json::{Value, json};

use super::{builtin, injected, install, refused};
use crate::common::{cluster, create, dry_run, patch_pod, pod, secured_with, with_chain};

#[tokio::test]
async fn skip_audit_follows_the_settings_of_the_operator() {
    let cluster = cluster().await;
    install(&cluster, &["--allow-skip=shop/batch,shop/default"]).await;
    let skipping = |account: Option<&str>, value: &str| {
        let mut pod = secured_with("web", json!({"lucid.computing/skip-audit": value}));
        if let Some(account) = account {
            pod["spec"]["serviceAccountName"] = json!(account);
        }
        pod
    };
    for (account, value, is_skipped) in [
        (None, "true", true),
        (Some("batch"), " true ", true),
        (Some("batch"), "false", false),
        (Some("batch"), "yes", false),
        (Some("builder"), "true", false),
        (Some("shop/batch"), "true", false),
    ] {
        let response = dry_run(&cluster, "shop", &skipping(account, value)).await;
        assert_eq!(
            response.refusal().contains("lucid-backstop"),
            !is_skipped && response.status != 422,
            "{account:?}: {response:?}"
        );
    }
}

/// The policy neither denies nor delays these pods, for any content.
pub(super) async fn size_limits_are_of_secured_pods(cluster: &Cluster) {
    let with = |labels: Value, annotations: Value, containers: Vec<Value>| {
        let mut pod = pod("web", labels, annotations);
        pod["spec"]["containers"].as_array_mut().unwrap().extend(containers);
        pod
    };
    let variables =
        |count: usize| -> Value { (0..count).map(|number| json!({"name": format!("V{number}")})).collect() };
    let forged = |count: usize| {
        let one = |number: usize| {
            json!({"name": format!("lucid-toxicity-auditor-{number}"), "image": "ghcr.io/lucid/lucid-toxicity-auditor",
            "env": [{"name": "LUCID_AUDITOR_ID"}], "securityContext": {"runAsUser": 20001}})
        };
        (0..count).map(one).collect::<Vec<_>>()
    };
    let long = "true,".repeat(50_000);
    let unsecured = [
        with(json!({"lucid.io/secured": "True"}), json!({"lucid.computing/skip-audit": long}), vec![]),
        with(json!({}), json!({"lucid.computing/auditor-chain": long}), vec![]),
        with(json!({}), json!({"lucid.computing/skip-audit": "true"}), forged(4_000)),
        with(json!({}), json!({}), vec![json!({"name": "env", "image": "a", "env": variables(20_000)})]),
        json!({"metadata": {"name": "bare"}, "spec": {"containers": [{"name": "a", "image": "b"}]}}),
    ];
    for (number, pod) in unsecured.iter().enumerate() {
        let response = dry_run(cluster, "shop", pod).await;
        assert_eq!(
            response.status,
            201,
            "{number}: {}",
            response.refusal().chars().take(500).collect::<String>()
        );
    }
    // The policy checks a change of a pod with auditors, or denies it if the pod is too large.
    let plain = |count: usize| {
        let one = |number: usize| json!({"name": format!("app-{number}"), "image": "a"});
        (0..count).map(one).collect::<Vec<_>>()
    };
    for (number, (containers, status)) in
        [(forged(10), 200), (forged(400), 200), (forged(600), 403), (plain(4_000), 200)]
            .into_iter()
            .enumerate()
    {
        let count = containers.len();
        let mut pod = with(json!({}), json!({}), containers);
        pod["metadata"]["name"] = json!(format!("big-{number}"));
        create(cluster, "shop", &pod).await.stored().unwrap();
        let patch = json!({"spec": {"containers": [{"name": "model", "image": "example.com/model:2"}], "activeDeadlineSeconds": 60}});
        let response = patch_pod(cluster, &format!("big-{number}"), &patch).await;
        let refusal: String = response.refusal().chars().take(500).collect();
        assert_eq!(response.status, status, "{count}: {refusal}");
        assert_eq!(refusal.contains("more than 512 containers"), status != 200, "{count}: {refusal}");
    }

    let digest = "1".repeat(64);
    let entry =
        |name: &str| format!("  - {{name: {name}, image: \"ghcr.io/lucid/{name}@sha256:{digest}\"}}\n");
    let names = ["lucid-injection-auditor", "lucid-toxicity-auditor", "lucid-guardrails-auditor"];
    let yaml = format!("chain:\n{}", names.map(entry).concat());
    let yaml = yaml.replacen("@sha256", ":1@sha256", 1);
    let catalogue = yaml.lines().enumerate().map(|(number, line)| {
        if number == 0 {
            format!("{line}\n")
        } else {
            line.replace('}', &format!(", port: {}}}\n", 9000 + number))
        }
    });
    let catalogue = Catalogue::parse("auditors.yaml", &catalogue.collect::<String>()).unwrap();
    let configuration = Configuration::new(Catalogue::builtin().overlay(&catalogue), None).unwrap();
    let longest = vec!["injection,toxicity"; 64].join(", ");
    let secured = |chain: &str, more: Vec<Value>| {
        let annotations = json!({"lucid.computing/auditor-chain": chain});
        injected(&with(json!({"lucid.io/secured": "true"}), annotations, more), &configuration)
    };
    let apps = |count: usize| {
        (0..count).map(|number| json!({"name": format!("app-{number}"), "image": "example.com/app:1", "env": variables(20)})).collect::<Vec<_>>()
    };
    let crowd = dry_run(cluster, "shop", &secured("injection", apps(600))).await;
    refused(&crowd, &["more than 512 containers"]);
    let room = [
        secured(&longest, vec![]),
        secured("injection,toxicity,guardrails", apps(500)),
        secured("injection", vec![json!({"name": "env", "image": "a", "env": variables(20_000)})]),
    ];
    for (number, pod) in room.iter().enumerate() {
        let response = dry_run(cluster, "shop", pod).await;
        assert_eq!(
            response.status,
            201,
            "{number}: {}",
            response.refusal().chars().take(1500).collect::<String>()
        );
    }
}

/// Such pods would keep the webhooks busy past their deadline, and `Ignore` would admit them without evaluation.
pub(super) async fn pods_that_are_too_large_are_denied(cluster: &Cluster) {
    let builtin = builtin();
    let names = |count: usize, of: fn(usize) -> Value| (0..count).map(of).collect::<Vec<_>>();
    let env = |count| names(count, |number| json!({"name": format!("V{number}")}));
    let mounts = |count| names(count, |number| json!({"name": "v", "mountPath": format!("/m{number}")}));
    let ports = |count| names(count, |number| json!({"containerPort": number + 10_000}));
    let volumes = |count| names(count, |number| json!({"name": format!("v{number}"), "emptyDir": {}}));
    let path =
        |length: usize| json!([{"name": "v", "hostPath": {"path": format!("/{}", "a".repeat(length))}}]);
    let aliases = |count, hostnames: usize| {
        let hostnames = names(hostnames, |number| json!(format!("h{number}")));
        vec![json!({"ip": "10.0.0.1", "hostnames": hostnames}); count]
    };
    let cases: [(&str, Value, Value); 7] = [
        ("65536 characters of hostPath", json!({"volumes": path(400_000)}), json!({"volumes": path(4_000)})),
        ("512 volumes", json!({"volumes": volumes(513)}), json!({"volumes": volumes(500)})),
        (
            "4096 volumeMounts",
            json!({"volumes": path(10), "container": {"volumeMounts": mounts(4_097)}}),
            json!({"volumes": path(10), "container": {"volumeMounts": mounts(4_000)}}),
        ),
        ("32768 env", json!({"container": {"env": env(32_769)}}), json!({"container": {"env": env(20_000)}})),
        (
            "4096 ports",
            json!({"container": {"ports": ports(4_097)}}),
            json!({"container": {"ports": ports(4_000)}}),
        ),
        (
            "1024 hostAliases",
            json!({"hostAliases": aliases(1_025, 1)}),
            json!({"hostAliases": aliases(1_000, 1)}),
        ),
        (
            "4096 hostnames of hostAliases",
            json!({"hostAliases": aliases(2, 3_000)}),
            json!({"hostAliases": aliases(2, 2_000)}),
        ),
    ];
    let made = |name: &str, fields: &Value| {
        let mut pod = with_chain(name, "injection");
        for (key, value) in fields.as_object().unwrap() {
            if key == "container" {
                pod["spec"]["containers"][0]
                    .as_object_mut()
                    .unwrap()
                    .extend(value.as_object().unwrap().clone());
            } else {
                pod["spec"][key] = value.clone();
            }
        }
        injected(&pod, &builtin)
    };
    for (number, (what, large, fine)) in cases.iter().enumerate() {
        let part = format!("too large to be judged in time: it has more than {what}");
        refused(&dry_run(cluster, "shop", &made("web", large)).await, &[&part]);
        let response = dry_run(cluster, "shop", &made("web", fine)).await;
        let refusal: String = response.refusal().chars().take(500).collect();
        assert_eq!(response.status, 201, "{what}: {refusal}");
        // A pod with auditors is the same without its label.
        let name = format!("large-{number}");
        let mut unlabelled = made(&name, large);
        unlabelled["metadata"]["labels"] = json!({});
        create(cluster, "shop", &unlabelled).await.stored().unwrap();
        let patch = json!({"spec": {"activeDeadlineSeconds": 60}});
        refused(&patch_pod(cluster, &name, &patch).await, &[&part]);
    }
}
