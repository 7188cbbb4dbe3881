//! What injection adds beside the auditors' containers, so that taking it out again gives the pod as it was.

use std::collections::BTreeSet;

use serde::Deserialize;

use super::{ANNOTATIONS_SIZE, Originals, pointer};
use crate::{keys, pod::PodView};

/// JSON pointers, those into a list with the item's name in place of its number:
/// `/spec/initContainers` for a list that was not there, `/spec/containers/web/env/AUDITOR_URL` for a variable.
#[derive(Debug, Default)]
pub(crate) struct Added {
    /// What the annotation [`keys::STATUS`] says. Whoever forges it changes what stands there later, and no more.
    before: BTreeSet<String>,
    now: BTreeSet<String>,
    originals: Originals,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    added: BTreeSet<String>,
    hardened: Originals,
}

impl Added {
    /// What an earlier planning added to `pod`.
    pub(crate) fn before(pod: &PodView<'_>) -> Self {
        let status = pod.annotation(keys::STATUS).filter(|status| status.len() <= ANNOTATIONS_SIZE);
        let status = status.and_then(|status| serde_json::from_str::<Status>(status).ok());
        let Status { added, hardened } = status.unwrap_or_default();
        Self { before: added, now: BTreeSet::new(), originals: hardened }
    }

    /// Takes the original security contexts that an earlier planning noted.
    pub(super) fn originals(&mut self) -> Originals {
        std::mem::take(&mut self.originals)
    }

    /// This is added now.
    pub(super) fn insert(&mut self, path: &[&str]) {
        self.now.insert(pointer(path));
    }

    /// This is there already; perhaps it was added before.
    pub(super) fn keep(&mut self, path: &[&str]) {
        let pointer = pointer(path);
        if self.before.contains(&pointer) {
            self.now.insert(pointer);
        }
    }

    /// All of it, sorted.
    pub(super) fn pointers(&self) -> &BTreeSet<String> {
        &self.now
    }
}
