//! lucid-validator in pods: it evaluates pods, and each replica keeps its decisions on a volume.

use lucid_e2e::{ClusterExt as _, Installation, create_pod, program};
use serde_json::{Value, json};

use super::{container, on_node, pod, processes, stored, values, wait};
use crate::cli::{kubectl, run};
use crate::common::ENABLED;

const NAMESPACE: &str = "lucid-system";
const REPLICAS: [&str; 2] = ["lucid-validator-0", "lucid-validator-1"];
const OPERATORS: [&str; 2] = ["lucid-operator-0", "lucid-operator-1"];
/// User of lucid-validator, in its image and in the chart.
const UID: &str = "65532";

#[tokio::test]
async fn validators_seal_their_decisions_on_a_volume() {
    if !Installation::can_run() {
        return;
    }
    let site = Installation::prepare().await.unwrap();
    site.cluster.create_namespace("shop", &[ENABLED]).await.unwrap();
    let restricted = ("pod-security.kubernetes.io/enforce", "restricted");
    site.cluster.create_namespace(NAMESPACE, &[restricted]).await.unwrap();
    for number in 0..REPLICAS.len() + OPERATORS.len() {
        add_volume(&site, number);
    }
    add_key(&site);
    let mut values = values();
    values["webhooks"] = json!({"validating": {"by": "validator"}});
    values["policy"] = json!({"admissionMode": "enforce"});
    values["decisions"] = json!({"log": {"volume": "persistentVolumeClaim", "size": "64Mi", "key": {"secret": "lucid-decisions"}}});
    site.install(&values.to_string()).await.unwrap();

    judge(&site, "before").await;
    for replica in REPLICAS {
        it_writes_nowhere_but_on_its_volume(&site, replica).await;
    }
    let before = logs(&site, REPLICAS).await;
    assert_kept(&before, "before");
    let injected = logs(&site, OPERATORS).await;
    assert_kept(&injected, "before");
    assert!(injected.iter().flatten().all(|record| record["webhook"] == "mutate"), "{injected:?}");

    // The pods are deleted, and the volumes stay.
    for replica in REPLICAS {
        site.kubectl(&["delete", "pod", "-n", NAMESPACE, replica]).unwrap();
    }
    let status = ["rollout", "status", "-n", NAMESPACE, "statefulset/lucid-validator", "--timeout=180s"];
    site.kubectl(&status).unwrap();
    judge(&site, "after").await;
    let after = logs(&site, REPLICAS).await;
    assert_kept(&after, "after");
    for (before, after) in before.iter().zip(&after) {
        assert!(after.starts_with(before), "{after:?} goes on from {before:?}");
    }
}

/// Adds a volume like a provisioner: a folder on the node, owned by root.
fn add_volume(site: &Installation, number: usize) {
    let path = format!("/var/lib/volumes/{number}");
    assert!(site.cluster.command("mkdir").args(["-p", &path]).status().unwrap().success());
    let place = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": ["node"]});
    // Unlike a hostPath volume it gets the pod's group.
    let volume = json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": format!("volume-{number}")},
        "spec": {
            "capacity": {"storage": "64Mi"}, "accessModes": ["ReadWriteOnce"], "local": {"path": path},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [place]}]}},
        },
    });
    kubectl(&site.cluster, &["create", "-f", "-"], &volume.to_string());
}

fn add_key(site: &Installation) {
    let path = site.cluster.folder().join("decisions.key");
    run("lucid", &["audit", "key", "--origin", "lucid.computing", "--out", path.to_str().unwrap()]).printed();
    let file = format!("--from-file={}", path.display());
    site.kubectl(&["create", "secret", "generic", "-n", NAMESPACE, "lucid-decisions", &file]).unwrap();
}

