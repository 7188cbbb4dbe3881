//! Planning: decides which chain a pod gets.

mod before;
mod container;
mod impossible;
mod init;
mod inputs;
mod model_port;
mod names;
mod open_ports;
mod ports;
mod probes;
mod resources;
mod rows;
mod settings;
mod uids;

use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZeroU16,
};

use lucid_text::Excerpt;

use crate::{
    annotations::Annotations,
    catalogue::{Auditor, Catalogue},
    chain::ChainSource,
    egress::{AllowedHosts, Egress, Upstream},
    error::Error,
    keys,
    mode::{AuditMode, Direction, Intercept, OtherPorts, SidecarMode},
    namespace::NamespaceChain,
    pod::{ContainerView, PodView},
    port,
    skip::SkipReason,
    trigger::Trigger,
    volume,
    warning::Warning,
};

use container::SharedSettings;
use model_port::{ModelClues, ModelPort};
use open_ports::OpenPortReason;
use settings::{Setting, Settings};

use container::FIRST_UID;
pub use container::PlannedContainer;
pub use impossible::ImpossibleReason;
pub use init::PlannedInit;
pub use inputs::Inputs;

/// Variables from which SDKs read the base URL of a model.
pub(crate) const BASE_URL_ENV: [&str; 2] = ["OPENAI_BASE_URL", "ANTHROPIC_BASE_URL"];

/// Result of [`plan`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Outcome {
    /// Decision for the pod.
    pub decision: Decision,
    /// Problems to report to the user.
    pub warnings: Vec<Warning>,
}

/// Decision for a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// The pod has no trigger and stays unchanged.
    NotRequested,
    /// The pod opted out, is allowed to, and stays unchanged.
    Skipped {
        /// Reason.
        reason: SkipReason,
    },
    /// The pod gets the planned chain.
    Planned(Box<Plan>),
    /// The pod needs a chain that cannot be created. Admitting it would leave it unaudited.
    Impossible {
        /// Reason.
        reason: ImpossibleReason,
    },
}

/// The chain of one pod, with the reason for each choice.
///
/// [`Plan::patch`] creates the operations for the pod that the plan was made for.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Plan {
    pub(crate) trigger: Trigger,
    pub(crate) source: ChainSource,
    /// Auditor containers in chain order; at least one. If outbound traffic leaves the pod, the last one is
    /// `lucid-egress`.
    pub containers: Vec<PlannedContainer>,
    /// Init container that installs the network rules; only with [`Intercept::Redirect`].
    pub init: Option<PlannedInit>,
    pub(crate) model_port: ModelPort,
    pub(crate) audit_mode: Setting<AuditMode>,
    pub(crate) direction: Setting<Direction>,
    /// Kind of container that auditors run as; never [`SidecarMode::Auto`].
    pub(crate) sidecar_mode: Setting<SidecarMode>,
    pub(crate) intercept: Setting<Intercept>,
    /// Reachability of ports that are neither guarded nor listed. Takes effect only with [`Intercept::Redirect`].
    pub(crate) other_ports: Setting<OtherPorts>,
    /// Ports that calls from outside reach without passing the chain: those that stay open if other ports are closed,
    /// and otherwise those that the pod declares.
    pub(crate) open_ports: BTreeMap<NonZeroU16, OpenPortReason>,
    /// Remote port on which outbound calls are treated as model calls; redirected if the [direction](Self::direction)
    /// covers outbound traffic.
    pub(crate) outbound_port: Setting<NonZeroU16>,
    /// Destination of outbound calls to the first auditor; the model in the pod if absent.
    pub(crate) upstream: Option<Setting<Upstream>>,
    /// Hosts that outbound calls may reach; all if absent.
    pub(crate) allowed_hosts: Option<Setting<AllowedHosts>>,
    pub(crate) image_pull_secrets: Vec<String>,
    /// Names of auditor containers that are in the pod but not part of the chain.
    pub leftovers: Vec<String>,
    /// Names of the containers whose privileges [`Plan::patch`] reduces: with [`Intercept::Redirect`], all containers
    /// outside the chain, except those with an [exempt image](Inputs::exempt_images) or if
    /// [`keep_privileges`](Self::keep_privileges) is set.
    pub(crate) hardened: BTreeSet<String>,
    /// `true` if the pod has the annotation [`KEEP_PRIVILEGES`](crate::keys::KEEP_PRIVILEGES) and the namespace
    /// allows it.
    pub keep_privileges: bool,
}

