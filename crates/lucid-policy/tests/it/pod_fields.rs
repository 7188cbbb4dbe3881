//! Every field of a pod spec is either checked or known to be harmless. The test fails when a new version of
//! Kubernetes adds a field.

use std::collections::BTreeSet;
use std::fmt;

use k8s_openapi::api::core::v1::{
    Capabilities, Container, EphemeralContainer, HostAlias, PodSecurityContext, PodSpec, SecurityContext,
    Volume,
};
use serde::de::{Deserialize, Deserializer, Error, Visitor};
use serde::forward_to_deserialize_any;

/// A type, its fields, and the check or the reason for each.
type Known = (&'static str, BTreeSet<&'static str>, &'static [(&'static str, &'static [&'static str])]);

const POD: &[(&str, &[&str])] = &[
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
        ],
    ),
    ("reaches only containers that name the claim, and a planned one names none", &["resourceClaims"]),
    ("variables and tokens of the application", &["enableServiceLinks", "automountServiceAccountToken"]),
];

const CONTAINER: &[(&str, &[&str])] = &[
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

const SECURITY_CONTEXT: &[(&str, &[&str])] = &[
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

const VOLUME: &[(&str, &[&str])] = &[
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

#[test]
fn every_field_of_a_pod_is_evaluated_or_known_to_be_harmless() {
    let types: [Known; 8] = [
        ("PodSpec", fields::<PodSpec>(), POD),
        ("Container", fields::<Container>(), CONTAINER),
        ("EphemeralContainer", fields::<EphemeralContainer>(), CONTAINER),
        ("SecurityContext", fields::<SecurityContext>(), SECURITY_CONTEXT),
        ("PodSecurityContext", fields::<PodSecurityContext>(), SECURITY_CONTEXT),
        ("Volume", fields::<Volume>(), VOLUME),
        ("Capabilities", fields::<Capabilities>(), &[("Capability", &["add", "drop"])]),
        ("HostAlias", fields::<HostAlias>(), &[("HostAlias", &["hostnames", "ip"])]),
    ];
    for (name, fields, known) in types {
        assert!(fields.len() > 1, "{name}: {fields:?}");
        let known: BTreeSet<_> = known.iter().flat_map(|(_, fields)| *fields).copied().collect();
        let unknown: Vec<_> = fields.difference(&known).collect();
        assert!(unknown.is_empty(), "{name} has fields that nothing evaluates: {unknown:?}");
    }
}

fn fields<'de, T: Deserialize<'de>>() -> BTreeSet<&'static str> {
    let mut fields = BTreeSet::new();
    assert!(T::deserialize(Fields(&mut fields)).is_err());
    fields
}

/// Deserializer that records the requested fields and provides none.
struct Fields<'f>(&'f mut BTreeSet<&'static str>);

#[derive(Debug)]
struct Noted;

impl fmt::Display for Noted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("noted")
    }
}

impl std::error::Error for Noted {}

impl Error for Noted {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self
    }
}

impl<'de> Deserializer<'de> for Fields<'_> {
    type Error = Noted;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Noted> {
        Err(Noted)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Noted> {
        self.0.extend(fields);
        Err(Noted)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}
