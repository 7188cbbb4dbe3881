//! The policy on a real API server: denials, warnings, and operations that are never blocked.

use std::time::{Duration, Instant};

use http::Method;
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::{Patch, PatchParams};
use lucid_e2e::{Operator, Reply, Verifier, ask};
use lucid_testbed::Cluster;
use serde_json::{Value, json};

use crate::common::{cluster, config_map, decisions, metric, operator, pod, secured, until};

const NOTARIZED: &str = "sha256:1111111111111111111111111111111111111111111111111111111111111111";
const REVOKED: &str = "sha256:3333333333333333333333333333333333333333333333333333333333333333";
const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const PODS: &str = "/api/v1/namespaces/shop/pods";

/// Writes a chain of one auditor whose image is notarized.
async fn catalogue(cluster: &Cluster) {
    let yaml = format!("chain:\n  - {{name: good, image: \"example.com/good@{NOTARIZED}\"}}\n");
    config_map(cluster, "lucid-system", "lucid-auditors", "auditors.yaml", &yaml).await;
}

/// Starts an operator that denies every violation except a missing label.
async fn enforcing(cluster: &Cluster, verifier: &Verifier) -> Operator {
    operator(cluster, |operator| {
        operator
            .env("LUCID_ADMISSION_MODE", "enforce")
            .env("LUCID_TIER_LABEL", "")
            .env("LUCID_CHAIN", "good")
            .env("LUCID_ALLOW_SKIP", "false")
            .env("LUCID_STRICT_NOTARIZATION", "true")
            .env("LUCID_VERIFIER_URL", verifier.url())
    })
    .await
}

async fn post(cluster: &Cluster, path: &str, object: &Value) -> Reply {
    ask(&cluster.client(), None, Method::POST, path, JSON, object).await.unwrap()
}

async fn patch(cluster: &Cluster, path: &str, kind: &str, change: &Value) -> Reply {
    ask(&cluster.client(), None, Method::PATCH, path, kind, change).await.unwrap()
}

fn assert_passed(what: &str, reply: &Reply) {
    assert!((200..300).contains(&reply.status), "{what}: {reply:?}");
}

fn assert_refused(what: &str, reply: &Reply, parts: &[&str]) {
    let message = reply.body["message"].as_str().unwrap_or_default();
    assert_eq!(reply.status, 403, "{what}: {reply:?}");
    for part in [r#"admission webhook "validate.lucid.computing" denied the request"#].iter().chain(parts) {
        assert!(message.contains(part), "{what}: {part:?} is not in {message:?}");
    }
}

fn with(mut pod: Value, path: &str, value: Value) -> Value {
    let (parent, key) = path.rsplit_once('/').unwrap();
    pod.pointer_mut(parent).unwrap()[key] = value;
    pod
}

fn plain(name: &str) -> Value {
    pod(name, json!({}), json!({}))
}

