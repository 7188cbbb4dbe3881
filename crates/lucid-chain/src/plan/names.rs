//! Container names that are unique in the pod.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    catalogue::Auditor,
    keys,
    pod::{ContainerView, PodView},
    warning::Warning,
};

/// Maximum length of a container name: a DNS label (RFC 1123).
const LONGEST: usize = 63;

/// Names of existing and planned containers.
///
/// An existing container with a planned name in the same list is either the planned container or replaced by it. A
/// name in another list cannot be reused, so it is avoided.
pub(super) struct Names<'v> {
    native: bool,
    containers: BTreeSet<&'v str>,
    init_containers: BTreeSet<&'v str>,
    ephemeral_containers: BTreeSet<&'v str>,
    planned: BTreeSet<String>,
    avoided: BTreeSet<String>,
    /// Next number to try, by stem and by whether the name is for an init container.
    next: BTreeMap<(String, bool), usize>,
}

impl<'v> Names<'v> {
    /// Collects the names in a pod. `native`: the auditors are init containers.
    pub(super) fn from_pod(pod: &'v PodView<'_>, native: bool) -> Self {
        let names = |list: &'v [ContainerView<'_>]| list.iter().map(ContainerView::name).collect();
        Self {
            native,
            containers: names(pod.containers()),
            init_containers: names(pod.init_containers()),
            ephemeral_containers: names(pod.ephemeral_containers()),
            planned: BTreeSet::new(),
            avoided: BTreeSet::new(),
            next: BTreeMap::new(),
        }
    }

    pub(super) fn is_planned(&self, name: &str) -> bool {
        self.planned.contains(name)
    }

    /// Assigns container names: the auditor's name for its first occurrence, then `name-2`, `name-3` and so on.
    pub(super) fn assign_auditors(&mut self, chain: &[&Auditor], warnings: &mut Vec<Warning>) -> Vec<String> {
        chain.iter().map(|auditor| self.assign(auditor.name(), self.native, warnings)).collect()
    }

    pub(super) fn assign_init(&mut self, warnings: &mut Vec<Warning>) -> String {
        self.assign(keys::INIT_CONTAINER, true, warnings)
    }

    fn assign(&mut self, stem: &str, init: bool, warnings: &mut Vec<Warning>) -> String {
        let other = if init { &self.containers } else { &self.init_containers };
        let mut avoided = Vec::new();
        let number = self.next.entry((stem.to_owned(), init)).or_insert(1);
        let given = loop {
            let name = numbered(stem, *number);
            *number += 1;
            if self.planned.contains(&name) {
                continue;
            }
            if !other.contains(name.as_str()) && !self.ephemeral_containers.contains(name.as_str()) {
                break name;
            }
            // Warn only once for each name.
            if self.avoided.insert(name.clone()) {
                avoided.push(name);
            }
        };
        warnings.extend(avoided.into_iter().map(|name| Warning::NameTaken { name, given: given.clone() }));
        self.planned.insert(given.clone());
        given
    }
}

/// Appends the number to `stem`, truncating the stem to fit.
fn numbered(stem: &str, number: usize) -> String {
    if number == 1 {
        return stem.to_owned();
    }
    let suffix = format!("-{number}");
    let kept: String = stem.chars().take(LONGEST - suffix.len()).collect();
    format!("{}{suffix}", kept.trim_end_matches('-'))
}

pub(super) fn is_init_name(name: &str) -> bool {
    name.strip_prefix(keys::INIT_CONTAINER).is_some_and(|rest| {
        let number = rest.strip_prefix('-').unwrap_or_default();
        rest.is_empty() || !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    })
}
