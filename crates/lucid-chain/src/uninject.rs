//! Removal of an injected chain from a pod.

use std::collections::BTreeSet;

use lucid_text::Excerpt;
use serde::Deserialize;
use serde_json::Value;

use crate::{
    keys,
    patch::{Originals, PodPatch, restore},
    plan::BASE_URL_ENV,
    port::{begins_with_any, local_port, local_url},
    redirect::Redirect,
    warning::Warning,
};

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    chain: BTreeSet<String>,
    init: Option<String>,
    added: BTreeSet<String>,
    hardened: Originals,
}

/// Returns the operations that restore `pod`, the JSON of a core/v1 Pod or a pod template, to its state before
/// [`Plan::patch`]. The patch is empty for a pod that was never injected.
///
/// The annotation [`keys::STATUS`] lists what to remove, but is not trusted. A container is removed only if its
/// environment variables identify it as an auditor or as the init container with the network rules, so a forged
/// annotation cannot remove an application.
///
/// Containers and variables that injection replaced cannot be restored; injection reported them as warnings. A list
/// or map that was `null` is absent afterwards, which is equivalent in Kubernetes.
///
/// ```
/// let pod = serde_json::json!({"spec": {"containers": [{"name": "web"}]}});
/// assert!(lucid_chain::uninject(&pod).is_empty());
/// ```
///
/// [`Plan::patch`]: crate::Plan::patch
pub fn uninject(pod: &Value) -> PodPatch {
    let mut patch = PodPatch::default();
    let Some(written) = pod["metadata"]["annotations"][keys::STATUS].as_str() else {
        let lists =
            ["containers", "initContainers"].into_iter().filter_map(|key| pod["spec"][key].as_array());
        let auditor = lists.flatten().find(|it| variable(it, keys::AUDITOR_ID_ENV).is_some());
        if let Some(name) = auditor.and_then(|auditor| auditor["name"].as_str()) {
            patch.warn(Warning::StatusMissing { name: Excerpt(name).to_string() });
        }
        return patch;
    };
    let Ok(status) = serde_json::from_str::<Status>(written) else {
        patch.warn(Warning::StatusUnreadable { found: Excerpt(written).to_string() });
        return patch;
    };
    let uninjection = Uninjection { pod, status };
    uninjection.remove_variables(&mut patch);
    uninjection.restore_privileges("containers", &mut patch);
    uninjection.restore_privileges("initContainers", &mut patch);
    uninjection.remove_containers("containers", &mut patch);
    uninjection.remove_containers("initContainers", &mut patch);
    uninjection.remove_items("imagePullSecrets", &mut patch);
    uninjection.remove_items("volumes", &mut patch);
    uninjection.warn_missing(&mut patch);
    uninjection.remove_annotation(&mut patch);
    patch
}

struct Uninjection<'p> {
    pod: &'p Value,
    status: Status,
}

