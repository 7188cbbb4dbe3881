//! Comparison of planned and found containers.

use std::cmp::Ordering;

use serde_json::{Map, Value};

use super::identity;
use crate::{
    plan::PlannedContainer,
    pod::{ContainerView, PodView},
    quantity::Quantity,
    text::{Excerpt, Name},
};

/// Resources that a LimitRange may default, with the smallest accepted limit. An auditor cannot run with less: by
/// default it requests as much cpu and memory, and the kubelet keeps up to 50Mi of its logs. Extended resources are
/// not accepted, although a LimitRange can default them too: pod authors could use one to keep an auditor from being
/// scheduled.
const DEFAULTED: [(&str, &str); 3] = [("cpu", "100m"), ("memory", "128Mi"), ("ephemeral-storage", "64Mi")];

impl PlannedContainer {
    /// Returns the first key in which a container of `pod` differs from this one, such as `image`, `command` or `env
    /// HTTP_PROXY`; `None` if it matches.
    ///
    /// All of [`manifest`](Self::manifest) must be present and equal. The only accepted additions are those of the
    /// API server and of common admission plugins:
    ///
    /// - The protocol TCP and, with `hostNetwork`, the host port.
    /// - `imagePullPolicy: Always` (plugin AlwaysPullImages).
    /// - Requests of cpu, memory and ephemeral-storage that are not planned, and limits of at least 100m, 128Mi and
    ///   64Mi (plugin LimitRanger).
    /// - The ServiceAccount token (plugin ServiceAccount), mounted read-only from a projected volume, if no other
    ///   mount is planned at its path.
    /// - Variables such as `AWS_REGION` that are not planned and hold a region or the path of a token, and a
    ///   read-only mount of that token (webhooks of Amazon EKS and Azure). Roles such as `AWS_ROLE_ARN` must be
    ///   planned.
    pub fn difference(&self, found: &ContainerView<'_>, pod: &PodView<'_>) -> Option<String> {
        difference(&self.manifest(), &json_of(found), pod)
    }

    /// Returns `true` if `found` has at least the planned resources. Unlike [`difference`](Self::difference), it
    /// accepts more, because a resize may raise them.
    pub fn is_provided(&self, found: &ContainerView<'_>) -> bool {
        has_at_least(&self.manifest(), &json_of(found))
    }
}

impl ContainerView<'_> {
    /// Returns `true` if the container has at least the resources of `other`.
    pub fn is_as_large_as(&self, other: &ContainerView<'_>) -> bool {
        has_at_least(&json_of(other), &json_of(self))
    }
}

fn has_at_least(planned: &Value, found: &Value) -> bool {
    fits_resources(&planned["resources"], &found["resources"], Ordering::is_ge)
}

/// Maximum size of a container that is compared, in bytes of JSON. Planned containers are smaller, even with every
/// character escaped.
const LONGEST: usize = 256 * 1024;

/// Parses the container; `null` if it is too long to match a planned one.
pub(super) fn json_of(found: &ContainerView<'_>) -> Value {
    let json = Some(found.json()).filter(|json| json.len() <= LONGEST);
    json.and_then(|json| serde_json::from_str(json).ok()).unwrap_or_default()
}

/// See [`PlannedContainer::difference`].
pub(super) fn difference(planned: &Value, found: &Value, pod: &PodView<'_>) -> Option<String> {
    let (Some(planned), Some(found)) = (planned.as_object(), found.as_object()) else {
        return Some("json".to_owned());
    };
    let extra = found.iter().filter(|(key, _)| !planned.contains_key(*key)).find(|(key, value)| {
        !(is_absent(value) || *key == "volumeMounts" && identity::are_tokens(&Value::Null, value, pod))
    });
    if let Some((key, _)) = extra {
        return Some(Name(key).to_string());
    }
    planned.iter().find_map(|(key, planned)| {
        let found = found.get(key).unwrap_or(&Value::Null);
        let same = match key.as_str() {
            "ports" => same_ports(planned, found, pod.host_network()),
            "resources" => fits_resources(planned, found, Ordering::is_eq),
            "volumeMounts" => identity::are_tokens(planned, found, pod),
            "imagePullPolicy" => planned == found || found == "Always",
            "env" => return different_variable(planned, found),
            _ => planned == found,
        };
        (!same).then(|| key.clone())
    })
}

/// Returns `true` if the API server treats the value as absent.
fn is_absent(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        _ => false,
    }
}

/// Returns `env` and the name of the first variable that differs.
fn different_variable(planned: &Value, found: &Value) -> Option<String> {
    if planned == found {
        return None;
    }
    let planned = list(planned);
    let is_planned = |variable: &Value| planned.iter().any(|planned| planned["name"] == variable["name"]);
    let counts = |variable: &&Value| is_planned(variable) || !identity::is_variable(variable);
    let found: Vec<_> = list(found).iter().filter(counts).collect();
    if planned.iter().eq(found.iter().copied()) {
        return None;
    }
    let mut different = found.iter().copied().filter(|variable| !planned.contains(variable));
    let mut missing = planned.iter().filter(|variable| !found.contains(variable));
    let name = different.next().or_else(|| missing.next()).and_then(|variable| variable["name"].as_str());
    Some(name.map_or_else(|| "env".to_owned(), |name| format!("env {}", Excerpt(name))))
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
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

/// Returns `true` if `accepted` holds for every planned request and limit of `found`, and all others are
/// [defaults](is_default).
fn fits_resources(planned: &Value, found: &Value, accepted: fn(Ordering) -> bool) -> bool {
    let nothing = Map::new();
    let known = |key: &String| matches!(key.as_str(), "requests" | "limits");
    found.as_object().is_none_or(|found| found.keys().all(known))
        && ["requests", "limits"].into_iter().all(|list| {
            let planned = planned[list].as_object().unwrap_or(&nothing);
            let found = found[list].as_object().unwrap_or(&nothing);
            planned.iter().all(|(name, planned)| {
                found.get(name).is_some_and(|found| compare(found, planned).is_some_and(accepted))
            }) && found
                .iter()
                .all(|(name, found)| planned.contains_key(name) || is_default(name, found, list == "limits"))
        })
}

/// Returns `true` if a LimitRange may have added the request or limit.
fn is_default(name: &str, found: &Value, is_limit: bool) -> bool {
    let least =
        DEFAULTED.iter().find(|(known, _)| *known == name).and_then(|(_, least)| Quantity::parse(least));
    least.is_some_and(|least| !is_limit || Quantity::from_json(found) >= Some(least))
}

/// Compares quantities by value, because the API server normalizes them.
fn compare(found: &Value, planned: &Value) -> Option<Ordering> {
    Some(Quantity::from_json(found)?.cmp(&Quantity::from_json(planned)?))
}
