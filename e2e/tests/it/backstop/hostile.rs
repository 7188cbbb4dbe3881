//! Attacks by users who may write pods and avoid auditors, while no webhook responds.

use http::Method;
use lucid_e2e::{Reply, ask};
use lucid_testbed::Cluster;
use serde_json::{Value, json};

use super::{builtin, containers, forward, injected, refused, variables};
use crate::common::{STRATEGIC_MERGE, create, dry_run, has_kubernetes, pod, secured_with};

fn asking(name: &str, more: Value) -> Value {
    let mut annotations = json!({"lucid.computing/auditor-chain": "injection,toxicity"});
    annotations.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    secured_with(name, annotations)
}

async fn send(cluster: &Cluster, method: Method, path: &str, body: &Value) -> Reply {
    let kind = if method == Method::PATCH { STRATEGIC_MERGE } else { "application/json" };
    let path = format!("/api/v1/namespaces/shop/pods/{path}");
    ask(&cluster.client(), None, method, &path, kind, body).await.unwrap()
}

/// Checks the policy only: other parts of the API server may deny these pods as well.
#[track_caller]
fn untouched(what: &str, reply: &Reply) {
    let message = reply.body["message"].as_str().unwrap_or_default();
    assert!(!message.contains("lucid-backstop"), "{what}: {}", message.chars().take(500).collect::<String>());
}

#[track_caller]
fn stopped(what: &str, reply: &Reply, part: &str) {
    let message = reply.body["message"].as_str().unwrap_or_default();
    assert!(message.contains("lucid-backstop") && message.contains(part), "{what}: {reply:?}");
}

