//! From a pod and the configuration to the chain it gets.

mod before;
mod container;
mod impossible;
mod init;
mod names;
mod ports;
mod probes;
mod settings;

use std::{collections::BTreeSet, num::NonZeroU16};

use crate::{
    annotations::Annotations,
    catalogue::{Auditor, Catalogue},
    chain::ChainSource,
    configuration::Configuration,
    keys,
    mode::{AuditMode, Direction, Intercept, PodChoices, SidecarMode},
    namespace::NamespaceChain,
    pod::{ContainerView, PodView},
    pod_security::PodSecurity,
    skip::SkipReason,
    text::Excerpt,
    trigger::Trigger,
    warning::Warning,
};

use container::Circumstances;
use ports::ModelClues;
use settings::Settings;

pub(crate) use container::{local_port, local_url};

pub use container::PlannedContainer;
pub use impossible::ImpossibleReason;
pub use init::PlannedInit;
pub use ports::{DEFAULT_MODEL_PORT, ModelPort, ModelPortSource, PortHolder, PortReason};
pub use settings::{DEFAULT_OUTBOUND_PORT, Setting, SettingSource};

/// uid of the first auditor; the following ones count up. An own uid per auditor lets the kernel
/// tell them apart.
pub const FIRST_UID: u32 = 20001;

/// What planning takes into account besides the pod.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Inputs<'a> {
    /// The operator's decisions.
    pub configuration: &'a Configuration,
    /// The pod's namespace, which a pod that is about to be created need not name itself.
    pub namespace: Option<&'a str>,
    /// The chain of the pod's namespace, when it has one.
    pub namespace_chain: Option<&'a NamespaceChain>,
    /// Reason why the chain of the pod's namespace cannot be read. No chain is planned then.
    pub invalid_namespace_chain: Option<&'a str>,
    /// What Pod Security admission enforces in the pod's namespace.
    pub pod_security: PodSecurity,
    /// Annotations of the pod that count.
    pub pod_choices: PodChoices,
    /// Images, as the pod writes them, whose containers keep their privileges.
    pub exempt_images: Option<&'a BTreeSet<String>>,
    /// Whether the pod gets its chain though it carries no trigger.
    pub forced: bool,
}

impl<'a> Inputs<'a> {
    /// Inputs for a namespace without a chain of its own, where every pod is let in and every annotation counts.
    pub fn new(configuration: &'a Configuration) -> Self {
        Self {
            configuration,
            namespace: None,
            namespace_chain: None,
            invalid_namespace_chain: None,
            pod_security: PodSecurity::default(),
            pod_choices: PodChoices::default(),
            exempt_images: None,
            forced: false,
        }
    }

    /// The same with another configuration.
    #[must_use]
    pub fn with_configuration(self, configuration: &'a Configuration) -> Self {
        Self { configuration, ..self }
    }

    /// The same for a pod of this namespace; else it is what the pod itself says.
    #[must_use]
    pub fn with_namespace(self, namespace: &'a str) -> Self {
        Self { namespace: Some(namespace), ..self }
    }

    /// The same with the chain of the pod's namespace, when it has one.
    #[must_use]
    pub fn with_namespace_chain(self, namespace_chain: Option<&'a NamespaceChain>) -> Self {
        Self { namespace_chain, ..self }
    }

    /// Refuses to plan a chain, because that of the pod's namespace cannot be read for this reason.
    #[must_use]
    pub fn with_invalid_namespace_chain(self, reason: Option<&'a str>) -> Self {
        Self { invalid_namespace_chain: reason, ..self }
    }

    /// The same for a namespace in which Pod Security admission enforces this level.
    #[must_use]
    pub fn with_pod_security(self, pod_security: PodSecurity) -> Self {
        Self { pod_security, ..self }
    }

    /// The same for a namespace in which only these annotations of pods count.
    #[must_use]
    pub fn with_pod_choices(self, pod_choices: PodChoices) -> Self {
        Self { pod_choices, ..self }
    }

    /// The same where containers with these images, as the pod writes them, keep their privileges.
    #[must_use]
    pub fn with_exempt_images(self, exempt_images: &'a BTreeSet<String>) -> Self {
        Self { exempt_images: Some(exempt_images), ..self }
    }

