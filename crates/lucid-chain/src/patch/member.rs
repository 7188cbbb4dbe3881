//! A planned container of either kind.

use std::collections::BTreeMap;

use serde_json::Value;

use super::difference::{difference, json_of};
use crate::{
    plan::{PlannedContainer, PlannedInit},
    pod::{ContainerView, PodView},
    warning::Warning,
};

/// A planned container and its manifest, which is built once.
#[derive(Debug)]
pub(super) struct Member<'p> {
    planned: Planned<'p>,
    pub(super) manifest: Value,
}

#[derive(Debug)]
enum Planned<'p> {
    Auditor(&'p PlannedContainer),
    Init(&'p PlannedInit),
}

impl<'p> Member<'p> {
    pub(super) fn auditor(planned: &'p PlannedContainer) -> Self {
        Self { manifest: planned.manifest(), planned: Planned::Auditor(planned) }
    }

    pub(super) fn init(planned: &'p PlannedInit) -> Self {
        Self { manifest: planned.manifest(), planned: Planned::Init(planned) }
    }

    pub(super) fn name(&self) -> &'p str {
        match self.planned {
            Planned::Auditor(planned) => &planned.name,
            Planned::Init(planned) => &planned.name,
        }
    }

    /// Returns the warning for replacing `found`, which has this container's name; `None` if it is this container.
    pub(super) fn replacement_warning(
        &self,
        found: &ContainerView<'_>,
        pod: &PodView<'_>,
    ) -> Option<Warning> {
        let json = json_of(found);
        let resources = match self.planned {
            Planned::Auditor(planned) => planned.auditor.resources(),
            Planned::Init(planned) => &planned.resources,
        };
        let difference = difference(&self.manifest, resources, &json, pod)?;
        let name = self.name().to_owned();
        let before = match self.planned {
            Planned::Auditor(planned) => planned.adapted_to(found, &json).map(|before| before.manifest()),
            Planned::Init(planned) => planned.adapted_to(found).map(|before| before.manifest()),
        };
        let ours = before
            .is_some_and(|before| super::difference::difference(&before, resources, &json, pod).is_none());
        Some(match ours {
            true => Warning::ContainerReplanned { name, difference },
            false => Warning::ContainerReplaced { name, difference },
        })
    }
}

/// Maps names to indices; the first container of each name counts.
pub(super) fn places<'v>(list: &'v [ContainerView<'_>]) -> BTreeMap<&'v str, usize> {
    // The last of several equal keys remains.
    list.iter().enumerate().rev().map(|(place, found)| (found.name(), place)).collect()
}
