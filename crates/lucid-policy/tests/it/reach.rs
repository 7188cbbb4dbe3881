//! Access to auditors by other means than the network is refused; ordinary pods are accepted.

use lucid_policy::Workload;
use serde_json::{Value, json};

use crate::common::{Ask, injected, secured, with_other_model};

fn mounting(path: &str, mount: &Value) -> Value {
    let mut pod = secured();
    pod["spec"]["volumes"] =
        json!([{"name": "node", "hostPath": {"path": path}}, {"name": "tmp", "emptyDir": {}}]);
    let mut mount = mount.clone();
    mount["name"] = json!("node");
    mount["mountPath"] = json!("/node");
    pod["spec"]["containers"][0]["volumeMounts"] = json!([mount, {"name": "tmp", "mountPath": "/tmp"}]);
    pod
}

fn configured(pod: &Value, paths: &[&str]) -> Ask {
    let exemption = json!({"name": "node", "namespaces": ["shop"], "hostPaths": paths});
    let exemption = serde_json::from_value(exemption).unwrap();
    Ask::create(&injected(pod)).with(|ask| ask.policy.exemptions.push(exemption))
}

#[test]
fn host_paths_are_refused_unless_exempt() {
    for path in
        ["/", "/proc", "/run/nri", "/etc/rancher", "/dev/shm", "/sys/fs/cgroup", "/var/log", "/srv/models"]
    {
        let pod = mounting(path, &json!({"readOnly": true}));
        assert_eq!(Ask::create(&injected(&pod)).reasons(), ["HostPath"], "{path}");
        assert_eq!(configured(&pod, &[path]).reasons(), Vec::<&str>::new(), "{path}");
    }
    for (path, allowed, refused) in [
        ("/srv/models/a", "/srv/models", false),
        ("//srv/./models/", "/srv/models/", false),
        ("/var/run/spire", "/run/spire", false),
        ("/srv/models-2", "/srv/models", true),
        ("/srv", "/srv/models", true),
        ("/srv/models/../../etc", "/srv/models", true),
        ("/var/runtime/a", "/var/run", true),
        ("/../..", "/srv", true),
        ("/../..", "/", false),
        ("", "/srv", true),
        ("/srv", "/", false),
    ] {
        let reasons = configured(&mounting(path, &json!({})), &[allowed]).reasons();
        assert_eq!(reasons, if refused { vec!["HostPath"] } else { vec![] }, "{path} in {allowed}");
    }
    let long = format!("/srv/{}", "m".repeat(400_000));
    assert_eq!(configured(&mounting(&long, &json!({})), &["/srv/m"]).reasons(), ["HostPath"]);
    // The path of the volume counts, not the mounted part of it.
    let part = mounting("/", &json!({"subPath": "srv/models"}));
    assert_eq!(configured(&part, &["/srv/models"]).reasons(), ["HostPath"]);
    // The exemption covers no other findings.
    let mut pod = mounting("/srv/models", &json!({}));
    pod["spec"]["hostIPC"] = json!(true);
    assert_eq!(configured(&pod, &["/srv/models"]).reasons(), ["HostIPC"]);
}

