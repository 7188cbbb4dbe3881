//! Ports of the pod that can be reached from outside without passing the chain.

use std::{collections::BTreeMap, fmt, num::NonZeroU16};

use lucid_text::Name;

use crate::port::usable;
use crate::{
    annotations::Annotations, keys, mode::OtherPorts, pod::ContainerView, port_list::PortList,
    redirect::Redirect,
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum OpenPortReason {
    Annotation,
    /// The kubelet calls the port for a probe or hook, in a pod that closes other ports.
    Probe {
        container: String,
    },
    /// The pod does not close ports.
    Declared {
        container: String,
    },
}

impl fmt::Display for OpenPortReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Annotation => write!(f, "annotation {}", keys::OPEN_PORTS),
            Self::Probe { container } => write!(f, "probe or hook of container {}", Name(container)),
            Self::Declared { container } => write!(f, "declared by container {}", Name(container)),
        }
    }
}

/// Returns the open ports of a pod: with closed ports, those that stay open, and otherwise those that the `running`
/// containers declare. `redirect` has the guarded ports.
pub(super) fn find<'v, 'a: 'v>(
    running: impl Iterator<Item = &'v ContainerView<'a>>,
    annotations: &Annotations,
    redirect: Option<&Redirect>,
    other_ports: OtherPorts,
) -> BTreeMap<NonZeroU16, OpenPortReason> {
    let closes = redirect.is_some() && other_ports == OtherPorts::Closed;
    let mut open = BTreeMap::new();
    for found in running {
        let container = || found.name().to_owned();
        if closes {
            let probed = found.kubelet_ports().filter_map(|number| usable(Some(number)));
            open.extend(probed.map(|port| (port, OpenPortReason::Probe { container: container() })));
        } else {
            let declared = found.ports().filter(|port| port.is_tcp());
            let declared = declared.filter_map(|port| usable(port.container_port()));
            open.extend(declared.map(|port| (port, OpenPortReason::Declared { container: container() })));
        }
    }
    if closes {
        let listed = annotations.open_ports.iter().flat_map(PortList::iter);
        open.extend(listed.map(|port| (port, OpenPortReason::Annotation)));
    }
    for entry in redirect.map(Redirect::entries).into_iter().flatten() {
        open.remove(&entry);
    }
    open
}
