//! Detection of conflicting injectors.

use std::{
    collections::BTreeSet,
    time::{Duration, SystemTime},
};

use k8s_openapi::api::{apps::v1::Deployment, coordination::v1::Lease};
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, ObjectList},
};
use tokio::time::{sleep, timeout};
use tracing::warn;

use super::problem::Problem;
use crate::{error::Error, last_problem::LastProblem};

/// Leader election Leases of cert-manager's cainjector; the second until 1.11.
const LEASES: [&str; 2] =
    ["cert-manager-cainjector-leader-election", "cert-manager-cainjector-leader-election-core"];
/// Labels of cert-manager's cainjector in its charts and manifests; the second is older.
const LABELS: [&str; 2] = ["app.kubernetes.io/component=cainjector", "app=cainjector"];
/// Default namespaces of cert-manager and its Leases. Others are ignored, because any user who may write
/// Leases or Deployments there could stop the injection.
pub(super) const CERT_MANAGER: [&str; 2] = ["kube-system", "cert-manager"];
/// Namespaces of OpenShift's service CA, reserved by OpenShift.
const SERVICE_CA: [&str; 2] = ["openshift-service-ca", "openshift-service-ca-operator"];
const SERVICE_CA_LABEL: &str = "app=service-ca";
/// Minimum age at which a Lease is stale. Tolerates clocks that differ by a minute.
const SHORTEST_GRACE: Duration = Duration::from_secs(120);
/// Maximum clock offset of a holder. Without it, a renewal time in the far future would never become stale.
const AHEAD: Duration = Duration::from_secs(300);
pub(super) const CHECK: Duration = Duration::from_secs(10);
const RETRY: Duration = Duration::from_secs(2);
const TIMEOUT: Duration = Duration::from_secs(30);

pub(super) fn list(injectors: &BTreeSet<String>) -> String {
    injectors.iter().map(String::as_str).collect::<Vec<_>>().join("; ")
}

pub(super) struct ConflictDetector {
    client: Client,
    cert_manager: BTreeSet<String>,
    service_ca: bool,
    last_problem: LastProblem,
}

impl ConflictDetector {
    pub(super) fn new(client: Client, cert_manager: BTreeSet<String>, service_ca: bool) -> Self {
        Self { client, cert_manager, service_ca, last_problem: LastProblem::default() }
    }

    pub(super) async fn wait_for_none(&mut self) -> Result<(), Error> {
        loop {
            let problem = match self.detect().await {
                Ok(injectors) if injectors.is_empty() => return Ok(()),
                Ok(injectors) => format!("failed to start injecting CAs beside {}", list(&injectors)),
                Err(problem) if problem.is_actionable => {
                    format!("failed to detect conflicting injectors: {problem}")
                }
                Err(_) => {
                    sleep(RETRY).await;
                    continue;
                }
            };
            return Err(Error::new(problem));
        }
    }

    /// Returns the conflicting injectors with evidence that they are running, such as `a running cainjector of
    /// cert-manager: Deployment cert-manager/cert-manager-cainjector (1 ready)`.
    pub(super) async fn detect(&mut self) -> Result<BTreeSet<String>, Problem> {
        let injectors = timeout(TIMEOUT, find(&self.client, &self.cert_manager, self.service_ca)).await;
        let injectors = injectors.unwrap_or_else(|_| Err(Problem::timed_out(TIMEOUT)));
        match &injectors {
            Err(problem) if self.last_problem.is_new(&problem.to_string()) => {
                warn!(%problem, "failed to detect conflicting injectors");
            }
            Err(_) => {}
            Ok(_) => drop(self.last_problem.resolve()),
        }
        injectors
    }
}