pub(super) async fn lookalikes_are_denied(cluster: &Cluster) {
    let configuration = builtin();
    let redirected = injected(&asking("web", json!({})), &configuration);
    // With `env` there are no rules that the policy would have to read.
    let by_variable = injected(&asking("web", json!({"lucid.computing/intercept": "env"})), &configuration);
    for pod in [&redirected, &by_variable] {
        let response = dry_run(cluster, "shop", pod).await;
        assert_eq!(response.status, 201, "{response:?}");
    }
    let last = |pod: &Value| containers(&mut pod.clone()).len() - 1;
    let chain = "does not have its chain";
    type Change = Box<dyn Fn(&mut Value)>;
    let place = last(&by_variable);
    let change = |change: fn(&mut Value, usize)| -> Change { Box::new(move |pod| change(pod, place)) };
    let wrong: Vec<(&str, &Value, &str, Change)> = vec![
        (
            "the last one forwards to a host that is called after a user",
            &by_variable,
            chain,
            change(|pod, last| forward(&mut containers(pod)[last], "http://localhost:5000@example.com")),
        ),
        (
            "the last one forwards where a variable says",
            &by_variable,
            chain,
            change(|pod, last| {
                let auditor = &mut containers(pod)[last];
                forward(auditor, "http://localhost:$(AWS_REGION)");
                variables(auditor).insert(1, json!({"name": "AWS_REGION", "value": "8090"}));
            }),
        ),
        (
            "an auditor with an invalid variable before its marker",
            &by_variable,
            chain,
            change(|pod, last| {
                let region = json!({"name": "AWS_REGION", "value": "eu-1"});
                variables(&mut containers(pod)[last]).insert(0, region);
            }),
        ),
        (
            "two ports",
            &by_variable,
            chain,
            change(|pod, _| {
                let auditor = &mut containers(pod)[1];
                auditor["ports"] = json!([{"containerPort": 8090}, {"containerPort": 8091}]);
                for variable in variables(auditor) {
                    if variable["name"] == "PORT" || variable["name"] == "LUCID_AUDITOR_PORT" {
                        variable["value"] = json!("8090,8091");
                    }
                }
            }),
        ),
        (
            "the node's network",
            &redirected,
            "no init container lucid-init with the rules that bring traffic to its auditors, or is in the node's network",
            change(|pod, _| pod["spec"]["hostNetwork"] = json!(true)),
        ),
        (
            "a second lucid-init that brings other rules",
            &redirected,
            "no init container lucid-init with the rules",
            change(|pod, _| {
                let list = pod["spec"]["initContainers"].as_array_mut().unwrap();
                let mut second = list.last().unwrap().clone();
                second["name"] = json!("lucid-init-2");
                let rules = r#"{"version":1,"chain":[{"uid":1000,"port":8090}],"model":5000,"inbound":true,"outbound":[]}"#;
                second["env"] = json!([{"name": "LUCID_REDIRECT", "value": rules}]);
                list.push(second);
            }),
        ),
        (
            "a volume of files in place of a token",
            &by_variable,
            chain,
            change(|pod, last| {
                let files = json!({"sources": [{"configMap": {"name": "files"}}]});
                pod["spec"]["volumes"]
                    .as_array_mut()
                    .unwrap()
                    .push(json!({"name": "identity", "projected": files}));
                let mount = json!({"name": "identity", "mountPath": "/var/run/secrets/azure/tokens", "readOnly": true});
                containers(pod)[last]["volumeMounts"].as_array_mut().unwrap().push(mount);
            }),
        ),
        (
            "names and nothing else",
            &by_variable,
            chain,
            change(|pod, _| {
                for container in &mut containers(pod)[1..] {
                    *container = json!({"name": container["name"], "image": container["image"]});
                }
            }),
        ),
        (
            "empty lists",
            &by_variable,
            chain,
            change(|pod, _| {
                pod["spec"]["initContainers"] = json!([]);
                for container in &mut containers(pod)[1..] {
                    for list in ["env", "ports", "volumeMounts", "args", "command"] {
                        container[list] = json!([]);
                    }
                    container["securityContext"] = json!({});
                }
            }),
        ),
        (
            "nothing but what the webhook says of its work",
            &by_variable,
            chain,
            change(|pod, _| containers(pod).truncate(1)),
        ),
        (
            "an owner that is made up",
            &by_variable,
            chain,
            change(|pod, _| {
                containers(pod).truncate(1);
                pod["metadata"]["ownerReferences"] = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web",
                    "uid": "6e6f6e65-0000-4000-8000-000000000000", "controller": true}]);
            }),
        ),
        (
            "auditors that end before the pod does, in an order of their own",
            &by_variable,
            chain,
            change(|pod, _| {
                let mut auditors = containers(pod).split_off(1);
                for auditor in &mut auditors {
                    for probe in ["startupProbe", "readinessProbe", "livenessProbe", "lifecycle"] {
                        auditor.as_object_mut().unwrap().remove(probe);
                    }
                }
                pod["spec"]["initContainers"] = Value::Array(auditors);
            }),
        ),
    ];
    for (name, pod, part, change) in wrong {
        let mut pod = pod.clone();
        change(&mut pod);
        let response = dry_run(cluster, "shop", &pod).await;
        assert!(response.refusal().contains(part), "{name}: {response:?}");
        refused(&response, &[]);
    }
    // By label or annotation, with any content of the list.
    for (labels, annotations) in [
        (json!({"lucid.io/secured": "true"}), json!({"lucid.computing/auditor-chain": ""})),
        (json!({"lucid.io/secured": "true"}), json!({"lucid.computing/auditor-chain": ",".repeat(20_000)})),
        (json!({"lucid.io/secured": "false"}), json!({"lucid.computing/auditors": ""})),
        (json!({"lucid.io/secured": "true"}), json!({"lucid.computing/skip-audit": "true"})),
    ] {
        let response = dry_run(cluster, "shop", &pod("web", labels, annotations)).await;
        refused(&response, &[chain]);
    }
}

