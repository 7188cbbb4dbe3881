//! Removes the remaining objects after the programs have stopped.

use std::fmt::Debug;
use std::io::Write;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Event, PersistentVolumeClaim, Pod, Secret};
use kube::api::{DeleteParams, ListParams, PartialObjectMeta};
use kube::{Api, ResourceExt};
use lucid_admission::GENERATIONS_CONFIG_MAP;
use lucid_admission::auditor::CRD_NAME;
use lucid_keeper::{LEASE, delete_reports};
use lucid_shared::serving::rbac::Permission;
use lucid_shared::serving::{NAME_LABEL, Program};
use serde::de::DeserializeOwned;

use super::{UninstallArgs, Uninstallation, registrations};
use crate::error::Result;

const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "lucid-certs");

/// Permissions needed for the removals requested by options. Other missing permissions are reported when a removal
/// fails.
pub(super) fn permissions(args: &UninstallArgs) -> Vec<Permission> {
    let mut permissions = Vec::new();
    if args.decision_logs {
        let permission = Permission::new(&["list", "delete"], "", "persistentvolumeclaims");
        permissions.push(permission.within(&args.cluster.namespace));
    }
    if args.crds {
        let permission =
            Permission::new(&["get", "delete"], "apiextensions.k8s.io", "customresourcedefinitions");
        permissions.push(permission.named(CRD_NAME));
    }
    permissions
}

