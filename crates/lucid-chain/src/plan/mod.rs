//! From a pod and the configuration to the chain it gets.

mod before;
mod container;
mod impossible;
mod names;
mod ports;

use std::fmt;

use crate::{
    annotations::Annotations,
    catalogue::{Auditor, Catalogue},
    chain::ChainSource,
    configuration::Configuration,
    keys,
    mode::{AuditMode, Direction},
    namespace::NamespaceChain,
    pod::{ContainerView, PodView},
    text::Excerpt,
    trigger::Trigger,
    warning::Warning,
};

use ports::ModelClues;

pub(crate) use container::local_url;

pub use container::PlannedContainer;
pub use impossible::ImpossibleReason;
pub use ports::{DEFAULT_MODEL_PORT, ModelPort, ModelPortSource, PortHolder, PortReason};

/// uid of the first auditor; the following ones count up. An own uid per auditor lets the kernel
/// tell them apart.
pub const FIRST_UID: u32 = 20001;

/// What planning takes into account besides the pod.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Inputs<'a> {
    /// The operator's decisions.
    pub configuration: &'a Configuration,
    /// The chain of the pod's namespace, when it has one.
    pub namespace_chain: Option<&'a NamespaceChain>,
}

impl<'a> Inputs<'a> {
    /// Inputs for a namespace without a chain of its own.
    pub fn new(configuration: &'a Configuration) -> Self {
        Self { configuration, namespace_chain: None }
    }

    /// The same with the chain of the pod's namespace, when it has one.
    #[must_use]
    pub fn with_namespace_chain(self, namespace_chain: Option<&'a NamespaceChain>) -> Self {
        Self { namespace_chain, ..self }
    }
}

/// What [`plan`] decided, and what the user should hear about it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Outcome {
    /// What happens to the pod.
    pub decision: Decision,
    /// Settings that were not taken as written.
    pub warnings: Vec<Warning>,
}

/// What happens to a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Decision {
    /// The pod carries no trigger and stays as it is.
    NotRequested,
    /// The pod asked for no auditors and may; it stays as it is.
    Skipped {
        /// Why.
        reason: SkipReason,
    },
    /// The pod gets this chain.
    Planned(Plan),
    /// The pod asks for a chain that cannot be made. Admitting it would leave it without audit.
    Impossible {
        /// Why.
        reason: ImpossibleReason,
    },
}

/// Why a pod that asks for a chain gets none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SkipReason {
    /// The annotation [`keys::SKIP_AUDIT`], where it is allowed.
    Annotation,
}

impl fmt::Display for SkipReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Annotation => write!(f, "annotation {}: \"true\"", keys::SKIP_AUDIT),
        }
    }
}

/// The chain of one pod: what is injected, in which order, and why so.
///
/// [`Plan::patch`] turns it into operations on the pod it was made for.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Plan {
    /// Who asked for the chain.
    pub trigger: Trigger,
    /// Where the chain was written.
    pub source: ChainSource,
    /// The auditors' containers in the order of the chain; at least one.
    pub containers: Vec<PlannedContainer>,
    /// Where the last auditor forwards to.
    pub model_port: ModelPort,
    /// What auditors do with what they find.
    pub audit_mode: Setting<AuditMode>,
    /// Which traffic the chain stands in.
    pub direction: Setting<Direction>,
    /// Names of auditors' containers that are in the pod and no part of the chain.
    pub leftovers: Vec<String>,
}

impl Plan {
    /// The value of `AUDITOR_URL` for the applications of the pod, when their outbound traffic is
    /// audited: the address of the first auditor.
    pub fn application_url(&self) -> Option<String> {
        let first = self.containers.first()?;
        self.direction.value.covers_outbound().then(|| local_url(first.port))
    }

    /// Whether the container is no auditor: neither planned, nor under the name of a planned one, nor left over.
    pub fn is_application(&self, container: &ContainerView<'_>) -> bool {
        let mut auditors = self.containers.iter().map(|planned| &planned.name).chain(&self.leftovers);
        auditors.all(|name| name != container.name())
    }
}

/// A setting and who made it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Setting<T> {
    /// The value in force.
    pub value: T,
    /// Who made it.
    pub source: SettingSource,
}

impl<T: Default> Setting<T> {
    /// The first of the sources that has a value.
    fn first(operator: Option<T>, annotation: Option<T>) -> Self {
        let operator = operator.map(|value| Self { value, source: SettingSource::Operator });
        let annotation = annotation.map(|value| Self { value, source: SettingSource::Annotation });
        operator
            .or(annotation)
            .unwrap_or_else(|| Self { value: T::default(), source: SettingSource::BuiltIn })
    }
}

