//! The chain of a running pod.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use http::StatusCode;
use lucid_e2e::{ClusterExt as _, INJECTION, Installation, TOXICITY, call, eventually, program};
use serde_json::{Value, json};

use super::{
    addresses, ask, assert_through_the_chain, busybox, container, create, installed, kill, on_node, pod,
    processes, stored, wait, wget,
};
use crate::cli::kubectl;
use crate::common::{ENABLED, PATIENCE};
use crate::story::Story;

/// In one cluster, since a node takes long to start.
#[tokio::test]
async fn requests_pass_the_chain_from_every_caller() {
    if !Installation::can_run() {
        return;
    }
    let site = installed(1).await;
    create(&site, "shop", &with_root(pod("model", &json!({})))).await;
    create(&site, "shop", &pod("outbound", &json!({"lucid.computing/direction": "outbound"}))).await;
    for name in ["pod/model", "pod/outbound"] {
        wait(&site, "shop", name, "condition=Ready");
    }
    let mut story = Story::default();
    story.step("callers from outside", callers_from_outside(&site)).await;
    story.step("each auditor refuses what it is for", each_auditor_refuses_what_it_is_for(&site)).await;
    story.step("callers in the pod", callers_in_the_pod(&site)).await;
    story.step("callers who try to get around", callers_who_try_to_get_around(&site)).await;
    story.step("what leaves the pod", what_leaves_the_pod(&site)).await;
    story.step("a service and its name", a_service_and_its_name(&site)).await;
    story.step("each host that an application calls", each_host_that_an_application_calls(&site)).await;
    story.step("an auditor that crashes comes back", an_auditor_that_crashes_comes_back(&site)).await;
    story.step("a job completes", a_job_completes(&site)).await;
    story
        .step("a job that calls another host completes", a_job_that_calls_another_host_completes(&site))
        .await;
    story.step("an upstream by tls", an_upstream_by_tls(&site)).await;
    story.step("a restricted namespace", a_restricted_namespace(&site)).await;
    story.step("an auditor reads its files", an_auditor_reads_its_files(&site)).await;
    story.step("probes have held", probes_have_held(&site)).await;
    let sealed = "both webhooks seal their decisions";
    let vkeys = story.step(sealed, both_webhooks_seal_their_decisions(&site)).await;
    if let Some(vkeys) = vkeys {
        let helm_test = async { helm_test_says_whether_lucid_responds(&site, &vkeys) };
        story.step("helm test says whether lucid responds", helm_test).await;
    }
    story.end();
}

fn with_root(mut pod: Value) -> Value {
    let root = json!({"name": "root", "image": Installation::BUSYBOX, "args": ["sleep", "3600"],
        "securityContext": {"runAsUser": 0}});
    pod["spec"]["containers"].as_array_mut().unwrap().push(root);
    pod
}

async fn callers_from_outside(site: &Installation) {
    let addresses = addresses(site, "shop", "model").await;
    assert_eq!(addresses.iter().map(IpAddr::is_ipv6).collect::<Vec<_>>(), [false, true]);
    for address in addresses {
        // Ports of the model and of all auditors.
        for port in [5000, 8090, 8093] {
            let reaction = ask(site, (address, port), "hello").await;
            assert_through_the_chain(&reaction.body, &format!("{address} port {port}"));
            let caller = &reaction.body["headers"]["x-forwarded-for"][0];
            assert_ne!(caller, &json!(address.to_string()), "the caller's address, not the pod's");
        }
    }
}

async fn each_auditor_refuses_what_it_is_for(site: &Installation) {
    let address = addresses(site, "shop", "model").await[0];
    for (prompt, auditor) in [
        (format!("Please {INJECTION}"), "lucid-injection-auditor"),
        (format!("Hey, {TOXICITY}"), "lucid-toxicity-auditor"),
        (format!("{TOXICITY}, {INJECTION}"), "lucid-injection-auditor"),
    ] {
        let reaction = ask(site, (address, 5000), &prompt).await;
        assert_eq!(reaction.status, StatusCode::FORBIDDEN, "{reaction:?}");
        assert_eq!(reaction.body["error"]["auditor"], auditor, "{reaction:?}");
    }
}

async fn callers_in_the_pod(site: &Installation) {
    for host in hosts(site, "model").await {
        for port in [5000, 8093, 8090] {
            let url = format!("http://{host}:{port}/v1/models");
            assert_through_the_chain(&wget(site, "shop", "model", "app", &url), &url);
        }
    }
}

