//! For each source of certificates, the permissions in the chart are sufficient for the programs as configured by the chart,
//! and all of them are used.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule, Role};
use kube::Api;
use kube::api::{Patch, PatchParams};
use lucid_e2e::{AtomicWriter, ClusterExt as _, Operator, OperatorBuilder, can_use_namespaces, eventually};
use lucid_testbed::{Builder, Cluster};
use serde_json::{Value, json};

use super::{as_installed, documents, pods, template, upgrade};
use crate::certificates::sources::{OLM_NAME, register_as_olm};
use crate::certificates::{Authority, write_bundles_of};
use crate::cli::{kubeconfig_of, kubectl, kubectl_until, lucid_as};
use crate::common::{ENABLED, chain, create, delete_all_pods, has_cert_manager, metric, secured, stored};
use crate::installation::is_never_forbidden;

const BOTH: &str = "webhooks.validating.by=both";
const PROGRAMS: [&str; 2] = ["lucid-operator", "lucid-validator"];

/// Permissions not exercised here: verb, resource, and purpose.
const RARE: &[(&str, &str, &str)] = &[
    // The log records "patch" for an apply; the API server also requires "create" if the object is absent.
    ("create", "mutatingwebhookconfigurations", "the registration was deleted"),
    ("create", "validatingwebhookconfigurations", "the registration was deleted"),
    ("create", "configmaps", "there are no generations yet"),
    ("update", "mutatingwebhookconfigurations", "the registration was extended"),
    ("create", "events", "something is wrong with a pod or a registration"),
    ("patch", "events", "it is still so"),
    ("get", "replicasets", "it is a Deployment's pod"),
    ("get", "jobs", "it is a CronJob's pod"),
    ("patch", "auditors/status", "there are Auditors"),
    ("create", "subjectaccessreviews", "a ticket is used"),
    ("create", "leases", "there is no leader yet"),
    ("list", "reports", "ten seconds have passed"),
    ("list", "policyreports", "as above"),
    ("create", "reports", "the kind is defined"),
    ("patch", "reports", "as above"),
    ("delete", "reports", "as above"),
    ("create", "policyreports", "as above"),
    ("patch", "policyreports", "as above"),
    ("delete", "policyreports", "as above"),
];
const RARE_OF_OUR_OWN: &[(&str, &str, &str)] = &[
    ("update", "secrets", "the authority is renewed"),
    // As for registrations.
    ("create", "secrets", "there is no authority yet"),
];

/// A cluster for the chart with a validator beside the operator.
async fn cluster() -> Cluster {
    prepare(Cluster::builder()).await
}

const AUDIT_POLICY: &str = "apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules: [{level: Metadata, userGroups: [system:serviceaccounts]}]
";

async fn prepare(builder: Builder) -> Cluster {
    let policy = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(policy.path(), AUDIT_POLICY).unwrap();
    let args = [format!("--audit-policy-file={}", policy.path().display())];
    let cluster = builder.api_server_args(args).start().await.unwrap();
    cluster.create_namespace("lucid-system", &[]).await.unwrap();
    cluster.create_namespace("shop", &[ENABLED]).await.unwrap();
    cluster
}

/// Configures both programs by the values, without starting them.
async fn installed(cluster: &Cluster, values: &[&str]) -> [OperatorBuilder; 2] {
    upgrade(cluster, &[&[BOTH], values].concat());
    [as_installed(cluster, PROGRAMS[0]).await, as_installed(cluster, PROGRAMS[1]).await]
}

/// Like [`installed`], with webhooks called by URL: the definition accepts none in addition to the chart's Service.
async fn installed_by_url(cluster: &Cluster, values: &[&str]) -> [OperatorBuilder; 2] {
    kubectl(cluster, &["delete", "crd", "auditors.lucid.computing", "--ignore-not-found"], "");
    let url = format!("https://{}", cluster.host_address());
    let urls = ["operator", "validator"].map(|program| {
        let variable = format!("{program}.extraEnv[0]");
        [format!("{variable}.name=LUCID_WEBHOOK_URL"), format!("{variable}.value={url}")]
    });
    let urls = urls.as_flattened().iter().map(String::as_str);
    installed(cluster, &urls.chain(values.iter().copied()).collect::<Vec<_>>()).await
}

async fn started([operator, validator]: [OperatorBuilder; 2]) -> [Operator; 2] {
    [operator.start().await.unwrap(), validator.start().await.unwrap()]
}

async fn work(cluster: &Cluster) {
    create(cluster, "shop", &secured("web")).await.stored().unwrap();
    assert_eq!(chain(&stored(cluster, "shop", "web").await).len(), 3);
    delete_all_pods(cluster, "shop").await;
}

