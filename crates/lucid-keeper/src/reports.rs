//! Findings as OpenReports: one object per namespace.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use jiff::Timestamp;
use kube::api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::time::Instant;
use tracing::info;

use crate::fleet::RunningPod;
use crate::state::State;
use crate::workload::Workload;

/// Name of the report of a namespace, and source of its results.
pub const NAME: &str = "lucid";
/// Field manager, and value of the label.
const MANAGER: &str = "lucid-keeper";
const LABEL: &str = "app.kubernetes.io/managed-by";
/// Maximum number of results of a report. etcd accepts 1.5 MiB, and a character of a message has up to six bytes in JSON.
const MAX_RESULTS: usize = 300;
/// Maximum number of characters of a message.
const MAX_MESSAGE: usize = 512;
/// Interval of [`Reports::refresh`].
const REFRESH: Duration = Duration::from_mins(5);
/// The same after an error.
const RETRY: Duration = Duration::from_secs(30);

/// State of a pod that is not audited.
#[derive(Clone, Debug, Hash)]
pub(crate) struct Finding {
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) workload: Option<Workload>,
    pub(crate) state: State,
    pub(crate) reason: String,
}

/// Deletes the reports of all namespaces, and returns their number.
///
/// # Errors
///
/// Returns an error if the reports cannot be listed or deleted.
pub async fn delete_reports(client: Client) -> kube::Result<usize> {
    let mut reports = Reports::new(client);
    reports.refresh().await?;
    let count = reports.written.len();
    reports.retain(|_| false).await.map(|()| count)
}

impl Finding {
    pub(crate) fn of(pod: &RunningPod) -> Self {
        Self {
            name: pod.name.clone(),
            uid: pod.uid.clone(),
            workload: pod.workload.as_deref().cloned(),
            state: pod.state,
            reason: pod.reason().to_owned(),
        }
    }
}

/// Writes reports of the kind that the API server serves, if any.
pub(crate) struct Reports {
    client: Client,
    kind: Option<ApiResource>,
    refresh_at: Instant,
    /// By namespace.
    written: HashMap<String, Written>,
    /// Has a random key: authors of pods cannot choose findings with the hash of other findings.
    hasher: RandomState,
}

#[derive(Default)]
struct Written {
    /// `None` if another client changed the object.
    content: Option<u64>,
    resource_version: Option<String>,
    /// Seconds at which each finding was first reported.
    since: HashMap<u64, i64>,
}

impl Reports {
    pub(crate) fn new(client: Client) -> Self {
        let (written, hasher) = (HashMap::new(), RandomState::new());
        Self { client, kind: None, refresh_at: Instant::now(), written, hasher }
    }

    /// Writes the report of a namespace if it has changed; without any pods, deletes it.
    pub(crate) async fn write(
        &mut self,
        namespace: &str,
        findings: &[Finding],
        audited: u64,
    ) -> kube::Result<()> {
        self.refresh().await?;
        let Some(kind) = &self.kind else { return Ok(()) };
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), namespace, kind);
        if findings.is_empty() && audited == 0 {
            if self.written.contains_key(namespace) {
                delete(&api).await?;
                self.written.remove(namespace);
            }
            return Ok(());
        }
        let findings = sorted(findings);
        let content = Some(self.hasher.hash_one((&findings, audited)));
        let former = self.written.get(namespace);
        if former.is_some_and(|former| former.content == content) {
            return Ok(());
        }
        let now = Timestamp::now().as_second();
        let mut since = HashMap::new();
        let report = report(kind, namespace, &findings, audited, now, |finding| {
            let hash = self.hasher.hash_one(finding);
            *since.entry(hash).or_insert_with(|| *former.and_then(|it| it.since.get(&hash)).unwrap_or(&now))
        });
        let params = PatchParams::apply(MANAGER).force();
        match api.patch_metadata(NAME, &params, &Patch::Apply(&report)).await {
            Ok(stored) => {
                let resource_version = stored.metadata.resource_version;
                self.written.insert(namespace.to_owned(), Written { content, resource_version, since });
            }
            // The namespace or the definition of the kind was deleted.
            Err(kube::Error::Api(status)) if status.code == 404 => self.refresh_at = Instant::now(),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Deletes the reports of other namespaces, including those of a former leader.
    pub(crate) async fn retain(&mut self, is_reported: impl Fn(&str) -> bool) -> kube::Result<()> {
        self.refresh().await?;
        let others: Vec<_> = self.written.keys().filter(|name| !is_reported(name)).cloned().collect();
        let mut deleted = Ok(());
        for namespace in others {
            deleted = deleted.and(self.write(&namespace, &[], 0).await);
        }
        deleted
    }

    /// From time to time, looks for the served kind, and for reports that other clients changed or deleted.
    async fn refresh(&mut self) -> kube::Result<()> {
        if Instant::now() < self.refresh_at {
            return Ok(());
        }
        self.refresh_at = Instant::now() + RETRY;
        let (mut current, mut stored) = (None, HashMap::new());
        let ours = ListParams::default().labels(&format!("{LABEL}={MANAGER}"));
        let ours = ours.fields(&format!("metadata.name={NAME}"));
        for kind in kinds() {
            let all: Api<DynamicObject> = Api::all_with(self.client.clone(), &kind);
            let reports = match all.list_metadata(&ours).await {
                Err(kube::Error::Api(status)) if status.code == 404 => continue,
                reports => reports?,
            };
            for report in reports {
                let namespace = report.metadata.namespace.unwrap_or_default();
                if current.is_some() {
                    delete(&Api::namespaced_with(self.client.clone(), &namespace, &kind)).await?;
                } else {
                    stored.insert(namespace, report.metadata.resource_version);
                }
            }
            current.get_or_insert(kind);
        }
        if self.kind != current {
            info!(kind = current.as_ref().map(|kind| &kind.api_version), "the kind of reports has changed");
            self.kind = current;
        }
        self.written.retain(|namespace, _| stored.contains_key(namespace));
        for (namespace, resource_version) in stored {
            let written = self.written.entry(namespace).or_default();
            written.content = written.content.filter(|_| written.resource_version == resource_version);
        }
        self.refresh_at = Instant::now() + REFRESH;
        Ok(())
    }
}

