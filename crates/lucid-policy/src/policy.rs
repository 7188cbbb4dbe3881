//! From what is wrong to what becomes of the pod.

use std::collections::{BTreeMap, BTreeSet};

use lucid_chain::{Decision, PodView};
use lucid_notary::{Checked, Digest, Verdict};

use crate::auditors::{AuditorContainer, Auditors};
use crate::break_glass::{BreakGlass, Permission, Tickets};
use crate::case::Case;
use crate::exemptions::Exemption;
use crate::finding::{Check, Problem, Severity};
use crate::findings::Findings;
use crate::judgement::Judgement;
use crate::labels::RequiredLabel;
use crate::text;

/// What becomes of an auditor image that is not known to be notarized.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strictness {
    /// It refuses the pod; for production.
    Strict,
    /// It gives a warning; for development.
    #[default]
    Lenient,
}

/// What the findings do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mode {
    /// Images refuse pods as [`Strictness`] has it; what else is wrong is recorded and warned of.
    #[default]
    Images,
    /// Nothing is refused; everything is recorded and warned of.
    Audit,
    /// What is wrong refuses; images as [`Strictness`] has it.
    Enforce,
}

/// The settings of judging. The default looks at everything and, without [`Strictness::Strict`], refuses nothing.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Policy {
    /// What the findings do.
    pub mode: Mode,
    /// How images are judged.
    pub strictness: Strictness,
    /// A label that every pod has to have.
    pub required_label: Option<RequiredLabel>,
    /// Which tickets break the glass.
    pub tickets: Tickets,
    /// Whether the applications of a secured pod must not be able to be root.
    pub require_non_root: bool,
    /// What is not held against anybody.
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
    /// Whether the Verifier has to be asked about this auditor: not where an exemption has decided.
    #[must_use]
    pub fn asks_about(&self, case: &Case<'_>, auditor: &AuditorContainer<'_>) -> bool {
        let (namespace, image) = (case.subject.request.namespace, auditor.reference.as_ref().ok());
        auditor.digest().is_some()
            && !self.exemptions.iter().any(|exemption| exemption.covers_image(namespace, image))
    }

    /// Images of `pod`, as it writes them, that an exemption covers in this namespace: for
    /// [`Inputs::with_exempt_images`](lucid_chain::Inputs::with_exempt_images).
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

    /// Judges a case. `auditors` are those that the [`Case`] names; a digest without a verdict counts as one that could
    /// not be verified. `permission` is about the ticket that [`Tickets::of`] finds.
    #[must_use]
    pub fn judge(
        &self,
        case: &Case<'_>,
        auditors: &Auditors<'_>,
        verdicts: &BTreeMap<Digest, Checked>,
        permission: &Permission,
    ) -> Judgement {
        let mut findings = Findings::new(self, case.subject.request.namespace);
        let pod = findings.pod();
        if let Decision::Skipped { reason } = &case.outcome.decision {
            let what =
                if case.requires_chain { "the chain that the namespace requires" } else { "the chain" };
            findings.exempt(&reason.to_string(), || what.to_owned());
        }
        for auditor in auditors.iter() {
            let Some(problem) = image_problem(auditor, verdicts) else { continue };
            let site = findings.site(auditor.place, &auditor.name, &auditor.image);
            let own = auditor.reference.as_ref().is_ok_and(|image| image == case.init_image);
            if own && problem == Problem::MissingDigest {
                findings.exempt("image of lucid-init as configured", || site.text(problem));
            } else {
                findings.add(&site, problem);
            }
        }
        case.chain_findings(&mut findings);
        // Resources open no way around a chain.
        if !case.is_resize() {
            case.bypass_findings(self.require_non_root, &mut findings);
        }
        case.label_findings(self.required_label.as_ref(), &mut findings);
        let (break_glass, problem) = self.tickets.judge(case, permission);
        if let Some(problem) = problem {
            findings.add(&pod, problem);
        }
        let ticket = case.ticket().filter(|_| break_glass == BreakGlass::Opened).map(text::kept);
        Judgement::new(self.mode, case.subject.request.workload, findings, break_glass, ticket)
    }
}

fn image_problem(auditor: &AuditorContainer<'_>, verdicts: &BTreeMap<Digest, Checked>) -> Option<Problem> {
    let reference = match &auditor.reference {
        Ok(reference) => reference,
        Err(error) => return Some(Problem::InvalidReference { reason: error.to_string() }),
    };
    let Some(digest) = reference.digest() else { return Some(Problem::MissingDigest) };
    match verdicts.get(digest).map(|checked| &checked.verdict) {
        Some(Verdict::Notarized) => None,
        Some(Verdict::NotNotarized) => Some(Problem::NotNotarized),
        Some(Verdict::Unknown { reason }) => Some(Problem::Unverified { reason: text::kept(reason) }),
        None => Some(Problem::Unverified { reason: "the Verifier was not asked".to_owned() }),
    }
}

impl Problem {
    /// What it does to a pod unless the policy says otherwise.
    pub(crate) fn severity(&self) -> Severity {
        match self {
            // Another volume in place of the empty one brings content into the auditors.
            Self::NotAsInjected { path } if path.starts_with("/spec/volumes") => Severity::Refuse,
            Self::NotAsInjected { .. } | Self::LeftoverAuditor | Self::Misspelt { .. } => Severity::Warn,
            // It does not open; whether the pod passes is for what else is wrong to say.
            problem if problem.check() == Check::BreakGlass => Severity::Warn,
            _ => Severity::Refuse,
        }
    }
}