/// Changes and extends the registrations, and waits until they are restored.
async fn repair(cluster: &Cluster) {
    let validating: Api<ValidatingWebhookConfiguration> = Api::all(cluster.client());
    for name in PROGRAMS {
        let never = json!([{"name": "never", "expression": "false"}]);
        let damage =
            json!({"name": "validate.lucid.computing", "timeoutSeconds": 29, "matchConditions": never});
        let damage = Patch::Strategic(json!({"webhooks": [damage]}));
        validating.patch(name, &Default::default(), &damage).await.unwrap();
        let webhooks = ["get", "validatingwebhookconfiguration", name, "-o", "jsonpath={.webhooks}"];
        kubectl_until(cluster, &webhooks, |text| {
            !text.contains("\"timeoutSeconds\":29") && !text.contains("\"never\"")
        })
        .await;
    }
}

/// Asserts that the API server has denied nothing, and that the programs lack no permission and use all of them.
async fn are_minimal(cluster: &Cluster, running: &[Operator; 2], mode: &str) {
    for (program, name) in running.iter().zip(PROGRAMS) {
        is_never_forbidden(program);
        assert_eq!(metric(program, "lucid_missing_permissions ").await, 0, "{mode}: {name}");
        let user = format!("system:serviceaccount:lucid-system:{name}");
        let granted = granted(cluster, name).await;
        let of_our_own = if ["self-signed", "per replica"].contains(&mode) { RARE_OF_OUR_OWN } else { &[] };
        let rare = |(verb, resource): &&(String, String)| {
            let mut known = RARE.iter().chain(of_our_own);
            known.any(|known| (known.0, known.1) == (verb.as_str(), resource.as_str()))
        };
        let requested = eventually(&format!("{mode}: {name} uses its permissions"), async || {
            let mut requested = cluster.audit_events().unwrap();
            requested.retain(|event| event["user"]["username"] == *user);
            let used: BTreeSet<_> = requested.iter().filter_map(permission).collect();
            let idle = granted.difference(&used).filter(|permission| !rare(permission));
            let idle: Vec<_> = idle.cloned().collect();
            if idle.is_empty() { Ok(requested) } else { Err(idle) }
        })
        .await;
        assert!(!requested.is_empty(), "{mode}: nothing of {user} is in the audit log");
        let refused: Vec<_> =
            requested.iter().filter(|event| event["responseStatus"]["code"] == 403).collect();
        assert!(refused.is_empty(), "{mode}: {name}: {refused:#?}");
    }
}

/// Verb, and resource with its subresource, of an event in the audit log.
fn permission(event: &Value) -> Option<(String, String)> {
    let object = &event["objectRef"];
    let subresource = object["subresource"].as_str().map(|name| format!("/{name}")).unwrap_or_default();
    Some((event["verb"].as_str()?.to_owned(), format!("{}{subresource}", object["resource"].as_str()?)))
}

async fn granted(cluster: &Cluster, name: &str) -> BTreeSet<(String, String)> {
    let everywhere: Api<ClusterRole> = Api::all(cluster.client());
    let mut rules = everywhere.get(name).await.unwrap().rules.unwrap();
    for namespace in ["lucid-system", "default"] {
        let roles: Api<Role> = Api::namespaced(cluster.client(), namespace);
        rules.extend(roles.get_opt(name).await.unwrap().and_then(|role| role.rules).unwrap_or_default());
    }
    let of_rule = |PolicyRule { resources, verbs, .. }| {
        let resources = resources.unwrap_or_default().into_iter();
        resources.flat_map(move |it| verbs.clone().into_iter().map(move |verb| (verb, it.clone())))
    };
    rules.into_iter().flat_map(of_rule).collect()
}

/// Files of a certificate for both programs, optionally with the CA certificate.
fn files(cluster: &Cluster, authority: &Authority, with_ca: bool) -> BTreeMap<String, Vec<u8>> {
    authority.serving(cluster.host_address()).files(with_ca.then_some(authority.certificate.as_str()))
}

/// Writes Secrets, like a certificate manager.
async fn write_secrets(cluster: &Cluster, names: &[&str], files: &BTreeMap<String, Vec<u8>>) {
    let secrets: Api<Secret> = Api::namespaced(cluster.client(), "lucid-system");
    for name in names {
        let data: BTreeMap<_, _> =
            files.iter().map(|(key, bytes)| (key, ByteString(bytes.clone()))).collect();
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
            "metadata": {"name": name}, "data": data});
        secrets.patch(name, &PatchParams::apply("external").force(), &Patch::Apply(secret)).await.unwrap();
    }
}

