//! Reduces the privileges of the containers that are not part of the chain.
//!
//! Container runtimes grant two privileges by default that bypass the chain: raw sockets can inject packets into an
//! auditor's connections, and a setuid file with an auditor's uid gains the auditor's exception in the network rules.

use std::collections::BTreeMap;

use lucid_text::json::to_string;
use serde_json::{Map, Value, json};

use super::PodPatch;
use crate::{
    plan::Plan,
    pod::{ContainerView, PodView},
    privileges::{is_dropped, without_prefix},
    warning::Warning,
};

const ESCALATION: &str = "allowPrivilegeEscalation";
const CAPABILITIES: &str = "capabilities";
const LISTS: [&str; 2] = ["add", "drop"];
const NET_RAW: &str = "NET_RAW";

/// Original values of the changed members of `securityContext`, by list and name (`containers/web`); `null` for a
/// container without a security context.
pub(crate) type Originals = BTreeMap<String, Value>;

impl Plan {
    pub(super) fn patch_privileges(
        &self,
        pod: &PodView<'_>,
        mut before: Originals,
        patch: &mut PodPatch,
    ) -> Originals {
        let lists = [("containers", pod.containers()), ("initContainers", pod.init_containers())];
        let containers = lists.into_iter().flat_map(|(list, containers)| {
            containers.iter().enumerate().map(move |(place, found)| (list, place, found))
        });
        let containers = containers.filter(|(.., found)| self.hardened.contains(found.name()));
        let mut originals = Originals::new();
        for (list, place, found) in containers {
            if before.is_empty() && is_hardened(found) {
                continue;
            }
            let name = format!("{list}/{}", found.name());
            let original = harden(&["spec", list, &place.to_string()], found, patch);
            if let Some(original) = original.or_else(|| before.remove(&name)) {
                originals.insert(name, original);
            }
        }
        originals
    }
}

/// Returns `true` if hardening does not change the container. Others may be hardened as well.
fn is_hardened(container: &ContainerView<'_>) -> bool {
    container.privileges().is_some_and(|context| {
        context.allows_privilege_escalation() == Some(false)
            && context.drops(NET_RAW)
            && !context.added().any(|name| name.eq_ignore_ascii_case(NET_RAW))
    })
}

/// Hardens a container. Returns its original security context, or `None` if it is already hardened.
fn harden(path: &[&str], found: &ContainerView<'_>, patch: &mut PodPatch) -> Option<Value> {
    // The API server rejects a security context that does not parse.
    let context = match found.privileges() {
        Some(context) => serde_json::from_str(context.json()).ok()?,
        None => Value::Null,
    };
    let hardened = hardened(&context);
    let path = [path, &["securityContext"]].concat();
    if hardened == context {
        return None;
    }
    if context.is_null() {
        patch.add(&path, &to_string(&hardened));
        return Some(context);
    }
    change(&path, &context, &hardened, patch);
    let mut warn = |privilege| {
        patch.warn(Warning::PrivilegeRemoved { container: found.name().to_owned(), privilege });
    };
    if context[ESCALATION] == true && hardened[ESCALATION] == false {
        warn("allowPrivilegeEscalation: true");
    }
    if adds(&context, NET_RAW) {
        warn("capabilities.add: NET_RAW");
    }
    let Value::Object(mut original) = context else { return None };
    original.retain(|key, _| [ESCALATION, CAPABILITIES].contains(&key.as_str()));
    Some(original.into())
}

/// Reverts the hardening of a container. `path` leads to its security context, which is `found`.
pub(crate) fn restore(path: &[&str], found: &Value, original: &Value, patch: &mut PodPatch) {
    let Some(mut restored) = found.as_object().cloned() else { return };
    for key in [ESCALATION, CAPABILITIES] {
        match original.get(key) {
            Some(value) => restored.insert(key.to_owned(), with_rest(value, &found[key])),
            None => restored.remove(key),
        };
    }
    let restored = if restored.is_empty() && original.is_null() { Value::Null } else { restored.into() };
    // A forged original must not change more than hardening does.
    if hardened(&restored) != *found {
        return;
    }
    if restored.is_null() {
        patch.remove(path);
    } else {
        change(path, found, &restored, patch);
    }
}

