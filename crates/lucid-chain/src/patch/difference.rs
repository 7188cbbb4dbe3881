//! Comparison of planned and found containers.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use lucid_notary::ImageReference;
use lucid_text::json::{Reader, Text};
use lucid_text::{Excerpt, Name};
use serde_json::{Map, Value};

use super::identity;
use crate::{
    catalogue::Resources,
    plan::Plan,
    pod::{ContainerView, PodView},
    quantity::Quantity,
};

/// Resources that a LimitRange may default, with the smallest accepted limit. An auditor cannot run with less: by
/// default it requests as much cpu and memory, and the kubelet keeps up to 50Mi of its logs. Extended resources are
/// not accepted, although a LimitRange can default them too: pod authors could use one to keep an auditor from being
/// scheduled.
const DEFAULTED: [(&str, &str); 3] = [("cpu", "100m"), ("memory", "128Mi"), ("ephemeral-storage", "64Mi")];

/// Smallest uid of an auditor.
const LEAST_UID: u64 = 1001;

impl ContainerView<'_> {
    /// Returns the first of the resources in which the container differs from `plan`, or from `before` if it is not
    /// planned. Quantities between those of `before`, the same container before an update, and the bounds of the plan
    /// are accepted as well. A container that is not planned may not become smaller.
    pub fn resource_difference(
        &self,
        plan: Option<&Plan>,
        before: Option<&ContainerView<'_>>,
    ) -> Option<String> {
        let planned = plan.and_then(|plan| plan.resources_of(self.name()));
        match planned {
            Some(planned) => {
                different_resource(planned, &resources_of(self), before.map(resources_of).as_ref())
            }
            None => {
                (!before.is_some_and(|before| self.is_as_large_as(before))).then(|| "resources".to_owned())
            }
        }
    }

    /// Returns `true` if the container has at least the resources of `other`.
    fn is_as_large_as(&self, other: &ContainerView<'_>) -> bool {
        let (before, found) = (&resources_of(other), &resources_of(self));
        let is_known =
            found.as_object().is_none_or(|found| found.keys().all(|key| LISTS.contains(&key.as_str())));
        is_known
            && LISTS.into_iter().all(|list| {
                let (before, found) = (quantities(before, list), quantities(found, list));
                before.iter().all(|(name, before)| {
                    let sizes =
                        found.get(name).and_then(Quantity::from_json).zip(Quantity::from_json(before));
                    sizes.is_some_and(|(found, before)| found >= before)
                }) && found.iter().all(|(name, found)| {
                    before.contains_key(name) || is_default(name, found, list == "limits")
                })
            })
    }
}

impl Plan {
    fn resources_of(&self, name: &str) -> Option<&Resources> {
        let auditor = self.containers.iter().find(|planned| planned.name == name);
        let init = self.init.as_ref().filter(|planned| planned.name == name);
        auditor.map(|planned| planned.auditor.resources()).or_else(|| init.map(|planned| &planned.resources))
    }
}

const LISTS: [&str; 2] = ["requests", "limits"];

fn quantities<'v>(resources: &'v Value, list: &str) -> Cow<'v, Map<String, Value>> {
    resources[list].as_object().map_or_else(Cow::default, Cow::Borrowed)
}

/// Maximum size of a container that is compared, in bytes of JSON. Planned containers are smaller, even with every
/// character escaped.
const LONGEST: usize = 256 * 1024;

fn members(json: &str) -> Option<BTreeMap<Text<'_>, &str>> {
    Reader::new(json).map(Reader::raw).ok()
}

