//! Pods that no chain fits into. The API server would refuse them too, or a node could not run them, but with a
//! message that names a container the user never wrote.

use serde_json::Value;
use snafu::{Snafu, ensure};

use super::PlannedContainer;
use crate::{
    pod::{ContainerView, PodView},
    quantity::Quantity,
};

/// Why there is no plan for a pod.
#[derive(Debug, Clone, PartialEq, Eq, Snafu)]
#[non_exhaustive]
pub enum ImpossibleReason {
    /// The pod declares every port an auditor could take.
    #[snafu(display("failed to find a free port for {container}: the pod declares all of them"))]
    NoFreePort {
        /// The auditor's container.
        container: String,
    },
    /// There is nothing to stand in front of.
    #[snafu(display("failed to make an auditor chain: spec.containers is empty, accepted at least one container"))]
    NoContainers,
    /// The pod is for Windows nodes.
    #[snafu(display(
        "failed to make an auditor chain: spec.os.name is windows, accepted linux, for which auditors are made"
    ))]
    Windows,
    /// `spec.resources`, which holds for the whole pod, leaves no room for the auditors.
    #[snafu(display(
        "failed to fit the auditors into spec.resources: {list}.{resource} is {found}, accepted at least {needed}, \
         which {} of the pod with its auditors",
        if *list == "requests" { "is the sum of the containers" } else { "is the largest of the containers" }
    ))]
    PodResources {
        /// `requests` or `limits`.
        list: &'static str,
        /// The resource.
        resource: String,
        /// What the pod has.
        found: String,
        /// What it needs.
        needed: String,
    },
}

/// Whether any chain fits into `pod`.
pub(super) fn check_pod(pod: &PodView<'_>) -> Result<(), ImpossibleReason> {
    ensure!(!pod.is_windows(), WindowsSnafu);
    ensure!(!pod.containers().is_empty(), NoContainersSnafu);
    Ok(())
}

/// Whether what the `auditors` ask for fits into `spec.resources` beside the other containers of the pod. What init
/// containers ask for is left to the API server.
pub(super) fn check_resources<'v, 'a: 'v>(
    pod: &'v PodView<'a>,
    others: impl Iterator<Item = &'v ContainerView<'a>>,
    auditors: &[PlannedContainer],
) -> Result<(), ImpossibleReason> {
    let Some(resources) = pod.resources() else { return Ok(()) };
    let others: Vec<Value> =
        others.map(|container| serde_json::from_str(container.json()).unwrap_or_default()).collect();
    let of_pod = |list: &Option<_>, name| Quantity::from_json(list.as_ref()?.get(name)?);
    for auditor in auditors {
        for (name, limit) in &auditor.resources.limits {
            let limits = resources.limits.as_ref();
            let found = limits.and_then(|list| list.get(name.as_str())).and_then(Quantity::from_json);
            check_room("limits", name, found, Quantity::parse(limit).unwrap_or(Quantity::ZERO))?;
        }
    }
    Ok(())
}
