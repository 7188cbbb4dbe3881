//! Translation of a plan into JSON Patch operations.

mod added;
mod difference;
mod hardening;
mod identity;
mod status;

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    num::NonZeroU16,
};

use json_patch::{Patch, jsonptr::PointerBuf};

use added::Added;
use difference::difference;

pub(crate) use hardening::{Originals, restore};
pub use identity::{PATHS as TOKEN_PATHS, identity_env};

use crate::{
    catalogue::Resources,
    keys::{self, ANNOTATIONS_SIZE},
    plan::Plan,
    pod::{ContainerView, PodView},
    port::{begins_with_any, local_url},
    template::Filled,
    warning::Warning,
};
use lucid_text::json::to_string;

const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";

/// Operations that inject a chain into a pod or remove it, with their warnings.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct PodPatch {
    /// JSON Patch ([RFC 6902](https://www.rfc-editor.org/rfc/rfc6902)), with the escapes of Go; empty if the pod does
    /// not change.
    pub text: String,
    /// Warnings in addition to [`Outcome::warnings`](crate::Outcome::warnings): replaced parts of the pod, and
    /// obstacles that keep the plan from taking effect.
    pub warnings: Vec<Warning>,
}

impl PodPatch {
    /// Returns `true` if the patch does not change the pod.
    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// Returns the parsed operations.
    pub fn operations(&self) -> Patch {
        serde_json::from_str(&self.text).unwrap_or_default()
    }

    /// Adds an operation. `value` is JSON.
    fn push(&mut self, operation: &str, path: &[&str], value: Option<&str>) {
        self.text.pop();
        self.text.push(if self.text.is_empty() { '[' } else { ',' });
        let path = to_string(pointer(path).as_str());
        self.text.extend(["{\"op\":\"", operation, "\",\"path\":", &path]);
        self.text.extend(value.into_iter().flat_map(|value| [",\"value\":", value]));
        self.text.push_str("}]");
    }

    fn add(&mut self, path: &[&str], value: &str) {
        self.push("add", path, Some(value));
    }

    fn replace(&mut self, path: &[&str], value: &str) {
        self.push("replace", path, Some(value));
    }

    pub(crate) fn remove(&mut self, path: &[&str]) {
        self.push("remove", path, None);
    }

    pub(crate) fn warn(&mut self, warning: Warning) {
        self.warnings.push(warning);
    }

    fn replace_container(
        &mut self,
        path: &[&str],
        planned: &Member<'_>,
        found: &ContainerView<'_>,
        pod: &PodView<'_>,
    ) {
        let Some(warning) = planned.replacement_warning(found, pod) else { return };
        self.replace(path, &planned.filled.text());
        self.warnings.push(warning);
    }
}

struct Member<'p> {
    name: &'p str,
    resources: &'p Resources,
    filled: Filled<'p>,
    adapted: Box<Adapted<'p>>,
}

/// Returns the JSON of the container as an earlier plan from other inputs may have made it, given what is found.
type Adapted<'p> = dyn Fn(&ContainerView<'_>) -> Option<String> + 'p;

impl Member<'_> {
    /// Returns the warning for replacing `found`, which has this container's name; `None` if it is this container.
    fn replacement_warning(&self, found: &ContainerView<'_>, pod: &PodView<'_>) -> Option<Warning> {
        let difference_from = |planned: &str| difference(planned, self.resources, found, pod);
        let difference = difference_from(&self.filled.text())?;
        let before = (self.adapted)(found);
        let name = self.name.to_owned();
        Some(match before.is_some_and(|before| difference_from(&before).is_none()) {
            true => Warning::ContainerReplanned { name, difference },
            false => Warning::ContainerReplaced { name, difference },
        })
    }
}

impl Plan {
    /// Returns the operations that make `pod`, the pod that the plan was made for, follow the plan; none if it
    /// already does.
    ///
    /// An existing container with a planned name stays if it is the planned one, apart from additions by the API
    /// server and admission plugins, and is replaced otherwise. The annotation [`keys::STATUS`] is written but never
    /// trusted.
    ///
    /// Init containers are appended to those of the pod, which run with the original network. If the model is a
    /// native sidecar, they are inserted before it, so that no connection to it predates the rules.
    ///
    /// [`PodPatch::warnings`] lists what was replaced.
    pub fn patch(&self, pod: &PodView<'_>) -> PodPatch {
        let mut patch = PodPatch::default();
        let mut added = Added::read(pod);
        let members = self.members();
        let hash = self.hash(members.iter().map(|member| &member.filled));
        // First, while indices of containers are those of the original pod.
        let originals = self.patch_privileges(pod, added.originals(), &mut patch);
        self.patch_chain(pod, &members, &mut patch, &mut added);
        self.patch_status(pod, &hash, &mut patch, added, &originals);
        patch
    }