/// Returns the first key in which `found`, a container of `pod`, differs from `planned`, such as `image`,
/// `command` or `env HTTP_PROXY`; `None` if it matches.
///
/// All of `planned`, the JSON of a container, must be present and equal. The only accepted additions are those of the
/// API server and of common admission plugins:
///
/// - The protocol TCP and, with `hostNetwork`, the host port.
/// - `imagePullPolicy: Always` (plugin AlwaysPullImages).
/// - Requests of cpu, memory and ephemeral-storage that are not planned, and limits of at least 100m, 128Mi and
///   64Mi (plugin LimitRanger).
/// - Requests and limits within the bounds of the [`Resources`] (autoscalers).
/// - The digest of an image without one (image policies), and other spellings of its repository. The pull policy
///   `IfNotPresent` suffices for a digest.
/// - The ServiceAccount token (plugin ServiceAccount), mounted read-only from a projected volume, if no other
///   mount is planned at its path.
/// - Variables such as `AWS_REGION` that are not planned and hold a region or the path of a token, and a
///   read-only mount of that token (webhooks of Amazon EKS and Azure). Roles such as `AWS_ROLE_ARN` must be
///   planned.
/// - What the SecurityContextConstraints of OpenShift set: a uid above 1000 if none is planned, the pod's own SELinux
///   options, and further dropped capabilities.
pub(super) fn difference(
    planned: &str,
    resources: &Resources,
    found: &ContainerView<'_>,
    pod: &PodView<'_>,
) -> Option<String> {
    let image = found.image().unwrap_or_default();
    let found = Some(found.json()).filter(|json| json.len() <= LONGEST).and_then(members);
    let (Some(planned), Some(found)) = (members(planned), found) else { return Some("json".to_owned()) };
    let extra = found.iter().filter(|(key, _)| !planned.contains_key(*key)).find(|(key, json)| {
        let Some(value) = parse(json) else { return true };
        !(is_absent(&value) || &***key == "volumeMounts" && identity::are_tokens(&Value::Null, &value, pod))
    });
    if let Some((key, _)) = extra {
        return Some(Name(key).to_string());
    }
    planned.iter().find_map(|(key, planned)| {
        let found = found.get(key).copied();
        if found == Some(*planned) {
            return None;
        }
        let (Some(planned), Some(found)) = (parse(planned), found.map_or(Some(Value::Null), parse)) else {
            return Some(key.to_string());
        };
        let image = || image.parse::<ImageReference>();
        let same = match &**key {
            "ports" => same_ports(&planned, &found, pod.host_network()),
            "resources" => return different_resource(resources, &found, None),
            "volumeMounts" => identity::are_tokens(&planned, &found, pod),
            "image" => planned == found || image().is_ok_and(|found| is_image(&planned, &found)),
            "imagePullPolicy" => {
                let has_digest = || image().is_ok_and(|image| image.digest().is_some());
                planned == found || found == "Always" || found == "IfNotPresent" && has_digest()
            }
            "env" => return different_variable(&planned, &found),
            "securityContext" => same_security_context(&planned, &found, pod),
            _ => planned == found,
        };
        (!same).then(|| key.to_string())
    })
}

fn parse(json: &str) -> Option<Value> {
    serde_json::from_str(json).ok()
}

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

/// Accepts the additions of OpenShift's SecurityContextConstraints: see [`difference`].
fn same_security_context(planned: &Value, found: &Value, pod: &PodView<'_>) -> bool {
    let (Some(planned), Some(found)) = (planned.as_object(), found.as_object()) else { return false };
    let keys: BTreeSet<_> = planned.keys().chain(found.keys()).collect();
    keys.into_iter().all(|key| match (planned.get(key), found.get(key)) {
        (Some(planned), Some(found)) if key == "capabilities" => same_capabilities(planned, found),
        (None, Some(uid)) if key == "runAsUser" => uid.as_u64().is_some_and(|uid| uid >= LEAST_UID),
        (None, Some(options)) if key == "seLinuxOptions" => of_pod(pod).is_some_and(|it| it == *options),
        (planned, found) => planned == found,
    })
}

/// Returns the SELinux options of the pod.
fn of_pod(pod: &PodView<'_>) -> Option<Value> {
    let json = pod.privileges()?.se_linux_options().filter(|json| json.len() <= LONGEST)?;
    serde_json::from_str(json).ok()
}

/// Returns `true` if `found` adds and drops the planned capabilities, and drops others at most.
fn same_capabilities(planned: &Value, found: &Value) -> bool {
    let known = |key: &String| matches!(key.as_str(), "add" | "drop");
    let (added, dropped) = (list(&planned["add"]), list(&found["drop"]));
    found.as_object().is_some_and(|found| found.keys().all(known))
        && list(&found["add"]) == added
        && list(&planned["drop"]).iter().all(|name| dropped.contains(name))
        && !dropped.iter().any(|name| added.contains(name))
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
                    "name" => Some(value) == planned.get("name"),
                    "protocol" => value == "TCP",
                    "hostPort" => host_network && value == port,
                    _ => false,
                })
        })
}

