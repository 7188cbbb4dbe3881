//! The model's ports.

use std::{fmt, num::NonZeroU16};

use lucid_text::Name;

use super::{before, names::is_init_name};
use crate::{
    catalogue::{Auditor, Catalogue},
    keys,
    mode::Direction,
    pod::{ContainerView, PodView},
    port,
    port_list::PortList,
    warning::Warning,
};

const DEFAULT_MODEL_PORT: NonZeroU16 = port::known(5000);

/// Containers that pass calls from outside the pod on to the model, and the name of their port, if there are others:
/// those of Knative, llm-d, KServe and Seldon.
const SERVING_PROXIES: [(&str, &str); 5] = [
    ("queue-proxy", "queue-port"),
    ("routing-proxy", ""),
    ("llm-d-routing-sidecar", ""),
    ("transformer-container", ""),
    ("seldon-container-engine", "http"),
];

/// Parts of the names of containers of service meshes, logs, metrics and databases, whose ports are never the model's.
#[rustfmt::skip]
const INFRASTRUCTURE: [&str; 20] = [
    "istio", "linkerd", "kuma-", "consul-dataplane", "daprd", "envoy", "fluent", "exporter", "otc-container",
    "otel-col", "rbac-proxy", "sql-proxy", "vault-agent", "traffic-agent", "gcsfuse", "git-sync", "filebeat",
    "promtail", "datadog", "newrelic",
];

/// Words in names of ports for metrics, health, profiling or administration, or for other protocols.
#[rustfmt::skip]
const AUXILIARY: [&str; 66] = [
    "metrics", "metric", "prom", "prometheus", "health", "healthz", "healthcheck", "live", "liveness",
    "livez", "ready", "readiness", "readyz", "probe", "probes", "status", "stats", "statsd", "pprof", "prof",
    "profile", "profiler", "profiling", "debug", "debugger", "jmx", "jolokia", "admin", "administration",
    "adm", "queueadm", "management", "mgmt", "manage", "dashboard", "dash", "monitor", "monitoring",
    "telemetry", "otlp", "otel", "tracing", "zipkin", "actuator", "autometric", "usermetric", "console",
    "webhook", "gitsync", "system", "gcs", "redis", "nixl", "nccl", "ucx", "zmq", "kv", "dist", "master",
    "rdzv", "ssh", "smtp", "dns", "lmcache", "postgres", "mysql",
];

/// Ports of well-known protocols other than HTTP: SSH, SMTP, DNS, MySQL, PostgreSQL, Redis.
const OTHER_PROTOCOLS: [u16; 6] = [22, 25, 53, 3306, 5432, 6379];

/// Words in names of ports for HTTP or inference.
#[rustfmt::skip]
const SERVING: [&str; 22] = [
    "http", "h2c", "rest", "api", "openai", "model", "inference", "infer", "predict", "predictor",
    "prediction", "serve", "serving", "generate", "completion", "completions", "chat", "llm", "vllm", "tgi",
    "triton", "ollama",
];

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ModelPort {
    pub(crate) port: NonZeroU16,
    pub(crate) further: Vec<NonZeroU16>,
    pub(crate) source: ModelPortSource,
}

