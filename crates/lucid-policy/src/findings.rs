//! Collects findings, applies exemptions and bounds their number.

use lucid_chain::ContainerView;

use crate::container_list::ContainerList;
use crate::exemptions::{Exempted, Exemption};
use crate::finding::{Check, Finding, Location, Problem, Severity, truncated};
use crate::mode::Strictness;

/// Maximum number of stored findings and of stored exemptions. The author of a pod controls the number of problems.
const MAX_FINDINGS: usize = 64;

/// The pod, or one of its containers and image volumes, with the exemptions that apply to it.
pub(crate) struct Site<'a, 'p> {
    at: Option<(ContainerList, &'a str, &'a str)>,
    exemptions: Vec<&'p Exemption>,
}

/// Findings of one pod, at most [`MAX_FINDINGS`]. Refusals displace warnings.
pub(crate) struct Findings<'p> {
    exemptions: &'p [Exemption],
    strictness: Strictness,
    namespace: &'p str,
    pub(crate) kept: Vec<Finding>,
    pub(crate) unlisted_warnings: usize,
    pub(crate) unlisted_refusals: usize,
    pub(crate) exempted: Vec<Exempted>,
}

impl<'p> Findings<'p> {
    pub(crate) fn new(exemptions: &'p [Exemption], strictness: Strictness, namespace: &'p str) -> Self {
        Self {
            exemptions,
            strictness,
            namespace,
            kept: Vec::new(),
            unlisted_warnings: 0,
            unlisted_refusals: 0,
            exempted: Vec::new(),
        }
    }

    pub(crate) fn pod(&self) -> Site<'static, 'p> {
        let exemptions = self.exemptions.iter();
        let exemptions = exemptions.filter(|exemption| exemption.applies(self.namespace, None));
        Site { at: None, exemptions: exemptions.collect() }
    }

    pub(crate) fn container<'a>(&self, list: ContainerList, found: &'a ContainerView<'_>) -> Site<'a, 'p> {
        self.site(list, found.name(), found.image().unwrap_or_default())
    }

    /// Returns the site of a container or image volume. Parses the image once for all of its findings.
    pub(crate) fn site<'a>(&self, list: ContainerList, name: &'a str, image: &'a str) -> Site<'a, 'p> {
        let all = self.exemptions;
        let reference = if all.is_empty() { None } else { image.parse().ok() };
        let exemptions = all.iter().filter(|exemption| exemption.applies(self.namespace, reference.as_ref()));
        Site { at: Some((list, name, image)), exemptions: exemptions.collect() }
    }

    pub(crate) fn exempt(&mut self, by: &str, what: impl FnOnce() -> String) {
        if self.exempted.len() < MAX_FINDINGS {
            self.exempted.push(Exempted { by: by.to_owned(), what: what() });
        }
    }

    pub(crate) fn add(&mut self, site: &Site<'_, 'p>, problem: Problem) {
        let is_lenient =
            problem.check == Check::Images && self.strictness == Strictness::Lenient && !problem.is_strict;
        let problem = problem.warn_if(is_lenient);
        let exemption = site.exemptions.iter().find(|exemption| exemption.covers(&problem));
        if let Some(exemption) = exemption {
            return self.exempt(exemption.name(), || site.text(problem));
        }
        if self.kept.len() == MAX_FINDINGS {
            let warning = self.kept.iter().rposition(|kept| kept.severity == Severity::Warn);
            match (problem.severity, warning) {
                (Severity::Deny, Some(index)) => {
                    self.kept.remove(index);
                    self.unlisted_warnings += 1;
                }
                (Severity::Deny, None) => {
                    self.unlisted_refusals += 1;
                    return;
                }
                (Severity::Warn, _) => {
                    self.unlisted_warnings += 1;
                    return;
                }
            }
        }
        self.kept.push(site.finding(problem));
    }
}

impl Site<'_, '_> {
    pub(crate) fn list(&self) -> Option<ContainerList> {
        self.at.map(|(list, ..)| list)
    }

    pub(crate) fn text(&self, problem: Problem) -> String {
        self.finding(problem).to_string()
    }

    fn finding(&self, problem: Problem) -> Finding {
        let location = self.at.map(|(list, name, image)| Location {
            list,
            name: truncated(name),
            image: truncated(image),
        });
        Finding { severity: problem.severity, location, problem }
    }
}