/// Adds to `original` the members of `found` that hardening does not manage.
fn with_rest(original: &Value, found: &Value) -> Value {
    let Value::Object(mut members) = original.clone() else { return original.clone() };
    let rest = found.as_object().into_iter().flatten().filter(|(key, _)| !LISTS.contains(&key.as_str()));
    members.extend(rest.map(|(key, value)| (key.clone(), value.clone())));
    members.into()
}

/// Adds the operations that turn one security context into another. Members that hardening does not manage stay.
fn change(path: &[&str], from: &Value, to: &Value, patch: &mut PodPatch) {
    change_members(path, &[ESCALATION], from, to, patch);
    if from[CAPABILITIES].is_object() && to[CAPABILITIES].is_object() {
        let path = [path, &[CAPABILITIES]].concat();
        change_members(&path, &LISTS, &from[CAPABILITIES], &to[CAPABILITIES], patch);
    } else {
        change_members(path, &[CAPABILITIES], from, to, patch);
    }
}

fn change_members(path: &[&str], keys: &[&str], from: &Value, to: &Value, patch: &mut PodPatch) {
    for key in keys {
        let path = [path, &[*key]].concat();
        match (from.get(key), to.get(key)) {
            (before, after) if before == after => {}
            (_, None) => patch.remove(&path),
            (None, Some(value)) => patch.add(&path, &to_string(value)),
            (Some(_), Some(value)) => patch.replace(&path, &to_string(value)),
        }
    }
}

/// Returns the security context without NET_RAW and, where the API server accepts it, with no_new_privs. All else
/// stays.
fn hardened(context: &Value) -> Value {
    let is_map = |value: &Value| value.is_null() || value.is_object();
    let capabilities = &context[CAPABILITIES];
    if !is_map(context) || !is_map(capabilities) {
        return context.clone();
    }
    let mut hardened = context.as_object().cloned().unwrap_or_default();
    if let Some(capabilities) = without_net_raw(capabilities) {
        hardened.insert(CAPABILITIES.to_owned(), capabilities.into());
    }
    // `ValidateSecurityContext` of the API server rejects `false` in combination with either of these.
    if context["privileged"] != true && !adds(context, "SYS_ADMIN") {
        hardened.insert(ESCALATION.to_owned(), false.into());
    }
    hardened.into()
}

/// Returns the capabilities without NET_RAW, or `None` if they do not grant it.
fn without_net_raw(capabilities: &Value) -> Option<Map<String, Value>> {
    let (add, drop) = (list(capabilities, "add"), list(capabilities, "drop"));
    let kept: Vec<_> = add.iter().filter(|name| !is_capability(name, NET_RAW)).collect();
    let drops = drop.iter().filter_map(Value::as_str).any(|name| is_dropped(name, NET_RAW));
    if drops && kept.len() == add.len() {
        return None;
    }
    let mut capabilities = capabilities.as_object().cloned().unwrap_or_default();
    if kept.is_empty() && !add.is_empty() {
        capabilities.remove("add");
    } else if kept.len() < add.len() {
        capabilities.insert("add".to_owned(), json!(kept));
    }
    if !drops {
        capabilities.insert("drop".to_owned(), drop.iter().cloned().chain([json!(NET_RAW)]).collect());
    }
    Some(capabilities)
}

fn list<'v>(capabilities: &'v Value, key: &str) -> &'v [Value] {
    capabilities[key].as_array().map(Vec::as_slice).unwrap_or_default()
}

fn adds(context: &Value, capability: &str) -> bool {
    list(&context[CAPABILITIES], "add").iter().any(|name| is_capability(name, capability))
}

fn is_capability(name: &Value, capability: &str) -> bool {
    name.as_str().is_some_and(|name| without_prefix(name).eq_ignore_ascii_case(capability))
}
