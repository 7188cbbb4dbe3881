use std::collections::BTreeMap;
use std::fmt;

use lucid_notary::{Digest, Verdict};

use crate::auditors::{AuditorContainer, Place};

/// What becomes of an auditor image that is not known to be notarized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strictness {
    /// It refuses the pod; for production.
    Strict,
    /// It gives a warning; for development.
    Lenient,
}

/// What is wrong with an auditor's image.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Problem {
    /// The image is not an image reference.
    InvalidReference {
        /// What is wrong with it, and where.
        reason: String,
    },
    /// The image is named by tag only, which may mean another image tomorrow.
    MissingDigest,
    /// The Verifier does not know the digest as notarized.
    NotNotarized,
    /// The Verifier could not be asked.
    Unverified {
        /// Why not.
        reason: String,
    },
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidReference { reason } => write!(f, "not an image reference: {reason}"),
            Self::MissingDigest => {
                f.write_str("missing digest (strict notarization accepts only image@sha256:…)")
            }
            Self::NotNotarized => f.write_str("not notarized"),
            Self::Unverified { reason } => write!(f, "could not be verified: {reason}"),
        }
    }
}

/// One auditor container with something wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// Where the container stands.
    pub place: Place,
    /// The container.
    pub container: String,
    /// Its image as the pod names it.
    pub image: String,
    /// What is wrong.
    pub problem: Problem,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The API server accepts control characters within an image.
        let (container, image) = (self.container.escape_debug(), self.image.escape_debug());
        write!(f, "auditor {} {container}, image {image}: {}", self.place, self.problem)
    }
}

/// The outcome for a whole pod.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Judgement {
    /// What was asked for.
    pub strictness: Strictness,
    /// What is wrong, in the order of the pod's containers.
    pub findings: Vec<Finding>,
}

impl Judgement {
    /// Why the pod is refused; `None` when it may run.
    #[must_use]
    pub fn denial(&self) -> Option<String> {
        let denied = self.strictness == Strictness::Strict && !self.findings.is_empty();
        denied.then(|| self.findings.iter().map(Finding::to_string).collect::<Vec<_>>().join("; "))
    }

    /// What the user is warned of when the pod may run all the same.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        match self.strictness {
            Strictness::Strict => Vec::new(),
            Strictness::Lenient => self.findings.iter().map(Finding::to_string).collect(),
        }
    }
}

/// Judges the auditors of a pod by the verdicts on their digests. A digest without a verdict counts as one that could
/// not be verified.
#[must_use]
pub fn judge(
    auditors: &[AuditorContainer<'_>],
    verdicts: &BTreeMap<Digest, Verdict>,
    strictness: Strictness,
) -> Judgement {
    let findings = auditors.iter().filter_map(|auditor| {
        let problem = problem(auditor, verdicts)?;
        let (container, image) = (auditor.name.to_owned(), auditor.image.to_owned());
        Some(Finding { place: auditor.place, container, image, problem })
    });
    Judgement { strictness, findings: findings.collect() }
}

fn problem(auditor: &AuditorContainer<'_>, verdicts: &BTreeMap<Digest, Verdict>) -> Option<Problem> {
    let reference = match &auditor.reference {
        Ok(reference) => reference,
        Err(error) => return Some(Problem::InvalidReference { reason: error.to_string() }),
    };
    let Some(digest) = reference.digest() else { return Some(Problem::MissingDigest) };
    match verdicts.get(digest) {
        Some(Verdict::Notarized) => None,
        Some(Verdict::NotNotarized) => Some(Problem::NotNotarized),
        Some(Verdict::Unknown { reason }) => Some(Problem::Unverified { reason: reason.clone() }),
        None => Some(Problem::Unverified { reason: "the Verifier was not asked".to_owned() }),
    }
}