/// Names by which a pod can reach itself.
async fn hosts(site: &Installation, pod: &str) -> Vec<String> {
    let written = |address: IpAddr| match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("[{address}]"),
    };
    let own = addresses(site, "shop", pod).await.into_iter().map(written);
    own.chain(["127.0.0.1", "127.5.6.7", "[::1]", "localhost"].map(str::to_owned)).collect()
}

async fn callers_who_try_to_get_around(site: &Installation) {
    for host in hosts(site, "model").await {
        let url = format!("http://{host}:5000/");
        assert_through_the_chain(&wget(site, "shop", "model", "root", &url), &format!("root to {url}"));
    }
    // A compromised auditor: any process with its uid, which the rules match.
    let pod = stored(site, "shop", "model").await;
    let network = format!("/proc/{}/ns/net", processes(site, &pod, "model")[0]);
    for (uid, port, way) in [
        (20001, 5000, json!(["1.1 lucid-injection-auditor", "1.1 lucid-toxicity-auditor"])),
        (20001, 8093, json!(["1.1 lucid-toxicity-auditor"])),
        (20002, 8090, json!(["1.1 lucid-injection-auditor", "1.1 lucid-toxicity-auditor"])),
        (20002, 5000, Value::Null),
    ] {
        for host in ["127.0.0.1", "[::1]"] {
            let url = format!("http://{host}:{port}/");
            let dial = format!(
                "nsenter --net={network} setpriv --reuid {uid} --regid {uid} --clear-groups \
                 timeout 10 busybox wget -q -O - {url}"
            );
            let response = on_node(site, &pod, &dial);
            let response: Value =
                serde_json::from_str(&response).unwrap_or_else(|_| panic!("{dial}: {response}"));
            assert_eq!(response["headers"]["via"], way, "uid {uid} to {url}");
        }
    }
}

async fn what_leaves_the_pod(site: &Installation) {
    let other = addresses(site, "shop", "model").await[0];
    let own = addresses(site, "shop", "outbound").await[0].to_string();
    // The request passes the chain of the other pod.
    let out = wget(site, "shop", "outbound", "app", &format!("http://{other}:5000/"));
    assert_through_the_chain(&out, "to another host's port of the same number");
    assert_eq!(out["headers"]["x-forwarded-for"], json!([own]), "{out}");
    let url = busybox(site, "shop", "outbound", "app", &["sh", "-c", "echo $AUDITOR_URL"]);
    assert_eq!(url.trim(), "http://localhost:8090");
    let out = wget(site, "shop", "outbound", "app", "http://localhost:8090/");
    assert_through_the_chain(&out, "to the model in the pod, by AUDITOR_URL");
}

/// Models in other pods, each of which responds with the address of its caller.
async fn each_host_that_an_application_calls(site: &Installation) {
    site.cluster.create_namespace("models", &[]).await.unwrap();
    for name in ["one", "two"] {
        let mut model = pod(name, &json!({}));
        model["spec"]["containers"].as_array_mut().unwrap().truncate(1);
        let container = &mut model["spec"]["containers"][0];
        container["env"] = json!([{"name": "PORT", "value": "8000"}]);
        container["ports"] = json!([{"containerPort": 8000}]);
        for probe in ["readinessProbe", "livenessProbe"] {
            container[probe]["httpGet"]["port"] = json!(8000);
        }
        create(site, "models", &model).await;
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "models"},
            "spec": {"clusterIP": "None", "selector": {"app": name}}});
        kubectl(&site.cluster, &["create", "-f", "-"], &service.to_string());
    }
    create(
        site,
        "shop",
        &caller("caller", &json!({"lucid.computing/allowed-hosts": "*.models.svc.cluster.local"})),
    )
    .await;
    for pod in ["one", "two"] {
        wait(site, "models", &format!("pod/{pod}"), "condition=Ready");
    }
    wait(site, "shop", "pod/caller", "condition=Ready");
    for name in ["one", "two"] {
        let host = format!("{name}.models.svc.cluster.local");
        eventually("an answer through the chain", async || {
            let out = wget(site, "shop", "caller", "app", &format!("http://{host}:8000/v1"));
            if out["headers"].is_null() {
                return Err(out);
            }
            assert_through_the_chain(&out, &host);
            assert_eq!(out["headers"]["host"], json!([format!("{host}:8000")]), "{out}");
            assert!(out["headers"]["lucid-route"].is_null(), "{out}");
            Ok(())
        })
        .await;
        // Without an allow list, by address and by both families.
        for address in addresses(site, "models", name).await {
            let url = format!("http://{}/", SocketAddr::new(address, 8000));
            let out = wget(site, "shop", "outbound", "app", &url);
            assert_through_the_chain(&out, &url);
            let refused = wget(site, "shop", "caller", "app", &url);
            assert!(refused["said"].as_str().is_some_and(|said| said.contains("403")), "{url}: {refused}");
        }
    }
    let line = "wget -q -O - --post-data '{\"prompt\":\"a b\",\"stream\":true}' http://one.models.svc.cluster.local:8000/v1";
    let events =
        busybox(site, "shop", "caller", "app", &["sh", "-c", &line.replace("wget", "/busybox wget")]);
    assert!(events.contains("data: {\"word\":\"a\"}") && events.contains("[DONE]"), "{events}");
}