async fn find(
    client: &Client,
    cert_manager: &BTreeSet<String>,
    service_ca: bool,
) -> Result<BTreeSet<String>, Problem> {
    let by_cert_manager = |evidence| format!("a running cainjector of cert-manager: {evidence}");
    let by_openshift = |evidence| format!("a running service CA of OpenShift: {evidence}");
    let mut injectors = BTreeSet::new();
    for namespace in cert_manager {
        let leases: Api<Lease> = Api::namespaced(client.clone(), namespace);
        for name in LEASES {
            let found = leases.get_opt(name).await;
            let found = found
                .map_err(|error| Problem::api("get", format_args!("Lease {namespace}/{name}"), &error))?;
            let evidence = found.and_then(|lease| evidence_of_lease(&lease, SystemTime::now()));
            injectors.extend(evidence.map(by_cert_manager));
        }
        for label in LABELS {
            let found = labelled(client, namespace, label).await?;
            injectors.extend(found.iter().filter_map(evidence_of_deployment).map(by_cert_manager));
        }
    }
    for namespace in SERVICE_CA.into_iter().filter(|_| service_ca) {
        let found = labelled(client, namespace, SERVICE_CA_LABEL).await?;
        injectors.extend(found.iter().filter_map(evidence_of_deployment).map(by_openshift));
    }
    Ok(injectors)
}

async fn labelled(client: &Client, namespace: &str, label: &str) -> Result<ObjectList<Deployment>, Problem> {
    let api: Api<Deployment> = Api::namespaced(client.clone(), namespace);
    api.list(&ListParams::default().labels(label)).await.map_err(|error| {
        Problem::api("list", format_args!("Deployments of namespace {namespace} with {label}"), &error)
    })
}

fn evidence_of_lease(lease: &Lease, now: SystemTime) -> Option<String> {
    let spec = lease.spec.as_ref()?;
    let holder = spec.holder_identity.as_deref().filter(|holder| !holder.is_empty())?;
    let lasts = u64::try_from(spec.lease_duration_seconds.unwrap_or_default()).unwrap_or_default();
    let grace = SHORTEST_GRACE.max(Duration::from_secs(lasts) * 2);
    let renewed: SystemTime = spec.renew_time.as_ref()?.0.into();
    let is_running = match now.duration_since(renewed) {
        Ok(age) => age <= grace,
        Err(ahead) => ahead.duration() <= AHEAD,
    };
    let (namespace, name) = (lease.namespace().unwrap_or_default(), lease.name_any());
    is_running.then(|| format!("Lease {namespace}/{name} (held by {holder})"))
}

fn evidence_of_deployment(deployment: &Deployment) -> Option<String> {
    let ready = deployment.status.as_ref()?.ready_replicas.filter(|ready| *ready > 0)?;
    let (namespace, name) = (deployment.namespace().unwrap_or_default(), deployment.name_any());
    Some(format!("Deployment {namespace}/{name} ({ready} ready)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(holder: &str, renewed: &str) -> Lease {
        serde_json::from_value(serde_json::json!({
            "metadata": { "namespace": "kube-system", "name": LEASES[0] },
            "spec": { "holderIdentity": holder, "leaseDurationSeconds": 90, "renewTime": renewed },
        }))
        .unwrap()
    }

    #[test]
    fn a_held_lease_counts_for_twice_its_duration() {
        let now = "2026-03-01T12:00:00Z".parse::<jiff::Timestamp>().unwrap().into();
        let held = "Lease kube-system/cert-manager-cainjector-leader-election (held by pod)";
        for (holder, renewed, is_held, what) in [
            ("pod", "2026-03-01T11:57:00.000000Z", true, "twice its duration ago"),
            ("pod", "2026-03-01T11:56:59.000000Z", false, "before that"),
            ("pod", "2026-03-01T12:05:00.000000Z", true, "its clock is ahead"),
            ("pod", "2026-03-01T12:05:01.000000Z", false, "no clock is that much ahead"),
            ("pod", "2999-01-01T00:00:00.000000Z", false, "no clock is that much ahead"),
            ("", "2026-03-01T12:00:00.000000Z", false, "it was given back"),
        ] {
            let found = evidence_of_lease(&lease(holder, renewed), now);
            assert_eq!(found.as_deref(), is_held.then_some(held), "{what}");
        }
        assert_eq!(evidence_of_lease(&Lease::default(), now), None);
    }
}
