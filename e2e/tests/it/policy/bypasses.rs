//! Pods that could bypass or change their auditors.

use lucid_e2e::{Answer, Operator};
use lucid_testbed::Cluster;
use serde_json::json;

use super::{PODS, assert_passed, assert_refused, merged, plain, post, with};
use crate::common::{REQUIRED, annotate_namespace, metric, pod, secured, secured_with, until};

pub(super) async fn bypasses_are_denied(cluster: &Cluster, operator: &Operator) {
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
        ("skip", secured_with("a", skip), "skip-audit"),
    ] {
        assert_refused(what, &post(cluster, PODS, &pod).await, &[says]);
    }
    for (name, pod) in [
        ("ordinary", secured("ordinary")),
        ("user", with(secured("user"), context, json!({"runAsUser": 1000}))),
        ("root", with(secured("root"), context, json!({"runAsUser": 0}))),
        ("unsecured", with(plain("unsecured"), context, json!({"privileged": true}))),
    ] {
        assert_passed(name, &post(cluster, PODS, &pod).await);
    }

    // A namespace requires a chain, and the denial names the missing parts.
    let bank = "/api/v1/namespaces/bank/pods";
    let misspelt = pod("misspelt", json!({"lucid.io/secure": "true"}), json!({}));
    let refused = post(cluster, bank, &misspelt).await;
    assert_refused("bank", &refused, &["the namespace requires an auditor chain"]);
    assert!(refused.warnings.join("\n").contains("did you mean the label lucid.io/secured?"), "{refused:?}");
    assert_passed("bank", &post(cluster, bank, &secured("web")).await);
    assert!(metric(operator, r#"lucid_policy_findings_total{reason="ChainMissing"}"#).await >= 1);
    // Changes of the namespace take effect, also by an annotation.
    annotate_namespace(cluster, "shop", json!({REQUIRED.0: REQUIRED.1})).await;
    let is_refused = |answer: &Answer| answer.refusal().contains("requires an auditor chain");
    until(cluster, "shop", |name| plain(&format!("plain-{name}")), is_refused).await;
}

pub(super) async fn access_by_the_node_or_by_name_is_denied(cluster: &Cluster) {
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
        let reply = post(cluster, PODS, &merged("a", spec, container.clone())).await;
        assert_refused(what, &reply, &[says]);
    }
    let mut early = merged("a", node("/run/containerd"), none.clone());
    early["spec"]["initContainers"] =
        json!([{"name": "early", "image": "x", "volumeMounts": mount["volumeMounts"]}]);
    assert_refused("early", &post(cluster, PODS, &early).await, &["init container early: volume"]);

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
        assert_passed(name, &post(cluster, PODS, &merged(name, spec, container.clone())).await);
    }
}
