//! Namespaces that require a chain, or restrict the choices of pods.

use lucid_chain::{Catalogue, Configuration};
use lucid_e2e::{ClusterExt as _, eventually};
use lucid_testbed::Cluster;
use serde_json::{Value, json};

use super::{builtin, injected, install, refused};
use crate::common::{ENABLED, REQUIRED, annotate_namespace, cluster, dry_run, pod, secured, secured_with};

pub(super) async fn namespaces_can_require_a_chain(cluster: &Cluster) {
    cluster.create_namespace("labelled", &[ENABLED, REQUIRED]).await.unwrap();
    cluster.create_namespace("misspelt", &[ENABLED, (REQUIRED.0, "True")]).await.unwrap();
    cluster.create_namespace("annotated", &[ENABLED]).await.unwrap();
    annotate_namespace(cluster, "annotated", json!({REQUIRED.0: REQUIRED.1})).await;
    let plain = pod("web", json!({}), json!({}));
    let chained = injected(&secured("web"), &builtin());
    assert_eq!(dry_run(cluster, "shop", &plain).await.status, 201);
    // The API server learns of the annotation with a delay.
    eventually("the annotation has an effect", async || {
        dry_run(cluster, "annotated", &plain).await.status != 201
    })
    .await;
    for namespace in ["labelled", "annotated", "misspelt"] {
        refused(&dry_run(cluster, namespace, &plain).await, &["does not have its chain"]);
        let response = dry_run(cluster, namespace, &chained).await;
        assert_eq!(response.status, 201, "{namespace}: {response:?}");
        let mut unlabelled = chained.clone();
        unlabelled["metadata"]["labels"] = json!({});
        let response = dry_run(cluster, namespace, &unlabelled).await;
        assert_eq!(response.status, 201, "{namespace}: {response:?}");
    }
}

/// `lucid.computing/other-ports` of the namespace demands rules that close ports.
pub(super) async fn namespaces_can_close_ports(cluster: &Cluster) {
    const KEY: &str = "lucid.computing/other-ports";
    let open = injected(&secured("web"), &builtin());
    let closed = injected(
        &secured_with("web", json!({KEY: "closed", "lucid.computing/open-ports": "9090,9091"})),
        &builtin(),
    );
    // A model with a second port.
    let with_rules = |pod: &Value, from: &str, to: &str| {
        let mut pod = pod.clone();
        let inits = pod["spec"]["initContainers"].as_array_mut().unwrap();
        let rules = &mut inits.iter_mut().find(|it| it["name"] == "lucid-init").unwrap()["env"][0]["value"];
        assert!(rules.as_str().unwrap().contains(from), "{rules}");
        *rules = json!(rules.as_str().unwrap().replace(from, to));
        pod
    };
    let routes =
        r#""outbound":[],"routes":[{"ports":[9001,9002],"model":9003},{"ports":[9004,9005],"model":9006}]"#;
    let with_routes = |pod: &Value| with_rules(pod, r#""outbound":[]"#, routes);
    for pod in [&open, &closed, &with_routes(&open), &with_routes(&closed)] {
        let response = dry_run(cluster, "shop", pod).await;
        assert_eq!(response.status, 201, "{response:?}");
    }
    for (from, to) in [
        (r#""open":[9090,9091]"#, r#""open":[9090,9091],"more":[]"#),
        (r#""open":[9090,9091]"#, r#""open":[9090,9091],"open":[]"#),
        (
            r#""outbound":[]"#,
            r#""outbound":[],"routes":[{"ports":[9001,9002],"model":9003,"inbound":false}]"#,
        ),
    ] {
        let response = dry_run(cluster, "shop", &with_rules(&closed, from, to)).await;
        refused(&response, &["no init container lucid-init with the rules"]);
    }

    for (namespace, value) in [("closing", "closed"), ("misspelt-ports", "close")] {
        cluster.create_namespace(namespace, &[ENABLED]).await.unwrap();
        annotate_namespace(cluster, namespace, json!({KEY: value})).await;
        eventually("the annotation has an effect", async || {
            dry_run(cluster, namespace, &open).await.status != 201
        })
        .await;
        let response = dry_run(cluster, namespace, &open).await;
        refused(&response, &["no init container lucid-init with the rules"]);
        let response = dry_run(cluster, namespace, &closed).await;
        assert_eq!(response.status, 201, "{namespace}: {response:?}");
    }
}

/// `lucid.computing/pod-choices` of the namespace limits the annotations that apply.
#[tokio::test]
async fn namespaces_limit_the_choices_of_pods() {
    let cluster = cluster().await;
    let configured = ["injection?mode=observe&failure=allow&timeout=5s".to_owned(), "toxicity".to_owned()];
    install(&cluster, &["--exact-chain", "--allow-skip", &format!("--chain={}", configured.join(","))]).await;
    let choices = "lucid.computing/pod-choices";
    for (name, labels) in [
        ("required", vec![ENABLED, REQUIRED]),
        ("none", vec![ENABLED, (choices, "none")]),
        ("chain", vec![ENABLED, REQUIRED, (choices, "chain")]),
        ("all", vec![ENABLED, REQUIRED, (choices, "all")]),
        ("invalid", vec![ENABLED, (choices, "any")]),
    ] {
        cluster.create_namespace(name, &labels).await.unwrap();
    }
    let with = |annotations: Value| secured_with("web", annotations);
    let chosen = with(json!({"lucid.computing/auditor-chain": "toxicity"}));
    let env = with(json!({"lucid.computing/intercept": "env"}));
    let observe = with(json!({"lucid.computing/audit-mode": "observe"}));
    let skipping = with(json!({"lucid.computing/skip-audit": "true"}));
    let mut ticket = with(json!({}));
    ticket["metadata"]["labels"]["lucid.computing/break-glass"] = json!("INC-4711");
    let configuration = Configuration::new(Catalogue::builtin(), Some(&configured)).unwrap();
    let plan = |pod: &Value| injected(pod, &configuration);
    let alone = with(json!({"lucid.computing/auditor-chain": "toxicity?timeout=1ms&mode=observe"}));
    let mut altered = plan(&with(json!({})));
    for container in altered["spec"]["containers"].as_array_mut().unwrap() {
        for variable in container["env"].as_array_mut().into_iter().flatten() {
            if variable["name"] == "LUCID_AUDIT_MODE" {
                variable["value"] = json!("observe");
            }
        }
    }
    for (what, pod, least) in [
        ("the configured chain", plan(&with(json!({}))), "none"),
        ("another chain", plan(&chosen), "chain"),
        ("no rules", plan(&env), "all"),
        ("observe", plan(&observe), "all"),
        ("one observes by annotation", plan(&alone), "all"),
        ("another one observes", altered, "all"),
        ("skipped", skipping, "all"),
        ("ticket", ticket, "all"),
    ] {
        for namespace in ["required", "none", "invalid", "chain", "all", "shop"] {
            let choices = match namespace {
                "chain" => ["none", "chain"].contains(&least),
                "all" | "shop" => true,
                _ => least == "none",
            };
            let response = dry_run(&cluster, namespace, &pod).await;
            assert_eq!(response.status == 201, choices, "{what} in {namespace}: {response:?}");
            if !choices {
                refused(&response, &[]);
            }
        }
    }
}
