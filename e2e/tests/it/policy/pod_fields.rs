//! Every field of a pod spec is either checked or known to be harmless. The test fails when the API server's version has
//! another field.

use std::collections::BTreeSet;

use crate::common::{cluster, core_schemas};

/// The check of some fields, or the reason why there is none.
type Known = &'static [(&'static str, &'static [&'static str])];

const POD: Known = &[
    (
        "HostNetwork, HostPID, HostIPC, SharedProcesses",
        &["hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace"],
    ),
    ("Hostname, HostAlias", &["hostname", "hostnameOverride", "hostAliases"]),
    (
        "evaluated by their own fields",
        &["containers", "initContainers", "ephemeralContainers", "securityContext", "volumes"],
    ),
    (
        "read by the planner",
        &["os", "resources", "restartPolicy", "imagePullSecrets", "serviceAccount", "serviceAccountName"],
    ),
    ("localhost is looked up in /etc/hosts first", &["dnsConfig", "dnsPolicy"]),
    ("a longer name of the pod, which no auditor calls", &["subdomain", "setHostnameAsFQDN"]),
    (
        "the rules know users as the pod's network namespace does",
        &["hostUsers", "runtimeClassName", "overhead"],
    ),
    (
        "says where and when the pod runs",
        &[
            "affinity",
            "evictionResponders",
            "nodeName",
            "nodeSelector",
            "tolerations",
            "topologySpreadConstraints",
            "schedulerName",
            "schedulingGates",
            "schedulingGroup",
            "priority",
            "priorityClassName",
            "preemptionPolicy",
            "readinessGates",
            "activeDeadlineSeconds",
            "terminationGracePeriodSeconds",
            "workloadRef",
        ],
    ),
    ("reaches only containers that name the claim, and a planned one names none", &["resourceClaims"]),
    ("variables and tokens of the application", &["enableServiceLinks", "automountServiceAccountToken"]),
];

const CONTAINER: Known = &[
    ("evaluated by their own fields", &["securityContext", "volumeMounts", "ports"]),
    ("identifies auditors and the chain", &["name", "image", "env"]),
    ("AuditorTarget", &["targetContainerName"]),
    ("StartsBeforeRules", &["restartPolicy"]),
    (
        "what the application's own process does",
        &["args", "command", "envFrom", "workingDir", "stdin", "stdinOnce", "tty", "imagePullPolicy"],
    ),
    (
        "the kubelet calls, from the node or within the container",
        &["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"],
    ),
    (
        "concerns this container only",
        &[
            "resources",
            "resizePolicy",
            "restartPolicyRules",
            "terminationMessagePath",
            "terminationMessagePolicy",
        ],
    ),
    ("devices of a PersistentVolumeClaim, which an administrator provides", &["volumeDevices"]),
];

const SECURITY_CONTEXT: Known = &[
    ("Capability", &["capabilities"]),
    (
        "Privileged, UnmaskedProc, PrivilegeEscalation",
        &["privileged", "procMount", "allowPrivilegeEscalation"],
    ),
    ("AuditorUid, Root", &["runAsUser", "runAsNonRoot"]),
    (
        "the rules know users, not groups",
        &["runAsGroup", "fsGroup", "fsGroupChangePolicy", "supplementalGroups", "supplementalGroupsPolicy"],
    ),
    (
        "restricts what a capability or mount gives",
        &["appArmorProfile", "seccompProfile", "seLinuxOptions", "seLinuxChangePolicy"],
    ),
    ("none leads past rules of NAT", &["sysctls"]),
    ("a file system of the container's own", &["readOnlyRootFilesystem"]),
    ("pods of Windows get no chain", &["windowsOptions"]),
];

const VOLUME: Known = &[
    ("HostPath", &["name", "hostPath"]),
    ("evaluated as an image", &["image"]),
    (
        "objects of the namespace and files of the pod",
        &["configMap", "secret", "downwardAPI", "projected", "emptyDir", "gitRepo"],
    ),
    (
        "storage outside of the node; drivers are the administrator's",
        &[
            "awsElasticBlockStore",
            "azureDisk",
            "azureFile",
            "cephfs",
            "cinder",
            "csi",
            "ephemeral",
            "fc",
            "flexVolume",
            "flocker",
            "gcePersistentDisk",
            "glusterfs",
            "iscsi",
            "nfs",
            "persistentVolumeClaim",
            "photonPersistentDisk",
            "portworxVolume",
            "quobyte",
            "rbd",
            "scaleIO",
            "storageos",
            "vsphereVolume",
        ],
    ),
];

#[tokio::test]
async fn every_field_of_a_pod_is_evaluated_or_known_to_be_harmless() {
    let types: [(&str, Known); 8] = [
        ("PodSpec", POD),
        ("Container", CONTAINER),
        ("EphemeralContainer", CONTAINER),
        ("SecurityContext", SECURITY_CONTEXT),
        ("PodSecurityContext", SECURITY_CONTEXT),
        ("Volume", VOLUME),
        ("Capabilities", &[("Capability", &["add", "drop"])]),
        ("HostAlias", &[("HostAlias", &["hostnames", "ip"])]),
    ];
    let schemas = core_schemas(&cluster().await).await;
    for (name, known) in types {
        let fields = &schemas[&format!("io.k8s.api.core.v1.{name}")]["properties"];
        let fields: BTreeSet<_> = fields.as_object().unwrap().keys().map(String::as_str).collect();
        assert!(fields.len() > 1, "{name}: {fields:?}");
        let known = known.iter().flat_map(|(_, fields)| *fields).copied().collect();
        let unknown: Vec<_> = fields.difference(&known).collect();
        assert!(unknown.is_empty(), "{name} has fields that nothing evaluates: {unknown:?}");
    }
}
