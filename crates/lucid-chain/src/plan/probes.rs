//! HTTP probes of the model.
//!
//! Probes pass through the first auditor like any other call. Exempting the node's address would also exempt every
//! client behind source NAT on the node.

use std::num::NonZeroU16;

use crate::{pod::ContainerView, warning::Warning};

/// Maximum size of the list in bytes; further paths are left out.
const LONGEST: usize = 1024;

/// Returns the paths of HTTP probes that target the model's port, sorted and separated by commas. Warns of gRPC and
/// HTTPS probes, which reach the first auditor instead of the model.
pub(super) fn paths<'v, 'a: 'v>(
    applications: impl Iterator<Item = &'v ContainerView<'a>>,
    model: NonZeroU16,
    warnings: &mut Vec<Warning>,
) -> String {
    let mut paths = Vec::new();
    for container in applications {
        let port_named = |name: &str| container.port_named(name);
        for probe in container.probes() {
            let http = probe.http_get().filter(|action| action.targets(model.get(), port_named));
            match http {
                Some(action) if action.is_https() => {
                    let container = container.name().to_owned();
                    warnings.push(Warning::ProbeByHttps { container, port: model });
                }
                _ => paths.extend(http.map(|action| action.path()).filter(|path| is_plain(path))),
            }
            if let Some(("grpc", action)) = probe.other()
                && action.targets(model.get(), port_named)
            {
                let container = container.name().to_owned();
                warnings.push(Warning::ProbeByGrpc { container, port: model });
            }
        }
    }
    paths.sort_unstable();
    paths.dedup();
    let mut list = String::new();
    for path in paths {
        if list.len() + path.len() < LONGEST {
            list.push_str(if list.is_empty() { "" } else { "," });
            list.push_str(path);
        }
    }
    list
}

/// Returns `true` if the path can be an item of the list and part of a variable, in which the kubelet expands
/// `$(NAME)`.
fn is_plain(path: &str) -> bool {
    path.starts_with('/') && path.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b',' | b'$'))
}
