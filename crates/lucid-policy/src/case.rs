//! A subject and the chain that it should have.

use std::collections::HashSet;

use lucid_chain::{
    Catalogue, ContainerView, Decision, Inputs, Outcome, Plan, PodChoices, PodView, Trigger, keys, plan,
};
use lucid_notary::ImageReference;

use crate::auditors::{AUDITOR_ID, Place};
use crate::finding::Demand;
use crate::subject::{Operation, Subject};

/// A pod or template, and the chain that the planner gives it now. Nothing that the pod says of itself counts as proof of
/// what was injected.
#[derive(Debug)]
pub struct Case<'a> {
    pub(crate) subject: &'a Subject<'a>,
    pub(crate) catalogues: &'a [Catalogue],
    pub(crate) init_image: &'a ImageReference,
    pub(crate) requires_chain: bool,
    pub(crate) pod_choices: PodChoices,
    pub(crate) outcome: Outcome,
    /// List and JSON of each container before the update.
    before: HashSet<(Place, &'a str)>,
    /// List, name and image of each container before the update.
    images_before: HashSet<(Place, &'a str, Option<&'a str>)>,
}

/// Whether auditors run in the pod, as far as its spec tells. Labels can be taken from a pod that runs, containers cannot.
fn carries_chain(subject: &Subject<'_>) -> bool {
    let of_update = subject.request.workload.is_pod() && subject.request.operation == Operation::Update;
    of_update && Place::of_chain(&subject.pod).any(|(_, found)| says_auditor(found))
}

/// Whether the container calls itself an auditor.
pub(crate) fn says_auditor(container: &ContainerView<'_>) -> bool {
    container.env(AUDITOR_ID).is_some()
}

/// Whether the container calls itself lucid-init.
pub(crate) fn says_init(container: &ContainerView<'_>) -> bool {
    container.env(keys::REDIRECT_ENV).is_some()
}

impl<'a> Case<'a> {
    /// Plans the chain of `subject` again. `inputs` are those that the pod was injected with; `catalogues` are all whose
    /// auditors may run in the namespace, and `requires_chain` is whether the namespace demands a chain of every pod.
    ///
    /// A pod that runs with auditors is planned for as well when it is changed, though its label may be gone by now.
    #[must_use]
    pub fn new(
        subject: &'a Subject<'a>,
        inputs: &Inputs<'a>,
        catalogues: &'a [Catalogue],
        requires_chain: bool,
    ) -> Self {
        let inputs = inputs.with_namespace(subject.request.namespace);
        let inputs = if requires_chain || carries_chain(subject) { inputs.forced() } else { inputs };
        let outcome = plan(&subject.pod, &inputs);
        let old = subject.old.as_ref().filter(|_| subject.request.workload.is_pod());
        let old = || {
            let lists = old.into_iter().flat_map(|old| Place::CONTAINERS.map(|place| (place, place.of(old))));
            lists.flat_map(|(place, list)| list.iter().map(move |found| (place, found)))
        };
        Self {
            subject,
            catalogues,
            init_image: &inputs.configuration.init_image,
            requires_chain,
            pod_choices: inputs.pod_choices,
            outcome,
            before: old().map(|(place, found)| (place, found.json())).collect(),
            images_before: old().map(|(place, found)| (place, found.name(), found.image())).collect(),
        }
    }

    /// What was planned.
    #[must_use]
    pub fn outcome(&self) -> &Outcome {
        &self.outcome
    }

    pub(crate) fn pod(&self) -> &'a PodView<'a> {
        &self.subject.pod
    }

    pub(crate) fn is_pod(&self) -> bool {
        self.subject.request.workload.is_pod()
    }

    pub(crate) fn is_created(&self) -> bool {
        self.subject.request.operation == Operation::Create
    }

    /// Returns `true` for a request to the `resize` subresource.
    pub(crate) fn is_resize(&self) -> bool {
        self.subject.request.subresource == Some("resize")
    }

    /// Whether auditors run in the pod that is changed.
    pub(crate) fn carries_chain(&self) -> bool {
        carries_chain(self.subject)
    }

    /// The chain that the pod has to have, if it has to have one.
    pub(crate) fn plan(&self) -> Option<&Plan> {
        match &self.outcome.decision {
            Decision::Planned(plan) => Some(plan),
            _ => None,
        }
    }

    /// Whether a chain is asked for, by the pod or by its namespace.
    pub(crate) fn is_secured(&self) -> bool {
        self.requires_chain || Trigger::of(self.pod()).is_some()
    }

    pub(crate) fn demand(&self) -> Demand {
        if Trigger::of(self.pod()).is_some() { Demand::Pod } else { Demand::Namespace }
    }

    /// Name and list of each planned container: the auditors in order, then lucid-init.
    pub(crate) fn planned(&self) -> Vec<(&str, Place)> {
        let Some(plan) = self.plan() else { return Vec::new() };
        let place = if plan.is_native() { Place::InitContainers } else { Place::Containers };
        let init = plan.init.iter().map(|init| (init.name.as_str(), Place::InitContainers));
        plan.containers.iter().map(|planned| (planned.name.as_str(), place)).chain(init).collect()
    }

    /// Whether the container was there before the update, exactly so.
    pub(crate) fn stood(&self, place: Place, container: &ContainerView<'_>) -> bool {
        self.before.contains(&(place, container.json()))
    }

    /// Whether a container of this name ran the same image before the update.
    pub(crate) fn stood_with_image(&self, place: Place, container: &ContainerView<'_>) -> bool {
        self.images_before.contains(&(place, container.name(), container.image()))
    }

    /// Whether a label or an annotation is as it was before the update.
    pub(crate) fn is_label_old(&self, key: &str) -> bool {
        let old = self.subject.old.as_ref().filter(|_| self.is_pod());
        old.is_some_and(|old| old.label(key) == self.pod().label(key))
    }

    /// The value of the label by which the pod breaks the glass.
    pub(crate) fn ticket(&self) -> Option<&'a str> {
        self.pod().label(keys::BREAK_GLASS)
    }
}
