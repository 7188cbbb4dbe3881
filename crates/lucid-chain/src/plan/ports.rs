//! Who listens where.

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

/// Where a model listens unless the pod tells otherwise.
pub const DEFAULT_MODEL_PORT: NonZeroU16 = port::known(5000);

/// Where an auditor goes when its own port is taken: 8090, 8093, 8096 and so on.
const FIRST_SPARE: u16 = 8090;
const SPARE_STEP: usize = 3;

/// When even those are taken: any port that needs no privilege.
const FIRST_UNPRIVILEGED: u16 = 1024;

/// Where the model listens, and how that is known.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ModelPort {
    /// The port.
    pub port: NonZeroU16,
    /// How it is known.
    pub source: ModelPortSource,
}

/// How the model's port is known; the first that applies.
///
/// A port `http` and an only port tell where calls from outside arrive, which is the model only while
/// [`Direction::Inbound`] is audited. An application that calls a model itself has such a port too, and a chain that ends
/// there would hand the application its own calls. That holds for [`Direction::Both`] as well: there is one chain for
/// both ways, and it ends at the model that the application calls.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ModelPortSource {
    /// The operator's configuration.
    Operator,
    /// The annotation [`keys::TARGET_PORT`].
    Annotation,
    /// `defaults` in an `auditors.yaml`.
    Catalogue,
    /// A port of an application is named `model` or else, inbound, `http`.
    NamedPort {
        /// The application's container.
        container: String,
        /// The name of the port.
        name: &'static str,
    },
    /// The applications declare only this port; inbound.
    OnlyPort {
        /// The application's container.
        container: String,
    },
    /// The default, which `container` declares among other ports.
    DeclaredDefault {
        /// The application's container.
        container: String,
    },
    /// The last auditor was in the pod already and forwards to this port of an application; inbound. It wins over the
    /// ways of guessing, which the containers of another injector lead astray: it may have come between two calls of
    /// the webhook.
    Kept {
        /// The auditor's container.
        container: String,
    },
    /// The default, which no application declares.
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

/// What tells where the model listens.
pub(super) struct ModelClues<'v, 'a> {
    /// The operator's configuration.
    pub(super) operator: Option<NonZeroU16>,
    /// The annotation [`keys::TARGET_PORT`].
    pub(super) annotation: Option<NonZeroU16>,
    /// `defaults` in an `auditors.yaml`.
    pub(super) catalogue: Option<NonZeroU16>,
    /// Which traffic the chain stands in.
    pub(super) direction: Direction,
    /// The containers one of which is the model.
    pub(super) applications: &'v [&'v ContainerView<'a>],
    /// The native sidecars of the pod. They are the model only where a port of theirs says so by its name: a mesh puts its
    /// proxy there.
    pub(super) sidecars: &'v [&'v ContainerView<'a>],
    /// Name and next hop of the last auditor as it stands in the pod.
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
            warnings.push(Warning::ModelPortAssumed { port });
            Self { port, source: ModelPortSource::Assumed }
        })
    }
}

/// The TCP ports that applications declare, with their containers and names.
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

/// Who has a port.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum PortHolder {
    /// The model.
    Model,
    /// A container of the pod that declares it.
    Container(String),
    /// An init container of the pod that declares it.
    InitContainer(String),
    /// The container of an auditor earlier in the chain.
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

/// Why an auditor listens where it does.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum PortReason {
    /// The catalogue says so and the port is free.
    Declared,
    /// The port of the catalogue is taken.
    Taken {
        /// The port of the catalogue.
        declared: NonZeroU16,
        /// Who has it.
        by: PortHolder,
    },
}

impl PortReason {
    /// The whole sentence for an auditor that listens on `port`, such as
    /// `port 8093 because 8090 is taken by container web`.
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

/// A port for each auditor, in the order of the chain.
pub(super) fn assign(
    pod: &PodView<'_>,
    planned: &Names<'_>,
    model: NonZeroU16,
    chain: &[&Auditor],
    names: &[String],
) -> Result<Vec<(NonZeroU16, PortReason)>, ImpossibleReason> {
    let mut taken = BTreeMap::new();
    let foreign = |found: &&ContainerView<'_>| !planned.are_planned(found.name());
    for container in pod.containers().iter().filter(foreign) {
        declare(&mut taken, container, Holder::Container);
    }
    for container in pod.init_containers().iter().filter(foreign) {
        declare(&mut taken, container, Holder::InitContainer);
    }
    taken.entry(model).or_insert(Holder::Model);

    // What is taken stays taken.
    let mut spares = spares();
    let mut ports = Vec::with_capacity(chain.len());
    for (auditor, name) in chain.iter().zip(names) {
        let declared = auditor.port();
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
    Ok(ports)
}

/// A [`PortHolder`] that borrows its name: a container can declare every port there is.
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

/// The ports for those whose own one is taken, the preferred ones first.
fn spares() -> impl Iterator<Item = NonZeroU16> {
    (FIRST_SPARE..=u16::MAX)
        .step_by(SPARE_STEP)
        .chain(FIRST_UNPRIVILEGED..=u16::MAX)
        .filter_map(NonZeroU16::new)
}

/// A declared number as a port; what is none is left to the API server to refuse.
fn usable(number: Option<i32>) -> Option<NonZeroU16> {
    u16::try_from(number?).ok().and_then(NonZeroU16::new)
}