/// Source of the model's port.
///
/// Declared ports receive calls from outside the pod, so they identify the model only for [`Direction::Inbound`]. An
/// application that calls a model has such ports as well, and a chain that ended there would return its own calls to
/// it. The same applies to [`Direction::Both`], because its single chain ends at the model that the application calls.
/// For these directions, only a port named `model` or the port 5000 identifies the model.
///
/// Ports count if a running container declares them for TCP: applications and native sidecars, but not the proxies of
/// service meshes and other infrastructure. Ports whose name or probe says that they are for metrics, health,
/// profiling, administration or another protocol do not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ModelPortSource {
    Operator,
    Annotation,
    Catalogue,
    OnlyPort {
        container: String,
    },
    /// The only port named `model`, the only port of a serving proxy, or the only port whose name says HTTP or
    /// inference.
    NamedPort {
        container: String,
        name: String,
    },
    /// A port of a container that passes calls on to the model, such as Knative's `queue-proxy`.
    ServingProxy {
        container: String,
    },
    ReadinessProbe {
        container: String,
    },
    /// Port 5000, which `container` declares; not for inbound traffic.
    DeclaredDefault {
        container: String,
    },
    /// The last auditor is already in the pod and forwards to this declared port; inbound traffic only. Takes
    /// precedence over everything but settings and the name `model`, because another injector may have added
    /// containers with ports since.
    Kept {
        container: String,
    },
    /// Port 5000, because no port or several ports could be the model's.
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
                write!(f, "probe of container {}", Name(container))
            }
            Self::DeclaredDefault { container } => {
                write!(f, "built-in default, declared by container {}", Name(container))
            }
            Self::Kept { container } => write!(f, "what container {container} forwards to already"),
            Self::Assumed { .. } => f.write_str("built-in default"),
        }
    }
}

pub(super) struct ModelClues<'v, 'a> {
    pub(super) operator: Option<PortList>,
    pub(super) annotation: Option<PortList>,
    pub(super) catalogue: Option<PortList>,
    pub(super) direction: Direction,
    pub(super) pod: &'v PodView<'a>,
    /// Catalogue of the auditors, whose containers cannot be the model.
    pub(super) auditors: &'v Catalogue,
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

    pub(crate) fn ports(&self) -> impl Iterator<Item = NonZeroU16> {
        std::iter::once(self.port).chain(self.further.iter().copied())
    }

    pub(super) fn is_native(&self, pod: &PodView<'_>, auditors: &Catalogue) -> bool {
        let mut sidecars = running(pod).filter(|found| found.is_native_sidecar());
        sidecars.any(|found| self.is_declared_by(found) && may_be_model(found, auditors))
    }

    /// Returns `true` if the container declares one of the ports for TCP.
    pub(super) fn is_declared_by(&self, container: &ContainerView<'_>) -> bool {
        let mut declared = container.ports().filter(|port| port.is_tcp());
        declared.any(|declared| self.ports().any(|port| Some(port.get().into()) == declared.container_port()))
    }

    pub(crate) fn is_assumed(&self) -> bool {
        matches!(self.source, ModelPortSource::Assumed { .. })
    }

    pub(super) fn warning(&self) -> Option<Warning> {
        let ModelPortSource::Assumed { candidates } = &self.source else { return None };
        Some(Warning::ModelPortAssumed { port: self.port, candidates: candidates.clone() })
    }
}

#[derive(Clone, Copy)]
struct Declared<'v> {
    container: &'v str,
    name: &'v str,
    port: NonZeroU16,
    is_probed: bool,
}

fn infer(clues: &ModelClues<'_, '_>) -> (NonZeroU16, ModelPortSource) {
    let containers: Vec<_> = running(clues.pod).filter(|found| may_be_model(found, clues.auditors)).collect();
    let declared: Vec<_> = containers.iter().copied().flat_map(candidates).collect();
    if let Some(found) = only(declared.iter().filter(|it| it.name == "model")) {
        return (found.port, found.named());
    }
    let assumed = || {
        let probed = containers.iter().filter_map(|found| Some((serving_probe(found)?, found.name())));
        let candidates = declared.iter().map(|it| (it.port, it.container)).chain(probed);
        let mut candidates: Vec<_> =
            candidates.map(|(port, container)| (port, container.to_owned())).collect();
        candidates.sort_by_key(|(port, _)| *port);
        candidates.dedup_by_key(|(port, _)| *port);
        candidates.truncate(PortList::MAX);
        (DEFAULT_MODEL_PORT, ModelPortSource::Assumed { candidates })
    };
    if clues.direction != Direction::Inbound {
        let is_only = clues.direction == Direction::Outbound || only(&declared).is_some();
        let default = declared.iter().find(|it| it.port == DEFAULT_MODEL_PORT && is_only);
        let source =
            |it: &Declared<'_>| ModelPortSource::DeclaredDefault { container: it.container.to_owned() };
        return default.map_or_else(assumed, |it| (DEFAULT_MODEL_PORT, source(it)));
    }
    let found = match declared.is_empty() {
        true => probed(&containers),
        false => single_out(&declared).filter(|(port, source)| !is_contradicted(*port, source, &containers)),
    };
    let kept = forwarded_to(clues).find(|(_, port)| {
        // A chain also forwards to the default if that was assumed.
        let is_evidence = *port != DEFAULT_MODEL_PORT || found.is_some();
        let is_other = found.as_ref().is_none_or(|(found, _)| found != port);
        // Another injector may have replaced the probe of a pod that declares no ports.
        let mut ports = clues.pod.all_containers().flat_map(ContainerView::ports);
        let is_known = match declared.is_empty() {
            true => ports.all(|declared| port::usable(declared.container_port()) != Some(*port)),
            false => declared.iter().any(|it| it.port == *port),
        };
        is_evidence && is_other && is_known
    });
    match kept {
        Some((container, port)) => (port, ModelPortSource::Kept { container: container.to_owned() }),
        None => found.unwrap_or_else(assumed),
    }
}

