//! The model's ports.

use std::{fmt, num::NonZeroU16};

use super::{before, container::local_port, names::is_init_name, ports::usable};
use crate::{
    catalogue::{Auditor, Catalogue},
    keys,
    mode::Direction,
    pod::{ContainerView, PodView},
    port,
    port_list::PortList,
    text::Name,
    warning::Warning,
};

/// Port of a model for which neither the pod nor the configuration specifies one.
pub const DEFAULT_MODEL_PORT: NonZeroU16 = port::known(5000);

/// Containers that pass calls from outside the pod on to the model: those of Knative and llm-d.
const SERVING_PROXIES: [&str; 2] = ["queue-proxy", "routing-proxy"];

/// Containers of service meshes. Their ports are never the model's.
const MESH_PROXIES: [&str; 5] = ["istio-proxy", "linkerd-proxy", "kuma-sidecar", "consul-dataplane", "daprd"];

/// Words and parts of words in names of ports for metrics, health, profiling or administration.
const AUXILIARY: &str = "prom prometheus live liveness livez ready readiness readyz probe probes status stats statsd \
                         debug debugger jmx jolokia management mgmt manage dashboard monitor monitoring telemetry \
                         otlp otel trace tracing zipkin actuator";
const AUXILIARY_PARTS: [&str; 5] = ["metric", "health", "prof", "admin", "queueadm"];

/// Words in names of ports for HTTP or inference.
const SERVING: &str = "http h2c rest api openai model inference infer predict predictor prediction serve serving \
                       generate completion completions chat llm vllm tgi triton ollama";

/// Ports that the model listens on, and their source.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ModelPort {
    /// The port, or the first of several.
    pub port: NonZeroU16,
    /// Further ports.
    pub further: Vec<NonZeroU16>,
    /// Source of the ports.
    pub source: ModelPortSource,
}

/// Source of the model's port. Apart from [`Kept`](Self::Kept), the variants are in descending order of precedence.
///
/// Declared ports receive calls from outside the pod, so they identify the model only for [`Direction::Inbound`]. An
/// application that calls a model has such ports as well, and a chain that ended there would return its own calls to
/// it. The same applies to [`Direction::Both`], because its single chain ends at the model that the application calls.
/// For these directions, only a port named `model` or [`DEFAULT_MODEL_PORT`] identifies the model.
///
/// Ports count if a running container declares them for TCP: applications and native sidecars, but not the proxies of
/// service meshes. Ports whose name or probe says that they are for metrics, health, profiling or administration do not.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ModelPortSource {
    /// The operator's configuration.
    Operator,
    /// The annotation [`keys::TARGET_PORT`].
    Annotation,
    /// The `defaults` of an `auditors.yaml`.
    Catalogue,
    /// The only port that counts.
    OnlyPort {
        /// Container that declares it.
        container: String,
    },
    /// The only port named `model`, the only port of a serving proxy, or the only port whose name says HTTP or inference.
    NamedPort {
        /// Container that declares it.
        container: String,
        /// Name of the port.
        name: String,
    },
    /// A port of a container that passes calls on to the model, such as Knative's `queue-proxy`.
    ServingProxy {
        /// The proxy.
        container: String,
    },
    /// The port that a readiness probe asks.
    ReadinessProbe {
        /// Container with the probe.
        container: String,
    },
    /// [`DEFAULT_MODEL_PORT`], which `container` declares; not for inbound traffic.
    DeclaredDefault {
        /// The application's container.
        container: String,
    },
    /// The last auditor is already in the pod and forwards to this declared port; inbound traffic only. Takes
    /// precedence over everything but settings and the name `model`, because another injector may have added
    /// containers with ports since.
    Kept {
        /// The auditor's container.
        container: String,
    },
    /// [`DEFAULT_MODEL_PORT`], because no port or several ports could be the model's.
    Assumed {
        /// The ports that could be the model's, each with a container that declares it; at most 8.
        candidates: Vec<(NonZeroU16, String)>,
    },
}

impl fmt::Display for ModelPortSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Operator => f.write_str("operator configuration"),
            Self::Annotation => write!(f, "annotation {}", keys::TARGET_PORT),
            Self::Catalogue => f.write_str("auditors.yaml"),
            Self::OnlyPort { container } => {
                write!(f, "the only declared port, of container {}", Name(container))
            }
            Self::NamedPort { container, name } => {
                write!(f, "port named {} of container {}", Name(name), Name(container))
            }
            Self::ServingProxy { container } => write!(f, "port of the serving proxy {}", Name(container)),
            Self::ReadinessProbe { container } => {
                write!(f, "readiness probe of container {}", Name(container))
            }
            Self::DeclaredDefault { container } => {
                write!(f, "built-in default, declared by container {}", Name(container))
            }
            Self::Kept { container } => write!(f, "what container {container} forwards to already"),
            Self::Assumed { .. } => f.write_str("built-in default"),
        }
    }
}