impl Uninjection<'_> {
    fn list(&self, key: &str) -> &[Value] {
        self.pod["spec"][key].as_array().map(Vec::as_slice).unwrap_or_default()
    }

    fn was_added(&self, path: &[&str]) -> bool {
        self.status.added.contains(crate::patch::pointer(path).as_str())
    }

    fn is_named(&self, container: &Value) -> bool {
        let Some(name) = container["name"].as_str() else { return false };
        self.status.chain.contains(name) || self.status.init.as_deref() == Some(name)
    }

    fn is_injected(&self, container: &Value) -> bool {
        let Some(name) = container["name"].as_str() else { return false };
        let is_auditor = self.status.chain.contains(name)
            && variable(container, keys::AUDITOR_ID_ENV) == Some(name)
            && variable(container, keys::CHAIN_NEXT_ENV).is_some_and(|url| local_port(url).is_some());
        let is_init = self.status.init.as_deref() == Some(name)
            && variable(container, keys::REDIRECT_ENV).is_some_and(|json| Redirect::from_json(json).is_ok());
        is_auditor || is_init
    }

    fn remove_containers(&self, key: &str, patch: &mut PodPatch) {
        let list = self.list(key);
        let injected: Vec<_> = (0..list.len()).filter(|&place| self.is_injected(&list[place])).collect();
        for container in list.iter().filter(|it| !self.is_injected(it)) {
            let name = Excerpt(container["name"].as_str().unwrap_or_default()).to_string();
            if self.is_named(container) {
                patch.warn(Warning::NotInjected { name });
            } else if variable(container, keys::AUDITOR_ID_ENV).is_some() {
                patch.warn(Warning::AuditorNotListed { name });
            }
        }
        if !list.is_empty() && injected.len() == list.len() && self.was_added(&["spec", key]) {
            patch.remove(&["spec", key]);
            return;
        }
        for place in injected.iter().rev() {
            patch.remove(&["spec", key, &place.to_string()]);
        }
    }

    /// Removes the variables of [`Plan::application_env`](crate::Plan::application_env) that have the address of an
    /// auditor.
    fn remove_variables(&self, patch: &mut PodPatch) {
        let auditors = || self.list("containers").iter().chain(self.list("initContainers"));
        let urls: BTreeSet<_> = auditors()
            .filter(|container| self.is_injected(container))
            .filter_map(|auditor| variable(auditor, keys::AUDITOR_PORT_ENV)?.parse().ok().map(local_url))
            .collect();
        let is_address = |value: &str| begins_with_any(value, &urls);
        for (place, container) in self.list("containers").iter().enumerate() {
            let (Some(container_name), Some(env)) = (container["name"].as_str(), container["env"].as_array())
            else {
                continue;
            };
            if self.is_injected(container) {
                continue;
            }
            let by_name = ["spec", "containers", container_name, "env"];
            let found: Vec<_> = std::iter::once(keys::AUDITOR_URL_ENV)
                .chain(BASE_URL_ENV)
                .filter(|name| self.was_added(&[&by_name[..], &[name]].concat()))
                .filter_map(|name| {
                    env.iter()
                        .rposition(|it| it["name"] == name && it["value"].as_str().is_some_and(is_address))
                })
                .collect::<BTreeSet<_>>()
                .into_iter()
                .rev()
                .collect();
            let place = place.to_string();
            let path = ["spec", "containers", &place, "env"];
            if !found.is_empty() && found.len() == env.len() && self.was_added(&by_name) {
                patch.remove(&path);
                continue;
            }
            for index in found {
                patch.remove(&[&path[..], &[&index.to_string()]].concat());
            }
        }
    }

    fn restore_privileges(&self, list: &str, patch: &mut PodPatch) {
        for (place, container) in self.list(list).iter().enumerate() {
            let name = container["name"].as_str().unwrap_or_default();
            let Some(original) = self.status.hardened.get(&format!("{list}/{name}")) else { continue };
            let path = ["spec", list, &place.to_string(), "securityContext"];
            restore(&path, &container["securityContext"], original, patch);
        }
    }

    fn remove_items(&self, key: &str, patch: &mut PodPatch) {
        let list = self.list(key);
        let name = |place: &usize| list[*place]["name"].as_str().unwrap_or_default();
        let added: Vec<_> =
            (0..list.len()).filter(|place| self.was_added(&["spec", key, name(place)])).collect();
        if !list.is_empty() && added.len() == list.len() && self.was_added(&["spec", key]) {
            patch.remove(&["spec", key]);
            return;
        }
        for place in added.iter().rev() {
            patch.remove(&["spec", key, &place.to_string()]);
        }
    }

    /// Warns of containers that the status annotation names but the pod does not have.
    fn warn_missing(&self, patch: &mut PodPatch) {
        let found: BTreeSet<_> = ["containers", "initContainers"]
            .into_iter()
            .flat_map(|key| self.list(key))
            .filter_map(|container| container["name"].as_str())
            .collect();
        let named = self.status.chain.iter().chain(&self.status.init);
        for name in named.filter(|name| !found.contains(name.as_str())) {
            patch.warn(Warning::InjectedMissing { name: Excerpt(name).to_string() });
        }
    }

    fn remove_annotation(&self, patch: &mut PodPatch) {
        const PATH: [&str; 3] = ["metadata", "annotations", keys::STATUS];
        let alone = |value: &Value| value.as_object().is_some_and(|members| members.len() == 1);
        let metadata = &self.pod["metadata"];
        let kept = match (alone(metadata), alone(&metadata["annotations"])) {
            (true, true) if self.was_added(&PATH[..1]) => 1,
            (_, true) if self.was_added(&PATH[..1]) || self.was_added(&PATH[..2]) => 2,
            _ => 3,
        };
        patch.remove(&PATH[..kept]);
    }
}

/// Returns the value of an environment variable; the last one if there are several.
fn variable<'c>(container: &'c Value, name: &str) -> Option<&'c str> {
    container["env"].as_array()?.iter().rfind(|variable| variable["name"] == name)?["value"].as_str()
}
