//! The policy and its evaluation.

use std::collections::{BTreeMap, BTreeSet};

use lucid_chain::{Decision, PodView};
use lucid_notary::{CheckedVerdict, Digest, NotaryVerdict};

use crate::auditors::{AuditorContainer, Auditors};
use crate::break_glass::{BreakGlass, Permission, Tickets};
use crate::case::Case;
use crate::evaluation::Evaluation;
use crate::exemptions::Exemption;
use crate::finding::{Problem, truncated};
use crate::findings::Findings;
use crate::labels::RequiredLabel;
use crate::mode::{Mode, Strictness};

/// Settings of the policy. The default performs all checks, accepts no break-glass tickets, and
/// refuses nothing: its mode is [`Mode::Audit`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Policy {
    /// Enforcement of findings.
    pub mode: Mode,
    /// Handling of images that are not known to be notarized.
    pub strictness: Strictness,
    /// Label that every pod must have.
    pub required_label: Option<RequiredLabel>,
    /// Accepted break-glass tickets.
    pub tickets: Tickets,
    /// `true` if the application containers of a secured pod must be unable to become root.
    pub require_non_root: bool,
    /// Exemptions from the policy.
    pub exemptions: Vec<Exemption>,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            mode: Mode::default(),
            strictness: Strictness::default(),
            required_label: Some(RequiredLabel::default()),
            tickets: Tickets::default(),
            require_non_root: false,
            exemptions: Vec::new(),
        }
    }
}

impl Policy {
    /// Returns `true` if the auditor's digest has to be looked up at the Verifier: the image has one and no exemption
    /// covers it.
    #[must_use]
    pub fn needs_verdict(&self, case: &Case<'_>, auditor: &AuditorContainer<'_>) -> bool {
        let (namespace, image) = (case.subject.request.namespace, auditor.reference.as_ref().ok());
        auditor.digest().is_some()
            && !self.exemptions.iter().any(|exemption| exemption.covers_image(namespace, image))
    }

    /// Returns the images of `pod`, as written there, that an exemption covers in this namespace: the input of
    /// [`Inputs::exempt_images`](lucid_chain::Inputs::exempt_images).
    #[must_use]
    pub fn exempt_images(&self, namespace: &str, pod: &PodView<'_>) -> BTreeSet<String> {
        if self.exemptions.is_empty() {
            return BTreeSet::new();
        }
        let containers = pod.containers().iter().chain(pod.init_containers());
        let images: BTreeSet<_> = containers.map(|container| container.image().unwrap_or_default()).collect();
        let is_exempt = |image: &&str| {
            let image = image.parse().ok();
            self.exemptions.iter().any(|exemption| exemption.covers_image(namespace, image.as_ref()))
        };
        images.into_iter().filter(is_exempt).map(str::to_owned).collect()
    }

    /// Returns the tier of `pod`. Empty if no label is required.
    #[must_use]
    pub fn tier(&self, pod: &PodView<'_>) -> &str {
        self.required_label.as_ref().map_or("", |required| required.tier(pod))
    }

    /// Evaluates a case.
    ///
    /// - `auditors`: the result of [`Case::auditors`].
    /// - `verdicts`: verdicts by digest. An auditor whose digest is absent counts as unverified.
    /// - `permission`: the user's permission to use the ticket returned by [`Tickets::valid_ticket`].
    #[must_use]
    pub fn evaluate(
        &self,
        case: &Case<'_>,
        auditors: &Auditors<'_>,
        verdicts: &BTreeMap<Digest, CheckedVerdict>,
        permission: &Permission,
    ) -> Evaluation {
        let mut findings = Findings::new(&self.exemptions, self.strictness, case.subject.request.namespace);
        let pod = findings.pod();
        if let Decision::Skipped { reason } = &case.outcome.decision {
            let what = if case.settings.requires_chain {
                "the chain that the namespace requires"
            } else {
                "the chain"
            };
            findings.exempt(&reason.to_string(), || what.to_owned());
        }
        for auditor in auditors.iter() {
            let Some(mut problem) = image_problem(auditor, verdicts) else { continue };
            // Only its verdict makes another image out of the planned one, also where notarization is lenient.
            problem.is_strict = case.has_added_digest(auditor);
            let site = findings.site(auditor.list, auditor.name, auditor.image);
            let is_own = auditor.reference.as_ref().is_ok_and(|image| image == case.init_image);
            if is_own && auditor.digest().is_none() {
                findings.exempt("image of lucid-init as configured", || site.text(problem));
            } else {
                findings.add(&site, problem);
            }
        }
        case.chain_findings(&mut findings);
        // A resize cannot bypass a chain.
        if !case.is_resize() {
            case.bypass_findings(self.require_non_root, &mut findings);
        }
        case.label_findings(self.required_label.as_ref(), &mut findings);
        let (break_glass, problem) = self.tickets.evaluate(case, permission);
        if let Some(problem) = problem {
            findings.add(&pod, problem);
        }
        let ticket = case.ticket().filter(|_| break_glass == BreakGlass::Opened).map(truncated);
        let tier = self.tier(case.pod()).to_owned();
        Evaluation::new(self.mode, case.subject.request.workload, findings, break_glass, ticket)
            .with_tier(tier)
    }
}

fn image_problem(
    auditor: &AuditorContainer<'_>,
    verdicts: &BTreeMap<Digest, CheckedVerdict>,
) -> Option<Problem> {
    let reference = match &auditor.reference {
        Ok(reference) => reference,
        Err(error) => {
            return Some(Problem::image("InvalidReference", format!("not an image reference: {error}")));
        }
    };
    let Some(digest) = reference.digest() else {
        let message = "missing digest (strict notarization accepts only image@sha256:…)";
        return Some(Problem::image("MissingDigest", message));
    };
    let unverified = |reason| Problem::image("Unverified", format!("could not be verified: {reason}"));
    match verdicts.get(digest).map(|checked| &checked.verdict) {
        Some(NotaryVerdict::Notarized) => None,
        Some(NotaryVerdict::NotNotarized) => Some(Problem::image("NotNotarized", "not notarized")),
        Some(NotaryVerdict::NotSigned { reason }) => {
            Some(Problem::image("NotNotarized", format!("not notarized: {}", truncated(reason))))
        }
        Some(NotaryVerdict::Unknown { reason }) => Some(unverified(truncated(reason))),
        None => Some(unverified("the Verifier was not asked".to_owned())),
    }
}