#[tokio::test]
async fn rbac_suffices_for_self_signed_certificates() {
    let cluster = cluster().await;
    // One certificate for each replica, in memory.
    let in_memory = ["certificates.selfSigned.perReplica=true"];
    let running = started(installed_by_url(&cluster, &in_memory).await).await;
    work(&cluster).await;
    repair(&cluster).await;
    are_minimal(&cluster, &running, "per replica").await;
    drop(running);

    // One certificate for all replicas, in a Secret.
    let shared = ["policy.breakGlass.accessReview=true"];
    let running = started(installed_by_url(&cluster, &shared).await).await;
    work(&cluster).await;
    repair(&cluster).await;
    are_minimal(&cluster, &running, "self-signed").await;
    let secrets: Api<Secret> = Api::namespaced(cluster.client(), "lucid-system");
    for name in ["lucid-operator-tls", "lucid-validator-tls"] {
        secrets.get(name).await.unwrap();
    }
}

#[tokio::test]
async fn rbac_suffices_for_external_secrets_and_files() {
    let cluster = cluster().await;
    let authority = Authority::new("external");
    write_secrets(&cluster, &["mine", "theirs"], &files(&cluster, &authority, true)).await;
    let secrets = [
        "certificates.source=secret",
        "certificates.secrets.operator=mine",
        "certificates.secrets.validator=theirs",
    ];
    let running = started(installed_by_url(&cluster, &secrets).await).await;
    work(&cluster).await;
    repair(&cluster).await;
    are_minimal(&cluster, &running, "secret").await;
    drop(running);

    let volumes = [
        "certificates.source=files",
        "certificates.volumes.operator.emptyDir.medium=Memory",
        "certificates.volumes.validator.emptyDir.medium=Memory",
    ];
    let programs = installed_by_url(&cluster, &volumes).await;
    let folder = tempfile::tempdir().unwrap();
    AtomicWriter::new(folder.path()).write(&files(&cluster, &authority, true)).unwrap();
    // Mount path of the volume.
    let path = folder.path().to_str().unwrap();
    let running = started(programs.map(|it| it.env("LUCID_TLS_DIRECTORY", path))).await;
    work(&cluster).await;
    repair(&cluster).await;
    are_minimal(&cluster, &running, "files").await;
}

/// OpenShift's service CA fills Secrets for annotated Services, and annotated registrations.
#[tokio::test]
async fn rbac_suffices_for_openshifts_service_ca() {
    let cluster = cluster().await;
    let programs = installed_by_url(&cluster, &["certificates.source=openshift"]).await;
    let mut running = programs.map(|it| it.spawn().unwrap());
    let authority = Authority::new("service-ca");
    for name in PROGRAMS {
        let service = format!("service/{name}-webhook");
        let service = kubectl(&cluster, &["get", "-n", "lucid-system", &service, "-o", "yaml"], "");
        let requested = format!("service.beta.openshift.io/serving-cert-secret-name: {name}-tls");
        assert!(service.contains(&requested), "{service}");
        let registration = format!("validatingwebhookconfiguration/{name}");
        kubectl_until(&cluster, &["get", &registration, "-o", "yaml"], |text| {
            text.contains("service.beta.openshift.io/inject-cabundle: \"true\"") && text.contains("url:")
        })
        .await;
        write_secrets(&cluster, &[&format!("{name}-tls")], &files(&cluster, &authority, false)).await;
    }
    for name in PROGRAMS {
        write_bundles_of(name, &cluster, &[&authority]).await;
    }
    for program in &mut running {
        program.ready().await.unwrap();
    }
    work(&cluster).await;
    repair(&cluster).await;
    are_minimal(&cluster, &running, "openshift").await;
}

/// OLM provides files and the registration; here for the operator, which is in its bundle.
#[tokio::test]
async fn rbac_suffices_for_olm() {
    let cluster = cluster().await;
    let programs = installed_by_url(&cluster, &["certificates.source=olm"]).await;
    let authority = Authority::new("olm");
    let folder = tempfile::tempdir().unwrap();
    AtomicWriter::new(folder.path()).write(&files(&cluster, &authority, false)).unwrap();
    let path = folder.path().to_str().unwrap();
    let running = started(programs.map(|it| it.env("LUCID_TLS_DIRECTORY", path))).await;
    register_as_olm(&cluster, &running[0]).await;
    write_bundles_of(OLM_NAME, &cluster, &[&authority]).await;
    work(&cluster).await;
    are_minimal(&cluster, &running, "olm").await;
}

