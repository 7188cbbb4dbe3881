//! Checks the configuration that pods are planned with, read as the operator reads it.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{DynamicObject, ListParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client};
use lucid_admission::auditor::CRD_NAME;
use lucid_admission::{ChainSettings, ClusterConfiguration, POLICY_CONFIG_MAP, WEBHOOKS_CONFIG_MAP};
use lucid_chain::keys;
use lucid_policy::{Mode, Policy, Strictness};
use lucid_webhook::Readiness;

use super::namespaces::listed;
use super::report::{Check, Unread};

const CHECK: &str = "configuration";
const TIMEOUT: Duration = Duration::from_secs(30);

/// Returns the configuration and the problems found. The configuration is `None` if a part of it cannot be read.
pub(super) async fn read(
    client: &Client,
    namespace: &str,
    settings: ChainSettings,
    policy: Policy,
) -> (Option<ClusterConfiguration>, Vec<Check>) {
    // Without permission to list, the synchronization would never finish.
    let unread = missing(client, namespace).await;
    if !unread.is_empty() {
        return (None, unread.iter().map(|unread| Check::unread(CHECK, unread)).collect());
    }
    let cluster = ClusterConfiguration::new(settings).with_policy(policy);
    let synced = cluster.start(client.clone(), namespace, Readiness::default().condition(CHECK));
    if tokio::time::timeout(TIMEOUT, synced.wait()).await.is_err() {
        // The error of the catalogue has the reason.
        let why = match cluster.namespace(namespace).await {
            Err(error) => error.to_string(),
            Ok(_) => format!("timed out reading it after {} s", TIMEOUT.as_secs()),
        };
        let check = Check::failed(CHECK, why).action("until it is readable, the operator is not ready");
        return (None, vec![check]);
    }
    (Some(cluster), Vec::new())
}

async fn missing(client: &Client, namespace: &str) -> Vec<Unread> {
    let one = |name: &str| ListParams::default().fields(&format!("metadata.name={name}")).limit(1);
    let own: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let chains: Api<ConfigMap> = Api::all(client.clone());
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let auditor = GroupVersionKind::gvk("lucid.computing", "v1", "Auditor");
    let auditors: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&auditor));
    let first = ListParams::default().limit(1);
    let chains = chains.list_metadata(&one(keys::NAMESPACE_CONFIG_MAP)).await.err();
    let namespaces = namespaces.list_metadata(&first).await.err();
    let mut results = vec![
        (chains, "list and watch configmaps".to_owned()),
        (namespaces, "list and watch namespaces".to_owned()),
    ];
    for name in [keys::CATALOGUE_CONFIG_MAP, keys::CANARY_CONFIG_MAP, POLICY_CONFIG_MAP, WEBHOOKS_CONFIG_MAP]
    {
        let error = own.list_metadata(&one(name)).await.err();
        results.push((error, format!("list and watch configmap {name} in namespace {namespace}")));
    }
    match auditors.list_metadata(&first).await {
        // The resource is not defined. For an undefined group the API server responds in plain text instead of a
        // `Status`.
        Err(kube::Error::Api(status)) if status.code == 404 => {}
        other => results.push((other.err(), format!("list and watch {CRD_NAME}"))),
    }
    results.into_iter().filter_map(|(error, permission)| Some(Unread::of(&error?, permission))).collect()
}

pub(super) async fn check(
    cluster: &ClusterConfiguration,
    own: &str,
    namespaces: impl Iterator<Item = &str>,
) -> Vec<Check> {
    let mut problems = std::collections::BTreeSet::new();
    let (mut canary, mut ordinary) = (Vec::new(), Vec::new());
    for namespace in namespaces {
        if let Ok(view) = cluster.namespace(namespace).await {
            problems.extend(view.problems);
            if view.is_canary { &mut canary } else { &mut ordinary }.push(namespace);
        }
    }
    let is_known = |problem: &String| problems.iter().any(|known| known.contains(problem));
    let of_canary: Vec<_> = cluster.canary_problems().into_iter().filter(|it| !is_known(it)).collect();
    problems.extend(of_canary);
    let revisions = (!canary.is_empty()).then(|| {
        let used = [(keys::CANARY_CONFIG_MAP, canary), (keys::CATALOGUE_CONFIG_MAP, ordinary)];
        let used = used.iter().filter(|(_, namespaces)| !namespaces.is_empty());
        let used = used.map(|(name, namespaces)| format!("{name} applies in {}", listed(namespaces)));
        Check::ok("revisions", used.collect::<Vec<_>>().join(", "))
    });
    let gaps = cluster.permission_gaps().into_iter();
    let mut gaps: Vec<_> = gaps.map(|gap| Check::warning(CHECK, gap)).collect();
    let policy = cluster.policy();
    if policy.strictness == Strictness::Strict && policy.mode == Mode::Audit {
        let found = "strict notarization refuses nothing in admission mode audit";
        gaps.push(Check::warning(CHECK, found).action(format!(
            "kubectl -n {own} patch configmap {POLICY_CONFIG_MAP} --type merge -p '{{\"data\":{{\"mode\":\"enforce\"}}}}'"
        )));
    }
    if problems.is_empty() && gaps.is_empty() {
        let valid = Check::ok(CHECK, "ConfigMaps and Auditors are valid");
        return [valid].into_iter().chain(revisions).collect();
    }
    let failed = |problem: String| {
        Check::failed(CHECK, problem).action("correct it; until then replicas keep the last valid content")
    };
    problems.into_iter().map(failed).chain(gaps).chain(revisions).collect()
}
