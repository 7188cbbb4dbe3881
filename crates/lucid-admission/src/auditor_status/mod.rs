//! Writes the status of Auditors: acceptance into the catalogue and notarization of their images.
//!
//! Every replica writes; there is no leader. The status follows from the object and the Verifier's response, and each
//! write carries the `resourceVersion` that was read. One of two concurrent writes therefore fails with a conflict.
//! Three rules keep replicas with different responses from overwriting each other in turns:
//!
//! - A replica queries the Verifier again before it changes a status that contradicts its cached response.
//! - A missing response does not overwrite a known one for [`HOLD`].
//! - A replica writes each generation of an object at most once per [`WRITE_PACE`].

mod status;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::convert::Infallible;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::{Api, Client};
use lucid_notary::client::Notary;
use lucid_notary::{CheckedVerdict, ImageReference, NotaryVerdict};
use lucid_text::with_causes;
use serde_json::json;
use tokio::time::Instant;

use crate::cluster::{AuditorObject, AuditorStatus, ClusterConfiguration, auditor};
use status::Notarization;

/// Age at which a response is requested again.
const RECHECK: Duration = Duration::from_mins(5);
/// Retry interval while the Verifier does not respond.
const RETRY: Duration = Duration::from_secs(30);
/// Time for which a known status is kept while the Verifier does not respond.
const HOLD: Duration = Duration::from_mins(5);
/// Maximum age of a response that may overwrite a contradicting status.
const FRESH: Duration = Duration::from_secs(1);
/// Minimum interval between two writes to the same generation of an object.
const WRITE_PACE: Duration = Duration::from_secs(10);
/// Debounce interval of changes.
const COLLECTED: Duration = Duration::from_millis(100);
/// Maximum number of images in one request to the Verifier, and its timeout.
const BATCH: usize = 64;
const BATCH_PATIENCE: Duration = Duration::from_secs(10);
const FIELD_MANAGER: &str = "lucid-operator";

struct AuditorStatuses {
    cluster: ClusterConfiguration,
    notary: Option<Notary>,
}

struct Answer {
    checked: CheckedVerdict,
    asked: Instant,
    /// Time of the first request without a response.
    unanswered_since: Option<Instant>,
}

impl Answer {
    fn is_due(&self) -> bool {
        let pace =
            if matches!(self.checked.verdict, NotaryVerdict::Unknown { .. }) { RETRY } else { RECHECK };
        self.asked.elapsed() >= pace
    }
}

impl ClusterConfiguration {
    /// Starts a task that writes the status of the Auditors whenever one of them or a verdict of `notary` changes.
    /// Without it, notarization is unknown.
    pub fn report_auditor_status(&self, client: Client, notary: Option<Notary>) {
        let statuses = AuditorStatuses { cluster: self.clone(), notary };
        tokio::spawn(async move { match statuses.keep(client).await {} });
    }
}

impl AuditorStatuses {
    /// Writes the status whenever an object or a response changes. Never returns.
    async fn keep(self, client: Client) -> Infallible {
        let api = Api::<DynamicObject>::all_with(client, &auditor::resource());
        let mut changes = self.cluster.auditors();
        let mut answers: HashMap<ImageReference, Answer> = HashMap::new();
        let mut written: HashMap<String, (i64, Instant)> = HashMap::new();
        loop {
            let objects = changes.borrow_and_update().clone();
            self.ask(&objects, &mut answers).await;
            written.retain(|_, (_, at)| at.elapsed() < WRITE_PACE);
            let mut is_behind = false;
            for object in &objects {
                let Some(status) = self.status(object, &answers) else { continue };
                if written.get(&object.name).is_some_and(|(generation, _)| *generation == object.generation) {
                    is_behind = true;
                    continue;
                }
                if write(&api, object, &status).await {
                    written.insert(object.name.clone(), (object.generation, Instant::now()));
                } else {
                    is_behind = true;
                }
            }
            // The sender lives as long as the configuration.
            let pace = if is_behind { WRITE_PACE } else { RETRY };
            tokio::time::timeout(pace, changes.changed()).await.ok();
            tokio::time::sleep(COLLECTED).await;
        }
    }

    /// Queries the Verifier for images whose response is missing, outdated or contradicts the status found.
    async fn ask(&self, objects: &[AuditorObject], answers: &mut HashMap<ImageReference, Answer>) {
        let Some(notary) = &self.notary else { return };
        let mut used = HashSet::new();
        let mut due = BTreeSet::new();
        for object in objects {
            let Ok((image, digest)) = status::image(&object.image) else { continue };
            let is_due = answers.get(&image).is_none_or(|answer| {
                let said = status::notarization(&digest, Some(&answer.checked));
                let is_current = object.status.observed_generation == object.generation;
                let contradicts = said.is_known() && is_current && object.status.notarized != said.status;
                answer.is_due() || contradicts && answer.asked.elapsed() >= FRESH
            });
            if is_due {
                due.insert(image.clone());
            }
            used.insert(image);
        }
        answers.retain(|image, _| used.contains(image));
        let due: Vec<_> = due.into_iter().collect();
        for batch in due.chunks(BATCH) {
            let deadline = std::time::Instant::now() + BATCH_PATIENCE;
            // Bypasses the cache: the status records the Verifier's current response.
            for (image, checked) in notary.recheck_all(batch.iter().cloned(), deadline).await {
                let asked = Instant::now();
                let unanswered_since = matches!(checked.verdict, NotaryVerdict::Unknown { .. })
                    .then(|| answers.get(&image).and_then(|before| before.unanswered_since).unwrap_or(asked));
                answers.insert(image, Answer { checked, asked, unanswered_since });
            }
        }
    }

    /// Returns the status to write, or `None` if it is up to date.
    fn status(
        &self,
        object: &AuditorObject,
        answers: &HashMap<ImageReference, Answer>,
    ) -> Option<AuditorStatus> {
        let notarization = match status::image(&object.image) {
            Err(without) => without,
            Ok((image, digest)) => {
                let answer = answers.get(&image);
                let said = status::notarization(&digest, answer.map(|answer| &answer.checked));
                let unanswered_since = answer.and_then(|answer| answer.unanswered_since);
                let is_held = unanswered_since.is_some_and(|since| since.elapsed() < HOLD);
                let held = Notarization::found(object).filter(|_| is_held && !said.is_known());
                held.unwrap_or(said)
            }
        };
        status::status(object, &notarization, Timestamp::now())
    }
}

/// Returns `true` if the status was written. After a conflict the watch delivers the object again.
async fn write(api: &Api<DynamicObject>, object: &AuditorObject, status: &AuditorStatus) -> bool {
    let patch = json!({ "metadata": { "resourceVersion": object.resource_version }, "status": status });
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    match api.patch_status(&object.name, &params, &Patch::Merge(patch)).await {
        Ok(_) => true,
        Err(kube::Error::Api(answer)) if matches!(answer.code, 404 | 409) => false,
        Err(error) => {
            let error = with_causes(&error);
            tracing::warn!(auditor = object.name, error, "failed to write the status of an Auditor");
            false
        }
    }
}
