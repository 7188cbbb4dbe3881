//! The running programs in their namespace.

use std::collections::BTreeSet;

use clap::Args;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use lucid_shared::options::{OperatorArgs, ServeArgs};
use lucid_shared::serving::rbac::Permission;
use lucid_shared::serving::{CertificateArgs, NAME_LABEL, OPERATOR, Program, Source};

use crate::error::{Result, ResultExt};
use crate::workload::{Kind, Workload, parse};

/// Deployments and StatefulSets that have the label of a program, and their pods.
pub(super) struct Workloads {
    client: Client,
    namespace: String,
    found: Vec<Workload>,
}

pub(super) fn permissions(namespace: &str) -> [Permission; 3] {
    [("apps", "deployments"), ("apps", "statefulsets"), ("", "pods")]
        .map(|(group, resource)| Permission::new(&["list"], group, resource).within(namespace))
}

impl Workloads {
    pub(super) async fn find(client: &Client, namespace: &str) -> Result<Self> {
        let names = super::PROGRAMS.map(|program| program.name).join(",");
        let labelled = ListParams::default().labels(&format!("{NAME_LABEL} in ({names})"));
        let mut found = Vec::new();
        for kind in Kind::ALL {
            let list = kind.api(client, namespace).list(&labelled).await;
            let list = list.failed_to(format_args!("list {} of {namespace}", kind.resource()))?;
            found.extend(list.items.into_iter().map(|it| Workload::new(kind, it)));
        }
        Ok(Self { client: client.clone(), namespace: namespace.to_owned(), found })
    }

    /// Returns the workloads with replicas.
    pub(super) fn scaled(&self) -> impl Iterator<Item = &Workload> {
        self.found.iter().filter(|workload| workload.wanted > 0)
    }

    pub(super) fn permissions(&self) -> impl Iterator<Item = Permission> {
        self.scaled().map(|workload| {
            let permission = match workload.kind {
                Kind::Deployment => Permission::new(&["patch"], "apps", "deployments/scale"),
                Kind::StatefulSet => Permission::new(&["patch"], "apps", "statefulsets/scale"),
            };
            permission.named(&workload.name).within(&self.namespace)
        })
    }

    pub(super) async fn scale_to_zero(&self, workload: &Workload) -> Result<()> {
        let none = Patch::Merge(serde_json::json!({"spec": {"replicas": 0}}));
        let api = workload.kind.api(&self.client, &self.namespace);
        let scaled = api.patch_scale(&workload.name, &PatchParams::default(), &none).await;
        scaled.failed_to(format_args!("scale {workload} to 0")).map(drop)
    }

    /// Returns the names of the pods of `programs` that may still write.
    pub(super) async fn running(&self, programs: &[Program]) -> Result<Vec<String>> {
        let of_them = |it: &&Workload| programs.iter().any(|program| is_of(it, *program));
        let mut selectors: BTreeSet<String> =
            self.found.iter().filter(of_them).filter_map(Workload::selector).collect();
        selectors.extend(programs.iter().map(|program| format!("{NAME_LABEL}={}", program.name)));
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &self.namespace);
        let mut running = BTreeSet::new();
        for selector in selectors {
            let pods = api.list(&ListParams::default().labels(&selector)).await;
            let pods = pods.failed_to(format_args!("list pods of {}", self.namespace))?;
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

    fn certificates<A: Args>(
        &self,
        program: Program,
        certificates: fn(A) -> CertificateArgs,
    ) -> Vec<CertificateArgs> {
        let workloads = self.found.iter().filter(|it| is_of(it, program));
        let deployed = workloads.filter_map(|it| it.deployed_args(program).ok());
        deployed.map(|(args, _)| certificates(args)).collect()
    }
}

pub(super) fn is_of(workload: &Workload, program: Program) -> bool {
    workload.labels.get(NAME_LABEL).is_some_and(|label| label == program.name)
}
