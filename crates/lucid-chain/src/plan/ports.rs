//! Ports of the auditors.

use std::{collections::BTreeMap, fmt, num::NonZeroU16};

use lucid_text::Name;

use super::{ImpossibleReason, model_port::ModelPort, names::Names};
use crate::{
    catalogue::Auditor,
    mode::Direction,
    pod::{ContainerView, PodView},
    port,
};

/// First port for auditors whose own port is taken: 8090, 8093, 8096 and so on.
const FIRST_SPARE: u16 = 8090;
const SPARE_STEP: usize = 3;

/// First port for auditors without a port of their own in a chain that audits only outbound traffic: 8081, 8082 and so
/// on.
const FIRST_OUTBOUND: NonZeroU16 = port::known(8081);

/// First port of the second range, used when the preferred ports are taken.
const FIRST_UNPRIVILEGED: u16 = 1024;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PortHolder {
    Model,
    Container(String),
    InitContainer(String),
    Auditor(String),
}

impl fmt::Display for PortHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Model => f.write_str("the model"),
            Self::Container(name) => write!(f, "container {}", Name(name)),
            Self::InitContainer(name) => write!(f, "init container {}", Name(name)),
            Self::Auditor(name) => write!(f, "auditor {name}"),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PortReason {
    Declared,
    Taken { declared: NonZeroU16, by: PortHolder },
}

impl fmt::Display for PortReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Declared => f.write_str("its own port is free"),
            Self::Taken { declared, by } => write!(f, "{declared} is taken by {by}"),
        }
    }
}

pub(super) struct Listeners {
    pub(super) port: NonZeroU16,
    pub(super) reason: PortReason,
    /// One port for each further port of the model.
    pub(super) further: Vec<NonZeroU16>,
}

pub(super) struct Ports {
    pub(super) chain: Vec<Listeners>,
    pub(super) intake: Option<NonZeroU16>,
}

/// Assigns the ports of each auditor, in chain order, and one more if `intake` is set.
pub(super) fn assign(
    pod: &PodView<'_>,
    planned: &Names<'_>,
    model: &ModelPort,
    chain: &[&Auditor],
    names: &[String],
    direction: Direction,
    intake: bool,
) -> Result<Ports, ImpossibleReason> {
    let mut taken = BTreeMap::new();
    let foreign = |found: &&ContainerView<'_>| !planned.is_planned(found.name());
    for container in pod.containers().iter().filter(foreign) {
        declare(&mut taken, container, Holder::Container);
    }
    for container in pod.init_containers().iter().filter(foreign) {
        declare(&mut taken, container, Holder::InitContainer);
    }
    for port in model.ports() {
        taken.entry(port).or_insert(Holder::Model);
    }

    // Ports are never released, so the search continues where it stopped.
    let mut spares = spares(direction);
    let mut ports = Vec::with_capacity(chain.len());
    for (auditor, name) in chain.iter().zip(names) {
        let declared = match direction {
            Direction::Outbound if !auditor.has_own_port() => FIRST_OUTBOUND,
            _ => auditor.port(),
        };
        let (port, reason) = match taken.get(&declared) {
            None => (declared, PortReason::Declared),
            Some(by) => {
                let reason = PortReason::Taken { declared, by: by.owned() };
                let port = spares
                    .find(|port| !taken.contains_key(port))
                    .ok_or_else(|| ImpossibleReason::NoFreePort { container: name.clone() })?;
                (port, reason)
            }
        };
        taken.insert(port, Holder::Auditor(name));
        ports.push(Listeners { port, reason, further: Vec::new() });
    }
    // Only now, so that no listener takes the preferred port of another auditor.
    for (listeners, name) in ports.iter_mut().zip(names) {
        let mut last = listeners.port;
        for _ in &model.further {
            let above = (last.get()..=u16::MAX).skip(1).chain(FIRST_UNPRIVILEGED..=u16::MAX);
            let mut free = above.filter_map(NonZeroU16::new).filter(|port| !taken.contains_key(port));
            last = free.next().ok_or_else(|| ImpossibleReason::NoFreePort { container: name.clone() })?;
            taken.insert(last, Holder::Auditor(name));
            listeners.further.push(last);
        }
    }
    let intake = intake.then(|| spares.find(|port| !taken.contains_key(port)));
    let container = || names.last().cloned().unwrap_or_default();
    let no_intake = || ImpossibleReason::NoFreePort { container: container() };
    let intake = intake.map(|port| port.ok_or_else(no_intake)).transpose()?;
    Ok(Ports { chain: ports, intake })
}

/// A borrowed [`PortHolder`], which avoids a copy for every declared port.
#[derive(Clone, Copy)]
enum Holder<'v> {
    Model,
    Container(&'v str),
    InitContainer(&'v str),
    Auditor(&'v str),
}

impl Holder<'_> {
    fn owned(self) -> PortHolder {
        match self {
            Self::Model => PortHolder::Model,
            Self::Container(name) => PortHolder::Container(name.to_owned()),
            Self::InitContainer(name) => PortHolder::InitContainer(name.to_owned()),
            Self::Auditor(name) => PortHolder::Auditor(name.to_owned()),
        }
    }
}

fn declare<'v>(
    taken: &mut BTreeMap<NonZeroU16, Holder<'v>>,
    container: &'v ContainerView<'_>,
    holder: fn(&'v str) -> Holder<'v>,
) {
    let numbers = container.ports().flat_map(|port| [port.container_port(), port.host_port()]);
    for port in numbers.filter_map(port::usable) {
        taken.entry(port).or_insert_with(|| holder(container.name()));
    }
}

fn spares(direction: Direction) -> impl Iterator<Item = NonZeroU16> {
    let (first, step) = match direction {
        Direction::Outbound => (FIRST_OUTBOUND.get(), 1),
        _ => (FIRST_SPARE, SPARE_STEP),
    };
    (first..=u16::MAX).step_by(step).chain(FIRST_UNPRIVILEGED..=u16::MAX).filter_map(NonZeroU16::new)
}