pub(super) async fn running_pods_keep_their_chain(cluster: &Cluster) {
    let configuration = builtin();
    let native = json!({"lucid.computing/sidecar-mode": "native"});
    create(cluster, "shop", &injected(&asking("plain", json!({})), &configuration)).await.stored().unwrap();
    create(cluster, "shop", &injected(&asking("native", native), &configuration)).await.stored().unwrap();
    let debug = |number: usize| json!({"name": format!("e-{number}"), "image": "example.com/shell:1"});
    let crowd: Vec<_> = (0..520).map(debug).collect();
    let evil = "example.com/evil:1";
    let as_auditor = json!({"name": "e", "image": evil, "securityContext": {"runAsUser": 20001},
        "env": [{"name": "LUCID_AUDITOR_ID", "value": "lucid-injection-auditor"}]});
    let (init, containers) = ("initContainers", "containers");
    let image = |list: &str, name: &str| json!({"spec": {list: [{"name": name, "image": evil}]}});
    let other_repository = "an image of another repository";
    for secured in ["true", "false"] {
        let labels = json!({"lucid.io/secured": secured});
        let metadata =
            json!({"metadata": {"labels": labels, "annotations": {"lucid.computing/skip-audit": "true"}}});
        for (name, list) in [("plain", containers), ("native", init)] {
            assert_eq!(send(cluster, Method::PATCH, name, &metadata).await.status, 200);
            let ephemeral = format!("{name}/ephemeralcontainers");
            for (what, path, patch, part) in [
                ("auditor", name, image(list, "lucid-toxicity-auditor"), other_repository),
                // Init containers run again when the sandbox is recreated.
                ("init", name, image(init, "lucid-init"), other_repository),
                (
                    "ephemeral",
                    &*ephemeral,
                    json!({"spec": {"ephemeralContainers": [as_auditor]}}),
                    other_repository,
                ),
                // A list that is not checked to its end could hide later entries.
                (
                    "crowd",
                    &*ephemeral,
                    json!({"spec": {"ephemeralContainers": crowd}}),
                    "more than 512 containers",
                ),
            ] {
                let reply = send(cluster, Method::PATCH, path, &patch).await;
                stopped(&format!("{what} of {name}, secured: {secured}"), &reply, part);
            }
        }
    }
    // Normal operations in the life of a pod.
    let bind = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "plain"},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "node-1"}});
    let evict = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "native"}});
    let shell = json!({"spec": {"ephemeralContainers": [debug(1)]}});
    let resources = json!({"spec": {"containers": [{"name": "lucid-injection-auditor", "resources": {"limits": {"cpu": "2"}}}]}});
    let phase = json!({"status": {"phase": "Running"}});
    for (method, path, body) in [
        // There is no node to bind to.
        (Method::PATCH, "plain/resize", &resources),
        (Method::POST, "plain/binding", &bind),
        (Method::PATCH, "plain/status", &phase),
        (Method::PATCH, "plain/ephemeralcontainers", &shell),
        (Method::POST, "native/eviction", &evict),
        (Method::DELETE, "plain", &json!({})),
    ] {
        if path.ends_with("/resize") && !has_kubernetes(cluster, 33, "pods/resize").await {
            continue;
        }
        let reply = send(cluster, method, path, body).await;
        assert!((200..300).contains(&reply.status), "{path}: {reply:?}");
    }
}

/// The policy checks pods with hundreds of containers.
pub(super) async fn large_pods_keep_their_chain(cluster: &Cluster) {
    let mut pod = asking("big", json!({}));
    let apps = (0..400).map(|number| json!({"name": format!("app-{number}"), "image": "example.com/app:1"}));
    containers(&mut pod).extend(apps);
    create(cluster, "shop", &injected(&pod, &builtin())).await.stored().unwrap();
    let unlabel = json!({"metadata": {"labels": {"lucid.io/secured": null}}});
    assert_eq!(send(cluster, Method::PATCH, "big", &unlabel).await.status, 200);
    let evil = json!({"name": "lucid-toxicity-auditor", "image": "example.com/evil:1"});
    let reply = send(cluster, Method::PATCH, "big", &json!({"spec": {"containers": [evil]}})).await;
    stopped("auditor", &reply, "an image of another repository");
}

