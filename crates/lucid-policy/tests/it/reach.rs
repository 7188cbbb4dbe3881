//! Who comes near an auditor by another way than its network is refused, and ordinary pods are not.

use lucid_policy::Workload;
use serde_json::{Value, json};

use crate::common::{Ask, injected, object, secured};

/// The pod with this volume of the node, mounted so by its application.
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

#[test]
fn the_part_of_the_node_where_auditors_are_is_out_of_bounds() {
    for path in [
        "/",
        "/proc",
        "/proc/1/ns",
        "/etc",
        "/etc/kubernetes/manifests",
        "/run",
        "/var/run",
        "/var",
        "/var/lib",
        "/var/lib/kubelet/pods",
        "/run/containerd/containerd.sock",
        "/var/run/docker.sock",
        "/var/run/crio/crio.sock",
        "/run/k3s/containerd/containerd.sock",
        "/var/lib/docker/overlay2",
        "/run/netns",
        "/run/dbus/system_bus_socket",
    ] {
        for mount in [json!({}), json!({"readOnly": true})] {
            let reasons = Ask::create(&injected(&mounting(path, &mount))).reasons();
            assert_eq!(reasons, ["HostPath"], "{path}, {mount}");
        }
    }
    for path in [
        "/var/log",
        "/var/log/pods",
        "/etc/localtime",
        "/usr/share/zoneinfo",
        "/etc/ssl/certs",
        "/data/models",
        "/dev/shm",
        "/dev/kfd",
        "/dev/dri",
        "/home/kubernetes/bin/nvidia",
        "/usr/local/nvidia",
        "/run/spire/sockets",
        "/run/systemd/journal",
        "/var/run/datadog",
        "/sys",
        "/sys/class/drm",
        "/var/lib/shop",
        "/opt/models",
        "/process",
    ] {
        let reasons = Ask::create(&injected(&mounting(path, &json!({})))).reasons();
        assert_eq!(reasons, Vec::<&str>::new(), "{path}");
    }
}

#[test]
fn what_is_mounted_of_a_volume_counts_and_not_the_volume() {
    for (path, mount, refused) in [
        ("/", json!({"subPath": "data/models"}), false),
        ("/", json!({"subPath": "proc"}), true),
        ("/var/lib", json!({"subPath": "kubelet/pods"}), true),
        // Only the kubelet knows.
        ("/var/lib", json!({"subPathExpr": "$(POD_NAME)"}), true),
        ("/var/lib/shop", json!({"subPathExpr": "$(POD_NAME)"}), false),
    ] {
        let reasons = Ask::create(&injected(&mounting(path, &mount))).reasons();
        assert_eq!(reasons.contains(&"HostPath"), refused, "{path}, {mount}");
    }
    let mut unused = mounting("/proc", &json!({}));
    unused["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "tmp", "mountPath": "/proc"}]);
    assert_eq!(Ask::create(&injected(&unused)).denial(), "");
    let denial = Ask::create(&injected(&mounting("//var/./run/docker.sock/", &json!({})))).denial();
    assert_eq!(
        denial,
        "container model: volume \"node\" mounts \"/run/docker.sock\" of the node, from where the auditors can be \
         reached: accepted are paths that are not above, at or below /run/docker.sock"
    );
}

#[test]
fn a_path_of_the_node_is_refused_before_the_rules_too() {
    let mut pod = mounting("/run/containerd", &json!({}));
    let mounts = pod["spec"]["containers"][0].as_object_mut().unwrap().remove("volumeMounts").unwrap();
    pod["spec"]["initContainers"] = json!([{"name": "early", "image": "x", "volumeMounts": mounts}]);
    let denial = Ask::create(&injected(&pod)).denial();
    assert!(
        denial.starts_with("init container early: volume \"node\" mounts \"/run/containerd\""),
        "{denial}"
    );
}

#[test]
fn localhost_means_this_pod_and_nobody_else() {
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
    ] {
        assert_eq!(reasons(ip, json!(["a.example.com", name])), ["HostAlias"], "{ip} {name}");
    }
    for (ip, name) in [
        ("127.0.0.1", "localhost"),
        ("::1", "localhost"),
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
         accepted are 127.0.0.1 and ::1"
    );
}

#[test]
fn a_pod_may_not_be_called_localhost() {
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
}

