//! Telling a planned container from one that only carries its name.

use serde_json::{Map, Value};

use crate::{
    plan::PlannedContainer,
    pod::{ContainerView, PodView},
    quantity::Quantity,
};

/// Where the ServiceAccount admission plugin mounts the token into every container.
const TOKEN_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Keys of a container that the API server fills in and that do not change what runs.
const FILLED_IN: [&str; 3] = ["imagePullPolicy", "terminationMessagePath", "terminationMessagePolicy"];

impl PlannedContainer {
    /// The first key, such as `image` or `command`, in which a container of `pod` differs from
    /// this one; `None` when it is this one.
    ///
    /// What is planned must be there exactly. Beyond that only what the API server and its
    /// admission plugins fill in may be there: pull policy, termination message, the protocol
    /// TCP, under hostNetwork the host port, further or defaulted resources, and the mount of
    /// the service account token.
    pub fn difference(&self, found: &ContainerView<'_>, pod: &PodView<'_>) -> Option<String> {
        let planned = self.manifest();
        let found: Value = serde_json::from_str(found.json()).unwrap_or_default();
        let (Some(planned), Some(found)) = (planned.as_object(), found.as_object()) else {
            return Some("json".to_owned());
        };
        let extra = found
            .iter()
            .filter(|(key, _)| !planned.contains_key(*key))
            .find(|(key, value)| !is_filled_in(key, value));
        let changed = planned.iter().find(|(key, planned)| {
            let found = found.get(*key).unwrap_or(&Value::Null);
            match key.as_str() {
                "ports" => !same_ports(planned, found, pod.host_network()),
                "resources" => !same_resources(planned, found),
                _ => *planned != found,
            }
        });
        extra.map(|(key, _)| key).or(changed.map(|(key, _)| key)).cloned()
    }
}

fn is_filled_in(key: &str, value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) if items.is_empty() => true,
        Value::Object(members) if members.is_empty() => true,
        Value::Array(mounts) if key == "volumeMounts" => mounts.iter().all(is_token_mount),
        _ => FILLED_IN.contains(&key),
    }
}

fn is_token_mount(mount: &Value) -> bool {
    mount.as_object().is_some_and(|mount| {
        mount.get("mountPath").and_then(Value::as_str) == Some(TOKEN_PATH)
            && mount.keys().all(|key| matches!(key.as_str(), "name" | "mountPath" | "readOnly"))
    })
}

fn same_ports(planned: &Value, found: &Value, host_network: bool) -> bool {
    let (Some(planned), Some(found)) = (planned.as_array(), found.as_array()) else { return false };
    planned.len() == found.len()
        && planned.iter().zip(found).all(|(planned, found)| {
            let Some(found) = found.as_object() else { return false };
            let port = &planned["containerPort"];
            found.get("containerPort") == Some(port)
                && found.iter().all(|(key, value)| match key.as_str() {
                    "containerPort" => true,
                    "protocol" => value == "TCP",
                    "hostPort" => host_network && value == port,
                    _ => false,
                })
        })
}

fn same_resources(planned: &Value, found: &Value) -> bool {
    let known = |key: &String| matches!(key.as_str(), "requests" | "limits");
    found.as_object().is_none_or(|found| found.keys().all(known))
        && ["requests", "limits"].into_iter().all(|list| {
            let nothing = Map::new();
            let planned = planned[list].as_object().unwrap_or(&nothing);
            let found = found[list].as_object().unwrap_or(&nothing);
            planned
                .iter()
                .all(|(name, planned)| found.get(name).is_some_and(|found| same_quantity(planned, found)))
        })
}

/// Quantities are compared by size: the API server stores its own spelling of them. A quantity
/// may also be written as a number.
fn same_quantity(planned: &Value, found: &Value) -> bool {
    let size = |value: &Value| match value {
        Value::String(text) => Quantity::parse(text),
        Value::Number(number) => Quantity::parse(&number.to_string()),
        _ => None,
    };
    size(planned).is_some_and(|planned| Some(planned) == size(found))
}
