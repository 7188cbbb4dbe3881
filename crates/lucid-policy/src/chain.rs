//! Whether a pod has the chain that it has to have.

use lucid_chain::{Decision, Operation, Plan, Warning};

use crate::auditors::Place;
use crate::case::{Case, location, says_auditor, says_init};
use crate::finding::{Demand, Finding, Location, Problem};

impl Case<'_> {
    /// What is wrong with the chain. A template has none yet: of it only is known that a chain is missing that nobody will
    /// inject, or that none fits.
    pub(crate) fn chain_findings(&self) -> Vec<Finding> {
        let mut findings = self.planned_findings();
        findings.extend(self.replaced());
        findings
    }

    fn planned_findings(&self) -> Vec<Finding> {
        match &self.outcome.decision {
            // Pods are planned for when they come; what runs already does not get another place.
            Decision::Impossible { reason } if self.is_created() || !self.is_pod() => {
                vec![Finding::new(None, Problem::ChainImpossible { reason: reason.to_string() })]
            }
            Decision::Planned(plan) if self.is_pod() => self.compare(plan),
            Decision::Planned(_) if self.demand() == Demand::Namespace => {
                vec![self.missing()]
            }
            _ => Vec::new(),
        }
    }

    /// Auditors that run, and would run another image. Those of the plan are compared with it; others are no longer planned,
    /// which annotations of a running pod can bring about, and nobody but who gets around them gives them an image.
    fn replaced(&self) -> Vec<Finding> {
        if !self.is_pod() || self.is_created() {
            return Vec::new();
        }
        let planned = self.planned();
        let replaced = Place::of_chain(self.pod()).filter(|(place, found)| {
            !planned.contains(&(found.name(), *place))
                && (says_auditor(found) || says_init(found))
                && !self.stood_with_image(*place, found)
        });
        let findings = replaced.map(|(place, found)| {
            let problem = Problem::ContainerDiffers { field: "image".to_owned() };
            Finding::new(Some(location(place, found)), problem)
        });
        findings.collect()
    }

    fn missing(&self) -> Finding {
        Finding::new(None, Problem::ChainMissing { demand: self.demand() })
    }

    fn compare(&self, plan: &Plan) -> Vec<Finding> {
        let pod = self.pod();
        let planned = self.planned();
        let find = |place: Place, name: &str| place.of(pod).iter().find(|found| found.name() == name);
        if plan.leftovers.is_empty() && planned.iter().all(|(name, place)| find(*place, name).is_none()) {
            return if self.is_secured() { vec![self.missing()] } else { Vec::new() };
        }
        let mut findings = Vec::new();
        let missing = planned.iter().filter(|(name, place)| find(*place, name).is_none());
        // Nobody demands a chain of other auditors than those that are there.
        let missing = missing.filter(|_| self.is_secured());
        findings.extend(missing.map(|(name, place)| {
            let location = Location { place: *place, name: (*name).to_owned(), image: String::new() };
            let finding = Finding::new(Some(location), Problem::ContainerMissing);
            // No update adds a container: it is the configuration that has changed since the pod was created.
            if self.is_created() { finding } else { finding.lenient() }
        }));

        let patch = plan.patch(pod);
        for warning in patch.warnings() {
            let (name, problem) = match warning {
                Warning::ContainerReplaced { name, difference }
                | Warning::ContainerReplanned { name, difference } => {
                    (name, Problem::ContainerDiffers { field: difference.clone() })
                }
                Warning::ContainerMoved { name } => (name, Problem::ContainerMoved),
                Warning::ProfileTakenAway { key } if self.is_created() => {
                    let path = format!("/metadata/annotations/{key}");
                    findings.push(Finding::new(None, Problem::NotAsInjected { path }));
                    continue;
                }
                _ => continue,
            };
            let place = planned.iter().find(|(planned, _)| planned == name).map(|(_, place)| *place);
            let Some((place, found)) = place.and_then(|place| Some((place, find(place, name)?))) else {
                continue;
            };
            let is_grown = matches!(&problem, Problem::ContainerDiffers { field } if field == "resources")
                && self.is_resize()
                && plan.containers.iter().any(|planned| planned.name == *name && planned.is_provided(found));
            if !is_grown && !self.stood(place, found) {
                findings.push(Finding::new(Some(location(place, found)), problem));
            }
        }
        if !self.is_created() {
            return findings;
        }
        let leftovers =
            Place::of_chain(pod).filter(|(_, found)| plan.leftovers.iter().any(|name| name == found.name()));
        findings.extend(
            leftovers
                .map(|(place, found)| Finding::new(Some(location(place, found)), Problem::LeftoverAuditor)),
        );
        let paths = patch.operations().iter().filter_map(path).filter(|path| is_of_application(path));
        findings
            .extend(paths.map(|path| Finding::new(None, Problem::NotAsInjected { path: path.to_owned() })));
        findings
    }
}

fn path(operation: &Operation) -> Option<&str> {
    match operation {
        Operation::Add { path, .. } | Operation::Replace { path, .. } | Operation::Remove { path } => {
            Some(path)
        }
        _ => None,
    }
}

/// Whether the path leads to what injection changes besides its own containers and the status.
fn is_of_application(path: &str) -> bool {
    path.starts_with("/spec/imagePullSecrets")
        || path.starts_with("/spec/volumes")
        || path.strip_prefix("/spec/containers/").is_some_and(|rest| rest.contains("/env"))
}