/// Inputs for finding the model's port.
pub(super) struct ModelClues<'v, 'a> {
    pub(super) operator: Option<PortList>,
    pub(super) annotation: Option<PortList>,
    pub(super) catalogue: Option<PortList>,
    pub(super) direction: Direction,
    pub(super) pod: &'v PodView<'a>,
    /// Catalogue of the auditors, whose containers cannot be the model.
    pub(super) auditors: &'v Catalogue,
    /// Last auditor of the chain.
    pub(super) last: Option<&'v Auditor>,
}

impl ModelPort {
    pub(super) fn find(clues: &ModelClues<'_, '_>) -> Self {
        let configured = [
            (clues.operator, ModelPortSource::Operator),
            (clues.annotation, ModelPortSource::Annotation),
            (clues.catalogue, ModelPortSource::Catalogue),
        ];
        let configured = configured.into_iter().find_map(|(ports, source)| Some((ports?, source)));
        match configured {
            Some((ports, source)) => {
                let (port, further) = ports.split_first();
                Self { port, further: further.collect(), source }
            }
            None => {
                let (port, source) = infer(clues);
                Self { port, further: Vec::new(), source }
            }
        }
    }

    /// Iterates over all ports of the model.
    pub fn ports(&self) -> impl Iterator<Item = NonZeroU16> {
        std::iter::once(self.port).chain(self.further.iter().copied())
    }

    /// Returns `true` if a native sidecar of `pod` declares one of the ports.
    pub(super) fn is_native(&self, pod: &PodView<'_>, auditors: &Catalogue) -> bool {
        let mut sidecars = running(pod, auditors).filter(|found| found.is_native_sidecar());
        sidecars.any(|found| self.is_declared_by(found))
    }

    /// Returns `true` if the container declares one of the ports for TCP.
    pub fn is_declared_by(&self, container: &ContainerView<'_>) -> bool {
        let mut declared = container.ports().filter(|port| port.is_tcp());
        declared.any(|declared| self.ports().any(|port| Some(port.get().into()) == declared.container_port()))
    }

    /// Returns `true` if nothing says that the model listens on this port.
    pub fn is_assumed(&self) -> bool {
        matches!(self.source, ModelPortSource::Assumed { .. })
    }

    /// Returns the warning that the port is assumed, if it is.
    pub fn warning(&self) -> Option<Warning> {
        let ModelPortSource::Assumed { candidates } = &self.source else { return None };
        Some(Warning::ModelPortAssumed { port: self.port, candidates: candidates.clone() })
    }
}

/// A declared TCP port that may be the model's.
#[derive(Clone, Copy)]
struct Declared<'v> {
    container: &'v str,
    name: &'v str,
    port: NonZeroU16,
    /// `true` if the container's readiness probe asks the port.
    is_probed: bool,
}

fn infer(clues: &ModelClues<'_, '_>) -> (NonZeroU16, ModelPortSource) {
    let containers: Vec<_> = running(clues.pod, clues.auditors).collect();
    let declared: Vec<_> = containers.iter().copied().flat_map(candidates).collect();
    if let Some(found) = only(declared.iter().filter(|it| it.name == "model")) {
        return (found.port, found.named());
    }
    let assumed = || {
        let mut candidates: Vec<_> = declared.iter().map(|it| (it.port, it.container.to_owned())).collect();
        candidates.sort_by_key(|(port, _)| *port);
        candidates.dedup_by_key(|(port, _)| *port);
        candidates.truncate(PortList::MAX);
        (DEFAULT_MODEL_PORT, ModelPortSource::Assumed { candidates })
    };
    if clues.direction != Direction::Inbound {
        let default = declared.iter().find(|it| it.port == DEFAULT_MODEL_PORT);
        let source =
            |it: &Declared<'_>| ModelPortSource::DeclaredDefault { container: it.container.to_owned() };
        return default.map_or_else(assumed, |it| (DEFAULT_MODEL_PORT, source(it)));
    }
    let found = match declared.is_empty() {
        true => probed(&containers),
        false => single_out(&declared),
    };
    let kept = forwarded_to(clues).find(|(_, port)| {
        // A chain also forwards to the default if that was assumed.
        let is_evidence = *port != DEFAULT_MODEL_PORT || found.is_some();
        let is_other = found.as_ref().is_none_or(|(found, _)| found != port);
        is_evidence && is_other && declared.iter().any(|it| it.port == *port)
    });
    match kept {
        Some((container, port)) => (port, ModelPortSource::Kept { container: container.to_owned() }),
        None => found.unwrap_or_else(assumed),
    }
}

/// Iterates over the containers that run beside the auditors and may be the model or in front of it.
fn running<'v, 'a>(
    pod: &'v PodView<'a>,
    auditors: &'v Catalogue,
) -> impl Iterator<Item = &'v ContainerView<'a>> {
    let sidecars = pod.native_sidecars().map(|(_, found)| found);
    let sidecars = sidecars.filter(|found| !is_init_name(found.name()));
    pod.containers().iter().chain(sidecars).filter(|found| {
        let name = found.name();
        auditors.auditor_of_container(name).is_none()
            && !before::is_auditor(found, auditors)
            && !MESH_PROXIES.contains(&name)
    })
}

