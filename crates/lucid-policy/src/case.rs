//! A subject together with the chain planned for it.

use std::collections::HashSet;

use lucid_chain::{
    Catalogue, ContainerView, Decision, Inputs, NamespaceSettings, Outcome, Plan, PodView, keys, plan,
};
use lucid_notary::ImageReference;

use crate::container_list::{ContainerList, declares_auditor};
use crate::subject::Subject;

/// A pod or pod template together with the chain planned for it.
///
/// The chain is planned again from the current inputs. Markers that the pod carries do not count as proof of
/// injection.
#[derive(Debug)]
pub struct Case<'a> {
    pub(crate) subject: &'a Subject<'a>,
    pub(crate) catalogues: &'a [Catalogue],
    pub(crate) init_image: &'a ImageReference,
    pub(crate) settings: &'a NamespaceSettings,
    pub(crate) outcome: Outcome,
    /// List and JSON of each container before the update.
    before: HashSet<(ContainerList, &'a str)>,
    /// List, name and image of each container before the update.
    images_before: HashSet<(ContainerList, &'a str, Option<&'a str>)>,
}

/// Returns `true` if an updated pod has auditor containers. Labels of a running pod can be removed, containers
/// cannot.
fn carries_chain(subject: &Subject<'_>) -> bool {
    let of_update = subject.request.workload.is_pod() && subject.request.is_update();
    of_update && ContainerList::chain_containers(&subject.pod).any(|(_, found)| declares_auditor(found))
}

impl<'a> Case<'a> {
    /// Plans the chain of `subject`.
    ///
    /// - `inputs`: the inputs that were used for injection.
    /// - `catalogues`: all catalogues whose auditors may run in the namespace.
    ///
    /// An updated pod that already runs auditors is planned for even if its label has been removed.
    #[must_use]
    pub fn new(subject: &'a Subject<'a>, inputs: &Inputs<'a>, catalogues: &'a [Catalogue]) -> Self {
        let forced = inputs.forced || inputs.settings.requires_chain || carries_chain(subject);
        let inputs = Inputs { namespace: Some(subject.request.namespace), forced, ..*inputs };
        let outcome = plan(&subject.pod, &inputs);
        let old = subject.old.as_ref().filter(|_| subject.request.workload.is_pod());
        let old = || {
            let lists = old
                .into_iter()
                .flat_map(|old| ContainerList::CONTAINERS.map(|list| (list, list.containers(old))));
            lists.flat_map(|(list, containers)| containers.iter().map(move |found| (list, found)))
        };
        Self {
            subject,
            catalogues,
            init_image: &inputs.configuration.init_image,
            settings: inputs.settings,
            outcome,
            before: old().map(|(list, found)| (list, found.json())).collect(),
            images_before: old().map(|(list, found)| (list, found.name(), found.image())).collect(),
        }
    }

    pub(crate) fn pod(&self) -> &'a PodView<'a> {
        &self.subject.pod
    }

    pub(crate) fn is_pod(&self) -> bool {
        self.subject.request.workload.is_pod()
    }

    pub(crate) fn is_created(&self) -> bool {
        !self.subject.request.is_update()
    }

    pub(crate) fn is_resize(&self) -> bool {
        self.subject.request.subresource == Some("resize")
    }

    /// Returns `true` if an updated pod has auditor containers.
    pub(crate) fn carries_chain(&self) -> bool {
        carries_chain(self.subject)
    }

    /// Returns the planned chain, or `None` if the pod needs none or none can be planned.
    pub(crate) fn plan(&self) -> Option<&Plan> {
        match &self.outcome.decision {
            Decision::Planned(plan) => Some(plan),
            _ => None,
        }
    }

    pub(crate) fn is_secured(&self) -> bool {
        self.settings.requires_chain || self.requests_chain()
    }

    pub(crate) fn requests_chain(&self) -> bool {
        self.pod().requests_chain()
    }

    /// Returns name and list of each planned container: the auditors in order, then lucid-init.
    pub(crate) fn planned(&self) -> Vec<(&str, ContainerList)> {
        let Some(plan) = self.plan() else { return Vec::new() };
        let list = if plan.is_native() { ContainerList::InitContainers } else { ContainerList::Containers };
        let init = plan.init.iter().map(|init| (init.name.as_str(), ContainerList::InitContainers));
        plan.containers.iter().map(|planned| (planned.name.as_str(), list)).chain(init).collect()
    }

    pub(crate) fn is_unchanged(&self, list: ContainerList, container: &ContainerView<'_>) -> bool {
        self.before.contains(&(list, container.json()))
    }

    /// Returns `true` if a container of this name had the same image before the update.
    pub(crate) fn had_image(&self, list: ContainerList, container: &ContainerView<'_>) -> bool {
        self.images_before.contains(&(list, container.name(), container.image()))
    }

    pub(crate) fn is_label_old(&self, key: &str) -> bool {
        let old = self.subject.old.as_ref().filter(|_| self.is_pod());
        old.is_some_and(|old| old.label(key) == self.pod().label(key))
    }

    pub(crate) fn ticket(&self) -> Option<&'a str> {
        self.pod().label(keys::BREAK_GLASS)
    }
}