#[test]
fn only_volumes_that_are_mounted_count() {
    let mut unused = mounting("/proc", &json!({}));
    unused["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "tmp", "mountPath": "/proc"}]);
    assert_eq!(Ask::create(&injected(&unused)).denial(), "");
    let denial = Ask::create(&injected(&mounting("//var/./run/docker.sock/", &json!({})))).denial();
    assert_eq!(
        denial,
        "container model: volume \"node\" mounts \"/run/docker.sock\" of the node: expected a hostPath of an exemption"
    );
}

#[test]
fn init_containers_may_not_mount_host_paths() {
    let mut pod = mounting("/run/containerd", &json!({}));
    let mounts = pod["spec"]["containers"][0].as_object_mut().unwrap().remove("volumeMounts").unwrap();
    pod["spec"]["initContainers"] = json!([{"name": "early", "image": "x", "volumeMounts": mounts}]);
    let denial = Ask::create(&injected(&pod)).denial();
    assert!(
        denial.starts_with(r#"init container early: volume "node" mounts "/run/containerd""#),
        "{denial}"
    );
}

#[test]
fn localhost_must_be_the_loopback_address() {
    let reasons = |ip: &str, hostnames: Value| {
        let mut pod = secured();
        pod["spec"]["hostAliases"] =
            json!([{"ip": "10.1.1.1", "hostnames": ["ledger"]}, {"ip": ip, "hostnames": hostnames}]);
        Ask::create(&injected(&pod)).reasons()
    };
    for (ip, name) in [
        ("10.0.0.1", "localhost"),
        ("2001:db8::1", "localhost"),
        ("127.0.0.2", "localhost"),
        ("::2", "localhost"),
        ("10.0.0.1", "auditor.localhost"),
        ("10.0.0.1", "ip6-localhost"),
        ("10.0.0.1", "127.0.0.1"),
        ("0.0.0.0", "localhost"),
        ("::", "localhost"),
        ("localhost", "localhost"),
        ("", "localhost"),
    ] {
        assert_eq!(reasons(ip, json!(["a.example.com", name])), ["HostAlias"], "{ip} {name}");
    }
    for (ip, name) in [
        ("127.0.0.1", "localhost"),
        ("::1", "localhost"),
        ("0:0:0:0:0:0:0:1", "localhost"),
        ("::ffff:127.0.0.1", "localhost"),
        ("127.0.0.1", "foo.local"),
        ("127.0.0.2", "foo.local"),
        ("10.0.0.1", "ledger.internal"),
        ("10.0.0.1", "localhost.example.com"),
    ] {
        assert_eq!(reasons(ip, json!([name])), Vec::<&str>::new(), "{ip} {name}");
    }
    let mut pod = secured();
    pod["spec"]["hostAliases"] = json!([{"ip": "10.0.0.1", "hostnames": ["localhost"]}]);
    assert_eq!(
        Ask::create(&injected(&pod)).denial(),
        "hostAliases gives \"localhost\" the address \"10.0.0.1\", and each auditor calls the next one by localhost: \
         expected 127.0.0.1 or ::1"
    );
}

#[test]
fn a_pod_may_not_be_named_localhost() {
    for (name, hostname, refused) in [
        ("localhost", None, true),
        ("web", Some("localhost"), true),
        ("localhost", Some("web"), false),
        ("web", None, false),
    ] {
        let mut pod = secured();
        pod["metadata"]["name"] = json!(name);
        if let Some(hostname) = hostname {
            pod["spec"]["hostname"] = json!(hostname);
        }
        let reasons = Ask::create(&injected(&pod)).reasons();
        assert_eq!(reasons, if refused { vec!["Hostname"] } else { vec![] }, "{name}, {hostname:?}");
    }
    for (name, refused) in [("localhost", true), ("a.localhost", true), ("web.example.com", false)] {
        let mut pod = secured();
        pod["spec"]["hostnameOverride"] = json!(name);
        let reasons = Ask::create(&injected(&pod)).reasons();
        assert_eq!(reasons, if refused { vec!["Hostname"] } else { vec![] }, "{name}");
    }
}

#[test]
fn harmless_pod_fields_pass() {
    let mut pod = secured();
    json_patch::merge(
        &mut pod,
        &json!({"spec": {
            "dnsConfig": {"nameservers": ["10.0.0.53"], "searches": ["shop.test"], "options": [{"name": "ndots", "value": "1"}]},
            "dnsPolicy": "None", "setHostnameAsFQDN": true, "subdomain": "shop", "hostname": "web", "hostUsers": false,
            "securityContext": {
                "sysctls": [{"name": "net.ipv4.ip_local_port_range", "value": "1024 65535"}, {"name": "net.core.somaxconn", "value": "4096"}],
                "seLinuxOptions": {"level": "s0:c1,c2"}, "appArmorProfile": {"type": "RuntimeDefault"}, "fsGroup": 1000,
            },
        }}),
    );
    json_patch::merge(
        &mut pod["spec"]["containers"][0],
        &json!({
            "readinessProbe": {"tcpSocket": {"host": "127.0.0.1", "port": 5000}},
            "lifecycle": {"preStop": {"httpGet": {"host": "127.0.0.1", "port": 5000, "path": "/"}}},
        }),
    );
    let evaluation = Ask::create(&injected(&pod)).evaluate().unwrap();
    assert_eq!((evaluation.denial(), evaluation.findings), (None, vec![]));
}

#[test]
fn ephemeral_containers_may_not_target_auditors() {
    let running = injected(&secured());
    let targets = [("first", true), ("second", true), ("lucid-init", true), ("model", false), ("", false)];
    for (target, refused) in targets.into_iter().chain([("firs", false)]) {
        let container = json!({"name": "debugger", "image": "busybox", "targetContainerName": target});
        let expected = if refused { vec!["AuditorTarget"] } else { vec![] };
        assert_eq!(Ask::debug(&running, &container).reasons(), expected, "{target}");
    }
    // An auditor that is no longer planned is protected as well.
    let mut other = running.clone();
    other["metadata"]["annotations"]["lucid.computing/auditor-chain"] = json!("first");
    let container = json!({"name": "debugger", "image": "busybox", "targetContainerName": "second"});
    assert!(Ask::debug(&other, &container).reasons().contains(&"AuditorTarget"));
    let container = json!({"name": "debugger", "image": "busybox", "targetContainerName": "first"});
    assert_eq!(
        Ask::debug(&running, &container).denial(),
        "ephemeral container debugger: targetContainerName is auditor \"first\", whose processes and files it would reach: \
         expected a container of the application"
    );
}

#[test]
fn ephemeral_containers_may_not_have_auditor_names() {
    let running = injected(&secured());
    let image = format!("reg.test/first@{}", crate::common::NOTARIZED);
    for (name, refused) in [
        // The API server rejects duplicate names, so these auditors are not in the pod.
        ("lucid-toxicity-auditor", true),
        ("lucid-toxicity-auditor-2", true),
        ("first-2", true),
        ("lucid-init-2", false),
        ("debugger-x7z2p", false),
        ("firstly", false),
    ] {
        let container = json!({"name": name, "image": image});
        let expected = if refused { vec!["AuditorName"] } else { vec![] };
        assert_eq!(Ask::debug(&running, &container).reasons(), expected, "{name}");
    }
    // An auditor added to the chain after the pod was created: the ephemeral container would be mistaken for the
    // missing one.
    let mut shorter = running.clone();
    shorter["spec"]["containers"].as_array_mut().unwrap().retain(|container| container["name"] != "second");
    let reasons = Ask::debug(&shorter, &json!({"name": "second", "image": image})).reasons();
    assert!(reasons.contains(&"AuditorName"), "{reasons:?}");
    assert_eq!(
        Ask::debug(&running, &json!({"name": "lucid-init", "image": image})).denial(),
        "ephemeral container lucid-init: it bears the name of an auditor, and an ephemeral container is never part of a \
         chain: expected any other name"
    );
}

#[test]
fn templates_warn_about_pod_level_problems() {
    for (reason, spec) in [
        ("HostIPC", json!({"hostIPC": true})),
        ("SharedProcesses", json!({"shareProcessNamespace": true})),
        ("HostAlias", json!({"hostAliases": [{"ip": "10.0.0.1", "hostnames": ["localhost"]}]})),
        ("Hostname", json!({"hostname": "localhost"})),
    ] {
        for workload in Workload::ALL {
            let mut pod = secured();
            json_patch::merge(&mut pod, &json!({ "spec": spec }));
            let pod = if workload.is_pod() { injected(&pod) } else { pod };
            let ask = Ask::of(workload, &pod);
            assert_eq!(ask.reasons(), [reason], "{workload}");
            assert_eq!(ask.denial().is_empty(), !workload.is_pod(), "{workload}");
        }
    }
    // Network and names of a pod are immutable.
    let mut running = injected(&secured());
    running["spec"]["hostAliases"] = json!([{"ip": "10.0.0.1", "hostnames": ["localhost"]}]);
    let changed = with_other_model(&running);
    assert_eq!(Ask::update(&running, &changed).denial(), "");
}
