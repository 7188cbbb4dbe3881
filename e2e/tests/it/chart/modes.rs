//! Invariants of all combinations of programs and certificate sources.

use std::collections::BTreeSet;

use serde_json::json;
use serde_yaml::Value;

use super::{documents, key, pods, template};

const CERTIFICATES: &[&[&str]] = &[
    &["certificates.source=self-signed"],
    &["certificates.selfSigned.perReplica=true"],
    &["certificates.source=cert-manager"],
    &["certificates.source=cert-manager", "certificates.publishTrust=true"],
    &[
        "certificates.source=cert-manager",
        "certificates.certManager.issuerRef.name=company",
        "certificates.certManager.issuerRef.kind=ClusterIssuer",
    ],
    &[
        "certificates.source=cert-manager",
        "certificates.volumes.operator.secret.secretName=lucid-operator-tls",
        "certificates.volumes.validator.secret.secretName=lucid-validator-tls",
    ],
    &["certificates.source=openshift"],
    &["certificates.source=olm"],
    &[
        "certificates.source=secret",
        "certificates.secrets.operator=mine",
        "certificates.secrets.validator=theirs",
    ],
    &[
        "certificates.source=files",
        "certificates.volumes.operator.csi.driver=x",
        "certificates.volumes.validator.csi.driver=x",
    ],
];

const OPERATOR: &str = "lucid-operator";
const VALIDATOR: &str = "lucid-validator";

/// Values, and the programs that serve webhooks with them.
const WEBHOOKS: &[(&[&str], &[&str])] = &[
    (&[], &[OPERATOR]),
    (&["webhooks.validating.by=both"], &[OPERATOR, VALIDATOR]),
    (&["webhooks.validating.by=validator"], &[OPERATOR, VALIDATOR]),
    (&["webhooks.validating.enabled=false"], &[OPERATOR]),
    (&["webhooks.mutating.enabled=false", "webhooks.validating.by=validator"], &[VALIDATOR]),
    (
        &[
            "webhooks.validating.by=validator",
            "decisions.log.volume=persistentVolumeClaim",
            "decisions.log.key.secret=lucid-decisions",
        ],
        &[OPERATOR, VALIDATOR],
    ),
    (
        &[
            "webhooks.mutating.enabled=false",
            "webhooks.validating.by=validator",
            "decisions.log.volume=persistentVolumeClaim",
        ],
        &[VALIDATOR],
    ),
];

/// Additional features, with an option of every kind.
const BESIDES: &[&[&str]] = &[
    &[],
    &[
        "verifier.enabled=true",
        "verifier.notarized={sha256:0f3c000000000000000000000000000000000000000000000000000000000000}",
        "cainjector.enabled=true",
        "cainjector.secretNamespaces={shop}",
        "metrics.serviceMonitor.enabled=true",
        "metrics.prometheusRule.enabled=true",
        "networkPolicy.enabled=true",
        "networkPolicy.apiServerCidrs={10.0.0.1/32}",
        "policy.breakGlass.accessReview=true",
        "policy.exemptions[0].name=mirrors",
        "policy.exemptions[0].images={docker.io/mirror}",
        "catalogue.chain[0].name=pii",
        "catalogue.chain[0].image=r.test/pii:1",
        "operator.priorityClassName=system-cluster-critical",
        "cainjector.extraEnv[0].name=SSL_CERT_FILE",
        "cainjector.extraEnv[0].value=/etc/ssl/ours.pem",
        "injection.chain={injection,injection,toxicity}",
        "decisions.token.secret=token",
        "webhooks.timeoutSeconds=5",
        "webhooks.clientCa.configMap=api-server",
        "webhooks.clientCa.names={kube-apiserver,front}",
        "image.tag=1.10",
        "image.pullSecrets={pull}",
    ],
    &["plain=true"],
];