impl<W: Write> Uninstallation<'_, W> {
    /// Removes the Secrets that have Lucid's label. Only metadata is read, no keys.
    pub(super) async fn remove_secrets(&mut self, program: Program) -> Result<()> {
        let namespace = &self.args.cluster.namespace;
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
        for name in self.workloads.secrets(program) {
            let subject = format!("Secret {namespace}/{name}");
            let (label, value) = MANAGED_BY;
            match secrets.get_metadata_opt(&name).await {
                Ok(None) => self.print(&format!("{subject} not found"))?,
                Ok(Some(found)) if found.labels().get(label).is_none_or(|found| found != value) => self
                    .print(&format!(
                        "kept {subject}: it has no label {label}={value}, so it was not created by Lucid"
                    ))?,
                Ok(Some(_)) => self.delete(&secrets, &name, &subject).await?,
                Err(error) => self.failed(&subject, &error)?,
            }
        }
        Ok(())
    }

    pub(super) async fn remove_generations(&mut self) -> Result<()> {
        let namespace = &self.args.cluster.namespace;
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), namespace);
        let subject = format!("ConfigMap {namespace}/{GENERATIONS_CONFIG_MAP}");
        self.delete(&maps, GENERATIONS_CONFIG_MAP, &subject).await
    }

    /// Removes the events of a program or of the keeper in all namespaces.
    pub(super) async fn remove_events(&mut self, name: &str) -> Result<()> {
        let events: Api<Event> = Api::all(self.client.clone());
        let mut page = ListParams::default().fields(&format!("reportingComponent={name}")).limit(500);
        let mut removed = 0;
        let failed = loop {
            let found = match events.list_metadata(&page).await {
                Ok(found) => found,
                Err(error) => break Some(error),
            };
            let mut failed = None;
            for event in &found.items {
                match self.remove_event(event).await {
                    Err(kube::Error::Api(status)) if status.is_not_found() => {}
                    Err(error) => failed = Some(error),
                    Ok(()) => removed += 1,
                }
            }
            page.continue_token = found.metadata.continue_.filter(|token| !token.is_empty());
            if failed.is_some() || page.continue_token.is_none() {
                break failed;
            }
        };
        if removed > 0 {
            let done = if self.args.dry_run { "would delete" } else { "deleted" };
            self.print(&format!("{done} {removed} event{} of {name}", if removed == 1 { "" } else { "s" }))?;
        }
        failed.map_or(Ok(()), |error| self.failed(&format!("events of {name}"), &error))
    }

    async fn remove_event(&self, event: &PartialObjectMeta<Event>) -> kube::Result<()> {
        if self.args.dry_run {
            return Ok(());
        }
        let namespace = event.namespace().unwrap_or_default();
        let events: Api<Event> = Api::namespaced(self.client.clone(), &namespace);
        events.delete(&event.name_any(), &DeleteParams::default()).await.map(drop)
    }

    /// Removes the Lease, events and reports of the keeper.
    pub(super) async fn remove_keeper(&mut self) -> Result<()> {
        let namespace = &self.args.cluster.namespace;
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), namespace);
        self.delete(&leases, LEASE, &format!("Lease {namespace}/{LEASE}")).await?;
        self.remove_events(LEASE).await?;
        if self.args.dry_run {
            return self.print("would delete the reports on running pods, if any");
        }
        match delete_reports(self.client.clone()).await {
            Ok(0) => Ok(()),
            Ok(count) => self.print(&format!("deleted {count} reports on running pods")),
            Err(error) => self.failed("the reports on running pods, if any", &error),
        }
    }

    /// Removes the pod of the last `helm test`, which Helm keeps for its log.
    pub(super) async fn remove_check(&mut self) -> Result<()> {
        let namespace = &self.args.cluster.namespace;
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let labelled = ListParams::default().labels(&format!("{NAME_LABEL}=lucid-check"));
        match pods.list_metadata(&labelled).await {
            Ok(found) => {
                for pod in found.items.iter().map(ResourceExt::name_any) {
                    self.delete(&pods, &pod, &format!("Pod {namespace}/{pod}")).await?;
                }
                Ok(())
            }
            Err(error) => self.failed("the pod of helm test, if there is one", &error),
        }
    }

    pub(super) async fn remove_definition(&mut self) -> Result<()> {
        let subject = format!("CustomResourceDefinition {CRD_NAME}");
        let definitions = registrations::definitions(&self.client);
        match definitions.get_opt(CRD_NAME).await {
            Ok(None) => self.print(&format!("{subject} not found")),
            Ok(Some(_)) => self.delete(&definitions, CRD_NAME, &format!("{subject} and all Auditors")).await,
            Err(error) => self.failed(&subject, &error),
        }
    }

    /// Removes the volumes of a StatefulSet on request only: they contain decision logs.
    pub(super) async fn remove_claims(&mut self, program: Program) -> Result<()> {
        let (namespace, name) = (&self.args.cluster.namespace, program.name);
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), namespace);
        let labelled = ListParams::default().labels(&format!("{NAME_LABEL}={name}"));
        let found = match claims.list_metadata(&labelled).await {
            Ok(found) => found.items,
            Err(error) => {
                let is_complete = self.is_complete && !self.args.decision_logs;
                self.failed(&format!("PersistentVolumeClaims of {name}, if any"), &error)?;
                self.is_complete = is_complete;
                return Ok(());
            }
        };
        for claim in found.iter().map(ResourceExt::name_any).filter(|claim| is_of_replica(claim, name)) {
            let subject = format!("PersistentVolumeClaim {namespace}/{claim}");
            if self.args.decision_logs {
                self.delete(&claims, &claim, &subject).await?;
            } else {
                self.print(&format!("kept {subject}: it holds a decision log; --decision-logs deletes it"))?;
            }
        }
        Ok(())
    }

    async fn delete<K>(&mut self, api: &Api<K>, name: &str, subject: &str) -> Result<()>
    where
        K: Clone + Debug + DeserializeOwned,
    {
        if self.args.dry_run {
            return self.print(&format!("would delete {subject}"));
        }
        match api.delete(name, &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => {
                self.print(&format!("{subject} not found"))
            }
            Err(error) => self.failed(subject, &error),
            Ok(_) => self.print(&format!("deleted {subject}")),
        }
    }

    fn failed(&mut self, subject: &str, error: &kube::Error) -> Result<()> {
        self.is_complete = false;
        self.print(&format!("failed to delete {subject}: {}", lucid_shared::with_causes(error)))
    }
}

/// Returns `true` for the name of a replica's claim, such as `TEMPLATE-NAME-0`.
fn is_of_replica(claim: &str, name: &str) -> bool {
    claim.rsplit_once('-').is_some_and(|(volume, ordinal)| {
        !ordinal.is_empty()
            && ordinal.bytes().all(|it| it.is_ascii_digit())
            && volume.ends_with(&format!("-{name}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_of_replicas_are_recognized_by_name() {
        for (claim, is_one) in [
            ("decisions-lucid-validator-0", true),
            ("decisions-lucid-validator-12", true),
            ("decisions-lucid-validator", false),
            ("lucid-validator-0", false),
            ("decisions-lucid-validator-", false),
            ("decisions-lucid-validator-old", false),
        ] {
            assert_eq!(is_of_replica(claim, "lucid-validator"), is_one, "{claim}");
        }
    }
}
