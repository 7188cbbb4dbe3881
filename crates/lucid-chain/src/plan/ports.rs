//! Ports of the model and the auditors.

use std::{collections::BTreeMap, fmt, num::NonZeroU16};

use super::{ImpossibleReason, names::Names};
use crate::{
    catalogue::Auditor,
    keys,
    mode::Direction,
    pod::{ContainerView, PodView, PortView},
    port,
    text::Name,
    warning::Warning,
};

/// Port of a model for which neither the pod nor the configuration specifies one.
pub const DEFAULT_MODEL_PORT: NonZeroU16 = port::known(5000);

/// First port for auditors whose own port is taken: 8090, 8093, 8096 and so on.
const FIRST_SPARE: u16 = 8090;
const SPARE_STEP: usize = 3;

/// First port for auditors without a port of their own in a chain that audits only outbound traffic: 8081, 8082 and so
/// on.
const FIRST_OUTBOUND: NonZeroU16 = port::known(8081);

/// First port of the second range, used when the preferred ports are taken.
const FIRST_UNPRIVILEGED: u16 = 1024;

/// Port that the model listens on, and its source.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ModelPort {
    /// Port number.
    pub port: NonZeroU16,
    /// Source of the port.
    pub source: ModelPortSource,
}

/// Source of the model's port. Apart from [`Kept`](Self::Kept), the variants are in descending order of precedence.
///
/// A port named `http` and an only port receive calls from outside the pod, so they identify the model only for
/// [`Direction::Inbound`]. An application that calls a model has such a port as well, and a chain that ended there
/// would return its own calls to it. The same applies to [`Direction::Both`], because its single chain ends at the
/// model that the application calls.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ModelPortSource {
    /// The operator's configuration.
    Operator,
    /// The annotation [`keys::TARGET_PORT`].
    Annotation,
    /// The `defaults` of an `auditors.yaml`.
    Catalogue,
    /// A port named `model` of an application or native sidecar or, for inbound traffic only, a port named `http` of an
    /// application.
    NamedPort {
        /// The application's container.
        container: String,
        /// The name of the port.
        name: &'static str,
    },
    /// The only port that the applications declare; inbound traffic only.
    OnlyPort {
        /// The application's container.
        container: String,
    },
    /// [`DEFAULT_MODEL_PORT`], which `container` declares among other ports.
    DeclaredDefault {
        /// The application's container.
        container: String,
    },
    /// The last auditor is already in the pod and forwards to this declared port; inbound traffic only. Takes
    /// precedence over `http`, the only port and the default, because another injector may have added containers with
    /// ports since.
    Kept {
        /// The auditor's container.
        container: String,
    },
    /// [`DEFAULT_MODEL_PORT`], which no application declares.
    Assumed,
}

impl fmt::Display for ModelPortSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Operator => f.write_str("operator configuration"),
            Self::Annotation => write!(f, "annotation {}", keys::TARGET_PORT),
            Self::Catalogue => f.write_str("auditors.yaml"),
            Self::NamedPort { container, name } => {
                write!(f, "port named {name} of container {}", Name(container))
            }
            Self::OnlyPort { container } => {
                write!(f, "the only declared port, of container {}", Name(container))
            }
            Self::DeclaredDefault { container } => {
                write!(f, "built-in default, declared by container {}", Name(container))
            }
            Self::Kept { container } => write!(f, "what container {container} forwards to already"),
            Self::Assumed => f.write_str("built-in default"),
        }
    }
}

/// Inputs for finding the model's port.
pub(super) struct ModelClues<'v, 'a> {
    pub(super) operator: Option<NonZeroU16>,
    pub(super) annotation: Option<NonZeroU16>,
    pub(super) catalogue: Option<NonZeroU16>,
    pub(super) direction: Direction,
    pub(super) has_upstream: bool,
    /// Containers that may be the model.
    pub(super) applications: &'v [&'v ContainerView<'a>],
    /// Native sidecars of the pod. Only a port named `model` identifies one as the model, because service meshes run
    /// their proxies there.
    pub(super) sidecars: &'v [&'v ContainerView<'a>],
    /// Name and next hop of the last auditor that is in the pod.
    pub(super) forwarded_to: Option<(&'v str, NonZeroU16)>,
}

impl ModelPort {
    pub(super) fn find(clues: &ModelClues<'_, '_>, warnings: &mut Vec<Warning>) -> Self {
        if let Some(port) = clues.operator {
            return Self { port, source: ModelPortSource::Operator };
        }
        if let Some(port) = clues.annotation {
            return Self { port, source: ModelPortSource::Annotation };
        }
        if let Some(port) = clues.catalogue {
            return Self { port, source: ModelPortSource::Catalogue };
        }
        let declared = Declared::by(clues.applications);
        if let Some(found) = declared.named("model").or_else(|| Declared::by(clues.sidecars).named("model")) {
            return found;
        }
        let inbound = clues.direction == Direction::Inbound;
        let guessed = if inbound { declared.named("http").or_else(|| declared.only()) } else { None };
        let guessed = guessed.or_else(|| declared.default());
        let kept = clues.forwarded_to.filter(|&(_, port)| {
            inbound && declared.has(port) && guessed.as_ref().is_none_or(|guessed| guessed.port != port)
        });
        if let Some((container, port)) = kept {
            return Self { port, source: ModelPortSource::Kept { container: container.to_owned() } };
        }
        guessed.unwrap_or_else(|| {
            let port = DEFAULT_MODEL_PORT;
            if clues.direction != Direction::Outbound || !clues.has_upstream {
                warnings.push(Warning::ModelPortAssumed { port });
            }
            Self { port, source: ModelPortSource::Assumed }
        })
    }
}

/// TCP ports that applications declare, with the names of container and port.
struct Declared<'v>(Vec<(&'v str, Option<&'v str>, NonZeroU16)>);

impl<'v> Declared<'v> {
    fn by(applications: &[&'v ContainerView<'_>]) -> Self {
        let ports = applications
            .iter()
            .flat_map(|container| container.ports().map(move |port| (container.name(), port)))
            .filter(|(_, port)| port.is_tcp())
            .filter_map(|(container, port)| Some((container, port.name(), usable(port.container_port())?)));
        Self(ports.collect())
    }