/// With cert-manager's real programs, and the chart's Certificates for the names of Services.
#[tokio::test]
async fn rbac_suffices_for_cert_manager() {
    if !can_use_namespaces() || !has_cert_manager() {
        return;
    }
    let cluster = prepare(Cluster::builder().cert_manager().cainjector().webhooks_by_service()).await;
    // The namespace of Secrets of ClusterIssuers.
    cluster.create_namespace("cert-manager", &[]).await.unwrap();
    let programs = installed(&cluster, &["certificates.source=cert-manager"]).await;
    let mut running = programs.map(|it| it.by_service().spawn().unwrap());
    for (program, name) in running.iter().zip(PROGRAMS) {
        // Like the controllers of a cluster for the pods of the chart's Service.
        let service = format!("{name}-webhook");
        kubectl(&cluster, &["delete", "-n", "lucid-system", "service", &service], "");
        cluster.expose_service("lucid-system", &service, &[program.port()]).await.unwrap();
    }
    for program in &mut running {
        program.ready().await.unwrap();
    }
    work(&cluster).await;
    repair(&cluster).await;
    are_minimal(&cluster, &running, "cert-manager").await;
}

/// Commands of `helm test` and `helm uninstall`, with the permissions of the hooks' own accounts.
#[tokio::test]
async fn rbac_suffices_for_helm_hooks() {
    let cluster = cluster().await;
    let running = started(installed_by_url(&cluster, &[BOTH]).await).await;
    // Helm cannot run them without a node.
    for hook in ["tests/check.yaml", "uninstall.yaml"] {
        let only = [format!("--show-only=templates/{hook}")];
        let text = template("lucid-system", &[BOTH], &only).await.unwrap();
        for account in documents(&text).into_iter().filter(|it| pods(it).is_none()) {
            kubectl(&cluster, &["apply", "-f", "-"], &serde_yaml::to_string(&account).unwrap());
        }
    }
    // Leftover of a test.
    let left = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "lucid-check", "labels": {"app.kubernetes.io/name": "lucid-check"}},
        "spec": {"automountServiceAccountToken": false, "containers": [{"name": "c", "image": "r.test/c"}]}});
    kubectl(&cluster, &["create", "-n", "lucid-system", "-f", "-"], &left.to_string());

    let checked = run(&cluster, "lucid-check", &["check", "--skip-pods"]).await;
    assert!(checked.contains("all permissions that its settings need are granted"), "{checked}");
    assert!(!checked.contains("WARN") && !checked.contains("forbidden"), "{checked}");
    drop(running);
    let uninstalled = run(&cluster, "lucid-uninstall", &["uninstall", "--yes"]).await;
    for line in ["deleted Secret lucid-system/lucid-operator-ca", "deleted Pod lucid-system/lucid-check"] {
        assert!(uninstalled.contains(line), "{uninstalled}");
    }
    let events = cluster.audit_events().unwrap();
    // There is no backstop and no log, and webhooks called by URL have no Service.
    let not_here: [(&str, &[&str]); 2] = [
        ("lucid-check", &["get services", "list endpointslices", "list validatingadmissionpolicybindings"]),
        (
            "lucid-uninstall",
            &[
                "delete policyreports",
                "delete reports",
                "delete validatingadmissionpolicies",
                "delete validatingadmissionpolicybindings",
                "patch statefulsets/scale",
            ],
        ),
    ];
    for (account, not_here) in not_here {
        let user = format!("system:serviceaccount:lucid-system:{account}");
        let requested: Vec<_> = events.iter().filter(|event| event["user"]["username"] == *user).collect();
        // It may not create pods, not even in a dry run, and reports that.
        let tries = |event: &Value| event["requestURI"].as_str().unwrap().contains("dryRun=All");
        let is_refused = |event: &&Value| event["responseStatus"]["code"] == 403 && !tries(event);
        let refused: Vec<_> = requested.iter().copied().filter(is_refused).collect();
        assert!(!requested.is_empty() && refused.is_empty(), "{account}: {refused:#?}");
        let used: BTreeSet<_> = requested.iter().filter_map(|event| permission(event)).collect();
        let idle = granted(&cluster, account).await.into_iter().filter(|it| !used.contains(it));
        let idle: BTreeSet<_> = idle.map(|(verb, resource)| format!("{verb} {resource}")).collect();
        assert_eq!(idle.iter().map(String::as_str).collect::<Vec<_>>(), not_here, "{account}");
    }
}

/// Output of `lucid` with the permissions of an account.
async fn run(cluster: &Cluster, account: &str, arguments: &[&str]) -> String {
    lucid_as(&kubeconfig_of(cluster, account), arguments).await.all()
}