#[tokio::test]
async fn every_mode_renders_its_programs_with_least_privilege() {
    for (number, certificates) in CERTIFICATES.iter().enumerate() {
        // Every second pair: all of them take half a minute.
        for (at, (webhooks, programs)) in WEBHOOKS.iter().enumerate().skip(number % 2).step_by(2) {
            let besides = BESIDES[(number + at / 2) % BESIDES.len()];
            let values = [*certificates, *webhooks, besides].concat();
            let text =
                template("audit", &values, &[]).await.unwrap_or_else(|said| panic!("{values:?}: {said}"));
            assert!(!text.contains("lucid-system"), "{values:?}: {text}");
            let documents = documents(&text);
            let mut running: BTreeSet<_> = programs.iter().copied().collect();
            if values.contains(&"verifier.enabled=true") {
                running.extend(["lucid-verifier", "lucid-cainjector"]);
            }
            judge(&documents, &running).unwrap_or_else(|what| panic!("{values:?}: {what}"));
        }
    }
}

/// YAML parses some words as numbers, booleans or lists.
#[tokio::test]
async fn names_that_look_like_other_types_stay_strings() {
    let words = |values: &[&str]| {
        let strings = values.iter().map(|value| format!("--set-string={value}"));
        strings.collect::<Vec<_>>()
    };
    let all = words(&[
        "webhooks.validating.by=both",
        "certificates.source=secret",
        "certificates.secrets.operator=123",
        "certificates.secrets.validator=0x7",
        "verifier.tlsSecret=null",
        "notary.ca.configMap=off",
        "image.pullSecrets={1e3}",
        "image.registry=[fd00::1]:5000",
        "operator.priorityClassName=yes",
    ]);
    let on = ["verifier.enabled=true", "cainjector.enabled=true", "networkPolicy.enabled=true"];
    let text = template("on", &on, &all).await.unwrap();
    for document in documents(&text) {
        let namespace = &document["metadata"]["namespace"];
        assert!(namespace.is_null() || namespace == "on" || namespace == "default", "{document:?}");
        // The API server rejects numbers and booleans in place of strings.
        for wrong in ["123", "7", "null", "false", "true", "1000.0"] {
            for member in ["namespace", "secretName", "name", "priorityClassName"] {
                let found = serde_yaml::to_string(&document).unwrap();
                assert!(!found.contains(&format!("{member}: {wrong}\n")), "{member}: {wrong} in {found}");
            }
        }
        for container in pods(&document).iter().flat_map(|it| it["containers"].as_sequence().unwrap()) {
            assert!(container["image"].as_str().unwrap().starts_with("[fd00::1]:5000/lucid"));
        }
    }
}

fn names(list: &Value, key: &str) -> Vec<String> {
    let items = list.as_sequence().into_iter().flatten();
    items.map(|it| it[key].as_str().unwrap().to_owned()).collect()
}

fn judge(documents: &[Value], running: &BTreeSet<&str>) -> Result<(), String> {
    let mut seen = BTreeSet::new();
    for document in documents {
        // Including hooks: Argo CD and Kustomize identify an object by these fields only.
        let identity = (key(document), document["metadata"]["namespace"].as_str().unwrap_or_default());
        if !seen.insert(identity) {
            return Err(format!("{identity:?} is there twice"));
        }
        if has_bundle(document) {
            return Err(format!("{identity:?} has a caBundle"));
        }
        for rule in document["rules"].as_sequence().into_iter().flatten() {
            is_narrow(key(document).1, rule)?;
        }
        if let Some(pods) = pods(document) {
            are_restricted(pods).map_err(|what| format!("{:?}: {what}", key(document)))?;
        }
    }
    let workloads = documents.iter().filter(|it| ["Deployment", "StatefulSet"].contains(&key(it).0));
    let found: BTreeSet<_> = workloads.map(|it| key(it).1).collect();
    if found != *running {
        return Err(format!("{found:?} are there instead of {running:?}"));
    }
    running.iter().try_for_each(|program| is_available(documents, program))
}

fn has_bundle(value: &Value) -> bool {
    match value {
        Value::Sequence(items) => items.iter().any(has_bundle),
        Value::Mapping(members) => members.iter().any(|(key, value)| key == "caBundle" || has_bundle(value)),
        _ => false,
    }
}

