//! Container names that are unique in the pod.

use std::collections::BTreeSet;

use crate::{
    catalogue::Auditor,
    keys,
    pod::{ContainerView, PodView},
    warning::Warning,
};

/// The longest container name: a DNS label (RFC 1123).
const LONGEST: usize = 63;

/// The names of the pod's containers and of those that are planned.
///
/// A container that carries a planned name and stands in the list where the planned one belongs is taken to be that one,
/// or to be replaced by it. One in another list cannot be replaced there, so its name is avoided.
pub(super) struct Names<'v> {
    native: bool,
    containers: BTreeSet<&'v str>,
    init_containers: BTreeSet<&'v str>,
    ephemeral_containers: BTreeSet<&'v str>,
    planned: BTreeSet<String>,
    avoided: BTreeSet<String>,
}

impl<'v> Names<'v> {
    /// The names in a pod whose auditors are to be init containers or not.
    pub(super) fn of(pod: &'v PodView<'_>, native: bool) -> Self {
        let names = |list: &'v [ContainerView<'_>]| list.iter().map(ContainerView::name).collect();
        Self {
            native,
            containers: names(pod.containers()),
            init_containers: names(pod.init_containers()),
            ephemeral_containers: names(pod.ephemeral_containers()),
            planned: BTreeSet::new(),
            avoided: BTreeSet::new(),
        }
    }

    /// Whether something is planned under this name.
    pub(super) fn are_planned(&self, name: &str) -> bool {
        self.planned.contains(name)
    }

    /// The name of each auditor's container: the auditor's own for its first occurrence, then `name-2`, `name-3` and so
    /// on.
    pub(super) fn of_auditors(&mut self, chain: &[&Auditor], warnings: &mut Vec<Warning>) -> Vec<String> {
        chain.iter().map(|auditor| self.give(auditor.name(), self.native, warnings)).collect()
    }

    /// The name of the init container that installs the network rules.
    pub(super) fn of_init(&mut self, warnings: &mut Vec<Warning>) -> String {
        self.give(keys::INIT_CONTAINER, true, warnings)
    }

    fn give(&mut self, stem: &str, init: bool, warnings: &mut Vec<Warning>) -> String {
        let other = if init { &self.containers } else { &self.init_containers };
        let mut avoided = Vec::new();
        let mut number = 1;
        let given = loop {
            let name = numbered(stem, number);
            number += 1;
            if self.planned.contains(&name) {
                continue;
            }
            if !other.contains(name.as_str()) && !self.ephemeral_containers.contains(name.as_str()) {
                break name;
            }
            // Once is enough to hear of it.
            if self.avoided.insert(name.clone()) {
                avoided.push(name);
            }
        };
        warnings.extend(avoided.into_iter().map(|name| Warning::NameTaken { name, given: given.clone() }));
        self.planned.insert(given.clone());
        given
    }
}

/// `stem` with its number, the stem shortened where both together are too long.
fn numbered(stem: &str, number: usize) -> String {
    if number == 1 {
        return stem.to_owned();
    }
    let suffix = format!("-{number}");
    let kept: String = stem.chars().take(LONGEST - suffix.len()).collect();
    format!("{}{suffix}", kept.trim_end_matches('-'))
}

/// Whether the name is one that [`Names::of_init`] gives.
pub(super) fn is_init(name: &str) -> bool {
    name.strip_prefix(keys::INIT_CONTAINER).is_some_and(|rest| {
        let number = rest.strip_prefix('-').unwrap_or_default();
        rest.is_empty() || !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    })
}