#[tokio::test]
async fn images_of_auditors_are_judged_in_every_list_and_by_every_way_to_write_them() {
    let cluster = cluster().await;
    catalogue(&cluster).await;
    let verifier = Verifier::start(cluster.folder(), &[NOTARIZED]).await.unwrap();
    let _operator = enforcing(&cluster, &verifier).await;
    let revoked = format!("example.com/good@{REVOKED}");
    let container = json!([{"name": "x", "image": revoked}]);

    // CREATE; ephemeral containers cannot be created with a pod.
    let containers = json!([plain("x")["spec"]["containers"][0], container[0]]);
    let volume = json!([{"name": "x", "image": {"reference": revoked}}]);
    for (list, items, says) in [
        ("containers", containers, "auditor container x"),
        ("initContainers", container.clone(), "auditor init container x"),
        ("volumes", volume, "auditor image volume x"),
    ] {
        let bad = with(plain("bad"), &format!("/spec/{list}"), items.clone());
        assert_refused(list, &post(&cluster, PODS, &bad).await, &[says, REVOKED, "not notarized"]);
        // Claims of the pod itself make no difference.
        let mut forged = bad.clone();
        forged["metadata"]["annotations"] = json!({
            "lucid.computing/status": r#"{"chain":["x"]}"#, "lucid.computing/break-glass": "INC-1",
            "kubernetes.io/config.source": "file",
        });
        forged["metadata"]["ownerReferences"] = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "1", "controller": true}]);
        assert_refused(list, &post(&cluster, PODS, &forged).await, &["not notarized"]);
        let controller = "system:serviceaccount:kube-system:replicaset-controller";
        let by_controller = ask(&cluster.client(), Some(controller), Method::POST, PODS, JSON, &forged).await;
        assert_refused(list, &by_controller.unwrap(), &["not notarized"]);
        let good = items.to_string().replace(REVOKED, NOTARIZED);
        let good =
            with(plain(&list.to_lowercase()), &format!("/spec/{list}"), serde_json::from_str(&good).unwrap());
        let reply = post(&cluster, PODS, &good).await;
        assert_passed(list, &reply);
        // The API server keeps image volumes; otherwise this would test nothing.
        assert_eq!(
            reply.body["spec"]["volumes"][0]["image"]["reference"].is_string(),
            list == "volumes",
            "{reply:?}"
        );
    }

    // UPDATE: the image of a running container can be changed.
    assert_passed("web", &post(&cluster, PODS, &secured("web")).await);
    let web = format!("{PODS}/web");
    let image = |name: &str, image: &str| json!({"spec": {"containers": [{"name": name, "image": image}]}});
    assert_refused(
        "update",
        &patch(&cluster, &web, STRATEGIC, &image("good", &revoked)).await,
        &["container good", "not notarized"],
    );
    assert_refused(
        "disguise",
        &patch(&cluster, &web, STRATEGIC, &image("model", &revoked)).await,
        &["container model", "not notarized"],
    );
    let other = format!("example.com/other@{NOTARIZED}");
    assert_refused(
        "other",
        &patch(&cluster, &web, STRATEGIC, &image("good", &other)).await,
        &["differs from the plan in image"],
    );
    assert_passed(
        "application",
        &patch(&cluster, &web, STRATEGIC, &image("model", "example.com/model:2")).await,
    );
    let init = json!({"spec": {"initContainers": [{"name": "lucid-init", "image": revoked}]}});
    assert_refused("init", &patch(&cluster, &web, STRATEGIC, &init).await, &["init container lucid-init"]);

    // pods/resize
    let resize = |name: &str, resources: Value| json!({"spec": {"containers": [{"name": name, "resources": resources}]}});
    let path = format!("{web}/resize");
    for less in [
        json!({"requests": {"cpu": "1m"}, "limits": {"cpu": "1m"}}),
        json!({"limits": {"cpu": "499m"}}),
        json!({"requests": {"memory": "1Mi"}, "limits": {"memory": "1Gi"}}),
    ] {
        assert_refused(
            "shrunk auditor",
            &patch(&cluster, &path, STRATEGIC, &resize("good", less)).await,
            &["differs from the plan in resources"],
        );
    }
    let more = json!({"requests": {"memory": "256Mi"}, "limits": {"memory": "512Mi", "cpu": "0.5"}});
    assert_passed("grown auditor", &patch(&cluster, &path, STRATEGIC, &resize("good", more)).await);
    let some = json!({"requests": {"cpu": "1m"}});
    assert_passed("application", &patch(&cluster, &path, STRATEGIC, &resize("model", some)).await);

    // pods/ephemeralcontainers
    let ephemeral = |container: Value| json!({"spec": {"ephemeralContainers": [container]}});
    let debug = format!("{web}/ephemeralcontainers");
    assert_refused(
        "ephemeral",
        &patch(&cluster, &debug, STRATEGIC, &ephemeral(container[0].clone())).await,
        &["auditor ephemeral container x"],
    );
    let as_auditor = json!({"name": "y", "image": "shell", "securityContext": {"runAsUser": 20001}});
    assert_refused(
        "uid",
        &patch(&cluster, &debug, STRATEGIC, &ephemeral(as_auditor)).await,
        &["ephemeral container y", "20001"],
    );
    let admin =
        json!({"name": "y", "image": "shell", "securityContext": {"capabilities": {"add": ["NET_ADMIN"]}}});
    assert_refused("admin", &patch(&cluster, &debug, STRATEGIC, &ephemeral(admin)).await, &["NET_ADMIN"]);
    for (what, container, says) in [
        (
            "target",
            json!({"name": "y", "image": "shell", "targetContainerName": "good"}),
            "targetContainerName",
        ),
        ("name", json!({"name": "lucid-toxicity-auditor", "image": "shell"}), "bears the name of an auditor"),
        (
            "no rules",
            json!({"name": "y", "image": "shell", "targetContainerName": "lucid-init"}),
            "auditor \"lucid-init\"",
        ),
    ] {
        assert_refused(what, &patch(&cluster, &debug, STRATEGIC, &ephemeral(container)).await, &[says]);
    }
    // Like `kubectl debug --target=model` with the profiles `general` and `restricted`.
    let mut shell = json!({"name": "z", "image": "shell", "targetContainerName": "model",
        "securityContext": {"capabilities": {"add": ["SYS_PTRACE"]}}});
    assert_refused(
        "ptrace",
        &patch(&cluster, &debug, STRATEGIC, &ephemeral(shell.clone())).await,
        &["SYS_PTRACE"],
    );
    shell["securityContext"] = json!({"capabilities": {"drop": ["ALL"]}, "allowPrivilegeEscalation": false});
    assert_passed("debug", &patch(&cluster, &debug, STRATEGIC, &ephemeral(shell)).await);
}

