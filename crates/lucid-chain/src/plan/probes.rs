//! HTTP probes of the model.
//!
//! Probes pass through the first auditor like any other call. Exempting the node's address would also exempt every
//! client behind source NAT on the node.

use super::model_port::ModelPort;
use crate::{
    pod::{ContainerView, Protocol},
    warning::Warning,
};

/// Maximum size of the list in bytes; further paths are left out.
const LONGEST: usize = 1024;

/// Returns the paths of HTTP probes that target the model's ports, sorted and separated by commas. Warns of gRPC and
/// HTTPS probes, which reach the first auditor instead of the model.
pub(super) fn paths<'v, 'a: 'v>(
    applications: impl Iterator<Item = &'v ContainerView<'a>>,
    model: &ModelPort,
    warnings: &mut Vec<Warning>,
) -> String {
    let mut paths = Vec::new();
    for container in applications {
        for probe in container.probes() {
            let Some(port) = model.ports().find(|port| probe.port(container) == Some(port.get().into()))
            else {
                continue;
            };
            let container = || container.name().to_owned();
            match probe.action() {
                Some((Protocol::Http, action)) if action.is_https() => {
                    warnings.push(Warning::ProbeByHttps { container: container(), port });
                }
                Some((Protocol::Http, action)) => {
                    paths.extend(Some(action.path()).filter(|path| is_plain(path)))
                }
                Some((Protocol::Grpc, _)) => {
                    warnings.push(Warning::ProbeByGrpc { container: container(), port });
                }
                _ => {}
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
