//! Taking out of a pod what injection put in.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::Value;

use crate::{
    keys,
    patch::{Originals, Patch, restore},
    plan::{local_port, local_url},
    redirect::Redirect,
    text::Excerpt,
    warning::Warning,
};

/// What the annotation [`keys::STATUS`] says of an injection.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    chain: BTreeSet<String>,
    init: Option<String>,
    added: BTreeSet<String>,
    hardened: Originals,
}

/// The operations that take out of `pod`, the JSON of a core/v1 Pod or of a pod template, what [`Plan::patch`] put in:
/// the pod as it was. There are none for a pod that was never injected.
///
/// The annotation [`keys::STATUS`] tells what to look for. It is never taken as proof: a container goes only when it is
/// an auditor by its own variables, or the init container with the network rules, so a forged annotation takes no
/// container of an application away. A container that was replaced at injection because it carried an auditor's name,
/// and a variable that was, cannot be given back; injection warned of these. A list or map that was `null` is absent
/// then, which is the same to Kubernetes.
///
/// ```
/// let pod = serde_json::json!({"spec": {"containers": [{"name": "web"}]}});
/// assert!(lucid_chain::uninject(&pod).is_empty());
/// ```
///
/// [`Plan::patch`]: crate::Plan::patch
pub fn uninject(pod: &Value) -> Patch {
    let mut patch = Patch::default();
    let Some(written) = pod["metadata"]["annotations"][keys::STATUS].as_str() else {
        // What nobody says was injected stays.
        return patch;
    };
    let Ok(status) = serde_json::from_str::<Status>(written) else {
        patch.warn(Warning::StatusUnreadable { found: Excerpt(written).to_string() });
        return patch;
    };
    let uninjection = Uninjection { pod, status };
    uninjection.variables(&mut patch);
    uninjection.privileges("containers", &mut patch);
    uninjection.privileges("initContainers", &mut patch);
    uninjection.containers("containers", &mut patch);
    uninjection.containers("initContainers", &mut patch);
    uninjection.items("imagePullSecrets", &mut patch);
    uninjection.items("volumes", &mut patch);
    uninjection.missing(&mut patch);
    uninjection.annotation(&mut patch);
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
        self.status.added.contains(&crate::patch::pointer(path))
    }

    /// Whether the status names the container.
    fn is_named(&self, container: &Value) -> bool {
        let Some(name) = container["name"].as_str() else { return false };
        self.status.chain.contains(name) || self.status.init.as_deref() == Some(name)
    }

    fn is_injected(&self, container: &Value) -> bool {
        let Some(name) = container["name"].as_str() else { return false };
        let is_auditor = self.status.chain.contains(name)
            && variable(container, "LUCID_AUDITOR_ID") == Some(name)
            && variable(container, "LUCID_CHAIN_NEXT").is_some_and(|url| local_port(url).is_some());
        let is_init = self.status.init.as_deref() == Some(name)
            && variable(container, keys::REDIRECT_ENV).is_some_and(|json| Redirect::from_json(json).is_ok());
        is_auditor || is_init
    }

    fn containers(&self, key: &str, patch: &mut Patch) {
        let list = self.list(key);
        let injected: Vec<_> = (0..list.len()).filter(|&place| self.is_injected(&list[place])).collect();
        for container in list.iter().filter(|it| self.is_named(it) && !self.is_injected(it)) {
            let name = Excerpt(container["name"].as_str().unwrap_or_default()).to_string();
            patch.warn(Warning::NotInjected { name });
        }
        if !list.is_empty() && injected.len() == list.len() && self.was_added(&["spec", key]) {
            patch.remove(&["spec", key]);
            return;
        }
        for place in injected.iter().rev() {
            patch.remove(&["spec", key, &place.to_string()]);
        }
    }

    /// `AUDITOR_URL` of the applications, where it is the address of an auditor.
    fn variables(&self, patch: &mut Patch) {
        const NAME: &str = "AUDITOR_URL";
        let auditors = || self.list("containers").iter().chain(self.list("initContainers"));
        let urls: BTreeSet<_> = auditors()
            .filter(|container| self.is_injected(container))
            .filter_map(|auditor| variable(auditor, "LUCID_AUDITOR_PORT")?.parse().ok().map(local_url))
            .collect();
        for (place, container) in self.list("containers").iter().enumerate() {
            let (Some(name), Some(env)) = (container["name"].as_str(), container["env"].as_array()) else {
                continue;
            };
            let by_name = ["spec", "containers", name, "env"];
            let ours =
                |it: &Value| it["name"] == NAME && it["value"].as_str().is_some_and(|it| urls.contains(it));
            let Some(found) = env.iter().rposition(ours) else { continue };
            if self.is_injected(container) || !self.was_added(&[&by_name[..], &[NAME]].concat()) {
                continue;
            }
            let place = place.to_string();
            let path = ["spec", "containers", &place, "env"];
            if env.len() == 1 && self.was_added(&by_name) {
                patch.remove(&path);
            } else {
                patch.remove(&[&path[..], &[&found.to_string()]].concat());
            }
        }
    }

    fn privileges(&self, list: &str, patch: &mut Patch) {
        for (place, container) in self.list(list).iter().enumerate() {
            let name = container["name"].as_str().unwrap_or_default();
            let Some(original) = self.status.hardened.get(&format!("{list}/{name}")) else { continue };
            let path = ["spec", list, &place.to_string(), "securityContext"];
            restore(&path, &container["securityContext"], original, patch);
        }
    }

    /// Items of a list that the status names.
    fn items(&self, key: &str, patch: &mut Patch) {
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

    /// What the status names and is nowhere.
    fn missing(&self, patch: &mut Patch) {
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

    fn annotation(&self, patch: &mut Patch) {
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

/// The value of an environment variable, the last one of several.
fn variable<'c>(container: &'c Value, name: &str) -> Option<&'c str> {
    container["env"].as_array()?.iter().rfind(|variable| variable["name"] == name)?["value"].as_str()
}