#[tokio::test]
async fn what_gets_around_a_chain_is_refused_and_ordinary_pods_are_not() {
    let cluster = cluster().await;
    catalogue(&cluster).await;
    cluster
        .create_namespace("bank", &[crate::common::ENABLED, ("lucid.computing/require-chain", "true")])
        .await
        .unwrap();
    let verifier = Verifier::start(cluster.folder(), &[NOTARIZED]).await.unwrap();
    let operator = enforcing(&cluster, &verifier).await;

    let context = "/spec/containers/0/securityContext";
    let skip = json!({"lucid.computing/skip-audit": "true"});
    for (what, pod, says) in [
        ("uid", with(secured("a"), context, json!({"runAsUser": 20001})), "user 20001"),
        (
            "uid of the pod",
            with(secured("a"), "/spec/securityContext", json!({"runAsUser": 20001})),
            "user 20001",
        ),
        ("privileged", with(secured("a"), context, json!({"privileged": true})), "privileged"),
        ("SETUID", with(secured("a"), context, json!({"capabilities": {"add": ["SETUID"]}})), "SETUID"),
        ("hostPID", with(secured("a"), "/spec/hostPID", json!(true)), "hostPID"),
        (
            "processes",
            with(secured("a"), "/spec/shareProcessNamespace", json!(true)),
            "shareProcessNamespace",
        ),
        ("skip", pod("a", json!({"lucid.io/secured": "true"}), skip), "skip-audit"),
    ] {
        assert_refused(what, &post(&cluster, PODS, &pod).await, &[says]);
    }
    for (name, pod) in [
        ("ordinary", secured("ordinary")),
        ("user", with(secured("user"), context, json!({"runAsUser": 1000}))),
        ("root", with(secured("root"), context, json!({"runAsUser": 0}))),
        ("unsecured", with(plain("unsecured"), context, json!({"privileged": true}))),
    ] {
        assert_passed(name, &post(&cluster, PODS, &pod).await);
    }

    // A namespace requires a chain, and the denial names the missing parts.
    let bank = "/api/v1/namespaces/bank/pods";
    let misspelt = pod("misspelt", json!({"lucid.io/secure": "true"}), json!({}));
    let refused = post(&cluster, bank, &misspelt).await;
    assert_refused("bank", &refused, &["the namespace requires an auditor chain"]);
    assert!(refused.warnings.join("\n").contains("did you mean the label lucid.io/secured?"), "{refused:?}");
    assert_passed("bank", &post(&cluster, bank, &secured("web")).await);
    assert!(metric(&operator, r#"lucid_policy_findings_total{reason="ChainMissing"}"#).await >= 1);
    // Changes of the namespace take effect, also by an annotation.
    let api: Api<Namespace> = Api::all(cluster.client());
    let annotated = json!({"metadata": {"annotations": {"lucid.computing/require-chain": "true"}}});
    api.patch("shop", &PatchParams::default(), &Patch::Merge(&annotated)).await.unwrap();
    let is_refused = |answer: &lucid_e2e::Answer| answer.refusal().contains("requires an auditor chain");
    until(&cluster, "shop", |name| plain(&format!("plain-{name}")), is_refused).await;
}

#[tokio::test]
async fn a_namespace_that_requires_a_chain_leaves_pods_no_choice() {
    let cluster = cluster().await;
    let yaml = format!(
        "chain:\n  - {{name: good, image: \"example.com/good@{NOTARIZED}\"}}\n  - {{name: weak, image: \"example.com/weak@{NOTARIZED}\"}}\n"
    );
    config_map(&cluster, "lucid-system", "lucid-auditors", "auditors.yaml", &yaml).await;
    let required = [crate::common::ENABLED, ("lucid.computing/require-chain", "true")];
    for (name, choices) in [("bank", None), ("bank-chain", Some("chain")), ("bank-all", Some("all"))] {
        let choices = choices.map(|value| ("lucid.computing/pod-choices", value));
        let labels: Vec<_> = required.into_iter().chain(choices).collect();
        cluster.create_namespace(name, &labels).await.unwrap();
    }
    let verifier = Verifier::start(cluster.folder(), &[NOTARIZED]).await.unwrap();
    let operator = enforcing(&cluster, &verifier).await;

    for (number, (key, value, is_chain)) in [
        ("auditor-chain", "weak", true),
        ("auditors", "weak", true),
        ("audit-mode", "observe", false),
        ("target-port", "7000", false),
        ("direction", "outbound", false),
        ("sidecar-mode", "native", false),
        ("intercept", "env", false),
        ("skip-audit", "true", false),
    ]
    .into_iter()
    .enumerate()
    {
        let key = format!("lucid.computing/{key}");
        let pod = pod(&format!("p{number}"), json!({"lucid.io/secured": "true"}), json!({&key: value}));
        for (namespace, setting, allowed) in [
            ("bank", "none", false),
            ("bank-chain", "chain", is_chain),
            ("bank-all", "all", key != "lucid.computing/skip-audit"),
        ] {
            let what = format!("{key} in {namespace}");
            let reply = post(&cluster, &format!("/api/v1/namespaces/{namespace}/pods"), &pod).await;
            if allowed {
                assert_passed(&what, &reply);
            } else if setting == "all" {
                // LUCID_ALLOW_SKIP is false.
                assert_refused(&what, &reply, &[&key]);
            } else {
                let setting = format!("lucid.computing/pod-choices of the namespace is \"{setting}\"");
                assert_refused(&what, &reply, &[&format!("annotation {key} is not allowed"), &setting]);
                let ignored = format!("annotation {key} is ignored: {setting}");
                assert!(reply.warnings.contains(&ignored), "{what}: {:?}", reply.warnings);
            }
        }
    }

    // The ticket of a pod counts only where `lucid.computing/pod-choices` allows it.
    let ticket = json!({"lucid.computing/break-glass": "INC-1"});
    let broken = pod("broken", ticket, json!({}));
    let bank = "/api/v1/namespaces/bank/pods";
    let refused = post(&cluster, bank, &broken).await;
    assert_refused("ticket", &refused, &["requires an auditor chain"]);
    let says = "label lucid.computing/break-glass does not count: lucid.computing/pod-choices";
    let told = format!("{} {}", refused.body["message"], refused.warnings.join("\n"));
    assert!(told.contains(says), "{told}");
    assert_passed("ticket", &post(&cluster, "/api/v1/namespaces/bank-all/pods", &broken).await);
    assert!(metric(&operator, r#"lucid_policy_findings_total{reason="ChoiceNotAllowed"}"#).await >= 1);

    // An invalid value allows nothing and is reported.
    let api: Api<Namespace> = Api::all(cluster.client());
    let invalid = json!({"metadata": {"labels": {"lucid.computing/pod-choices": "some"}}});
    api.patch("bank-all", &PatchParams::default(), &Patch::Merge(&invalid)).await.unwrap();
    let observing = |name: &str| {
        pod(
            &format!("observing-{name}"),
            json!({"lucid.io/secured": "true"}),
            json!({"lucid.computing/audit-mode": "observe"}),
        )
    };
    let is_refused = |answer: &lucid_e2e::Answer| answer.refusal().contains("audit-mode is not allowed");
    let answer = until(&cluster, "bank-all", observing, is_refused).await;
    assert!(answer.warnings.join("\n").contains(r#"found "some""#), "{:?}", answer.warnings);
}

/// The pod with these fields in its spec, and in its container.
fn merged(name: &str, spec: Value, container: Value) -> Value {
    let mut pod = secured(name);
    pod["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    pod["spec"]["containers"][0].as_object_mut().unwrap().extend(container.as_object().unwrap().clone());
    pod
}

#[tokio::test]
async fn what_reaches_an_auditor_by_the_node_or_by_its_name_is_refused_and_ordinary_pods_are_not() {
    let cluster = cluster().await;
    catalogue(&cluster).await;
    let verifier = Verifier::start(cluster.folder(), &[NOTARIZED]).await.unwrap();
    let _operator = enforcing(&cluster, &verifier).await;
    let node = |path: &str| json!({"volumes": [{"name": "node", "hostPath": {"path": path}}]});
    let mount = json!({"volumeMounts": [{"name": "node", "mountPath": "/node", "readOnly": true}]});
    let aliases =
        |ip: &str, name: &str| json!({"hostAliases": [{"ip": ip, "hostnames": ["a.example.com", name]}]});
    let unmasked = json!({"securityContext": {"procMount": "Unmasked"}});
    let capability = |name: &str| json!({"securityContext": {"capabilities": {"add": [name]}}});
    let none = json!({});
    for (what, spec, container, says) in [
        ("IPC", json!({"hostIPC": true}), &none, "hostIPC is true"),
        (
            "localhost",
            aliases("203.0.113.7", "localhost"),
            &none,
            r#"gives "localhost" the address "203.0.113.7""#,
        ),
        ("a neighbour", aliases("127.0.0.2", "localhost"), &none, r#"the address "127.0.0.2""#),
        ("called so", json!({"hostname": "localhost"}), &none, "host name"),
        ("renamed so", json!({"hostnameOverride": "localhost"}), &none, "host name"),
        ("the node", node("/"), &mount, r#"container model: volume "node" mounts "/" of the node"#),
        ("processes", node("/proc"), &mount, r#"mounts "/proc""#),
        ("the kubelet", node("/var/lib/kubelet"), &mount, "kubelet"),
        ("a socket", node("/var/run/docker.sock"), &mount, r#"mounts "/run/docker.sock""#),
        ("logs", node("/var/log"), &mount, r#"mounts "/var/log""#),
        ("procMount", json!({"hostUsers": false}), &unmasked, "procMount"),
        ("files", none.clone(), &capability("DAC_READ_SEARCH"), "DAC_READ_SEARCH"),
        ("memory", none.clone(), &capability("PERFMON"), "PERFMON"),
    ] {
        let reply = post(&cluster, PODS, &merged("a", spec, container.clone())).await;
        assert_refused(what, &reply, &[says]);
    }
    let mut early = merged("a", node("/run/containerd"), none.clone());
    early["spec"]["initContainers"] =
        json!([{"name": "early", "image": "x", "volumeMounts": mount["volumeMounts"]}]);
    assert_refused("early", &post(&cluster, PODS, &early).await, &["init container early: volume"]);

    let probe = json!({"readinessProbe": {"tcpSocket": {"host": "127.0.0.1", "port": 5000}}});
    let context = json!({"securityContext": {
        "sysctls": [{"name": "net.ipv4.ip_local_port_range", "value": "1024 65535"}],
        "seLinuxOptions": {"level": "s0:c1,c2"}, "appArmorProfile": {"type": "Unconfined"}}});
    let names = json!({"setHostnameAsFQDN": true, "subdomain": "shop", "dnsPolicy": "None",
        "dnsConfig": {"nameservers": ["10.0.0.53"]}});
    for (name, spec, container) in [
        ("aliases", aliases("127.0.0.1", "foo.local"), &none),
        ("other-aliases", aliases("203.0.113.7", "ledger.internal"), &none),
        ("unused", node("/proc"), &none),
        ("probe", none.clone(), &probe),
        ("context", context, &none),
        ("names", names, &none),
    ] {
        assert_passed(name, &post(&cluster, PODS, &merged(name, spec, container.clone())).await);
    }
}

#[tokio::test]
async fn exemptions_are_read_again_when_they_change_and_broken_ones_change_nothing() {
    let cluster = cluster().await;
    catalogue(&cluster).await;
    let verifier = Verifier::start(cluster.folder(), &[NOTARIZED]).await.unwrap();
    let file = cluster.folder().join("exemptions.yaml");
    // By rename, like an editor, so that readers never see a partial file.
    let write = |text: &str| {
        let whole = file.with_extension("new");
        std::fs::write(&whole, text).unwrap();
        std::fs::rename(whole, &file).unwrap();
    };
    write("exemptions: []");
    let log = cluster.folder().join("decisions");
    let folder = log.display().to_string();
    let operator = operator(&cluster, |operator| {
        operator
            .env("LUCID_DECISION_LOG", folder)
            .env("LUCID_ADMISSION_MODE", "enforce")
            .env("LUCID_TIER_LABEL", "")
            .env("LUCID_CHAIN", "good")
            .env("LUCID_VERIFIER_URL", verifier.url())
            .env("LUCID_EXEMPTIONS", file.display().to_string())
    })
    .await;
    let ipc = |name: &str| merged(name, json!({"hostIPC": true}), json!({}));
    assert_refused("none", &post(&cluster, PODS, &ipc("a")).await, &["hostIPC"]);
    write("exemptions: [{name: batch, namespaces: [shop]}]");
    until(&cluster, "shop", |name| ipc(&format!("exempt-{name}")), |answer| answer.refusal().is_empty())
        .await;

    let mut judged = decisions(&log).into_iter().filter(|decision| decision["webhook"] == "validate");
    let exempted = judged.next_back().unwrap()["exemptions"].to_string();
    assert!(exempted.contains("batch: hostIPC is true"), "{exempted}");

    let reloads = async |result: &str| {
        let series = format!(r#"lucid_policy_file_reloads_total{{file="exemptions",result="{result}"}}"#);
        metric(&operator, &series).await
    };
    assert_eq!((reloads("ok").await, reloads("error").await), (1, 0));
    write("exemptions: [{name: everything}]");
    let begin = Instant::now();
    for attempt in 0.. {
        assert_passed("broken", &post(&cluster, PODS, &ipc(&format!("broken-{attempt}"))).await);
        if reloads("error").await == 1 {
            break;
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "nobody read the file");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let log = std::fs::read_to_string(operator.log()).unwrap();
    assert!(log.contains("at least one of namespaces, images, digests and hostPaths"), "{log}");
    write("exemptions: []");
    let is_refused = |answer: &lucid_e2e::Answer| answer.refusal().contains("hostIPC");
    until(&cluster, "shop", |name| ipc(&format!("again-{name}")), is_refused).await;
    assert_eq!((reloads("ok").await, reloads("error").await), (2, 1));
}

#[tokio::test]
async fn modes_refuse_or_record() {
    let cluster = cluster().await;
    for (mode, refused) in [("audit", false), ("enforce", true)] {
        let log = cluster.folder().join(format!("decisions-{mode}"));
        let folder = log.display().to_string();
        let mut operator = operator(&cluster, |operator| {
            operator.env("LUCID_ADMISSION_MODE", mode).env("LUCID_DECISION_LOG", folder)
        })
        .await;
        for (tier, message) in [(None, "is missing"), (Some("C"), r#"found "C", accepted "A" or "B""#)] {
            let labels = tier.map_or_else(|| json!({}), |tier| json!({"lucid.computing/tier": tier}));
            let reply =
                post(&cluster, PODS, &pod(&format!("{mode}-{}", tier.is_some()), labels, json!({}))).await;
            if refused {
                assert_refused(mode, &reply, &["label lucid.computing/tier", message]);
            } else {
                assert_passed(mode, &reply);
                let warnings = reply.warnings.join("\n");
                assert!(
                    warnings.contains("admission mode enforce would refuse: label lucid.computing/tier"),
                    "{warnings}"
                );
            }
            let mut all = decisions(&log).into_iter();
            let decision = all.rfind(|decision| decision["webhook"] == "validate").unwrap();
            assert_eq!(decision["mode"], mode);
            assert_eq!(
                (&decision["allowed"], &decision["wouldDeny"]),
                (&json!(!refused), &json!(true)),
                "{decision}"
            );
            assert!(decision["findings"][0].as_str().unwrap().contains(message), "{decision}");
        }
        let good = pod(&format!("{mode}-good"), json!({"lucid.computing/tier": "A"}), json!({}));
        let reply = post(&cluster, PODS, &good).await;
        assert_passed(mode, &reply);
        assert_eq!(reply.warnings, Vec::<String>::new());
        let outcome = if refused { "denied" } else { "would_deny" };
        let series = format!(r#"lucid_policy_decisions_total{{mode="{mode}",outcome="{outcome}"}}"#);
        assert_eq!(metric(&operator, &series).await, 2);
        assert!(operator.terminate().unwrap().success());
    }
}

#[tokio::test]
async fn a_ticket_breaks_the_glass_for_who_may() {
    let cluster = cluster().await;
    let log = cluster.folder().join("decisions");
    // Two users who may create pods; one of them may use break-glass.
    let binding = |name: &str, role: &str, users: &[&str]| {
        let subjects: Vec<_> = users
            .iter()
            .map(|user| json!({"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": user}))
            .collect();
        json!({"metadata": {"name": name}, "subjects": subjects,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role}})
    };
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/shop";
    let role = |name: &str, group: &str, verb: &str| json!({"metadata": {"name": name}, "rules": [{"apiGroups": [group], "resources": ["pods"], "verbs": [verb]}]});
    for (kind, object) in [
        ("roles", role("creator", "", "create")),
        ("roles", role("breaker", "lucid.computing", "breakglass")),
        ("rolebindings", binding("creators", "creator", &["jane", "joe"])),
        ("rolebindings", binding("breakers", "breaker", &["jane"])),
    ] {
        assert_passed(kind, &post(&cluster, &format!("{rbac}/{kind}"), &object).await);
    }
    let file = log.display().to_string();
    let operator = operator(&cluster, |operator| {
        operator
            .env("LUCID_ADMISSION_MODE", "enforce")
            .env("LUCID_BREAK_GLASS_PATTERN", "INC-[0-9]+")
            .env("LUCID_BREAK_GLASS_ACCESS_REVIEW", "true")
            .env("LUCID_DECISION_LOG", file)
    })
    .await;
    let create = async |user: &str, name: &str, ticket: &str, until: Option<&str>| {
        let annotations =
            until.map_or_else(|| json!({}), |until| json!({"lucid.computing/break-glass-until": until}));
        let pod = pod(name, json!({"lucid.computing/break-glass": ticket}), annotations);
        ask(&cluster.client(), Some(user), Method::POST, PODS, JSON, &pod).await.unwrap()
    };
    let opened = create("jane", "opened", "INC-4711", None).await;
    assert_passed("jane", &opened);
    let warnings = opened.warnings.join("\n");
    assert!(
        warnings.contains(r#"admitted by ticket "INC-4711""#)
            && warnings.contains("passed over: label lucid.computing/tier"),
        "{warnings}"
    );
    assert_passed("in time", &create("jane", "in-time", "INC-1", Some("2100-01-01T00:00:00Z")).await);
    for (user, ticket, until, says) in [
        ("joe", "INC-4711", None, "user joe may not breakglass pods.lucid.computing in namespace shop"),
        ("jane", "please", None, "accepted is a ticket that matches INC-[0-9]+"),
        ("jane", "INC-4711", Some("2020-01-01T00:00:00Z"), "has expired"),
    ] {
        let refused = create(user, "refused", ticket, until).await;
        assert_refused(says, &refused, &["label lucid.computing/tier is missing"]);
        assert!(refused.warnings.join("\n").contains(says), "{says}: {refused:?}");
    }
    let decisions = decisions(&log);
    let of = |name: &str| decisions.iter().find(|decision| decision["name"] == name).unwrap();
    let expected = json!(["break-glass", "INC-4711", "jane", true, true]);
    let keys = ["mode", "ticket", "user", "allowed", "wouldDeny"];
    assert_eq!(keys.map(|key| of("opened")[key].clone()).to_vec(), *expected.as_array().unwrap());
    assert!(of("refused")["ticket"].is_null(), "{}", of("refused"));
    assert_eq!(metric(&operator, r#"lucid_break_glass_total{outcome="opened"}"#).await, 2);
    assert_eq!(metric(&operator, r#"lucid_break_glass_total{outcome="refused"}"#).await, 3);
}

/// Collection path and manifest of each kind that creates pods.
fn workloads(pod: &Value) -> Vec<(&'static str, Value)> {
    let labels = json!({"app": "web"});
    let mut metadata = pod["metadata"].clone();
    metadata["labels"]["app"] = json!("web");
    metadata.as_object_mut().unwrap().remove("name");
    let template = json!({"metadata": metadata, "spec": pod["spec"]});
    let mut job = template.clone();
    job["spec"]["restartPolicy"] = json!("Never");
    let selector = json!({"matchLabels": labels});
    let object = |spec: Value| json!({"metadata": {"name": "web"}, "spec": spec});
    let apps = object(json!({"replicas": 3, "selector": selector, "template": template}));
    vec![
        ("/apis/apps/v1/namespaces/shop/deployments", apps.clone()),
        ("/apis/apps/v1/namespaces/shop/replicasets", apps.clone()),
        ("/apis/apps/v1/namespaces/shop/statefulsets", with(apps, "/spec/serviceName", json!("web"))),
        (
            "/apis/apps/v1/namespaces/shop/daemonsets",
            object(json!({"selector": selector, "template": template})),
        ),
        (
            "/api/v1/namespaces/shop/replicationcontrollers",
            object(json!({"replicas": 3, "selector": labels, "template": template})),
        ),
        ("/apis/batch/v1/namespaces/shop/jobs", object(json!({"template": job}))),
        (
            "/apis/batch/v1/namespaces/shop/cronjobs",
            object(json!({"schedule": "0 0 * * *", "jobTemplate": {"spec": {"template": job}}})),
        ),
        ("/api/v1/namespaces/shop/podtemplates", json!({"metadata": {"name": "web"}, "template": template})),
    ]
}

#[tokio::test]
async fn workloads_are_warned_of_what_their_pods_will_meet_and_never_refused() {
    let cluster = cluster().await;
    catalogue(&cluster).await;
    let verifier = Verifier::start(cluster.folder(), &[]).await.unwrap();
    let mut operator = enforcing(&cluster, &verifier).await;
    let bad = with(secured("x"), "/spec/shareProcessNamespace", json!(true));
    for (path, object) in workloads(&bad) {
        let reply = post(&cluster, path, &object).await;
        assert_passed(path, &reply);
        let warnings = reply.warnings.join("\n");
        for part in
            ["pods of this template will be refused: shareProcessNamespace", "auditor ", "not notarized"]
        {
            assert!(warnings.contains(part), "{path}: {part:?} is not in {warnings:?}");
        }
        // Changes outside of the template cause no warning.
        let labels = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"replicas": 0}});
        let labels =
            if path.ends_with("podtemplates") { json!({"metadata": labels["metadata"]}) } else { labels };
        let reply = patch(&cluster, &format!("{path}/web"), MERGE, &labels).await;
        assert_passed(path, &reply);
        assert!(!reply.warnings.join("\n").contains("pods of this template"), "{path}: {reply:?}");
    }
    let deployment = "/apis/apps/v1/namespaces/shop/deployments/web";
    let scaled =
        patch(&cluster, &format!("{deployment}/scale"), MERGE, &json!({"spec": {"replicas": 1}})).await;
    assert_passed("scale", &scaled);
    let image = json!({"spec": {"template": {"spec": {"containers": [{"name": "model", "image": "example.com/model:2"}]}}}});
    let updated = patch(&cluster, deployment, STRATEGIC, &image).await;
    assert_passed("update", &updated);
    assert!(updated.warnings.join("\n").contains("pods of this template will be refused"), "{updated:?}");

    // Workloads can be applied while the webhook is unavailable.
    operator.kill();
    for (path, object) in workloads(&bad) {
        assert_passed(path, &post(&cluster, path, &with(object, "/metadata/name", json!("later"))).await);
    }
}

#[tokio::test]
async fn what_is_wrong_already_can_be_deleted_scaled_down_and_let_go() {
    let cluster = cluster().await;
    catalogue(&cluster).await;
    // Before the webhooks are registered.
    let mut bad = with(secured("bad"), "/spec/hostPID", json!(true));
    bad["metadata"]["finalizers"] = json!(["example.com/hold"]);
    assert_passed("bad", &post(&cluster, PODS, &bad).await);
    for (path, object) in workloads(&bad) {
        assert_passed(path, &post(&cluster, path, &object).await);
    }
    let verifier = Verifier::start(cluster.folder(), &[]).await.unwrap();
    let mut operator = enforcing(&cluster, &verifier).await;
    let path = format!("{PODS}/bad");
    let image = json!({"spec": {"containers": [{"name": "model", "image": "example.com/model:2"}]}});
    assert_refused("the chain is missing", &patch(&cluster, &path, STRATEGIC, &image).await, &["has none"]);
    assert_passed(
        "labels",
        &patch(&cluster, &path, MERGE, &json!({"metadata": {"labels": {"a": "b"}}})).await,
    );
    assert_passed(
        "skip",
        &patch(
            &cluster,
            &path,
            MERGE,
            &json!({"metadata": {"annotations": {"lucid.computing/skip-audit": "true"}}}),
        )
        .await,
    );

    // With the webhook running, and while it is down.
    for down in [false, true] {
        if down {
            operator.kill();
        }
        for kind in ["deployments", "statefulsets", "replicasets"] {
            let path = format!("/apis/apps/v1/namespaces/shop/{kind}/web");
            let replicas = json!({"spec": {"replicas": if down { 0 } else { 1 }}});
            assert_passed(kind, &patch(&cluster, &path, MERGE, &replicas).await);
            assert_passed(kind, &patch(&cluster, &format!("{path}/scale"), MERGE, &replicas).await);
        }
    }
    let delete = json!({"gracePeriodSeconds": 0});
    let deleted = ask(&cluster.client(), None, Method::DELETE, &path, JSON, &delete).await.unwrap();
    assert_passed("delete", &deleted);
    assert_passed(
        "finalizers",
        &patch(&cluster, &path, MERGE, &json!({"metadata": {"finalizers": []}})).await,
    );
    let gone = ask(&cluster.client(), None, Method::GET, &path, JSON, &json!({})).await.unwrap();
    assert_eq!(gone.status, 404, "{gone:?}");
}