/// Returns a pod whose application calls models in other pods.
fn caller(name: &str, annotations: &Value) -> Value {
    let mut annotations = annotations.clone();
    annotations["lucid.computing/direction"] = json!("outbound");
    let mut pod = pod(name, &annotations);
    pod["spec"]["containers"].as_array_mut().unwrap().remove(0);
    pod
}

async fn a_service_and_its_name(site: &Installation) {
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "model", "namespace": "shop"},
        "spec": {"selector": {"app": "model"}, "ports": [{"port": 80, "targetPort": 5000}]}});
    kubectl(&site.cluster, &["create", "-f", "-"], &service.to_string());
    eventually("an answer by the Service's name", async || {
        let response = wget(site, "shop", "outbound", "app", "http://model.shop.svc.cluster.local/");
        if response["headers"].is_null() {
            return Err(response);
        }
        assert_through_the_chain(&response, "by the Service's name");
        Ok(())
    })
    .await;
}

async fn an_auditor_that_crashes_comes_back(site: &Installation) {
    let address = addresses(site, "shop", "model").await[0];
    kill(&stored(site, "shop", "model").await, "lucid-injection-auditor");
    // During the restart requests fail; none bypasses the chain.
    let begin = Instant::now();
    loop {
        match call(&site.cluster, (address, 5000).into(), "/", Some("{}")).await {
            Ok(reaction) => assert_through_the_chain(&reaction.body, "while an auditor is away"),
            Err(_) => assert!(begin.elapsed() < PATIENCE, "it does not come back"),
        }
        let now = container(&stored(site, "shop", "model").await, "lucid-injection-auditor");
        // Without a readiness probe it is ready before it listens.
        let is_there = call(&site.cluster, (address, 5000).into(), "/", Some("{}")).await.is_ok();
        if now["restartCount"].as_u64() == Some(1) && now["ready"] == true && is_there {
            break;
        }
        assert!(begin.elapsed() < PATIENCE, "it does not come back: {now}");
    }
    for address in addresses(site, "shop", "model").await {
        assert_through_the_chain(&ask(site, (address, 5000), "hello").await.body, "after a crash");
    }
}

/// Native sidecars do not keep a Job from completing.
async fn a_job_completes(site: &Installation) {
    let mut pod = pod("train", &json!({}));
    let work = "wget -q -O /dev/null http://127.0.0.1:8090/health && sleep 1";
    let containers = pod["spec"]["containers"].as_array_mut().unwrap();
    containers.remove(0);
    containers[0]["args"] = json!(["sh", "-c", work]);
    pod["spec"]["restartPolicy"] = json!("Never");
    let template = json!({"metadata": pod["metadata"], "spec": pod["spec"]});
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train", "namespace": "shop"},
        "spec": {"backoffLimit": 0, "template": template}});
    kubectl(&site.cluster, &["create", "-f", "-"], &job.to_string());
    wait(site, "shop", "job/train", "condition=complete");
    let pods = site.kubectl(&["get", "pods", "-n", "shop", "-l", "app=train", "-o", "json"]).unwrap();
    let pods: Value = serde_json::from_str(&pods).unwrap();
    let pod = &pods["items"][0];
    assert_eq!(pod["status"]["phase"], "Succeeded");
    for auditor in ["lucid-injection-auditor", "lucid-toxicity-auditor"] {
        let native =
            pod["spec"]["initContainers"].as_array().unwrap().iter().find(|one| one["name"] == auditor);
        assert_eq!(native.unwrap()["restartPolicy"], "Always", "{auditor}");
        assert_eq!(
            container(pod, auditor)["state"]["terminated"]["exitCode"],
            0,
            "{auditor} ended on SIGTERM"
        );
    }
}

