//! Telling a planned container from one that only carries its name.

use serde_json::{Map, Value};

use super::identity;
use crate::{
    plan::PlannedContainer,
    pod::{ContainerView, PodView},
    quantity::Quantity,
    text::{Excerpt, Name},
};

/// What a LimitRange may add to the resources of a container. It may add extended resources too, but an auditor that
/// asks for none has no use for a device, and a pod's author could so keep it from ever being scheduled.
const DEFAULTED: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];

impl PlannedContainer {
    /// Where a container of `pod` differs from this one: the first key, such as `image`, `command` or
    /// `env HTTP_PROXY`; `None` when it is this one.
    ///
    /// [`manifest`](Self::manifest) must be there exactly. Beyond that only this may be there, which the API server and
    /// its admission plugins add:
    ///
    /// - the protocol TCP and, under hostNetwork, the host port;
    /// - `imagePullPolicy: Always` (plugin AlwaysPullImages);
    /// - requests and limits of cpu, memory and ephemeral-storage that are not planned (plugin LimitRanger);
    /// - the service account token (plugin ServiceAccount), mounted read-only from a projected volume;
    /// - the identity of the workload in its cloud: variables such as `AWS_ROLE_ARN` that are not planned, and a token that
    ///   is mounted likewise (webhooks of Amazon EKS and Azure).
    pub fn difference(&self, found: &ContainerView<'_>, pod: &PodView<'_>) -> Option<String> {
        difference(&self.manifest(), found, pod)
    }
}

/// See [`PlannedContainer::difference`].
pub(super) fn difference(planned: &Value, found: &ContainerView<'_>, pod: &PodView<'_>) -> Option<String> {
    let found: Value = serde_json::from_str(found.json()).unwrap_or_default();
    let (Some(planned), Some(found)) = (planned.as_object(), found.as_object()) else {
        return Some("json".to_owned());
    };
    let extra = found.iter().filter(|(key, _)| !planned.contains_key(*key)).find(|(key, value)| {
        !(is_nothing(value) || *key == "volumeMounts" && identity::are_tokens(value, pod))
    });
    if let Some((key, _)) = extra {
        return Some(Name(key).to_string());
    }
    planned.iter().find_map(|(key, planned)| {
        let found = found.get(key).unwrap_or(&Value::Null);
        let same = match key.as_str() {
            "ports" => same_ports(planned, found, pod.host_network()),
            "resources" => same_resources(planned, found),
            "imagePullPolicy" => planned == found || found == "Always",
            "env" => return different_variable(planned, found),
            _ => planned == found,
        };
        (!same).then(|| key.clone())
    })
}

/// Whether the API server drops the value or takes it for absent.
fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        _ => false,
    }
}

/// `env` and the name of the first variable that is not in both lists alike.
fn different_variable(planned: &Value, found: &Value) -> Option<String> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let (planned, mut found) = (list(planned), list(found));
    let is_planned = |variable: &Value| planned.iter().any(|planned| planned["name"] == variable["name"]);
    found.retain(|variable| is_planned(variable) || !identity::is_variable(variable));
    if planned == found {
        return None;
    }
    let mut different = found.iter().filter(|variable| !planned.contains(variable));
    let mut missing = planned.iter().filter(|variable| !found.contains(variable));
    let name = different.next().or_else(|| missing.next()).and_then(|variable| variable["name"].as_str());
    Some(name.map_or_else(|| "env".to_owned(), |name| format!("env {}", Excerpt(name))))
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
    let nothing = Map::new();
    let known = |key: &String| matches!(key.as_str(), "requests" | "limits");
    found.as_object().is_none_or(|found| found.keys().all(known))
        && ["requests", "limits"].into_iter().all(|list| {
            let planned = planned[list].as_object().unwrap_or(&nothing);
            let found = found[list].as_object().unwrap_or(&nothing);
            planned
                .iter()
                .all(|(name, planned)| found.get(name).is_some_and(|found| same_quantity(planned, found)))
                && found.keys().all(|name| planned.contains_key(name) || DEFAULTED.contains(&name.as_str()))
        })
}

/// Quantities are compared by size: the API server stores its own spelling of them.
fn same_quantity(planned: &Value, found: &Value) -> bool {
    let planned = Quantity::from_json(planned);
    planned.is_some() && planned == Quantity::from_json(found)
}