fn running<'v, 'a>(pod: &'v PodView<'a>) -> impl Iterator<Item = &'v ContainerView<'a>> {
    let sidecars = pod.native_sidecars().map(|(_, found)| found);
    pod.containers().iter().chain(sidecars.filter(|found| !is_init_name(found.name())))
}

/// Returns `true` if the container, which runs, may be the model or in front of it: neither an auditor nor
/// infrastructure.
fn may_be_model(found: &ContainerView<'_>, auditors: &Catalogue) -> bool {
    let name = found.name();
    let mut rests = (0..name.len()).filter_map(|start| name.get(start..));
    auditors.auditor_of_container(name).is_none()
        && !before::is_auditor(found, auditors)
        && !rests.any(|rest| INFRASTRUCTURE.iter().any(|part| rest.starts_with(part)))
}

/// Excludes ports for metrics, health, profiling, administration or other protocols.
fn candidates<'v>(container: &'v ContainerView<'_>) -> impl Iterator<Item = Declared<'v>> {
    let serving = serving_probe(container);
    container.ports().filter(|port| port.is_tcp()).filter_map(move |declared| {
        let (port, name) = (port::usable(declared.container_port())?, declared.name().unwrap_or_default());
        let is_probed = serving == Some(port);
        let mut probes = container.probes().filter(|probe| probe.port(container) == Some(port.get().into()));
        let is_for_health = |path: &str| serving.is_some() && !is_probed && is_health_path(path);
        let is_auxiliary = has_word(name, &AUXILIARY)
            || (name.is_empty() && OTHER_PROTOCOLS.contains(&port.get()))
            || probes.any(|probe| is_auxiliary_path(probe.path()) || is_for_health(probe.path()));
        (!is_auxiliary).then(|| Declared { container: container.name(), name, port, is_probed })
    })
}

/// Returns the target port of the readiness or else the startup probe, unless its path belongs to a separate server for
/// health or metrics.
fn serving_probe(container: &ContainerView<'_>) -> Option<NonZeroU16> {
    let probes = [container.readiness_probe(), container.startup_probe()].into_iter().flatten();
    let mut serving = probes.filter(|probe| is_serving_path(probe.path()));
    serving.find_map(|probe| port::usable(probe.port(container)))
}

