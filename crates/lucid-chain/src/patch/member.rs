//! A planned container, whatever it is for.

use serde_json::Value;

use super::difference::difference;
use crate::{
    plan::{PlannedContainer, PlannedInit},
    pod::{ContainerView, PodView},
    warning::Warning,
};

#[derive(Debug, Clone, Copy)]
pub(super) enum Member<'p> {
    Auditor(&'p PlannedContainer),
    Init(&'p PlannedInit),
}

impl Member<'_> {
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Auditor(planned) => &planned.name,
            Self::Init(planned) => &planned.name,
        }
    }

    pub(super) fn manifest(self) -> Value {
        match self {
            Self::Auditor(planned) => planned.manifest(),
            Self::Init(planned) => planned.manifest(),
        }
    }

    /// The container of this name, and its place.
    pub(super) fn find<'v, 'a>(
        self,
        list: &'v [ContainerView<'a>],
    ) -> Option<(usize, &'v ContainerView<'a>)> {
        list.iter().enumerate().find(|(_, found)| found.name() == self.name())
    }

    pub(super) fn difference(self, found: &ContainerView<'_>, pod: &PodView<'_>) -> Option<String> {
        difference(&self.manifest(), found, pod)
    }

    /// What to say when `found`, which differs in `difference`, has to give way.
    pub(super) fn replaced(
        self,
        difference: String,
        found: &ContainerView<'_>,
        pod: &PodView<'_>,
    ) -> Warning {
        let name = self.name().to_owned();
        let before = match self {
            Self::Auditor(planned) => planned.as_planned_before(found).map(|before| before.manifest()),
            Self::Init(planned) => planned.as_planned_before(found).map(|before| before.manifest()),
        };
        let ours = before.is_some_and(|before| super::difference::difference(&before, found, pod).is_none());
        match ours {
            true => Warning::ContainerReplanned { name, difference },
            false => Warning::ContainerReplaced { name, difference },
        }
    }
}