/// The last hop is a native sidecar too.
async fn a_job_that_calls_another_host_completes(site: &Installation) {
    let upstream = "http://one.models.svc.cluster.local:8000";
    let mut pod = caller("batch", &json!({"lucid.computing/upstream": upstream}));
    let work = "/busybox wget -q -O /dev/null http://two.models.svc.cluster.local:8000/ && /busybox wget -q -O - $OPENAI_BASE_URL/v1";
    pod["spec"]["containers"][0]["args"] = json!(["sh", "-c", work]);
    pod["spec"]["restartPolicy"] = json!("Never");
    let template = json!({"metadata": pod["metadata"], "spec": pod["spec"]});
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "batch", "namespace": "shop"},
        "spec": {"backoffLimit": 0, "template": template}});
    kubectl(&site.cluster, &["create", "-f", "-"], &job.to_string());
    wait(site, "shop", "job/batch", "condition=complete");
    let logs = site.kubectl(&["logs", "-n", "shop", "job/batch", "-c", "app"]).unwrap();
    let out: Value = serde_json::from_str(&logs).unwrap();
    assert_through_the_chain(&out, "to the upstream");
    assert_eq!(out["headers"]["host"], json!(["one.models.svc.cluster.local:8000"]), "{out}");
    let pods = site.kubectl(&["get", "pods", "-n", "shop", "-l", "app=batch", "-o", "json"]).unwrap();
    let pods: Value = serde_json::from_str(&pods).unwrap();
    assert_eq!(container(&pods["items"][0], "lucid-egress")["state"]["terminated"]["exitCode"], 0);
}

const TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";

/// The API server, which responds by TLS only, with a certificate of the cluster's authority.
async fn an_upstream_by_tls(site: &Installation) {
    let upstream = json!({"lucid.computing/upstream": "https://kubernetes.default.svc"});
    create(site, "shop", &caller("client", &upstream)).await;
    wait(site, "shop", "pod/client", "condition=Ready");
    let review = |text: &str| {
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview",
            "metadata": {"annotations": {"prompt": text}}});
        let line = format!(
            "/busybox wget -q -O - --header \"Authorization: Bearer $(/busybox cat {TOKEN})\" --header \
             'Content-Type: application/json' --post-data '{review}' $OPENAI_BASE_URL/apis/authentication.k8s.io/v1/selfsubjectreviews"
        );
        busybox(site, "shop", "client", "app", &["sh", "-c", &line])
    };
    // Without a readiness probe the pod is ready before its auditors listen.
    eventually("the user of the pod in the answer", async || {
        let response = review("hello");
        if response.contains("system:serviceaccount:shop:default") { Ok(()) } else { Err(response) }
    })
    .await;
    let refused = review(INJECTION);
    assert!(refused.contains("403 Forbidden"), "{refused}");
}

/// Without NET_ADMIN the chain is reached at the first auditor's port.
async fn a_restricted_namespace(site: &Installation) {
    let labels = [ENABLED, ("pod-security.kubernetes.io/enforce", "restricted")];
    site.cluster.create_namespace("vault", &labels).await.unwrap();
    create(site, "vault", &pod("model", &json!({}))).await;
    wait(site, "vault", "pod/model", "condition=Ready");
    let pod = stored(site, "vault", "model").await;
    let containers = pod["spec"]["initContainers"].as_array().into_iter().flatten();
    assert!(containers.map(|one| &one["name"]).all(|name| name != "lucid-init"), "{pod:#}");
    for address in addresses(site, "vault", "model").await {
        assert_through_the_chain(&ask(site, (address, 8090), "hello").await.body, "without rules");
    }
}

