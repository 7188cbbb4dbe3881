//! Checks that a pod has the chain planned for it.

use std::collections::{BTreeMap, BTreeSet};

use lucid_chain::{ContainerView, Decision, Plan, PlannedContainer, Warning, keys};
use lucid_text::Excerpt;

use crate::case::Case;
use crate::container_list::{ContainerList, declares_auditor, declares_init};
use crate::finding::{Problem, truncated};
use crate::findings::Findings;

/// Annotations by which the VerticalPodAutoscaler records that it changed a pod.
const AUTOSCALER: [&str; 3] = ["vpaInPlaceUpdated", "vpaObservedContainers", "vpaUpdates"];

impl Case<'_> {
    /// Adds the findings about the chain.
    ///
    /// A template has no chain yet. It is reported only if its namespace requires a chain that injection will not
    /// add, or if no chain fits its pods.
    pub(crate) fn chain_findings(&self, findings: &mut Findings<'_>) {
        if self.is_resize() {
            return self.resize_findings(findings);
        }
        match &self.outcome.decision {
            // A running pod is not replanned: only new pods and templates can fail to fit a chain.
            Decision::Impossible { reason } if self.is_created() || !self.is_pod() => {
                let reason = truncated(&reason.to_string());
                findings.add(&findings.pod(), Problem::chain("ChainImpossible", reason));
            }
            Decision::Planned(plan) if self.is_pod() => self.compare(plan, findings),
            Decision::Planned(_) if !self.requests_chain() => self.missing_chain(findings),
            _ => {}
        }
        self.model_port_finding(findings);
        self.replacement_findings(findings);
    }

    /// Reports a new pod whose model may listen on another port than the one that the chain guards.
    fn model_port_finding(&self, findings: &mut Findings<'_>) {
        let is_new = self.is_created() || !self.is_pod();
        let plan = self.plan().filter(|_| is_new);
        let Some(warning) = plan.and_then(Plan::assumed_port) else { return };
        let message = truncated(&warning.to_string());
        findings.add(&findings.pod(), Problem::chain(warning.reason(), message));
    }

    /// Reports unplanned auditors whose image an update changes.
    ///
    /// Planned auditors are compared with the plan instead. Changing the annotations of a running pod can remove its
    /// auditors from the plan; changing their image as well is an attempt to bypass them.
    fn replacement_findings(&self, findings: &mut Findings<'_>) {
        if !self.is_pod() || self.is_created() {
            return;
        }
        let planned: BTreeSet<_> = self.planned().into_iter().collect();
        for (list, found) in ContainerList::chain_containers(self.pod()) {
            if !planned.contains(&(found.name(), list))
                && (declares_auditor(found) || declares_init(found))
                && !self.had_image(list, found)
            {
                findings.add(&findings.container(list, found), differs("image", "keep the image"));
            }
        }
    }

    /// Reports auditors and init containers to which a resize gives resources that are neither within the bounds of the
    /// plan nor nearer to them than before. Unplanned ones must keep what they had.
    fn resize_findings(&self, findings: &mut Findings<'_>) {
        let before = self.subject.old.iter().flat_map(ContainerList::chain_containers);
        let before: BTreeMap<_, _> = before.map(|(list, found)| ((list, found.name()), found)).collect();
        for (list, found) in ContainerList::chain_containers(self.pod()) {
            if !declares_auditor(found) && !declares_init(found) {
                continue;
            }
            let before = before.get(&(list, found.name())).copied();
            if let Some(difference) = found.resource_difference(self.plan(), before) {
                findings.add(&findings.container(list, found), self.differs(found.name(), &difference));
            }
        }
    }

    /// Returns the problem of a container that differs from the plan, with the way out where an autoscaler made the
    /// difference.
    fn differs(&self, name: &str, difference: &str) -> Problem {
        let is_scaled = || AUTOSCALER.iter().any(|key| self.pod().annotation(key).is_some());
        if difference.starts_with("resources") && is_scaled() {
            let name = Excerpt(name);
            let advice = format!(
                "exclude it in the pod's VerticalPodAutoscaler: resourcePolicy.containerPolicies with containerName: {name}, \
                 mode: \"Off\", or widen resources.min and max in auditors.yaml"
            );
            return differs(difference, &advice);
        }
        let advice = match difference {
            "image" => "keep other webhooks from changing it, or name the image in auditors.yaml",
            _ => "keep other webhooks from changing it",
        };
        differs(difference, advice)
    }

    fn missing_chain(&self, findings: &mut Findings<'_>) {
        let message = match self.requests_chain() {
            _ if self.is_pod() && !self.is_created() => {
                "the pod must have an auditor chain and was created without one, and no container can be added to it: create \
                 it again"
                    .into()
            }
            true => "the pod asks for an auditor chain and has none: it was not injected, or taken out again; `lucid check` \
                     says whether the webhook is called"
                .into(),
            false => format!(
                "the namespace requires an auditor chain ({}) and the pod has none: set its label {}: \"true\"",
                keys::REQUIRE_CHAIN,
                keys::SECURED_LABEL
            ),
        };
        findings.add(&findings.pod(), Problem::chain("ChainMissing", message));
    }

    fn compare(&self, plan: &Plan, findings: &mut Findings<'_>) {
        let pod = self.pod();
        let planned = self.planned();
        // The first of several containers with the same name counts.
        let mut places = BTreeMap::new();
        for (list, found) in ContainerList::chain_containers(pod) {
            places.entry((found.name(), list)).or_insert(found);
        }
        if plan.leftovers.is_empty() && planned.iter().all(|planned| !places.contains_key(planned)) {
            if self.is_secured() {
                self.missing_chain(findings);
            }
            return;
        }
        let missing = planned.iter().filter(|planned| !places.contains_key(planned));
        // Missing containers matter only if the pod or its namespace requests a chain.
        for (name, list) in missing.filter(|_| self.is_secured()) {
            let site = findings.site(*list, name, "");
            let message = match self.is_created() {
                true => {
                    "it is part of the pod's auditor chain and is missing: keep other webhooks from removing it"
                }
                false => "it is part of the pod's auditor chain and is missing: create the pod again",
            };
            let problem = Problem::chain("ContainerMissing", message);
            // Updates cannot add containers: the configuration has changed since the pod was created.
            findings.add(&site, problem.warn_if(!self.is_created()));
        }

        let is_present = |name: &str| pod.image_volumes().any(|(found, _)| found == name);
        let mut images = plan.containers.iter().flat_map(PlannedContainer::image_volumes);
        if let Some((name, _)) = images.find(|(name, _)| self.is_created() && !is_present(name)) {
            let message = format!(
                "image volume {name} is missing: this Kubernetes has no image volumes and drops them, or another webhook removed \
                 it; `lucid check` says which"
            );
            findings.add(&findings.pod(), Problem::chain("NotAsInjected", message));
        }

        let patch = plan.chain_patch(pod);
        let planned: BTreeMap<_, _> = planned.into_iter().collect();
        for warning in &patch.warnings {
            let (name, problem) = match warning {
                Warning::ContainerReplaced { name, difference }
                | Warning::ContainerReplanned { name, difference } => {
                    (name.as_str(), self.differs(name, difference))
                }
                Warning::ContainerMoved { name } => {
                    let message = "it is part of the pod's auditor chain and stands after the model or in another order: \
                                   expected the order of injection";
                    (name.as_str(), Problem::chain("ContainerMoved", message))
                }
                Warning::ProfileTakenAway { key } if self.is_created() => {
                    findings.add(&findings.pod(), not_as_injected(&format!("/metadata/annotations/{key}")));
                    continue;
                }
                _ => continue,
            };
            let Some((list, found)) =
                planned.get(name).and_then(|list| Some((*list, *places.get(&(name, *list))?)))
            else {
                continue;
            };
            if !self.is_unchanged(list, found) {
                let is_auditor = plan.containers.iter().any(|planned| planned.name == name);
                let problem = if is_auditor { starting(problem, list, found) } else { problem };
                findings.add(&findings.container(list, found), problem);
            }
        }
        if !self.is_created() {
            return;
        }
        let leftovers: BTreeSet<_> = plan.leftovers.iter().map(String::as_str).collect();
        for (list, found) in
            ContainerList::chain_containers(pod).filter(|(_, found)| leftovers.contains(found.name()))
        {
            let message =
                "it is an auditor outside of the pod's chain; nothing is forwarded to it: remove it";
            let problem = Problem::chain("LeftoverAuditor", message).warn_if(true);
            findings.add(&findings.container(list, found), starting(problem, list, found));
        }
        let operations = patch.operations();
        let paths = operations.iter().map(|operation| operation.path().as_str());
        for path in paths.filter(|path| is_of_application(path)) {
            findings.add(&findings.pod(), not_as_injected(path));
        }
    }
}

