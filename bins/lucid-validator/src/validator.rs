//! The `/validate` webhook: no auditor runs that is not notarized.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use lucid_audit::{ImageVerdict, Recorder};
use lucid_cluster::{ClusterConfiguration, NotSynced};
use lucid_notary::client::Verifier;
use lucid_notary::{Checked, Digest, Provenance, Verdict};
use lucid_policy::{AuditorContainer, Strictness, auditor_containers, changed_since, judge};
use lucid_webhook::{AdmissionRequest, AdmissionResponse};
use snafu::Snafu;
use tokio::time::Instant;

use crate::record::{decision, record};
use crate::request::{RequestError, pod_of};
use crate::scope::Scope;

/// Why a request could not be judged.
#[derive(Debug, Snafu)]
#[non_exhaustive]
pub enum ValidateError {
    /// It is not about a pod that can be read.
    #[snafu(transparent)]
    Request {
        /// What it is about.
        source: RequestError,
    },
    /// The catalogue is not known yet.
    #[snafu(transparent)]
    NotSynced {
        /// What is missing.
        source: NotSynced,
    },
}

/// Judges pods. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Validator {
    /// Which namespaces are looked at.
    pub scope: Scope,
    /// The catalogues: whose images, under whose names, are auditors.
    pub cluster: ClusterConfiguration,
    /// What becomes of an image that is not known to be notarized.
    pub strictness: Strictness,
    /// Who knows; without it nothing can be verified.
    pub verifier: Option<Verifier>,
    /// Where decisions are kept.
    pub recorder: Arc<Recorder>,
}

impl Validator {
    /// Judges one request.
    ///
    /// # Errors
    ///
    /// When it cannot be judged; a pod that is refused is an answer, not an error.
    pub async fn validate(self, request: AdmissionRequest) -> Result<AdmissionResponse, ValidateError> {
        let namespace = request.namespace.as_deref().unwrap_or_default();
        // On DELETE there is no object: what goes away needs no notarization.
        let Some(object) = request.object.as_ref().filter(|_| self.scope.covers(namespace)) else {
            return Ok(AdmissionResponse::allow());
        };
        let pod = pod_of(&request, object)?;
        let old = request.old_object.as_ref().map(|old| pod_of(&request, old)).transpose()?;

        let catalogues = self.cluster.catalogues(namespace)?;
        let mut auditors = auditor_containers(&pod, &catalogues);
        if let Some(old) = &old {
            auditors = changed_since(auditors, old);
        }
        if auditors.is_empty() {
            return Ok(AdmissionResponse::allow());
        }
        let verdicts = verdicts(self.verifier.as_ref(), &auditors, request.deadline).await;
        let judgement = judge(&auditors, &plain(&verdicts), self.strictness);
        let response = match judgement.denial() {
            Some(reason) => AdmissionResponse::deny(403, "Forbidden", reason),
            None => AdmissionResponse::allow().with_warnings(judgement.warnings()),
        };
        let mut decision = decision("validate", &request, &response);
        let judged = auditors.iter().take(MOST_IMAGES).map(|auditor| image_verdict(auditor, &verdicts));
        decision.images = judged.collect();
        Ok(record(&self.recorder, decision, response, request.deadline).await)
    }
}

/// How many images of a pod are recorded. A pod's author chooses how many there are, and a thousand decisions are kept in
/// memory.
const MOST_IMAGES: usize = 64;

/// How much of an image reference is recorded; the API server takes longer ones than any registry does.
const LONGEST_IMAGE: usize = 512;

/// What is known about the digests of `auditors`, asked until shortly before `deadline`.
pub(crate) async fn verdicts(
    verifier: Option<&Verifier>,
    auditors: &[AuditorContainer<'_>],
    deadline: Instant,
) -> BTreeMap<Digest, Checked> {
    let digests: BTreeSet<Digest> = auditors.iter().filter_map(|auditor| auditor.digest().cloned()).collect();
    match verifier {
        Some(verifier) => {
            let left = deadline.saturating_duration_since(Instant::now());
            let give_up = deadline.checked_sub(VERIFIER_MARGIN.min(left / 4)).unwrap_or(deadline);
            verifier.check_all(digests, give_up.into_std()).await
        }
        None => {
            let reason = "no Verifier is configured (LUCID_VERIFIER_URL)".to_owned();
            let unknown = Checked::new(Verdict::Unknown { reason }, Provenance::Asked);
            digests.into_iter().map(|digest| (digest, unknown.clone())).collect()
        }
    }
}

/// The verdicts without where they come from.
pub(crate) fn plain(checked: &BTreeMap<Digest, Checked>) -> BTreeMap<Digest, Verdict> {
    checked.iter().map(|(digest, checked)| (digest.clone(), checked.verdict.clone())).collect()
}

/// The Verifier is given up this long before the answer has to leave, or earlier when there is little time, so that the
/// answer can say so.
const VERIFIER_MARGIN: Duration = Duration::from_millis(500);

/// What the record says of one image.
pub(crate) fn image_verdict(
    auditor: &AuditorContainer<'_>,
    verdicts: &BTreeMap<Digest, Checked>,
) -> ImageVerdict {
    let verdict = match (&auditor.reference, auditor.digest()) {
        (Err(error), _) => error.to_string(),
        (Ok(_), None) => "missing digest".to_owned(),
        (Ok(_), Some(digest)) => {
            verdicts.get(digest).map_or_else(|| "not asked".to_owned(), Checked::to_string)
        }
    };
    let cut = |text: &str| text.chars().take(LONGEST_IMAGE).collect::<String>();
    ImageVerdict { container: cut(auditor.name), image: cut(auditor.image), verdict: cut(&verdict) }
}