/// Rejects wildcard permissions, and access to Secrets other than by name.
fn is_narrow(role: &str, rule: &Value) -> Result<(), String> {
    let has = |list: &str, word: &str| rule[list].as_sequence().unwrap().iter().any(|it| it == word);
    let is_all = ["apiGroups", "resources", "verbs"].iter().any(|list| has(list, "*"));
    // The annotations can name any Secret.
    let is_by_name = !rule["resourceNames"].is_null() || role == "lucid-cainjector-secrets";
    if is_all || (has("resources", "secrets") && !is_by_name) {
        return Err(format!("{role}: {rule:?}"));
    }
    Ok(())
}

/// Checks Pod Security `restricted` and more, and errors that the API server rejects: a duplicate variable, a mount without a
/// volume.
fn are_restricted(pods: &Value) -> Result<(), String> {
    let as_yaml = |value| serde_yaml::to_value::<serde_json::Value>(value).unwrap();
    let context = &pods["securityContext"];
    if context["runAsNonRoot"] != true || context["seccompProfile"]["type"] != "RuntimeDefault" {
        return Err(format!("{context:?}"));
    }
    let mut volumes: BTreeSet<_> = names(&pods["volumes"], "name").into_iter().collect();
    volumes.insert("decisions".to_owned());
    for container in pods["containers"].as_sequence().unwrap() {
        let narrow = json!({
            "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"]},
        });
        if container["securityContext"] != as_yaml(narrow) {
            return Err(format!("{:?}", container["securityContext"]));
        }
        let env = names(&container["env"], "name");
        if env.iter().collect::<BTreeSet<_>>().len() != env.len() {
            return Err(format!("a variable is there twice in {env:?}"));
        }
        let values = container["env"].as_sequence().into_iter().flatten().map(|it| &it["value"]);
        if let Some(value) = values.into_iter().find(|it| !it.is_null() && !it.is_string()) {
            return Err(format!("a variable is {value:?}"));
        }
        if let Some(lost) = names(&container["volumeMounts"], "name").iter().find(|it| !volumes.contains(*it))
        {
            return Err(format!("{lost} is mounted, and there is no such volume"));
        }
    }
    Ok(())
}

/// Checks programs that serve webhooks: two replicas spread over nodes and zones, a disruption budget, and a Service.
fn is_available(documents: &[Value], program: &str) -> Result<(), String> {
    let of = |kind: &str, name: &str| {
        let found = documents.iter().find(|it| key(it) == (kind, name));
        found.ok_or_else(|| format!("there is no {kind} {name}"))
    };
    let workload = of("Deployment", program).or_else(|_| of("StatefulSet", program))?;
    let pods = &workload["spec"]["template"]["spec"];
    for amount in [
        &pods["containers"][0]["resources"]["requests"]["cpu"],
        &pods["containers"][0]["resources"]["limits"]["memory"],
    ] {
        if !amount.is_string() {
            return Err(format!("{program} has no resources"));
        }
    }
    if ![OPERATOR, VALIDATOR].contains(&program) {
        return Ok(());
    }
    let labels = &workload["spec"]["template"]["metadata"]["labels"];
    let matches = |selector: &Value| {
        let wanted = selector.as_mapping().unwrap();
        wanted.iter().all(|(label, value)| labels[label] == *value) && !wanted.is_empty()
    };
    let preferred = &pods["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"];
    let term = &preferred[0]["podAffinityTerm"];
    let spread = &pods["topologySpreadConstraints"][0];
    let holds = workload["spec"]["replicas"] == 2
        && term["topologyKey"] == "kubernetes.io/hostname"
        && matches(&term["labelSelector"]["matchLabels"])
        && spread["topologyKey"] == "topology.kubernetes.io/zone"
        && matches(&spread["labelSelector"]["matchLabels"])
        && matches(&of("PodDisruptionBudget", program)?["spec"]["selector"]["matchLabels"])
        && matches(&of("Service", &format!("{program}-webhook"))?["spec"]["selector"]);
    if holds { Ok(()) } else { Err(format!("{program}: {workload:?}")) }
}