/// Iterates over the declared TCP ports of a container, except those for metrics, health, profiling or administration.
fn candidates<'v>(container: &'v ContainerView<'_>) -> impl Iterator<Item = Declared<'v>> {
    let readiness = readiness_port(container);
    container.ports().filter(|port| port.is_tcp()).filter_map(move |declared| {
        let (port, name) = (usable(declared.container_port())?, declared.name().unwrap_or_default());
        let is_probed = readiness == Some(port);
        let mut probes = container.probes().filter(|probe| probe.port(container) == Some(port.get().into()));
        // A container that is ready on another port has this one for its liveness.
        let is_auxiliary = is_auxiliary(name)
            || probes.any(|probe| (readiness.is_some() && !is_probed) || is_auxiliary_path(probe.path()));
        (!is_auxiliary).then(|| Declared { container: container.name(), name, port, is_probed })
    })
}

/// Returns the port that the readiness probe asks, unless its path is one of those that servers of their own answer
/// beside the model's.
fn readiness_port(container: &ContainerView<'_>) -> Option<NonZeroU16> {
    let probe = container.readiness_probe()?;
    let is_beside = ["healthz", "livez", "readyz"].iter().any(|name| probe.path().ends_with(name));
    let port = probe.port(container).filter(|_| !is_beside && !is_auxiliary_path(probe.path()));
    usable(port.and_then(|port| port.try_into().ok()))
}

/// Applies the evidence in order, until one port is left.
fn single_out(declared: &[Declared<'_>]) -> Option<(NonZeroU16, ModelPortSource)> {
    if let Some(found) = only(declared) {
        return Some((found.port, ModelPortSource::OnlyPort { container: found.container.to_owned() }));
    }
    type Evidence = (fn(&Declared<'_>) -> bool, fn(&Declared<'_>) -> ModelPortSource);
    let evidence: [Evidence; 3] = [
        (
            |it| SERVING_PROXIES.contains(&it.container),
            |it| ModelPortSource::ServingProxy { container: it.container.to_owned() },
        ),
        (|it| has_word(it.name, SERVING), |it| it.named()),
        (|it| it.is_probed, |it| ModelPortSource::ReadinessProbe { container: it.container.to_owned() }),
    ];
    let mut left = declared.to_vec();
    for (tells, source) in evidence {
        let told: Vec<_> = left.iter().copied().filter(tells).collect();
        if let Some(found) = only(&told) {
            return Some((found.port, source(found)));
        }
        if !told.is_empty() {
            left = told;
        }
    }
    None
}

/// Returns the port that readiness probes ask, if it is the same for all containers and none declares it for something
/// else.
fn probed(containers: &[&ContainerView<'_>]) -> Option<(NonZeroU16, ModelPortSource)> {
    let probed = containers.iter().filter_map(|container| {
        let port = readiness_port(container)?;
        Some(Declared { container: container.name(), name: "", port, is_probed: true })
    });
    let probed: Vec<_> = probed.collect();
    let found = only(&probed)?;
    let mut declared = containers.iter().flat_map(|container| container.ports());
    let is_declared = declared.any(|port| usable(port.container_port()) == Some(found.port));
    let source = ModelPortSource::ReadinessProbe { container: found.container.to_owned() };
    (!is_declared).then_some((found.port, source))
}

/// Returns the first of `declared` if all have the same port.
fn only<'d, 'v: 'd>(declared: impl IntoIterator<Item = &'d Declared<'v>>) -> Option<&'d Declared<'v>> {
    let mut declared = declared.into_iter();
    let first = declared.next()?;
    declared.all(|other| other.port == first.port).then_some(first)
}

impl Declared<'_> {
    fn named(&self) -> ModelPortSource {
        ModelPortSource::NamedPort { container: self.container.to_owned(), name: self.name.to_owned() }
    }
}

/// Iterates over the containers that are the last auditor of the chain, and the ports that they forward to.
///
/// A forged value gains nothing: pod authors also choose the model's port by the ports that their containers declare.
fn forwarded_to<'v>(clues: &'v ModelClues<'_, '_>) -> impl Iterator<Item = (&'v str, NonZeroU16)> {
    let last = clues.last;
    clues.pod.all_containers().filter_map(move |found| {
        let ours = found.image() == Some(last?.image())
            && found.env(keys::AUDITOR_ID_ENV).as_deref() == Some(found.name());
        let port = local_port(&found.env("LUCID_CHAIN_NEXT").filter(|_| ours)?)?;
        Some((found.name(), port))
    })
}

fn is_auxiliary(name: &str) -> bool {
    has_word(name, AUXILIARY) || AUXILIARY_PARTS.iter().any(|part| name.contains(part))
}

fn is_auxiliary_path(path: &str) -> bool {
    ["metrics", "pprof", "debug", "admin"].iter().any(|word| path.contains(word))
}

/// Returns `true` if one of the parts of `name`, which hyphens separate, is one of `words`, with or without a number.
fn has_word(name: &str, words: &str) -> bool {
    let digits = |byte: char| byte.is_ascii_digit();
    name.split('-')
        .any(|part| words.split(' ').any(|word| part == word || part.trim_end_matches(digits) == word))
}
