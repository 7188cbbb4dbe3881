//! Record of what injection adds to a pod besides containers, which removal reads to restore the pod.

use std::collections::BTreeSet;

use serde::Deserialize;

use super::{Originals, pointer};
use crate::{
    keys::{self, ANNOTATIONS_SIZE},
    pod::PodView,
};

/// JSON pointers. List items are addressed by name instead of index: `/spec/initContainers` for a list that was
/// absent, `/spec/containers/web/env/AUDITOR_URL` for a variable.
#[derive(Debug, Default)]
pub(crate) struct Added {
    /// Content of the annotation [`keys::STATUS`]. A forged value affects only what the next annotation says.
    previous: BTreeSet<String>,
    current: BTreeSet<String>,
    originals: Originals,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    added: BTreeSet<String>,
    hardened: Originals,
}

impl Added {
    pub(crate) fn read(pod: &PodView<'_>) -> Self {
        let status = pod.annotation(keys::STATUS).filter(|status| status.len() <= ANNOTATIONS_SIZE);
        let status = status.and_then(|status| serde_json::from_str::<Status>(status).ok());
        let Status { added, hardened } = status.unwrap_or_default();
        Self { previous: added, current: BTreeSet::new(), originals: hardened }
    }

    pub(super) fn originals(&mut self) -> Originals {
        std::mem::take(&mut self.originals)
    }

    pub(super) fn insert(&mut self, path: &[&str]) {
        self.current.insert(pointer(path).to_string());
    }

    /// Records something already present if an earlier plan added it.
    pub(super) fn keep(&mut self, path: &[&str]) {
        let pointer = pointer(path);
        if self.previous.contains(pointer.as_str()) {
            self.current.insert(pointer.to_string());
        }
    }

    pub(super) fn pointers(&self) -> &BTreeSet<String> {
        &self.current
    }
}