impl Plan {
    /// Returns the address of the first auditor, or `None` if outbound traffic is not audited.
    pub(crate) fn application_url(&self) -> Option<String> {
        let first = self.containers.first()?;
        self.direction.value.covers_outbound().then(|| port::local_url(first.port))
    }

    /// Returns the upstream with the first auditor in place of its origin.
    pub(crate) fn base_url(&self) -> Option<String> {
        Some(format!("{}{}", self.application_url()?, self.upstream.as_ref()?.value.path()))
    }

    /// Returns the variables for outbound calls of applications: `AUDITOR_URL` has the URL of
    /// the first hop, and `OPENAI_BASE_URL` and `ANTHROPIC_BASE_URL` the [`base_url`](Self::base_url), Anthropic's
    /// without `/v1`.
    pub(crate) fn application_env(&self) -> Vec<(&'static str, String)> {
        let auditor_url = self.application_url().map(|url| (keys::AUDITOR_URL_ENV, url));
        let base_urls = self.base_url().map(|url| {
            // Anthropic's SDKs append `/v1` themselves.
            let [openai, anthropic] = BASE_URL_ENV;
            let without_version = url.strip_suffix("/v1").unwrap_or(&url).to_owned();
            [(openai, url), (anthropic, without_version)]
        });
        auditor_url.into_iter().chain(base_urls.into_iter().flatten()).collect()
    }

    /// Returns the name of each volume of the plan and the JSON of the core/v1 volume, each volume once: that which
    /// replaces the ServiceAccount token, and the files of auditors.
    pub(crate) fn volumes(&self) -> Vec<(&str, &str)> {
        let hides_token =
            self.init.is_some() || self.containers.iter().any(|it| !it.auditor.service_account_token());
        let no_token = hides_token.then_some((keys::NO_TOKEN_VOLUME, volume::NO_TOKEN_VOLUME));
        let files = self.containers.iter().flat_map(|planned| planned.auditor.files());
        let mut seen = BTreeSet::new();
        let files = files.map(|files| (files.volume_name(), files.volume_json()));
        no_token.into_iter().chain(files).filter(|(name, _)| seen.insert(*name)).collect()
    }

    /// Returns `true` if calls of the applications pass through the chain.
    pub fn covers_outbound(&self) -> bool {
        self.direction.value.covers_outbound()
    }

    /// Returns the warning that the chain guards an assumed port of the model, if it does.
    pub fn assumed_port(&self) -> Option<Warning> {
        self.model_port.warning().filter(|_| self.direction.value.covers_inbound())
    }

    /// Returns `true` if the container declares one of the model's ports.
    pub fn is_model(&self, container: &ContainerView<'_>) -> bool {
        self.model_port.is_declared_by(container)
    }

    /// Returns `true` if the auditors are native sidecars, which are init containers.
    pub fn is_native(&self) -> bool {
        self.sidecar_mode.value == SidecarMode::Native
    }
}

/// Decides what happens to `pod`.
///
/// The decision depends only on the arguments, and planning the patched pod again yields the same chain.
/// [`PodPatch::warnings`](crate::PodPatch::warnings) has the warnings of patching.
pub fn plan(pod: &PodView<'_>, inputs: &Inputs<'_>) -> Outcome {
    let mut warnings = Vec::new();
    let decision = decide(pod, inputs, &mut warnings);
    Outcome { decision, warnings }
}

