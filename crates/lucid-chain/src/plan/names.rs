//! Container names that are unique in the pod.

use std::collections::BTreeSet;

use crate::{
    catalogue::Auditor,
    pod::{ContainerView, PodView},
    warning::Warning,
};

/// The longest container name: a DNS label (RFC 1123).
const LONGEST: usize = 63;

/// The name of each auditor's container: the auditor's own for its first occurrence, then
/// `name-2`, `name-3` and so on.
///
/// A container of the pod that carries such a name is taken to be the auditor's, or to be replaced
/// by it. An init or ephemeral container cannot be replaced by a container, so its name is avoided.
pub(super) fn container_names(
    pod: &PodView<'_>,
    chain: &[&Auditor],
    warnings: &mut Vec<Warning>,
) -> Vec<String> {
    let mut fixed: BTreeSet<&str> = [pod.init_containers(), pod.ephemeral_containers()]
        .into_iter()
        .flatten()
        .map(ContainerView::name)
        .collect();
    let mut used = BTreeSet::new();
    let mut names = Vec::with_capacity(chain.len());
    for auditor in chain {
        let mut avoided = Vec::new();
        let mut number = 1;
        let given = loop {
            let name = numbered(auditor.name(), number);
            if fixed.remove(name.as_str()) {
                avoided.push(name.clone());
                used.insert(name);
            } else if used.insert(name.clone()) {
                break name;
            }
            number += 1;
        };
        let taken = |name| Warning::NameTaken { name, given: given.clone() };
        warnings.extend(avoided.into_iter().map(taken));
        names.push(given);
    }
    names
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
