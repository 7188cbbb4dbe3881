//! From a plan to the operations that make a pod follow it.

mod difference;
mod status;

use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use crate::{keys, plan::Plan, pod::PodView, warning::Warning};

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

    /// What of the pod had to give way.
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
    pub fn patch(&self, pod: &PodView<'_>) -> Patch {
        let mut patch = Patch::default();
        self.patch_containers(pod, &mut patch);
        self.patch_applications(pod, &mut patch);
        self.patch_status(pod, &mut patch);
        patch
    }

    fn patch_containers(&self, pod: &PodView<'_>, patch: &mut Patch) {
        if !pod.has_spec() {
            patch.add(&["spec"], json!({"containers": []}));
        } else if !pod.has_containers() {
            patch.add(&["spec", "containers"], json!([]));
        }
        for planned in &self.containers {
            let mut found = pod.containers().iter().enumerate();
            match found.find(|(_, container)| container.name() == planned.name) {
                None => patch.add(&["spec", "containers", "-"], planned.manifest()),
                Some((index, container)) => {
                    if let Some(difference) = planned.difference(container, pod) {
                        patch.replace(&["spec", "containers", &index.to_string()], planned.manifest());
                        let name = planned.name.clone();
                        patch.warnings.push(Warning::ContainerReplaced { name, difference });
                    }
                }
            }
        }
    }

    fn patch_applications(&self, pod: &PodView<'_>, patch: &mut Patch) {
        const NAME: &str = "AUDITOR_URL";
        let Some(url) = self.application_url() else { return };
        for (index, container) in pod.containers().iter().enumerate() {
            if !self.is_application(container) || container.env(NAME).is_some() {
                continue;
            }
            let index = index.to_string();
            let variable = json!({"name": NAME, "value": url});
            if container.has_env() {
                patch.add(&["spec", "containers", &index, "env", "-"], variable);
            } else {
                patch.add(&["spec", "containers", &index, "env"], json!([variable]));
            }
        }
    }

    fn patch_status(&self, pod: &PodView<'_>, patch: &mut Patch) {
        let status = self.status();
        if !pod.has_metadata() {
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
