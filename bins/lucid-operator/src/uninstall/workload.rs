//! The operator as it runs in its namespace.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use lucid_serving::NAME_LABEL;
use snafu::ResultExt;

use super::{ApiSnafu, UninstallError};
use crate::run::PROGRAM;

/// Verb, API group and resource of what is needed to stop it.
pub(super) const RIGHTS: [(&str, &str, &str); 3] =
    [("list", "apps", "deployments"), ("patch", "apps", "deployments/scale"), ("list", "", "pods")];

/// Deployments labelled as the operator's, and their pods.
pub(super) struct Workload {
    deployments: Api<Deployment>,
    pods: Api<Pod>,
    found: Vec<Deployment>,
}

impl Workload {
    pub(super) async fn find(client: &Client, namespace: &str) -> Result<Self, UninstallError> {
        let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace);
        let labelled = ListParams::default().labels(&format!("{NAME_LABEL}={}", PROGRAM.name));
        let found = deployments.list(&labelled).await;
        let found = found.context(ApiSnafu { action: format!("list Deployments of {namespace}") })?.items;
        Ok(Self { deployments, pods: Api::namespaced(client.clone(), namespace), found })
    }

    /// Name and replicas of each Deployment that makes pods.
    pub(super) fn scaled(&self) -> impl Iterator<Item = (&str, i32)> {
        self.found
            .iter()
            .map(|it| (it.metadata.name.as_deref().unwrap_or_default(), replicas(it)))
            .filter(|(_, replicas)| *replicas > 0)
    }

    pub(super) fn is_scaled(&self) -> bool {
        self.scaled().next().is_some()
    }

    pub(super) async fn scale_to_zero(&self, name: &str) -> Result<(), UninstallError> {
        let none = Patch::Merge(serde_json::json!({"spec": {"replicas": 0}}));
        let scaled = self.deployments.patch_scale(name, &PatchParams::default(), &none).await;
        scaled.context(ApiSnafu { action: format!("scale Deployment {name} to 0") }).map(drop)
    }

    /// Names of the pods that may still write.
    pub(super) async fn running(&self) -> Result<Vec<String>, UninstallError> {
        let mut selectors: BTreeSet<String> = self.found.iter().filter_map(selector).collect();
        selectors.insert(format!("{NAME_LABEL}={}", PROGRAM.name));
        let mut running = BTreeSet::new();
        for selector in selectors {
            let pods = self.pods.list(&ListParams::default().labels(&selector)).await;
            let pods = pods.context(ApiSnafu { action: "list the operator's pods" })?;
            let runs = |pod: &&Pod| {
                let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
                !matches!(phase, Some("Succeeded" | "Failed"))
            };
            running.extend(pods.iter().filter(runs).map(ResourceExt::name_any));
        }
        Ok(running.into_iter().collect())
    }

    /// Names of the Secrets that it keeps, by default or as it is told.
    pub(super) fn secrets(&self) -> Vec<&str> {
        let told = |variable: &str| {
            let specs = self.found.iter().filter_map(|it| it.spec.as_ref()?.template.spec.as_ref());
            let mut variables = specs.flat_map(|pod| &pod.containers).flat_map(|it| it.env.iter().flatten());
            variables.find(|it| it.name == variable)?.value.as_deref()
        };
        vec![
            told("LUCID_CA_SECRET").unwrap_or("lucid-operator-ca"),
            told("LUCID_TLS_SECRET").unwrap_or("lucid-operator-tls"),
        ]
    }
}

fn replicas(deployment: &Deployment) -> i32 {
    deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)
}

/// Its pods, in the form of a label selector.
fn selector(deployment: &Deployment) -> Option<String> {
    let labels: &BTreeMap<_, _> = deployment.spec.as_ref()?.selector.match_labels.as_ref()?;
    let terms: Vec<_> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    (!terms.is_empty()).then(|| terms.join(","))
}