    /// The same for a pod that gets its chain without asking for it.
    #[must_use]
    pub fn forced(self) -> Self {
        Self { forced: true, ..self }
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
    Planned(Box<Plan>),
    /// The pod asks for a chain that cannot be made. Admitting it would leave it without audit.
    Impossible {
        /// Why.
        reason: ImpossibleReason,
    },
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
    /// The init container that installs the network rules; only with [`Intercept::Redirect`].
    pub init: Option<PlannedInit>,
    /// Where the last auditor forwards to.
    pub model_port: ModelPort,
    /// What auditors do with what they find.
    pub audit_mode: Setting<AuditMode>,
    /// Which traffic the chain stands in.
    pub direction: Setting<Direction>,
    /// What kind of containers the auditors are; never [`SidecarMode::Auto`].
    pub sidecar_mode: Setting<SidecarMode>,
    /// How traffic comes to the chain.
    pub intercept: Setting<Intercept>,
    /// The port of other hosts to which calls are taken to be calls of a model; redirected when the
    /// [direction](Self::direction) covers outbound traffic.
    pub outbound_port: Setting<NonZeroU16>,
    /// Names of the Secrets with which the auditors' images are pulled.
    pub image_pull_secrets: Vec<String>,
    /// Names of auditors' containers that are in the pod and no part of the chain.
    pub leftovers: Vec<String>,
    /// Names of the containers whose privileges [`Plan::patch`] reduces: with [`Intercept::Redirect`] all that are not part
    /// of the chain, except those with an [exempt image](Inputs::exempt_images).
    pub hardened: BTreeSet<String>,
    /// [`KEEP_PRIVILEGES`](crate::keys::KEEP_PRIVILEGES), where the namespace lets the pod choose.
    pub keep_privileges: bool,
}

impl Plan {
    /// The value of `AUDITOR_URL` for the applications of the pod, when their outbound traffic is
    /// audited: the address of the first auditor.
    pub fn application_url(&self) -> Option<String> {
        let first = self.containers.first()?;
        self.direction.value.covers_outbound().then(|| local_url(first.port))
    }

    /// Whether the auditors are native sidecars, which stand among the init containers.
    pub fn is_native(&self) -> bool {
        self.sidecar_mode.value == SidecarMode::Native
    }