/// The policy denies pods that it cannot evaluate, so these must need no evaluation.
pub(super) async fn other_pods_are_never_denied(cluster: &Cluster) {
    let with = |name: &str, metadata: Value, spec: Value| {
        let mut pod = pod(name, json!({}), json!({}));
        pod["metadata"].as_object_mut().unwrap().extend(metadata.as_object().unwrap().clone());
        pod["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        pod
    };
    let image = "ghcr.io/lucid/lucid-injection-auditor";
    let variables: Vec<_> = (0..20_000).map(|number| json!({"name": format!("V{number}")})).collect();
    let pods = [
        json!({"metadata": {"name": "bare"}, "spec": {"containers": [{"name": "model", "image": "b"}]}}),
        json!({"metadata": {"name": "null", "labels": null, "annotations": null},
            "spec": {"containers": [{"name": "model", "image": "b", "env": null, "ports": null, "securityContext": null}],
                "initContainers": null, "ephemeralContainers": null}}),
        json!({"metadata": {"name": "empty", "labels": {}, "annotations": {}},
            "spec": {"containers": [{"name": "model", "image": "b", "env": [], "ports": [], "securityContext": {}}],
                "initContainers": [], "ephemeralContainers": [], "volumes": []}}),
        with("label", json!({"labels": {"lucid.io/secured": "TRUE"}}), json!({})),
        with("no-value", json!({"labels": {"lucid.io/secured": ""}}), json!({})),
        with(
            "ticket",
            json!({"labels": {"lucid.computing/break-glass": "nonsense"},
                "annotations": {"lucid.computing/break-glass-until": "2096-99-99T00:00:00Z"}}),
            json!({}),
        ),
        with(
            "chain",
            json!({"annotations": {"lucid.computing/auditor-chain": "nonsense,,", "lucid.computing/intercept": "x"}}),
            json!({}),
        ),
        with(
            "host",
            json!({}),
            json!({"hostNetwork": true, "hostPID": true, "shareProcessNamespace": false}),
        ),
        with("user", json!({}), json!({"securityContext": {"runAsUser": i32::MAX}})),
        with(
            "names",
            json!({}),
            json!({"initContainers": [{"name": "lucid-init", "image": "a:b"},
                {"name": "lucid-injection-auditor", "image": image, "restartPolicy": "Always"}]}),
        ),
        with(
            "variables",
            json!({}),
            json!({"containers": [{"name": "model", "image": "b", "env": variables}]}),
        ),
        with(
            "images",
            json!({}),
            json!({"containers": [{"name": "model", "image": "b"}, {"name": "x", "image": ":@:/@"},
                {"name": "y", "image": "/".repeat(5_000)}, {"name": "z", "image": "ä@sha256:"}]}),
        ),
    ];
    let shell = json!({"spec": {"ephemeralContainers": [{"name": "lucid-toxicity-auditor", "image": image,
        "env": [{"name": "LUCID_AUDITOR_ID"}], "securityContext": {"runAsUser": 20001}}]}});
    let changes = [
        json!({"spec": {"containers": [{"name": "model", "image": image}], "activeDeadlineSeconds": 60}}),
        json!({"metadata": {"labels": {"lucid.computing/break-glass": "x"}}, "spec": {"activeDeadlineSeconds": 50}}),
    ];
    for pod in &pods {
        let name = pod["metadata"]["name"].as_str().unwrap();
        let response = create(cluster, "shop", pod).await;
        assert_eq!(
            response.status,
            201,
            "{name}: {}",
            response.refusal().chars().take(500).collect::<String>()
        );
        for change in &changes {
            let reply = send(cluster, Method::PATCH, name, change).await;
            assert_eq!(reply.status, 200, "{name}: {reply:?}");
        }
        let path = format!("{name}/ephemeralcontainers");
        untouched(name, &send(cluster, Method::PATCH, &path, &shell).await);
        let resources =
            json!({"spec": {"containers": [{"name": "model", "resources": {"limits": {"cpu": "2"}}}]}});
        untouched(name, &send(cluster, Method::PATCH, &format!("{name}/resize"), &resources).await);
        assert_eq!(send(cluster, Method::DELETE, name, &json!({})).await.status, 200, "{name}");
    }
}
