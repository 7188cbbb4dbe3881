//! The running programs in their namespace.

use std::collections::BTreeSet;
use std::fmt::Debug;

use clap::Args;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client, Resource, ResourceExt};
use lucid_shared::options::{OperatorArgs, ServeArgs};
use lucid_shared::serving::rbac::Permission;
use lucid_shared::serving::{CertificateArgs, NAME_LABEL, OPERATOR, Program, Source};
use serde::de::DeserializeOwned;
use snafu::ResultExt;

use super::{ApiSnafu, UninstallError};
use crate::workload::{Kind, Workload, parse};

/// Deployments and StatefulSets that have the label of a program, and their pods.
pub(super) struct Workloads {
    client: Client,
    namespace: String,
    found: Vec<Workload>,
}

/// Permissions needed to find the workloads.
pub(super) fn permissions(namespace: &str) -> [Permission; 3] {
    [("apps", "deployments"), ("apps", "statefulsets"), ("", "pods")]
        .map(|(group, resource)| Permission::new(&["list"], group, resource).within(namespace))
}

impl Workloads {
    pub(super) async fn find(client: &Client, namespace: &str) -> Result<Self, UninstallError> {
        let mut found = list::<Deployment>(client, Kind::Deployment, namespace).await?;
        found.extend(list::<StatefulSet>(client, Kind::StatefulSet, namespace).await?);
        Ok(Self { client: client.clone(), namespace: namespace.to_owned(), found })
    }

    /// Returns the workloads with replicas.
    pub(super) fn scaled(&self) -> impl Iterator<Item = &Workload> {
        self.found.iter().filter(|workload| workload.wanted > 0)
    }

    /// Returns the permissions needed to scale the workloads.
    pub(super) fn permissions(&self) -> impl Iterator<Item = Permission> {
        self.scaled().map(|workload| {
            let resource = match workload.kind {
                Kind::Deployment => "deployments/scale",
                Kind::StatefulSet => "statefulsets/scale",
            };
            Permission::new(&["patch"], "apps", resource).named(&workload.name).within(&self.namespace)
        })
    }

    pub(super) async fn scale_to_zero(&self, workload: &Workload) -> Result<(), UninstallError> {
        let none = Patch::Merge(serde_json::json!({"spec": {"replicas": 0}}));
        let (name, params) = (&workload.name, PatchParams::default());
        let scaled = match workload.kind {
            Kind::Deployment => self.api::<Deployment>().patch_scale(name, &params, &none).await,
            Kind::StatefulSet => self.api::<StatefulSet>().patch_scale(name, &params, &none).await,
        };
        scaled.context(ApiSnafu { action: format!("scale {workload} to 0") }).map(drop)
    }

    /// Returns the names of the pods of `programs` that may still write.
    pub(super) async fn running(&self, programs: &[Program]) -> Result<Vec<String>, UninstallError> {
        let of_them = |it: &&Workload| programs.iter().any(|program| is_of(it, *program));
        let mut selectors: BTreeSet<String> =
            self.found.iter().filter(of_them).filter_map(Workload::selector).collect();
        selectors.extend(programs.iter().map(|program| format!("{NAME_LABEL}={}", program.name)));
        let mut running = BTreeSet::new();
        for selector in selectors {
            let pods = self.api::<Pod>().list(&ListParams::default().labels(&selector)).await;
            let pods = pods.context(ApiSnafu { action: format!("list pods of {}", self.namespace) })?;
            let runs = |pod: &&Pod| {
                let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
                !matches!(phase, Some("Succeeded" | "Failed"))
            };
            running.extend(pods.iter().filter(runs).map(ResourceExt::name_any));
        }
        Ok(running.into_iter().collect())
    }

    /// Returns the names of the Secrets that `program` maintains, by its options or by default.
    pub(super) fn secrets(&self, program: Program) -> BTreeSet<String> {
        let deployed = if program.name == OPERATOR.name {
            self.certificates(program, |args: OperatorArgs| args.common.serving.certificates)
        } else {
            self.certificates(program, |args: ServeArgs| args.serving.certificates)
        };
        // Defaults apply if no options are known.
        let defaults = deployed.is_empty().then(|| parse::<CertificateArgs>(program, &[]).ok()).flatten();
        deployed
            .into_iter()
            .chain(defaults)
            .flat_map(|args| {
                // Certificates from other sources are managed externally.
                let ours = args.certificates == Source::SelfSigned;
                let certificate = ours.then(|| args.certificate_secret(program));
                [Some(args.authority_secret(program)), certificate].into_iter().flatten()
            })
            .collect()
    }

    /// Returns the certificate options of each workload of `program`.
    fn certificates<A: Args>(
        &self,
        program: Program,
        certificates: fn(A) -> CertificateArgs,
    ) -> Vec<CertificateArgs> {
        let workloads = self.found.iter().filter(|it| is_of(it, program));
        let deployed = workloads.filter_map(|it| it.deployed_args(program).ok());
        deployed.map(|(args, _)| certificates(args)).collect()
    }

    fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }
}

/// Returns `true` if the workload has the label of `program`.
pub(super) fn is_of(workload: &Workload, program: Program) -> bool {
    workload.labels.get(NAME_LABEL).is_some_and(|label| label == program.name)
}

async fn list<K>(client: &Client, kind: Kind, namespace: &str) -> Result<Vec<Workload>, UninstallError>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + DeserializeOwned + Clone + Debug,
    Workload: From<K>,
{
    let names = super::PROGRAMS.map(|program| program.name).join(",");
    let labelled = ListParams::default().labels(&format!("{NAME_LABEL} in ({names})"));
    let found = Api::<K>::namespaced(client.clone(), namespace).list(&labelled).await;
    let found = found.context(ApiSnafu { action: format!("list {} of {namespace}", kind.resource()) })?;
    Ok(found.items.into_iter().map(Workload::from).collect())
}
