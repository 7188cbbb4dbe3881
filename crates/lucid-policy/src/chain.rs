//! Whether a pod has the chain that it has to have.

use std::collections::{BTreeMap, BTreeSet};

use lucid_chain::{Decision, Operation, Plan, Warning};

use crate::auditors::Place;
use crate::case::{Case, says_auditor, says_init};
use crate::finding::{Demand, Problem};
use crate::findings::Findings;
use crate::text;

impl Case<'_> {
    /// What is wrong with the chain. A template has none yet: of it only is known that a chain is missing that nobody will
    /// inject, or that none fits.
    pub(crate) fn chain_findings(&self, findings: &mut Findings<'_>) {
        if self.is_resize() {
            return self.shrunk(findings);
        }
        match &self.outcome.decision {
            // Pods are planned for when they come; what runs already does not get another place.
            Decision::Impossible { reason } if self.is_created() || !self.is_pod() => {
                let problem = Problem::ChainImpossible { reason: text::kept(&reason.to_string()) };
                findings.add(&findings.pod(), problem);
            }
            Decision::Planned(plan) if self.is_pod() => self.compare(plan, findings),
            Decision::Planned(_) if self.demand() == Demand::Namespace => self.missing(findings),
            _ => {}
        }
        self.replaced(findings);
    }

    /// Auditors that run, and would run another image. Those of the plan are compared with it; others are no longer planned,
    /// which annotations of a running pod can bring about, and nobody but who gets around them gives them an image.
    fn replaced(&self, findings: &mut Findings<'_>) {
        if !self.is_pod() || self.is_created() {
            return;
        }
        let planned: BTreeSet<_> = self.planned().into_iter().collect();
        for (place, found) in Place::of_chain(self.pod()) {
            if !planned.contains(&(found.name(), place))
                && (says_auditor(found) || says_init(found))
                && !self.stood_with_image(place, found)
            {
                let problem = Problem::ContainerDiffers { field: "image".to_owned() };
                findings.add(&findings.container(place, found), problem);
            }
        }
    }

    /// Auditors and init containers of the chain that a resize leaves with less than they had and than is planned for them.
    fn shrunk(&self, findings: &mut Findings<'_>) {
        let planned = |name: &str| self.plan()?.containers.iter().find(|planned| planned.name == name);
        let before = self.subject.old.iter().flat_map(Place::of_chain);
        let before: BTreeMap<_, _> = before.map(|(place, found)| ((place, found.name()), found)).collect();
        for (place, found) in Place::of_chain(self.pod()) {
            let before = before.get(&(place, found.name()));
            let keeps = || before.is_some_and(|before| found.is_as_large_as(before));
            let has_planned = || planned(found.name()).is_some_and(|planned| planned.is_provided(found));
            if (says_auditor(found) || says_init(found)) && !keeps() && !has_planned() {
                let problem = Problem::ContainerDiffers { field: "resources".to_owned() };
                findings.add(&findings.container(place, found), problem);
            }
        }
    }

    fn missing(&self, findings: &mut Findings<'_>) {
        findings.add(&findings.pod(), Problem::ChainMissing { demand: self.demand() });
    }

    fn compare(&self, plan: &Plan, findings: &mut Findings<'_>) {
        let pod = self.pod();
        let planned = self.planned();
        // Of several containers with one name the first counts.
        let mut places = BTreeMap::new();
        for (place, found) in Place::of_chain(pod) {
            places.entry((found.name(), place)).or_insert(found);
        }
        if plan.leftovers.is_empty() && planned.iter().all(|planned| !places.contains_key(planned)) {
            if self.is_secured() {
                self.missing(findings);
            }
            return;
        }
        let missing = planned.iter().filter(|planned| !places.contains_key(planned));
        // Nobody demands a chain of other auditors than those that are there.
        for (name, place) in missing.filter(|_| self.is_secured()) {
            let site = findings.site(*place, name, "");
            // No update adds a container: it is the configuration that has changed since the pod was created.
            match self.is_created() {
                true => findings.add(&site, Problem::ContainerMissing),
                false => findings.warn(&site, Problem::ContainerMissing),
            }
        }

        let patch = plan.patch(pod);
        let planned: BTreeMap<_, _> = planned.into_iter().collect();
        for warning in patch.warnings() {
            let (name, problem) = match warning {
                Warning::ContainerReplaced { name, difference }
                | Warning::ContainerReplanned { name, difference } => {
                    (name.as_str(), Problem::ContainerDiffers { field: text::kept(difference) })
                }
                Warning::ContainerMoved { name } => (name.as_str(), Problem::ContainerMoved),
                Warning::ProfileTakenAway { key } if self.is_created() => {
                    let path = text::kept(&format!("/metadata/annotations/{key}"));
                    findings.add(&findings.pod(), Problem::NotAsInjected { path });
                    continue;
                }
                _ => continue,
            };
            let Some((place, found)) =
                planned.get(name).and_then(|place| Some((*place, *places.get(&(name, *place))?)))
            else {
                continue;
            };
            if !self.stood(place, found) {
                findings.add(&findings.container(place, found), problem);
            }
        }
        if !self.is_created() {
            return;
        }
        let leftovers: BTreeSet<_> = plan.leftovers.iter().map(String::as_str).collect();
        for (place, found) in Place::of_chain(pod).filter(|(_, found)| leftovers.contains(found.name())) {
            findings.add(&findings.container(place, found), Problem::LeftoverAuditor);
        }
        let paths = patch.operations().iter().filter_map(path).filter(|path| is_of_application(path));
        for path in paths {
            findings.add(&findings.pod(), Problem::NotAsInjected { path: text::kept(path) });
        }
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