/// Returns `true` if the model may listen on another port than the one that was singled out: probes target only others.
fn is_contradicted(port: NonZeroU16, source: &ModelPortSource, containers: &[&ContainerView<'_>]) -> bool {
    if matches!(source, ModelPortSource::ServingProxy { .. }) {
        return false;
    }
    let targets = containers.iter().flat_map(|container| {
        let probes = container.probes().filter(|probe| is_serving_path(probe.path()));
        probes.filter_map(|probe| port::usable(probe.port(container)))
    });
    let targets: Vec<_> = targets.collect();
    !targets.is_empty() && !targets.contains(&port)
}

/// Applies the evidence in order, until one port is left.
fn single_out(declared: &[Declared<'_>]) -> Option<(NonZeroU16, ModelPortSource)> {
    type Evidence = (fn(&Declared<'_>) -> bool, fn(&Declared<'_>) -> ModelPortSource);
    let evidence: [Evidence; 2] = [
        (|it| has_word(it.name, &SERVING) && !has_word(it.name, &["grpc"]), |it| it.named()),
        (|it| it.is_probed, |it| ModelPortSource::ReadinessProbe { container: it.container.to_owned() }),
    ];
    let of_proxy = SERVING_PROXIES.iter().map(|(container, port)| {
        let is_known =
            |it: &&Declared<'_>| it.container == *container && (port.is_empty() || *port == it.name);
        declared.iter().filter(is_known).copied().collect::<Vec<_>>()
    });
    let mut left = of_proxy.into_iter().find(|ports| !ports.is_empty()).unwrap_or_else(|| declared.to_vec());
    if let Some(found) = only(&left) {
        let container = found.container.to_owned();
        let is_proxy = SERVING_PROXIES.iter().any(|(proxy, _)| *proxy == container);
        return Some((
            found.port,
            match is_proxy {
                true => ModelPortSource::ServingProxy { container },
                false => ModelPortSource::OnlyPort { container },
            },
        ));
    }
    for (tells, source) in evidence {
        let told: Vec<_> = left.iter().copied().filter(tells).collect();
        if let Some(found) = only(&told) {
            // The name of a port says nothing about the ports of other containers.
            let is_alone = declared.iter().all(|it| it.container == found.container);
            let source = source(found);
            let suffices =
                is_alone || found.is_probed || matches!(source, ModelPortSource::ServingProxy { .. });
            return suffices.then_some((found.port, source));
        }
        if !told.is_empty() {
            left = told;
        }
    }
    None
}

/// Returns the target port of readiness probes, if it is the same for all containers and none declares it for something
/// else.
fn probed(containers: &[&ContainerView<'_>]) -> Option<(NonZeroU16, ModelPortSource)> {
    let probed = containers.iter().map(|container| {
        let port = serving_probe(container)?;
        Some(Declared { container: container.name(), name: "", port, is_probed: true })
    });
    let probed: Vec<_> = probed.collect::<Option<_>>()?;
    let found = only(&probed)?;
    let mut declared = containers.iter().flat_map(|container| container.ports());
    let is_declared = declared.any(|port| port::usable(port.container_port()) == Some(found.port));
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
        let port = port::local_port(&found.env(keys::CHAIN_NEXT_ENV).filter(|_| ours)?)?;
        Some((found.name(), port))
    })
}

fn is_serving_path(path: &str) -> bool {
    !is_auxiliary_path(path) && !is_health_path(path)
}

fn is_auxiliary_path(path: &str) -> bool {
    path.split('/').any(|part| ["metrics", "pprof", "debug", "admin"].contains(&part))
}

/// Returns `true` for a path that servers for health have, which may listen on another port than the model. The
/// versioned paths of inference servers, such as `/v2/health/ready`, are the model's.
fn is_health_path(path: &str) -> bool {
    const LAST: [&str; 8] = ["healthz", "livez", "readyz", "ready", "readiness", "live", "liveness", "alive"];
    let is_versioned = path.starts_with("/v1/") || path.starts_with("/v2/");
    !is_versioned && path.rsplit('/').next().is_some_and(|last| LAST.contains(&last))
}

/// Returns `true` if one of the parts of `name`, which hyphens separate, is one of `words`, with or without a number.
fn has_word(name: &str, words: &[&str]) -> bool {
    let digits = |byte: char| byte.is_ascii_digit();
    name.split('-').any(|part| {
        let bare = part.trim_end_matches(digits);
        words.contains(&part) || bare.len() < part.len() && words.contains(&bare)
    })
}
