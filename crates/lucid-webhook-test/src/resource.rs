//! Maps kinds to resources.

/// Resource and subresource that serve a kind.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ResourcePath {
    pub(super) resource: String,
    pub(super) sub_resource: &'static str,
}

/// Returns the resource of a kind. Core kinds of subresources are known; other kinds are pluralized.
pub(super) fn of_kind(group: &str, kind: &str) -> ResourcePath {
    let known = match (group, kind) {
        ("", "PodExecOptions") => Some(("pods", "exec")),
        ("", "PodAttachOptions") => Some(("pods", "attach")),
        ("", "PodPortForwardOptions") => Some(("pods", "portforward")),
        ("", "PodProxyOptions") => Some(("pods", "proxy")),
        ("", "ServiceProxyOptions") => Some(("services", "proxy")),
        ("", "NodeProxyOptions") => Some(("nodes", "proxy")),
        ("", "Binding") => Some(("pods", "binding")),
        ("policy", "Eviction") => Some(("pods", "eviction")),
        ("authentication.k8s.io", "TokenRequest") => Some(("serviceaccounts", "token")),
        _ => None,
    };
    match known {
        Some((resource, sub_resource)) => ResourcePath { resource: resource.to_owned(), sub_resource },
        None => ResourcePath { resource: plural(kind), sub_resource: "" },
    }
}

/// Group and version of the resource: these subresources are served by the group of their parent.
pub(super) fn group_of_parent(group: &str, version: &str, place: &ResourcePath) -> (String, String) {
    if place.sub_resource.is_empty() {
        (group.to_owned(), version.to_owned())
    } else {
        (String::new(), "v1".to_owned())
    }
}

fn plural(kind: &str) -> String {
    let singular = kind.to_ascii_lowercase();
    let ends = |suffixes: &[&str]| suffixes.iter().any(|suffix| singular.ends_with(suffix));
    if ends(&["endpoints"]) {
        singular
    } else if ends(&["s", "x", "z", "ch", "sh"]) {
        format!("{singular}es")
    } else if ends(&["ay", "ey", "iy", "oy", "uy"]) {
        format!("{singular}s")
    } else if let Some(stem) = singular.strip_suffix('y') {
        format!("{stem}ies")
    } else {
        format!("{singular}s")
    }
}