/// Who made a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SettingSource {
    /// The operator's configuration.
    Operator,
    /// The pod's annotation.
    Annotation,
    /// Nobody: the built-in default.
    BuiltIn,
}

impl fmt::Display for SettingSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Operator => "operator configuration",
            Self::Annotation => "annotation",
            Self::BuiltIn => "built-in default",
        })
    }
}

/// Decides what happens to `pod`.
///
/// The decision depends on nothing but the arguments, and planning again for the patched pod
/// gives the same chain. What [`Plan::patch`] finds in the pod is in [`Patch::warnings`](crate::Patch::warnings).
pub fn plan(pod: &PodView<'_>, inputs: &Inputs<'_>) -> Outcome {
    let mut warnings = Vec::new();
    let decision = decide(pod, inputs, &mut warnings);
    Outcome { decision, warnings }
}

fn decide(pod: &PodView<'_>, inputs: &Inputs<'_>, warnings: &mut Vec<Warning>) -> Decision {
    let trigger = Trigger::of(pod);
    check_label(pod, trigger, warnings);
    let Some(trigger) = trigger else {
        if pod.annotation(keys::AUDITOR_CHAIN).is_some() {
            warnings.push(Warning::TriggerMissing);
        }
        return Decision::NotRequested;
    };

    let Inputs { configuration, namespace_chain } = inputs;
    let catalogue = namespace_chain.map_or(configuration.catalogue(), NamespaceChain::catalogue);
    let annotations = Annotations::read(pod, catalogue, warnings);
    if annotations.skip_audit {
        if configuration.allow_skip {
            return Decision::Skipped { reason: SkipReason::Annotation };
        }
        warnings.push(Warning::SkipNotAllowed);
    }

    match make(pod, trigger, &annotations, inputs, catalogue, warnings) {
        Ok(plan) => Decision::Planned(plan),
        Err(reason) => Decision::Impossible { reason },
    }
}

fn make(
    pod: &PodView<'_>,
    trigger: Trigger,
    annotations: &Annotations<'_>,
    inputs: &Inputs<'_>,
    catalogue: &Catalogue,
    warnings: &mut Vec<Warning>,
) -> Result<Plan, ImpossibleReason> {
    impossible::check_pod(pod)?;
    let overrides = &inputs.configuration.overrides;
    let (source, chain) = choose_chain(annotations, inputs);
    let audit_mode = Setting::first(overrides.audit_mode, annotations.audit_mode);
    let direction = Setting::first(overrides.direction, annotations.direction);
    let names = names::container_names(pod, &chain, warnings);

    let others: Vec<_> =
        pod.containers().iter().filter(|found| names.iter().all(|name| name != found.name())).collect();
    let (leftovers, applications): (Vec<&ContainerView<'_>>, Vec<_>) =
        others.iter().partition(|found| before::is_auditor(found, catalogue));
    let leftovers: Vec<_> = leftovers.into_iter().map(|found| found.name().to_owned()).collect();
    warnings.extend(leftovers.iter().map(|name| Warning::LeftoverAuditor { name: name.clone() }));

    let clues = ModelClues {
        operator: overrides.target_port,
        annotation: annotations.target_port,
        direction: direction.value,
        applications: &applications,
        forwarded_to: before::forwarded_to(pod, &chain, &names),
    };
    let model_port = ModelPort::find(&clues, warnings);
    let ports = ports::assign(pod, &others, model_port.port, &chain, &names)?;
    let containers = container::chain(&chain, names, ports, model_port.port, audit_mode.value);
    impossible::check_resources(pod, others, &containers)?;
    Ok(Plan { trigger, source, containers, model_port, audit_mode, direction, leftovers })
}

fn check_label(pod: &PodView<'_>, trigger: Option<Trigger>, warnings: &mut Vec<Warning>) {
    match pod.label(keys::SECURED_LABEL) {
        None | Some(keys::TRUE) => {}
        Some("false") if trigger.is_some() => warnings.push(Warning::SecuredLabelOverruled),
        Some("false") => {}
        Some(other) => {
            warnings.push(Warning::InvalidSecuredLabel { found: Excerpt(other).to_string() });
        }
    }
}

fn choose_chain<'a>(annotations: &Annotations<'a>, inputs: &Inputs<'a>) -> (ChainSource, Vec<&'a Auditor>) {
    if let Some(chain) = &annotations.auditor_chain {
        (ChainSource::AuditorChainAnnotation, chain.clone())
    } else if let Some(chain) = &annotations.auditors {
        (ChainSource::AuditorsAnnotation, chain.clone())
    } else if let Some(namespace) = inputs.namespace_chain {
        (ChainSource::Namespace, namespace.chain().iter().collect())
    } else {
        (inputs.configuration.chain_source(), inputs.configuration.chain().iter().collect())
    }
}