/// The catalogue entry's Secret, ConfigMap and image volume are in the auditor's container alone, and cannot be written.
async fn an_auditor_reads_its_files(site: &Installation) {
    let metadata = json!({"name": "reader", "namespace": "shop"});
    for object in [
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"rule": "be kind"}}),
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"phrases": "moonlight"}}),
    ] {
        kubectl(&site.cluster, &["create", "-f", "-"], &object.to_string());
    }
    let mut manifest = pod("reader", &json!({}));
    manifest["metadata"]["annotations"]["lucid.computing/auditors"] = json!("reader");
    create(site, "shop", &manifest).await;
    wait(site, "shop", "pod/reader", "condition=Ready");
    let address = addresses(site, "shop", "reader").await[0];
    let response = ask(site, (address, 5000), "moonlight").await;
    assert_eq!(
        (response.status, &response.body["error"]["auditor"]),
        (StatusCode::FORBIDDEN, &json!("reader"))
    );

    let pod = stored(site, "shop", "reader").await;
    let root = |name: &str| format!("/proc/{}/root", processes(site, &pod, name)[0]);
    let (auditor, model) = (root("reader"), root("model"));
    assert_eq!(
        on_node(site, &pod, &format!("cat {auditor}/rules/rule {auditor}/keys/phrases")),
        "be kindmoonlight"
    );
    assert_eq!(on_node(site, &pod, &format!("ls {auditor}/models")).trim(), "example-model");
    for folder in ["rules", "keys", "models"] {
        let written = on_node(site, &pod, &format!("touch {auditor}/{folder}/new"));
        assert!(written.contains("Read-only file system"), "{folder}: {written}");
        let found = on_node(site, &pod, &format!("ls -d {model}/{folder}"));
        assert!(found.contains("No such file"), "{folder}: {found}");
    }
}

/// The kubelet has probed the model every second, through the chain.
async fn probes_have_held(site: &Installation) {
    let pod = stored(site, "shop", "model").await;
    let status = container(&pod, "model");
    assert_eq!((status["restartCount"].as_u64(), &status["ready"]), (Some(0), &json!(true)), "{status:#}");
    assert_eq!(container(&pod, "lucid-toxicity-auditor")["restartCount"], 0);
}

/// By default, each operator keeps a log with its own key. Returns the keys that verify them.
async fn both_webhooks_seal_their_decisions(site: &Installation) -> Vec<String> {
    let selector = "app.kubernetes.io/name=lucid-operator";
    let names =
        ["get", "pods", "-n", "lucid-system", "-l", selector, "-o", "jsonpath={.items[*].metadata.name}"];
    let names = kubectl(&site.cluster, &names, "");
    let (mut vkeys, mut webhooks) = (Vec::new(), BTreeSet::new());
    for name in names.split_whitespace() {
        let pod = stored(site, "lucid-system", name).await;
        let process = &processes(site, &pod, "lucid-operator")[0];
        let folder = format!("/proc/{process}/root/var/lib/lucid/decisions");
        let vkey = on_node(site, &pod, &format!("cat {folder}/vkey")).trim().to_owned();
        let verify = format!("{} audit verify {folder} --key {vkey}", program("lucid").unwrap().display());
        let verdict = on_node(site, &pod, &verify);
        assert!(verdict.contains(&format!("intact (lucid.computing/{name})")), "{verdict}");
        assert_eq!(on_node(site, &pod, &format!("stat -c '%a %u' {folder}/key")).trim(), "600 65532");
        // A replica without calls has no segments.
        let lines = on_node(site, &pod, &format!("cat {folder}/segments/*.jsonl 2>/dev/null"));
        let records = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        webhooks.extend(records.map(|record| record["webhook"].as_str().unwrap_or_default().to_owned()));
        vkeys.push(vkey);
    }
    for webhook in ["mutate", "validate"] {
        assert!(webhooks.contains(webhook), "{webhooks:?}");
    }
    vkeys
}

/// In a pod with the permissions of the chart's own account. The last test: it stops the operator.
fn helm_test_says_whether_lucid_responds(site: &Installation, vkeys: &[String]) {
    let test = || {
        let arguments = ["test", "lucid", "--logs", "--timeout", "2m", "--namespace", "lucid-system"];
        let output = site.cluster.helm(&arguments, "").unwrap();
        let said = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap()).concat();
        (output.status.success(), said)
    };
    let (passes, said) = test();
    assert!(passes && said.contains("Phase:          Succeeded"), "{said}");
    assert!(!vkeys.is_empty() && vkeys.iter().all(|vkey| said.contains(vkey)), "{vkeys:?} in {said}");
    assert!(
        !said.contains("WARN") && !said.contains("forbidden"),
        "it may look at what it wants to see: {said}"
    );

    site.kubectl(&["-n", "lucid-system", "scale", "deployment/lucid-operator", "--replicas=0"]).unwrap();
    let gone =
        ["wait", "--for=delete", "pod", "-l", "app.kubernetes.io/name=lucid-operator", "--timeout=120s"];
    site.kubectl(&[&["-n", "lucid-system"], &gone[..]].concat()).unwrap();
    let (passes, said) = test();
    assert!(!passes && said.contains("no endpoints"), "{said}");
}
