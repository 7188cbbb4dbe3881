//! From a plan to the operations that make a pod follow it.

mod difference;
mod status;

use std::num::NonZeroU16;

use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use crate::{
    keys,
    plan::{Plan, local_url},
    pod::{ContainerView, PodView},
    warning::Warning,
};

/// The most bytes of all keys and values of an object's annotations (`TotalAnnotationSizeLimitB`).
pub(crate) const ANNOTATIONS_SIZE: usize = 256 * 1024;

/// A JSON Patch ([RFC 6902](https://www.rfc-editor.org/rfc/rfc6902)). It serialises to the list
/// of its operations.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Patch {
    operations: Vec<Operation>,
    warnings: Vec<Warning>,
}

impl Patch {
    /// The operations, to be applied in order.
    pub fn operations(&self) -> &[Operation] {
        &self.operations
    }

    /// What of the pod had to give way, or keeps the plan from taking effect. These come on top of
    /// [`Outcome::warnings`](crate::Outcome::warnings): tell the user both.
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// Whether the pod already follows the plan.
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    fn add(&mut self, path: &[&str], value: Value) {
        self.operations.push(Operation::Add { path: pointer(path), value });
    }

    fn replace(&mut self, path: &[&str], value: Value) {
        self.operations.push(Operation::Replace { path: pointer(path), value });
    }
}

impl Serialize for Patch {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.operations.serialize(serializer)
    }
}

/// One operation of a [`Patch`].
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "op", rename_all = "lowercase")]
#[non_exhaustive]
pub enum Operation {
    /// Sets a member or inserts into a list.
    Add {
        /// JSON pointer ([RFC 6901](https://www.rfc-editor.org/rfc/rfc6901)).
        path: String,
        /// The new value.
        value: Value,
    },
    /// Puts another value in the place of one that is there.
    Replace {
        /// JSON pointer ([RFC 6901](https://www.rfc-editor.org/rfc/rfc6901)).
        path: String,
        /// The new value.
        value: Value,
    },
}

impl Plan {
    /// The operations that make `pod`, the pod the plan was made for, follow the plan; none when
    /// it does already.
    ///
    /// A container that is there under a planned name stays when it is the planned one, whatever
    /// the API server and its admission plugins have filled in since, and is replaced otherwise.
    /// The annotation [`keys::STATUS`] is written but never relied on.
    ///
    /// What the user should hear about the pod as it was is in [`Patch::warnings`].
    pub fn patch(&self, pod: &PodView<'_>) -> Patch {
        let mut patch = Patch::default();
        self.patch_containers(pod, &mut patch);
        self.patch_applications(pod, &mut patch);
        self.patch_status(pod, &mut patch);
        patch
    }

    fn patch_containers(&self, pod: &PodView<'_>, patch: &mut Patch) {
        for planned in &self.containers {
            let mut found = pod.containers().iter().enumerate();
            let Some((index, found)) = found.find(|(_, found)| found.name() == planned.name) else {
                patch.add(&["spec", "containers", "-"], planned.manifest());
                continue;
            };
            let Some(difference) = planned.difference(found, pod) else { continue };
            let before = planned.as_planned_before(found);
            let ours = before.is_some_and(|before| before.difference(found, pod).is_none());
            let name = planned.name.clone();
            patch.replace(&["spec", "containers", &index.to_string()], planned.manifest());
            patch.warnings.push(match ours {
                true => Warning::ContainerReplanned { name, difference },
                false => Warning::ContainerReplaced { name, difference },
            });
        }
    }

    /// What the user set stays. The first auditor's address that an earlier planning set does not, for that auditor may
    /// have moved: it is known by its value, the address of the container that stands in the pod under that name.
    fn patch_applications(&self, pod: &PodView<'_>, patch: &mut Patch) {
        const NAME: &str = "AUDITOR_URL";
        let Some(url) = self.application_url() else { return };
        let before = self.application_urls_before(pod);
        let applications = pod.containers().iter().enumerate();
        for (index, container) in applications.filter(|(_, found)| self.is_application(found)) {
            let index = index.to_string();
            let env = ["spec", "containers", &index, "env"];
            let variable = json!({"name": NAME, "value": url});
            match container.variable(NAME) {
                None if container.has_env() => patch.add(&[&env[..], &["-"]].concat(), variable),
                None => patch.add(&env, json!([variable])),
                Some((_, Some(value))) if value == url => {}
                Some((place, Some(value))) if before.iter().any(|before| before == value) => {
                    patch.replace(&[&env[..], &[&place.to_string(), "value"]].concat(), json!(url));
                }
                Some((_, found)) => patch.warnings.push(Warning::AuditorUrlKept {
                    container: container.name().to_owned(),
                    found: found.map(str::to_owned),
                    expected: url.clone(),
                }),
            }
        }
    }

    /// The addresses of the first auditor as it stands in the pod.
    fn application_urls_before(&self, pod: &PodView<'_>) -> Vec<String> {
        let first = self.containers.first().map(|planned| planned.name.as_str());
        let found = pod.containers().iter().filter(|found| Some(found.name()) == first);
        let ports = found.flat_map(ContainerView::ports).filter_map(|port| port.container_port());
        ports.filter_map(|port| u16::try_from(port).ok()).filter_map(NonZeroU16::new).map(local_url).collect()
    }

    fn patch_status(&self, pod: &PodView<'_>, patch: &mut Patch) {
        let status = self.status();
        let size = pod.annotations_size(keys::STATUS) + keys::STATUS.len() + status.len();
        if size > ANNOTATIONS_SIZE {
            patch.warnings.push(Warning::StatusLeftOut { size });
        } else if !pod.has_metadata() {
            patch.add(&["metadata"], json!({"annotations": {keys::STATUS: status}}));
        } else if !pod.has_annotations() {
            patch.add(&["metadata", "annotations"], json!({keys::STATUS: status}));
        } else if pod.annotation(keys::STATUS) != Some(&status) {
            patch.add(&["metadata", "annotations", keys::STATUS], json!(status));
        }
    }
}

/// The JSON pointer of a path, with `~` and `/` escaped in its parts.
fn pointer(path: &[&str]) -> String {
    path.iter().map(|part| format!("/{}", part.replace('~', "~0").replace('/', "~1"))).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn parts_of_a_pointer_are_escaped() {
        assert_eq!(super::pointer(&["a/b", "~1", "-"]), "/a~1b/~01/-");
    }
}