    fn has(&self, port: NonZeroU16) -> bool {
        self.0.iter().any(|&(.., declared)| declared == port)
    }

    fn named(&self, name: &'static str) -> Option<ModelPort> {
        let &(container, _, port) = self.0.iter().find(|(_, declared, _)| *declared == Some(name))?;
        let container = container.to_owned();
        Some(ModelPort { port, source: ModelPortSource::NamedPort { container, name } })
    }

    fn only(&self) -> Option<ModelPort> {
        let &(container, _, port) = self.0.first()?;
        let only = self.0.iter().all(|&(.., declared)| declared == port);
        let container = container.to_owned();
        only.then_some(ModelPort { port, source: ModelPortSource::OnlyPort { container } })
    }

    fn default(&self) -> Option<ModelPort> {
        let &(container, _, port) = self.0.iter().find(|&&(.., port)| port == DEFAULT_MODEL_PORT)?;
        let container = container.to_owned();
        Some(ModelPort { port, source: ModelPortSource::DeclaredDefault { container } })
    }
}

/// Holder of a port.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum PortHolder {
    /// The model.
    Model,
    /// A container that declares the port.
    Container(String),
    /// An init container that declares the port.
    InitContainer(String),
    /// An auditor earlier in the chain.
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

/// Reason for the port of an auditor.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum PortReason {
    /// The port of the catalogue entry is free.
    Declared,
    /// The port of the catalogue entry is taken.
    Taken {
        /// Port of the catalogue entry.
        declared: NonZeroU16,
        /// Current holder.
        by: PortHolder,
    },
}

impl PortReason {
    /// Returns the full explanation for an auditor on `port`, such as `port 8093 because 8090 is taken by container
    /// web`.
    pub fn explain(&self, port: NonZeroU16) -> String {
        format!("port {port} because {self}")
    }
}

impl fmt::Display for PortReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Declared => f.write_str("its own port is free"),
            Self::Taken { declared, by } => write!(f, "{declared} is taken by {by}"),
        }
    }
}

/// Ports of a chain.
pub(super) struct Ports {
    pub(super) chain: Vec<(NonZeroU16, PortReason)>,
    /// Port of the intake of `lucid-egress`.
    pub(super) intake: Option<NonZeroU16>,
}

/// Assigns a port to each auditor, in chain order, and one more if `intake` is set.
pub(super) fn assign(
    pod: &PodView<'_>,
    planned: &Names<'_>,
    model: NonZeroU16,
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
    taken.entry(model).or_insert(Holder::Model);

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
        ports.push((port, reason));
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
    let numbers = container.ports().flat_map(|port: &PortView<'_>| [port.container_port(), port.host_port()]);
    for port in numbers.filter_map(usable) {
        taken.entry(port).or_insert_with(|| holder(container.name()));
    }
}

/// Returns the candidates for auditors whose own port is taken, preferred ones first.
fn spares(direction: Direction) -> impl Iterator<Item = NonZeroU16> {
    let (first, step) = match direction {
        Direction::Outbound => (FIRST_OUTBOUND.get(), 1),
        _ => (FIRST_SPARE, SPARE_STEP),
    };
    (first..=u16::MAX).step_by(step).chain(FIRST_UNPRIVILEGED..=u16::MAX).filter_map(NonZeroU16::new)
}

/// Converts a declared number to a port; the API server rejects invalid ones.
fn usable(number: Option<i32>) -> Option<NonZeroU16> {
    u16::try_from(number?).ok().and_then(NonZeroU16::new)
}