fn decide(pod: &PodView<'_>, inputs: &Inputs<'_>, warnings: &mut Vec<Warning>) -> Decision {
    let trigger = Trigger::from_pod(pod).or(inputs.forced.then_some(Trigger::Forced));
    check_label(pod, trigger, warnings);
    let Some(trigger) = trigger else {
        if pod.annotation(keys::AUDITOR_CHAIN).is_some() {
            warnings.push(Warning::TriggerMissing);
        }
        return Decision::NotRequested;
    };

    let Inputs { configuration, settings, .. } = inputs;
    let namespace_chain = inputs.namespace_chain.ok().flatten();
    let catalogue = namespace_chain.map_or(configuration.catalogue(), NamespaceChain::catalogue);
    let annotations = Annotations::read(pod, catalogue, settings.pod_choices, warnings);
    if annotations.skip_audit {
        let namespace = inputs.namespace.or(pod.namespace()).unwrap_or_default();
        if configuration.skip.allows(namespace, pod.service_account()) {
            return Decision::Skipped { reason: SkipReason::Annotation };
        }
        warnings.push(Warning::SkipNotAllowed);
    }

    if let Err(problem) = inputs.namespace_chain {
        let problem = problem.to_owned();
        return Decision::Impossible { reason: ImpossibleReason::NamespaceChain { problem } };
    }
    match make_plan(pod, trigger, &annotations, inputs, catalogue, warnings) {
        Ok(plan) => Decision::Planned(Box::new(plan)),
        Err(reason) => Decision::Impossible { reason },
    }
}

fn make_plan(
    pod: &PodView<'_>,
    trigger: Trigger,
    annotations: &Annotations,
    inputs: &Inputs<'_>,
    catalogue: &Catalogue,
    warnings: &mut Vec<Warning>,
) -> Result<Plan, ImpossibleReason> {
    let configuration = inputs.configuration;
    let settings = Settings::resolve(annotations, inputs, catalogue, warnings);
    impossible::check_pod(pod, settings.intercept.value)?;
    let redirects = settings.intercept.value == Intercept::Redirect;
    let (source, mut chain) = choose_chain(annotations, inputs);
    let clues = ModelClues {
        operator: configuration.overrides.target_port,
        annotation: annotations.target_port,
        catalogue: catalogue.typed_defaults().target_port,
        direction: settings.direction.value,
        pod,
        auditors: catalogue,
        last: chain.last().copied(),
    };
    let model_port = ModelPort::find(&clues);
    let model_is_native = model_port.is_native(pod, catalogue);
    let sidecar_mode =
        settings::resolve_sidecar_mode(pod, annotations, inputs, catalogue, model_is_native, warnings);
    let native = sidecar_mode.value == SidecarMode::Native;
    let has_egress = settings.direction.value.covers_outbound() && (redirects || settings.upstream.is_some());
    chain.extend(catalogue.egress().filter(|_| has_egress));
    let mut names = names::Names::from_pod(pod, native);
    let auditors = names.assign_auditors(&chain, warnings);
    let init_name = redirects.then(|| names.assign_init(warnings));

    let others: Vec<_> = pod.all_containers().filter(|found| !names.is_planned(found.name())).collect();
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
        |found: &&ContainerView<'_>| !names.is_planned(found.name()) && !left.contains(found.name());
    let applications: Vec<_> = pod.containers().iter().filter(is_application).collect();
    let sidecars: Vec<_> = pod.native_sidecars().map(|(_, found)| found).filter(is_application).collect();

    let direction = settings.direction.value;
    if direction != Direction::Outbound || settings.upstream.is_none() {
        warnings.extend(model_port.warning());
    }
    impossible::check_destination(pod, &settings, model_port.is_assumed())?;
    impossible::check_routes(&model_port, &chain)?;
    let ports::Ports { chain: ports, intake } =
        ports::assign(pod, &names, &model_port, &chain, &auditors, direction, has_egress && redirects)?;
    let egress = match (&ports[..], has_egress) {
        ([first, .., exit], true) => Some(Egress {
            intake,
            first: first.port,
            exit: exit.port,
            model: model_port.port,
            native,
            upstream: settings.upstream.clone().map(|setting| setting.value),
            allowed_hosts: settings.allowed_hosts.clone().map(|setting| setting.value),
        }),
        _ => None,
    };
    let inbound = settings.direction.value.covers_inbound();
    let probe_paths = if redirects && inbound {
        probes::paths(applications.iter().chain(&sidecars).copied(), &model_port, warnings)
    } else {
        String::new()
    };
    let keep_privileges = annotations.keep_privileges;
    let hardened = if redirects && !keep_privileges {
        others.iter().filter(|found| !is_exempt(found, inputs)).map(|found| found.name().to_owned()).collect()
    } else {
        BTreeSet::new()
    };
    let resources = catalogue.typed_defaults().resources.as_ref();
    let shared = SharedSettings {
        audit_mode: settings.audit_mode.value,
        native,
        probe_paths: &probe_paths,
        egress,
        resources,
        uid_range: inputs.settings.uid_range,
    };
    let uids = uids::assign(pod, &names, inputs.settings.uid_range, redirects, chain.len(), warnings);
    let policy = |auditor: &&Auditor| settings::resolve_policy(auditor, source, configuration);
    let policies = chain.iter().map(policy).collect();
    let containers = container::chain(&chain, auditors, policies, ports, uids, &model_port, &shared);
    warn_about_tokens(pod, inputs, &containers, warnings);
    let init_resources = catalogue.init_resources();
    let running = pod.containers().iter().chain(pod.native_sidecars().map(|(_, found)| found));
    let others: Vec<_> = running.filter(|found| !names.is_planned(found.name())).collect();
    let demand = resources::Demand {
        others: &others,
        auditors: containers.iter().map(|planned| planned.auditor.resources()).collect(),
        native,
        init: redirects.then_some(&init_resources),
    };
    warnings.extend(demand.check(pod)?);
    let init = init_name.map(|name| {
        let outbound = settings.direction.value.covers_outbound().then_some(settings.outbound_port.value);
        PlannedInit::new(name, configuration, &init_resources, &containers, &model_port, inbound, outbound)
    });
    let no_redirect = |error: Error| ImpossibleReason::Redirect { problem: error.to_string() };
    let mut init = init.transpose().map_err(no_redirect)?;
    let other_ports = settings.other_ports;
    let redirect = init.as_ref().map(|init| &init.redirect);
    let open_ports = open_ports::find(others.into_iter(), annotations, redirect, other_ports.value);
    if let Some(init) = init.as_mut().filter(|_| other_ports.value == OtherPorts::Closed) {
        init.redirect = init.redirect.clone().with_open_ports(open_ports.keys().copied());
    }
    Ok(Plan {
        trigger,
        source,
        containers,
        init,
        model_port,
        audit_mode: settings.audit_mode,
        direction: settings.direction,
        sidecar_mode,
        intercept: settings.intercept,
        other_ports,
        open_ports,
        outbound_port: settings.outbound_port,
        upstream: settings.upstream,
        allowed_hosts: settings.allowed_hosts,
        image_pull_secrets: configuration.image_pull_secrets.clone(),
        leftovers: leftovers.into_iter().map(str::to_owned).collect(),
        hardened,
        keep_privileges,
    })
}