    /// Whether the container is no auditor: neither planned, nor under the name of a planned one, nor left over.
    pub fn is_application(&self, container: &ContainerView<'_>) -> bool {
        let mut auditors = self.containers.iter().map(|planned| &planned.name).chain(&self.leftovers);
        auditors.all(|name| name != container.name())
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
    let trigger = Trigger::of(pod).or(inputs.forced.then_some(Trigger::Forced));
    check_label(pod, trigger, warnings);
    let Some(trigger) = trigger else {
        if pod.annotation(keys::AUDITOR_CHAIN).is_some() {
            warnings.push(Warning::TriggerMissing);
        }
        return Decision::NotRequested;
    };

    let Inputs { configuration, namespace_chain, .. } = inputs;
    let catalogue = namespace_chain.map_or(configuration.catalogue(), NamespaceChain::catalogue);
    let annotations = Annotations::read(pod, catalogue, inputs.pod_choices, warnings);
    if annotations.skip_audit {
        let namespace = inputs.namespace.or(pod.namespace()).unwrap_or_default();
        if configuration.skip.allows(namespace, pod.service_account()) {
            return Decision::Skipped { reason: SkipReason::Annotation };
        }
        warnings.push(Warning::SkipNotAllowed);
    }

    if let Some(problem) = inputs.invalid_namespace_chain {
        let problem = problem.to_owned();
        return Decision::Impossible { reason: ImpossibleReason::NamespaceChain { problem } };
    }
    match make(pod, trigger, &annotations, inputs, catalogue, warnings) {
        Ok(plan) => Decision::Planned(Box::new(plan)),
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
    let configuration = inputs.configuration;
    let settings = Settings::of(pod, annotations, inputs, catalogue, warnings);
    impossible::check_pod(pod, settings.intercept.value)?;
    let native = settings.sidecar_mode.value == SidecarMode::Native;
    let redirects = settings.intercept.value == Intercept::Redirect;
    let (source, chain) = choose_chain(annotations, inputs);
    let mut names = names::Names::of(pod, native);
    let auditors = names.of_auditors(&chain, warnings);
    let init_name = redirects.then(|| names.of_init(warnings));

    let others: Vec<_> = pod.all_containers().filter(|found| !names.are_planned(found.name())).collect();
    let leftovers: Vec<_> = others
        .iter()
        .filter(|found| before::is_auditor(found, catalogue))
        .map(|found| found.name())
        .collect();
    warnings.extend(leftovers.iter().map(|name| Warning::LeftoverAuditor { name: (*name).to_owned() }));
    let old_rules =
        others.iter().filter(|found| before::installs_rules(found)).map(|found| found.name().to_owned());
    warnings.extend(old_rules.map(|name| Warning::LeftoverRules { name }));
    let left: BTreeSet<_> = leftovers.iter().copied().collect();
    let is_application =
        |found: &&ContainerView<'_>| !names.are_planned(found.name()) && !left.contains(found.name());
    let applications: Vec<_> = pod.containers().iter().filter(is_application).collect();
    let sidecars: Vec<_> = pod.native_sidecars().map(|(_, found)| found).filter(is_application).collect();

    let clues = ModelClues {
        operator: configuration.overrides.target_port,
        annotation: annotations.target_port,
        catalogue: catalogue.defaults().target_port,
        direction: settings.direction.value,
        applications: &applications,
        sidecars: &sidecars,
        forwarded_to: before::forwarded_to(pod, native, &chain, &auditors),
    };
    let model_port = ModelPort::find(&clues, warnings);
    let ports = ports::assign(pod, &names, model_port.port, &chain, &auditors)?;
    let inbound = settings.direction.value.covers_inbound();
    let probe_paths = if redirects && inbound {
        probes::paths(applications.iter().chain(&sidecars).copied(), model_port.port, warnings)
    } else {
        String::new()
    };
    let keep_privileges = annotations.keep_privileges;
    let hardened = if redirects && !keep_privileges {
        others.iter().filter(|found| !is_exempt(found, inputs)).map(|found| found.name().to_owned()).collect()
    } else {
        BTreeSet::new()
    };
    let circumstances =
        Circumstances { audit_mode: settings.audit_mode.value, native, probe_paths: &probe_paths };
    let containers = container::chain(&chain, auditors, ports, model_port.port, &circumstances);
    let running = pod.containers().iter().chain(pod.native_sidecars().map(|(_, found)| found));
    impossible::check_resources(pod, running.filter(|found| !names.are_planned(found.name())), &containers)?;
    let init = init_name.map(|name| -> Result<_, ImpossibleReason> {
        let outbound = settings.direction.value.covers_outbound().then_some(settings.outbound_port.value);
        Ok(PlannedInit::new(name, configuration, &containers, model_port.port, inbound, outbound)?)
    });
    Ok(Plan {
        trigger,
        source,
        containers,
        init: init.transpose()?,
        model_port,
        audit_mode: settings.audit_mode,
        direction: settings.direction,
        sidecar_mode: settings.sidecar_mode,
        intercept: settings.intercept,
        outbound_port: settings.outbound_port,
        image_pull_secrets: configuration.image_pull_secrets.clone(),
        leftovers: leftovers.into_iter().map(str::to_owned).collect(),
        hardened,
        keep_privileges,
    })
}

fn is_exempt(container: &ContainerView<'_>, inputs: &Inputs<'_>) -> bool {
    inputs.exempt_images.is_some_and(|images| images.contains(container.image().unwrap_or_default()))
}

fn check_label(pod: &PodView<'_>, trigger: Option<Trigger>, warnings: &mut Vec<Warning>) {
    match pod.label(keys::SECURED_LABEL) {
        None | Some(keys::TRUE) => {}
        Some("false") if trigger == Some(Trigger::AuditorsAnnotation) => {
            warnings.push(Warning::SecuredLabelOverruled);
        }
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
    } else if let Some(namespace) = inputs.namespace_chain.filter(|namespace| !namespace.chain().is_empty()) {
        (ChainSource::Namespace, namespace.chain().iter().collect())
    } else {
        (inputs.configuration.chain_source(), inputs.configuration.chain().iter().collect())
    }
}