/// Returns `true` if `found` is the planned image, or that image with a digest. A runtime ignores the tag beside a
/// digest, so it may be absent there.
fn is_image(planned: &Value, found: &ImageReference) -> bool {
    let Some(planned) = planned.as_str().and_then(|image| image.parse::<ImageReference>().ok()) else {
        return false;
    };
    let tag = |image: &ImageReference| image.tag().unwrap_or("latest").to_owned();
    found.same_repository(&planned)
        && match planned.digest() {
            Some(digest) => found.digest() == Some(digest),
            None => tag(&planned) == tag(found) || found.tag().is_none() && found.digest().is_some(),
        }
}

/// Parses the resources of the container; `null` if they are too long to match planned ones.
fn resources_of(found: &ContainerView<'_>) -> Value {
    let json = found.resources_json().filter(|json| json.len() <= LONGEST);
    json.and_then(parse).unwrap_or_default()
}

/// Returns the first of `resources` that is neither within the bounds of the plan nor between them and `before`, with
/// what is expected.
fn different_resource(planned: &Resources, found: &Value, before: Option<&Value>) -> Option<String> {
    if let Some(key) =
        found.as_object().and_then(|found| found.keys().find(|key| !LISTS.contains(&key.as_str())))
    {
        return Some(format!("resources {}", Excerpt(key)));
    }
    let manifest = serde_json::to_value(planned.manifest()).unwrap_or_default();
    LISTS.into_iter().find_map(|list| {
        let (wanted, found) = (quantities(&manifest, list), quantities(found, list));
        let before = before.map(|before| quantities(before, list));
        let before = |name| before.as_ref().map(|before| before.get(name));
        let names: BTreeSet<_> = wanted.keys().chain(found.keys()).collect();
        names.into_iter().find_map(|name| {
            let (mut lower, upper) = planned.bounds(name);
            if list == "limits" && !wanted.contains_key(name) {
                lower = lower.max(least_default(name));
            }
            let size = found.get(name).and_then(Quantity::from_json);
            let before = before(name);
            let size_before = before.flatten().and_then(Quantity::from_json);
            let is_within = |size| {
                lower.is_none_or(|lower| size >= size_before.map_or(lower, |before| before.min(lower)))
                    && upper.is_none_or(|upper| size <= size_before.map_or(upper, |before| before.max(upper)))
            };
            let is_accepted = match found.get(name) {
                // An update does not have to add what is missing.
                None => before == Some(None),
                Some(found) if !wanted.contains_key(name) => {
                    (least_default(name).is_some() || before == Some(Some(found)))
                        && size.map_or(list == "requests", is_within)
                }
                Some(_) => size.is_some_and(is_within),
            };
            (!is_accepted).then(|| different_quantity(list, name, (lower, upper), found.get(name)))
        })
    })
}

fn different_quantity(
    list: &str,
    name: &str,
    bounds: (Option<Quantity>, Option<Quantity>),
    found: Option<&Value>,
) -> String {
    let expected = match bounds {
        (Some(lower), Some(upper)) if lower == upper => lower.to_string(),
        (Some(lower), Some(upper)) => format!("{lower} to {upper}"),
        (Some(lower), None) => format!("at least {lower}"),
        (None, Some(upper)) => format!("at most {upper}"),
        (None, None) => return format!("resources.{list}.{}", Name(name)),
    };
    let found = found.map(|found| found.as_str().map_or_else(|| found.to_string(), str::to_owned));
    let found = found.map_or_else(|| "none".to_owned(), |found| Name(&found).to_string());
    format!("resources.{list}.{}: expected {expected}, found {found}", Name(name))
}

/// Returns the smallest accepted limit of a resource that a LimitRange may have added.
fn least_default(name: &str) -> Option<Quantity> {
    DEFAULTED.iter().find(|(known, _)| *known == name).and_then(|(_, least)| Quantity::parse(least))
}

/// Returns `true` if a LimitRange may have added the request or limit.
fn is_default(name: &str, found: &Value, is_limit: bool) -> bool {
    least_default(name).is_some_and(|least| !is_limit || Quantity::from_json(found) >= Some(least))
}