/// Warns about auditors whose ServiceAccount token is not mounted. A volume with a token does not replace it: auditors
/// do not mount the pod's volumes.
fn warn_about_tokens(
    pod: &PodView<'_>,
    inputs: &Inputs<'_>,
    containers: &[PlannedContainer],
    warnings: &mut Vec<Warning>,
) {
    let automounts = pod.automounts_token().or(inputs.automounts_token);
    if automounts == Some(false) {
        let names = containers.iter().filter(|planned| planned.auditor.service_account_token());
        let by_pod = pod.automounts_token().is_some();
        warnings.extend(names.map(|planned| Warning::TokenMissing { name: planned.name.clone(), by_pod }));
    }
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

fn choose_chain<'a>(annotations: &'a Annotations, inputs: &Inputs<'a>) -> (ChainSource, Vec<&'a Auditor>) {
    if let Some(chain) = &annotations.auditor_chain {
        (ChainSource::AuditorChainAnnotation, chain.iter().collect())
    } else if let Some(chain) = &annotations.auditors {
        (ChainSource::AuditorsAnnotation, chain.iter().collect())
    } else if let Ok(Some(namespace)) = inputs.namespace_chain
        && !namespace.chain().is_empty()
    {
        (ChainSource::Namespace, namespace.chain().iter().collect())
    } else {
        (inputs.configuration.chain_source(), inputs.configuration.chain().iter().collect())
    }
}