#[test]
fn what_leads_around_no_chain_is_nobodys_business() {
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
    let judgement = Ask::create(&injected(&pod)).judge().unwrap();
    assert_eq!((judgement.denial(), judgement.findings), (None, vec![]));
}

/// What becomes of an ephemeral container of this pod.
fn debugged(running: &Value, container: &Value) -> Vec<&'static str> {
    let mut new = running.clone();
    new["spec"]["ephemeralContainers"] = json!([container]);
    Ask::update(running, &new).with(|ask| ask.subresource = Some("ephemeralcontainers")).reasons()
}

#[test]
fn an_ephemeral_container_keeps_out_of_the_auditors_processes() {
    let running = injected(&secured());
    for (target, refused) in [
        ("first", true),
        ("second", true),
        ("lucid-init", true),
        ("model", false),
        ("", false),
        ("firs", false),
    ] {
        let container = json!({"name": "debugger", "image": "busybox", "targetContainerName": target});
        assert_eq!(
            debugged(&running, &container),
            if refused { vec!["AuditorTarget"] } else { vec![] },
            "{target}"
        );
    }
    // Nor those of an auditor that is not in the plan any more.
    let mut other = running.clone();
    other["metadata"]["annotations"]["lucid.computing/auditor-chain"] = json!("first");
    let container = json!({"name": "debugger", "image": "busybox", "targetContainerName": "second"});
    assert!(debugged(&other, &container).contains(&"AuditorTarget"));
    let mut new = running.clone();
    new["spec"]["ephemeralContainers"] =
        json!([{"name": "debugger", "image": "busybox", "targetContainerName": "first"}]);
    assert_eq!(
        Ask::update(&running, &new).denial(),
        "ephemeral container debugger: targetContainerName is auditor \"first\", whose processes and files it would reach: \
         accepted is a container of the application"
    );
}

#[test]
fn an_ephemeral_container_bears_no_auditors_name() {
    let running = injected(&secured());
    let image = format!("reg.test/first@{}", crate::common::NOTARIZED);
    for (name, refused) in [
        // The API server refuses a name that is taken, so it is of an auditor that the pod lacks.
        ("lucid-toxicity-auditor", true),
        ("lucid-toxicity-auditor-2", true),
        ("first-2", true),
        ("lucid-init-2", false),
        ("debugger-x7z2p", false),
        ("firstly", false),
    ] {
        let container = json!({"name": name, "image": image});
        assert_eq!(
            debugged(&running, &container),
            if refused { vec!["AuditorName"] } else { vec![] },
            "{name}"
        );
    }
    // One that the chain has got since: it would be missing, and something else be there by its name.
    let mut shorter = running.clone();
    shorter["spec"]["containers"].as_array_mut().unwrap().retain(|container| container["name"] != "second");
    let reasons = debugged(&shorter, &json!({"name": "second", "image": image}));
    assert!(reasons.contains(&"AuditorName"), "{reasons:?}");
    let mut new = running.clone();
    new["spec"]["ephemeralContainers"] = json!([{"name": "lucid-init", "image": image}]);
    assert_eq!(
        Ask::update(&running, &new).denial(),
        "ephemeral container lucid-init: it bears the name of an auditor, and an ephemeral container is never part of a \
         chain: accepted is any other name"
    );
}

#[test]
fn templates_are_warned_of_what_holds_for_the_whole_pod() {
    for (reason, spec) in [
        ("HostIPC", json!({"hostIPC": true})),
        ("HostAlias", json!({"hostAliases": [{"ip": "10.0.0.1", "hostnames": ["localhost"]}]})),
        ("Hostname", json!({"hostname": "localhost"})),
    ] {
        for workload in Workload::ALL {
            let mut pod = secured();
            json_patch::merge(&mut pod, &json!({ "spec": spec }));
            let pod = if workload.is_pod() { injected(&pod) } else { pod };
            let ask = Ask::create(&object(workload, &pod)).with(|ask| ask.workload = workload);
            assert_eq!(ask.reasons(), [reason], "{workload}");
            assert_eq!(ask.denial().is_empty(), !workload.is_pod(), "{workload}");
        }
    }
    // A pod's network and names are what they were.
    let mut running = injected(&secured());
    running["spec"]["hostAliases"] = json!([{"ip": "10.0.0.1", "hostnames": ["localhost"]}]);
    let mut changed = running.clone();
    changed["spec"]["containers"][0]["image"] = json!("shop/model:2");
    assert_eq!(Ask::update(&running, &changed).denial(), "");
}
