//! Writes the status of Auditors: whether the catalogue holds them, and whether their images are notarized.
//!
//! Every replica does, and none leads: what is written follows from the object and the Verifier's answer, and goes with the
//! version of the object that was read, so that of two who write the same one is refused and sees that it is done. Replicas
//! that get different answers do not fight: who finds something else than it knows asks again before it writes; an answer
//! is not overwritten by none for as long as [`HOLD`]; and nobody writes an object more often than each [`WRITE_PACE`].

mod status;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::convert::Infallible;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::{Api, Client};
use lucid_cluster::{AuditorObject, ClusterConfiguration, auditor};
use lucid_notary::client::Verifier;
use lucid_notary::{Checked, Digest, Verdict};
use serde_json::json;
use tokio::time::Instant;

use status::{AuditorStatus, Notarization};

/// After this an answer is asked for again.
const RECHECK: Duration = Duration::from_mins(5);
/// After this the Verifier is asked again when it has not answered.
const RETRY: Duration = Duration::from_secs(30);
/// For so long a status stays that says the image is notarized, or is not, although the Verifier does not answer any more.
const HOLD: Duration = Duration::from_mins(5);
/// An answer that contradicts what is found is asked for again when it is older than this.
const FRESH: Duration = Duration::from_secs(1);
/// The least between two writes to one object of the same generation.
const WRITE_PACE: Duration = Duration::from_secs(10);
/// How long changes are collected.
const COLLECTED: Duration = Duration::from_millis(100);
/// How many images are asked for at a time, and how long that may take.
const BATCH: usize = 64;
const BATCH_PATIENCE: Duration = Duration::from_secs(10);
/// Who owns the status.
const FIELD_MANAGER: &str = "lucid-operator";

/// Keeps the status of Auditors.
pub(crate) struct Statuses {
    pub(crate) cluster: ClusterConfiguration,
    pub(crate) client: Client,
    /// Who knows which images are notarized; without it nobody does.
    pub(crate) verifier: Option<Verifier>,
}

/// What was said of a digest.
struct Answer {
    checked: Checked,
    asked: Instant,
    /// Since when there has been no answer.
    unanswered_since: Option<Instant>,
}

impl Answer {
    fn is_due(&self) -> bool {
        let pace = if matches!(self.checked.verdict, Verdict::Unknown { .. }) { RETRY } else { RECHECK };
        self.asked.elapsed() >= pace
    }
}

impl Statuses {
    /// Writes whenever an object or an answer is another, for as long as it is polled.
    pub(crate) async fn keep(self) -> Infallible {
        let api = Api::<DynamicObject>::all_with(self.client.clone(), &auditor::resource());
        let mut changes = self.cluster.auditor_changes();
        let mut answers: HashMap<Digest, Answer> = HashMap::new();
        let mut written: HashMap<String, (i64, Instant)> = HashMap::new();
        loop {
            changes.borrow_and_update();
            let objects = self.cluster.auditors();
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

    /// Asks for what is not known, not known any more, or contradicts what is found.
    async fn ask(&self, objects: &[AuditorObject], answers: &mut HashMap<Digest, Answer>) {
        let Some(verifier) = &self.verifier else { return };
        let mut used = HashSet::new();
        let mut due = BTreeSet::new();
        for object in objects {
            let Ok(digest) = status::digest(&object.image) else { continue };
            let is_due = answers.get(&digest).is_none_or(|answer| {
                let said = status::notarization(&digest, Some(&answer.checked));
                let found = AuditorStatus::found(object);
                let contradicts =
                    found.is_some_and(|found| said.is_known() && found.notarized != said.status);
                answer.is_due() || contradicts && answer.asked.elapsed() >= FRESH
            });
            if is_due {
                due.insert(digest.clone());
            }
            used.insert(digest);
        }
        answers.retain(|digest, _| used.contains(digest));
        let due: Vec<_> = due.into_iter().collect();
        for batch in due.chunks(BATCH) {
            let deadline = std::time::Instant::now() + BATCH_PATIENCE;
            // What is written is what the Verifier says now, and not what it said to this replica before.
            for (digest, checked) in verifier.recheck_all(batch.iter().cloned(), deadline).await {
                let asked = Instant::now();
                let unanswered_since = matches!(checked.verdict, Verdict::Unknown { .. }).then(|| {
                    answers.get(&digest).and_then(|before| before.unanswered_since).unwrap_or(asked)
                });
                answers.insert(digest, Answer { checked, asked, unanswered_since });
            }
        }
    }

    /// The status to write, if there is something to write.
    fn status(&self, object: &AuditorObject, answers: &HashMap<Digest, Answer>) -> Option<AuditorStatus> {
        let notarization = match status::digest(&object.image) {
            Err(without) => without,
            Ok(digest) => {
                let answer = answers.get(&digest);
                let said = status::notarization(&digest, answer.map(|answer| &answer.checked));
                match held(object, &said, answer) {
                    Some(held) => held,
                    None => said,
                }
            }
        };
        status::status(object, &notarization, Timestamp::now())
    }
}

/// What is said already, while it may stay without an answer.
fn held(object: &AuditorObject, said: &Notarization, answer: Option<&Answer>) -> Option<Notarization> {
    let since = answer?.unanswered_since.filter(|since| !said.is_known() && since.elapsed() < HOLD);
    since.and_then(|_| Notarization::found(&AuditorStatus::found(object)?))
}

/// Whether it was written. Who was slower than another hears of the object again.
async fn write(api: &Api<DynamicObject>, object: &AuditorObject, status: &AuditorStatus) -> bool {
    let patch = json!({ "metadata": { "resourceVersion": object.resource_version }, "status": status });
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    match api.patch_status(&object.name, &params, &Patch::Merge(patch)).await {
        Ok(_) => true,
        Err(kube::Error::Api(answer)) if matches!(answer.code, 404 | 409) => false,
        Err(error) => {
            let error = lucid_process::with_causes(&error);
            tracing::warn!(auditor = object.name, error, "failed to write the status of an Auditor");
            false
        }
    }
}