/// Creates an allowed pod, and one without a tier, which is denied. Neither has to run.
async fn judge(site: &Installation, name: &str) {
    let mut manifest = pod(&format!("{name}-refused"), &json!({}));
    manifest["spec"]["schedulerName"] = json!("none");
    let response = create_pod(&site.cluster.client(), "shop", &manifest).await.unwrap();
    let refusal = response.refusal();
    assert!(
        refusal.starts_with("admission webhook \"validate.lucid.computing\" denied the request")
            && refusal.contains("label lucid.computing/tier is missing"),
        "{response:?}"
    );
    manifest["metadata"]["name"] = json!(format!("{name}-passed"));
    manifest["metadata"]["labels"] = json!({"lucid.computing/tier": "A"});
    create_pod(&site.cluster.client(), "shop", &manifest).await.unwrap().stored().unwrap();
}

async fn it_writes_nowhere_but_on_its_volume(site: &Installation, replica: &str) {
    wait(site, NAMESPACE, &format!("pod/{replica}"), "condition=Ready");
    let pod = stored(site, NAMESPACE, replica).await;
    assert_eq!(container(&pod, "lucid-validator")["restartCount"], 0);
    let process = &processes(site, &pod, "lucid-validator")[0];
    let on_node = |line: &str| on_node(site, &pod, line);
    let status = on_node(&format!("cat /proc/{process}/status"));
    let status: Vec<_> = status.split_whitespace().collect();
    for expected in [
        &["Uid:", UID, UID, UID, UID][..],
        &["Gid:", UID, UID, UID, UID],
        &["Groups:", UID, "NStgid:"],
        &["CapEff:", "0000000000000000"],
        &["NoNewPrivs:", "1"],
    ] {
        assert!(
            status.windows(expected.len()).any(|words| words == expected),
            "{expected:?} is not in {status:?}"
        );
    }

    let mounts = on_node(&format!("cat /proc/{process}/mounts"));
    let writable: Vec<_> = mounts
        .lines()
        .map(|line| line.split(' ').collect::<Vec<_>>())
        .filter(|mount| mount[3].split(',').next() == Some("rw"))
        .map(|mount| mount[1])
        // Mounts of every pod.
        .filter(|path| {
            !["/dev", "/proc", "/sys", "/etc/hosts"].iter().any(|its_own| path.starts_with(its_own))
        })
        .collect();
    assert_eq!(writable, ["/var/lib/lucid"], "{mounts}");

    let folder = format!("/proc/{process}/root/var/lib/lucid/decisions");
    let files = on_node(&format!("cd {folder} && find . -type f -printf '%U %G %p\\n' | sort"));
    let owner = format!("{UID} {UID} ");
    assert!(
        files.contains("./checkpoint\n") && files.lines().all(|line| line.starts_with(&owner)),
        "{files}"
    );
}

/// Records of these replicas, from intact logs.
async fn logs(site: &Installation, replicas: [&str; 2]) -> [Vec<Value>; 2] {
    let mut logs = [const { Vec::new() }; 2];
    for (replica, log) in replicas.iter().zip(&mut logs) {
        let pod = stored(site, NAMESPACE, replica).await;
        let (container, _) = replica.rsplit_once('-').unwrap();
        let process = &processes(site, &pod, container)[0];
        let folder = format!("/proc/{process}/root/var/lib/lucid/decisions");
        let lucid = program("lucid").unwrap();
        let verdict = on_node(site, &pod, &format!("{} audit verify {folder}", lucid.display()));
        assert!(verdict.contains(&format!("intact (lucid.computing/{replica})")), "{verdict}");
        // A replica without calls has no segments.
        let lines = on_node(site, &pod, &format!("cat {folder}/segments/*.jsonl 2>/dev/null"));
        log.extend(lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()));
    }
    logs
}

fn assert_kept(logs: &[Vec<Value>; 2], name: &str) {
    for (pod, allowed) in [(format!("{name}-refused"), false), (format!("{name}-passed"), true)] {
        let about: Vec<_> = logs.iter().flatten().filter(|record| record["name"] == *pod).collect();
        assert_eq!(about.len(), 1, "{pod}: {logs:?}");
        // The operator injects into pods that the validator denies.
        let allowed = allowed || about[0]["webhook"] == "mutate";
        assert_eq!(about[0]["allowed"], allowed, "{pod}: {about:?}");
    }
}
