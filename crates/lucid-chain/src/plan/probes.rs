//! What the kubelet asks the model for. It comes to the first auditor, as every call does: to let the node pass would
//! let everybody pass whose address a node has translated to its own.

use std::num::NonZeroU16;

use crate::{pod::ContainerView, warning::Warning};

/// The most bytes of all paths; who declares more of them declares them for nothing.
const LONGEST: usize = 1024;

/// The paths of HTTP probes that go to the model's port, separated by commas, each once. Probes of other kinds are
/// answered by the first auditor instead of the model.
pub(super) fn paths<'v, 'a: 'v>(
    applications: impl Iterator<Item = &'v ContainerView<'a>>,
    model: NonZeroU16,
    warnings: &mut Vec<Warning>,
) -> String {
    let mut paths = Vec::new();
    for container in applications {
        for probe in container.probes() {
            let http = probe.http_get().filter(|action| action.goes_to(model.get(), container));
            match http {
                Some(action) if action.is_https() => {
                    let container = container.name().to_owned();
                    warnings.push(Warning::ProbeByHttps { container, port: model });
                }
                _ => paths.extend(http.map(|action| action.path()).filter(|path| is_plain(path))),
            }
            if let Some(("grpc", action)) = probe.other()
                && action.goes_to(model.get(), container)
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

/// Whether the path can stand in a list and in a variable: `$(NAME)` in one is expanded by the kubelet.
fn is_plain(path: &str) -> bool {
    path.starts_with('/') && path.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b',' | b'$'))
}
