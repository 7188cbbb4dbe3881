//! Maps kinds to resources.

use kube_core::gvk::{GroupVersionKind, GroupVersionResource};

/// Returns the resource and subresource that serve a kind. Core kinds of subresources are known; other kinds are
/// pluralized.
pub(super) fn of_kind(kind: &GroupVersionKind) -> (GroupVersionResource, &'static str) {
    let resource = GroupVersionResource::gvr;
    let (parent, sub_resource) = match (&*kind.group, &*kind.kind) {
        ("", "PodExecOptions") => ("pods", "exec"),
        ("", "PodAttachOptions") => ("pods", "attach"),
        ("", "PodPortForwardOptions") => ("pods", "portforward"),
        ("", "PodProxyOptions") => ("pods", "proxy"),
        ("", "ServiceProxyOptions") => ("services", "proxy"),
        ("", "NodeProxyOptions") => ("nodes", "proxy"),
        ("", "Binding") => ("pods", "binding"),
        ("policy", "Eviction") => ("pods", "eviction"),
        ("authentication.k8s.io", "TokenRequest") => ("serviceaccounts", "token"),
        (group, name) => return (resource(group, &kind.version, &plural(name)), ""),
    };
    // Served by the group of the parent.
    (resource("", "v1", parent), sub_resource)
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