async fn delete(api: &Api<DynamicObject>) -> kube::Result<()> {
    match api.delete(NAME, &DeleteParams::default()).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        deleted => deleted.map(|_| ()),
    }
}

/// Kinds of reports, the preferred one first. The second is the former name of the first.
fn kinds() -> [ApiResource; 2] {
    let of = |group, version, kind, plural| {
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
    };
    [
        of("openreports.io", "v1alpha1", "Report", "reports"),
        of("wgpolicyk8s.io", "v1alpha2", "PolicyReport", "policyreports"),
    ]
}

/// Rank, result and severity.
const fn outcome(state: State) -> (u8, &'static str, &'static str) {
    match state {
        State::Missing | State::Altered | State::Revoked => (0, "fail", "high"),
        State::Unknown => (1, "error", "medium"),
        State::Stale | State::AssumedPort | State::NotReady | State::Ignored => (2, "warn", "medium"),
        State::Skipped => (3, "skip", "low"),
        State::Audited => (4, "pass", "low"),
    }
}

fn sorted(findings: &[Finding]) -> Vec<&Finding> {
    let mut sorted: Vec<_> = findings.iter().collect();
    sorted.sort_unstable_by_key(|&finding| (outcome(finding.state), &finding.name));
    sorted
}

/// Returns the report of sorted findings as of `now`. `since` returns when a finding was first reported.
fn report(
    kind: &ApiResource,
    namespace: &str,
    findings: &[&Finding],
    audited: u64,
    now: i64,
    mut since: impl FnMut(&Finding) -> i64,
) -> Value {
    let mut summary =
        BTreeMap::from([("fail", 0), ("error", 0), ("warn", 0), ("skip", 0), ("pass", audited)]);
    for finding in findings {
        *summary.entry(outcome(finding.state).1).or_default() += 1;
    }
    let listed = if findings.len() > MAX_RESULTS { MAX_RESULTS - 1 } else { findings.len() };
    let (listed, others) = findings.split_at(listed);
    let mut results = Vec::new();
    for &finding in listed {
        let Finding { name, uid, workload, state, reason } = finding;
        let message = if reason.is_empty() { "the pod requests a chain and has none" } else { reason };
        let mut result = result(*state, state.as_str(), message, since(finding));
        let pod =
            json!({ "apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": name, "uid": uid });
        result["resources"] = json!([pod]);
        result["properties"] =
            workload.iter().map(|it| ("workload".to_owned(), json!(it.to_string()))).collect();
        results.push(result);
    }
    if let Some(first) = others.first() {
        let message = format!("{} more pods are only counted in the summary", others.len());
        results.push(result(first.state, "Unlisted", &message, now));
    }
    json!({
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": { "name": NAME, "namespace": namespace, "labels": { LABEL: MANAGER } },
        "scope": { "apiVersion": "v1", "kind": "Namespace", "name": namespace },
        "summary": summary,
        "results": results,
    })
}

fn result(state: State, rule: &str, message: &str, seconds: i64) -> Value {
    let (_, result, severity) = outcome(state);
    json!({
        "source": NAME,
        "policy": "auditor-chain",
        "rule": rule,
        "result": result,
        "severity": severity,
        "message": lucid_text::truncate(message, MAX_MESSAGE),
        "timestamp": { "seconds": seconds, "nanos": 0 },
    })
}

#[cfg(test)]
mod tests;