    /// Returns the part of [`patch`](Self::patch) that gives `pod` its chain, without hardening and status; empty if
    /// the pod has the chain.
    pub fn chain_patch(&self, pod: &PodView<'_>) -> PodPatch {
        let mut patch = PodPatch::default();
        self.patch_chain(pod, &self.members(), &mut patch, &mut Added::default());
        patch
    }

    fn members(&self) -> Vec<Member<'_>> {
        let auditors = self.containers.iter().map(|planned| Member {
            name: &planned.name,
            resources: planned.auditor.resources(),
            filled: planned.filled(),
            adapted: Box::new(|found| Some(planned.adapted_to(found)?.filled().text())),
        });
        let init = self.init.iter().map(|planned| Member {
            name: &planned.name,
            resources: &planned.resources,
            filled: planned.filled(),
            adapted: Box::new(|found| Some(planned.adapted_to(found)?.filled().text())),
        });
        auditors.chain(init).collect()
    }

    fn patch_chain(
        &self,
        pod: &PodView<'_>,
        members: &[Member<'_>],
        patch: &mut PodPatch,
        added: &mut Added,
    ) {
        // The rules are installed last. Otherwise they would redirect the kubelet's startup probes of later auditors
        // to the first one.
        let plain = if self.is_native() { 0 } else { self.containers.len() };
        let (containers, init_containers) = members.split_at(plain);
        self.patch_containers(pod, containers, patch);
        self.patch_init_containers(pod, init_containers, patch, added);
        self.patch_volumes(pod, patch, added);
        self.patch_applications(pod, patch, added);
        self.patch_pull_secrets(pod, patch, added);
        self.patch_profiles(pod, patch);
    }

    fn patch_containers(&self, pod: &PodView<'_>, members: &[Member<'_>], patch: &mut PodPatch) {
        let places = places(pod.containers());
        for member in members {
            match places.get(member.name) {
                None => patch.add(&["spec", "containers", "-"], &member.filled.text()),
                Some(&place) => {
                    let found = &pod.containers()[place];
                    patch.replace_container(&["spec", "containers", &place.to_string()], member, found, pod);
                }
            }
        }
    }

    fn patch_init_containers(
        &self,
        pod: &PodView<'_>,
        members: &[Member<'_>],
        patch: &mut PodPatch,
        added: &mut Added,
    ) {
        const LIST: [&str; 2] = ["spec", "initContainers"];
        if members.is_empty() {
            return;
        }
        if !pod.has_init_containers() {
            patch.add(&LIST, &list_of(members.iter().map(|member| member.filled.text())));
            added.insert(&LIST);
            return;
        }
        added.keep(&LIST);
        let list = pod.init_containers();
        let by_name = places(list);
        let present: Vec<_> = members.iter().map(|member| by_name.get(member.name).copied()).collect();
        let mut places: Vec<_> = present.iter().copied().flatten().collect();
        let model = self.model_sidecar(pod);
        let in_order = places.iter().copied().chain([model.unwrap_or(usize::MAX)]).is_sorted();
        if in_order && places.len() == members.len() {
            for (member, place) in members.iter().zip(places) {
                let place_text = place.to_string();
                let path = [LIST[0], LIST[1], &place_text];
                patch.replace_container(&path, member, &list[place], pod);
            }
            return;
        }

        // A container is missing or misplaced: remove and insert all of them.
        places.sort_unstable();
        for place in places.iter().rev() {
            patch.remove(&[&LIST[..], &[&place.to_string()]].concat());
        }
        for (member, place) in members.iter().zip(present) {
            let Some(place) = place else { continue };
            match member.replacement_warning(&list[place], pod) {
                Some(warning) => patch.warn(warning),
                None if in_order => {}
                None => patch.warn(Warning::ContainerMoved { name: member.name.to_owned() }),
            }
        }
        let model = model.map(|model| model - places.iter().filter(|place| **place < model).count());
        for (number, member) in members.iter().enumerate() {
            let place = model.map_or_else(|| "-".to_owned(), |model| (model + number).to_string());
            patch.add(&[&LIST[..], &[&place]].concat(), &member.filled.text());
        }
    }

    /// Names of planned and leftover auditors, which are not applications.
    fn names(&self) -> BTreeSet<&str> {
        self.containers
            .iter()
            .map(|planned| &planned.name)
            .chain(&self.leftovers)
            .map(String::as_str)
            .collect()
    }

    fn model_sidecar(&self, pod: &PodView<'_>) -> Option<usize> {
        let mut names = self.names();
        names.extend(self.init.as_ref().map(|init| init.name.as_str()));
        let foreign = pod.native_sidecars().filter(|(_, found)| !names.contains(found.name()));
        let mut models = foreign.filter(|(_, found)| self.is_model(found));
        models.next().map(|(place, _)| place)
    }

    /// Sets [`Plan::application_env`] in the applications. A value set by the user stays. A value set by an earlier
    /// plan is updated, because the first auditor may have moved: it begins with the address of the container that
    /// currently has the first auditor's name.
    fn patch_applications(&self, pod: &PodView<'_>, patch: &mut PodPatch, added: &mut Added) {
        let variables = self.application_env();
        if variables.is_empty() {
            return;
        }
        let before: Vec<_> = self.first_ports_before(pod).into_iter().map(local_url).collect();
        let is_ours = |value: &str| begins_with_any(value, &before);
        let names = self.names();
        let applications =
            pod.containers().iter().enumerate().filter(|(_, found)| !names.contains(found.name()));
        for (index, container) in applications {
            let index = index.to_string();
            let env = ["spec", "containers", &index, "env"];
            let by_name = ["spec", "containers", container.name(), "env"];
            let mut has_env = container.has_env();
            for (name, url) in &variables {
                let variable_by_name = [&by_name[..], &[name]].concat();
                match container.variable(name) {
                    None => {
                        let variable = format!("{{\"name\":\"{name}\",\"value\":{}}}", to_string(url));
                        if has_env {
                            patch.add(&[&env[..], &["-"]].concat(), &variable);
                            added.keep(&by_name);
                        } else {
                            patch.add(&env, &list_of([variable]));
                            added.insert(&by_name);
                            has_env = true;
                        }
                        added.insert(&variable_by_name);
                        continue;
                    }
                    Some((_, Some(value))) if value == *url => {}
                    Some((place, Some(value))) if is_ours(&value) => {
                        patch.replace(&[&env[..], &[&place.to_string(), "value"]].concat(), &to_string(url));
                    }
                    Some((_, found)) => patch.warn(Warning::AuditorUrlKept {
                        container: container.name().to_owned(),
                        variable: name,
                        found: found.map(Cow::into_owned),
                        expected: url.clone(),
                    }),
                }
                added.keep(&by_name);
                added.keep(&variable_by_name);
            }
        }
    }

    /// Returns the ports of the container that currently has the first auditor's name.
    fn first_ports_before(&self, pod: &PodView<'_>) -> BTreeSet<NonZeroU16> {
        let first = self.containers.first().map(|planned| planned.name.as_str());
        let found = pod.all_containers().filter(|found| Some(found.name()) == first);
        let ports = found.flat_map(ContainerView::ports).filter_map(|port| port.container_port());
        ports.filter_map(|port| u16::try_from(port).ok()).filter_map(NonZeroU16::new).collect()
    }

    fn patch_volumes(&self, pod: &PodView<'_>, patch: &mut PodPatch, added: &mut Added) {
        const LIST: [&str; 2] = ["spec", "volumes"];
        let volumes = self.volumes();
        if volumes.is_empty() {
            return;
        }
        if !pod.has_volumes() {
            added.insert(&LIST);
            volumes.iter().for_each(|(name, _)| added.insert(&[LIST[0], LIST[1], name]));
            patch.add(&LIST, &list_of(volumes.into_iter().map(|(_, volume)| volume.to_owned())));
            return;
        }
        added.keep(&LIST);
        for (name, volume) in volumes {
            let by_name = [LIST[0], LIST[1], name];
            match pod.volume(name) {
                None => {
                    patch.add(&[&LIST[..], &["-"]].concat(), volume);
                    added.insert(&by_name);
                }
                Some((_, found)) if found.is_planned(volume) => added.keep(&by_name),
                Some((place, _)) => {
                    patch.replace(&[&LIST[..], &[&place.to_string()]].concat(), volume);
                    patch.warn(Warning::VolumeReplaced { name: name.to_owned() });
                }
            }
        }
    }

    fn patch_pull_secrets(&self, pod: &PodView<'_>, patch: &mut PodPatch, added: &mut Added) {
        const LIST: [&str; 2] = ["spec", "imagePullSecrets"];
        let reference = |name: &String| format!("{{\"name\":{}}}", to_string(name));
        match pod.pull_secrets() {
            _ if self.image_pull_secrets.is_empty() => {}
            None => {
                patch.add(&LIST, &list_of(self.image_pull_secrets.iter().map(reference)));
                added.insert(&LIST);
                self.image_pull_secrets.iter().for_each(|name| added.insert(&[&LIST[..], &[name]].concat()));
            }
            Some(present) => {
                let present: Vec<_> = present.collect();
                added.keep(&LIST);
                for name in &self.image_pull_secrets {
                    let by_name = [&LIST[..], &[name]].concat();
                    if present.contains(&name.as_str()) {
                        added.keep(&by_name);
                    } else {
                        patch.add(&[&LIST[..], &["-"]].concat(), &reference(name));
                        added.insert(&by_name);
                    }
                }
            }
        }
    }

    /// Removes the deprecated AppArmor annotations of planned containers. The API server copies their profile into
    /// the container after all webhooks.
    fn patch_profiles(&self, pod: &PodView<'_>, patch: &mut PodPatch) {
        let names = self
            .init
            .iter()
            .map(|init| &init.name)
            .chain(self.containers.iter().map(|planned| &planned.name));
        for key in names.map(|name| format!("{APP_ARMOR}{name}")) {
            if pod.annotation(&key).is_some() {
                patch.remove(&["metadata", "annotations", &key]);
                patch.warn(Warning::ProfileTakenAway { key });
            }
        }
    }

    fn patch_status(
        &self,
        pod: &PodView<'_>,
        hash: &str,
        patch: &mut PodPatch,
        mut added: Added,
        originals: &Originals,
    ) {
        const ANNOTATIONS: [&str; 2] = ["metadata", "annotations"];
        match (pod.has_metadata(), pod.has_annotations()) {
            (false, _) => added.insert(&["metadata"]),
            (_, false) => added.insert(&ANNOTATIONS),
            _ => {
                added.keep(&["metadata"]);
                added.keep(&ANNOTATIONS);
            }
        }
        let status = self.status(hash, &added, originals);
        let size = pod.annotations_size(keys::STATUS) + keys::STATUS.len() + status.len();
        let annotations = || format!("{{\"{}\":{}}}", keys::STATUS, to_string(&status));
        if size > ANNOTATIONS_SIZE {
            patch.warn(Warning::StatusLeftOut { size });
            // A missing annotation is better than a forged or outdated one.
            if pod.annotation(keys::STATUS).is_some() {
                patch.remove(&["metadata", "annotations", keys::STATUS]);
            }
        } else if !pod.has_metadata() {
            patch.add(&["metadata"], &format!("{{\"annotations\":{}}}", annotations()));
        } else if !pod.has_annotations() {
            patch.add(&ANNOTATIONS, &annotations());
        } else if pod.annotation(keys::STATUS) != Some(&status) {
            patch.add(&["metadata", "annotations", keys::STATUS], &to_string(&status));
        }
    }
}

/// Maps names to indices; the first container of each name counts.
fn places<'v>(list: &'v [ContainerView<'_>]) -> BTreeMap<&'v str, usize> {
    // The last of several equal keys remains.
    list.iter().enumerate().rev().map(|(place, found)| (found.name(), place)).collect()
}

fn list_of(items: impl IntoIterator<Item = String>) -> String {
    format!("[{}]", items.into_iter().collect::<Vec<_>>().join(","))
}

pub(crate) fn pointer(path: &[&str]) -> PointerBuf {
    PointerBuf::from_tokens(path.iter().copied())
}