/// Adds to the problem of an auditor that the pod cannot start with it, if it is an init container that is no longer a
/// native sidecar.
fn starting(problem: Problem, list: ContainerList, found: &ContainerView<'_>) -> Problem {
    if list != ContainerList::InitContainers || found.is_native_sidecar() {
        return problem;
    }
    let message = format!(
        "{}; the pod will not start, because the auditor does not end: expected restartPolicy: Always, which a webhook built \
         for Kubernetes before 1.28 removes",
        problem.message
    );
    Problem { message: message.into(), ..problem }
}

fn differs(field: &str, advice: &str) -> Problem {
    let field = truncated(field);
    let message =
        format!("it is part of the pod's auditor chain and differs from the plan in {field}; {advice}");
    Problem::chain("ContainerDiffers", message)
}

fn not_as_injected(path: &str) -> Problem {
    let message =
        format!("{} is not as injection makes it: keep other webhooks from changing it", Excerpt(path));
    // A substituted volume could bring files into the auditors.
    Problem::chain("NotAsInjected", message).warn_if(!path.starts_with("/spec/volumes"))
}

/// Returns `true` if the path is one that injection changes outside its own containers and the status annotation.
fn is_of_application(path: &str) -> bool {
    path.starts_with("/spec/imagePullSecrets")
        || path.starts_with("/spec/volumes")
        || path.strip_prefix("/spec/containers/").is_some_and(|rest| rest.contains("/env"))
}
