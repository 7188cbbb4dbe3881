//! User IDs of the auditors.

use std::collections::BTreeSet;

use super::{FIRST_UID, names::Names};
use crate::{
    pod::{ContainerView, PodView},
    uid_range::UidRange,
    warning::Warning,
};

/// Assigns the uids of a chain of `number` members, which differ from each other and, within the `range` of the
/// namespace, from those of all other containers.
///
/// Without network rules, the order of the chain does not depend on uids. In a namespace with a range the members then
/// have none, and OpenShift sets one.
pub(super) fn assign(
    pod: &PodView<'_>,
    names: &Names<'_>,
    range: Option<UidRange>,
    redirects: bool,
    number: usize,
    warnings: &mut Vec<Warning>,
) -> Vec<Option<u32>> {
    if let Some(range) = range {
        if !redirects {
            return vec![None; number];
        }
        // Ephemeral containers come after the chain.
        let others = pod.containers().iter().chain(pod.init_containers());
        let others = others.filter(|found| !names.is_planned(found.name()));
        let users = others.filter_map(ContainerView::privileges).chain(pod.privileges());
        let used: BTreeSet<_> = users.filter_map(|context| context.run_as_user()).collect();
        let free = range.auditor_uids().filter(|uid| !used.contains(&i64::from(*uid)));
        let uids: Vec<_> = free.take(number).map(Some).collect();
        if uids.len() == number {
            return uids;
        }
        warnings.push(Warning::UidRangeTooSmall {
            range: range.to_string(),
            expected: number,
            found: uids.len(),
        });
    }
    (FIRST_UID..).map(Some).take(number).collect()
}
