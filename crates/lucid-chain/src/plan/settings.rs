//! Settings and their sources.

use std::num::NonZeroU16;

use super::inputs::Inputs;
use crate::{
    annotations::Annotations,
    catalogue::{Auditor, Catalogue},
    chain::ChainSource,
    configuration::Configuration,
    egress::{AllowedHosts, Upstream},
    entry_policy::EntryPolicy,
    keys,
    mode::{AuditMode, Direction, Intercept, OtherPorts, SidecarMode},
    pod::PodView,
    pod_security::PodSecurity,
    port,
    setting_source::SettingSource,
    warning::Warning,
};

/// Default of the remote port on which outbound calls are treated as model calls.
const DEFAULT_OUTBOUND_PORT: NonZeroU16 = port::known(8000);

pub(super) struct Settings {
    pub(super) audit_mode: Setting<AuditMode>,
    pub(super) direction: Setting<Direction>,
    pub(super) intercept: Setting<Intercept>,
    pub(super) other_ports: Setting<OtherPorts>,
    pub(super) outbound_port: Setting<NonZeroU16>,
    pub(super) upstream: Option<Setting<Upstream>>,
    pub(super) allowed_hosts: Option<Setting<AllowedHosts>>,
}

impl Settings {
    pub(super) fn resolve(
        annotations: &Annotations,
        inputs: &Inputs<'_>,
        catalogue: &Catalogue,
        warnings: &mut Vec<Warning>,
    ) -> Self {
        let overrides = &inputs.configuration.overrides;
        let defaults = catalogue.typed_defaults();
        let audit_mode = Setting::resolve(overrides.audit_mode, annotations.audit_mode, defaults.audit_mode);
        let direction = Setting::resolve(overrides.direction, annotations.direction, defaults.direction);
        let intercept = Setting::resolve(overrides.intercept, annotations.intercept, defaults.intercept);
        let outbound_port = Setting::resolve(overrides.outbound_port, None, defaults.outbound_port);
        let upstream = Setting::resolve(None, annotations.upstream.clone(), None)
            .or_else(|| Some(Setting::new(inputs.settings.upstream.clone()?, SettingSource::Namespace)))
            .or_else(|| Setting::resolve(None, None, defaults.upstream.clone()));
        let allowed_hosts =
            Setting::resolve(None, annotations.allowed_hosts.clone(), defaults.allowed_hosts.clone());
        let intercept = resolve_intercept(intercept, inputs.settings.pod_security, warnings);
        Self {
            other_ports: resolve_other_ports(
                annotations.other_ports,
                inputs.settings.other_ports,
                intercept,
                warnings,
            ),
            audit_mode: Setting::or_built_in(audit_mode, AuditMode::default()),
            direction: Setting::or_built_in(direction, Direction::default()),
            intercept,
            outbound_port: Setting::or_built_in(outbound_port, DEFAULT_OUTBOUND_PORT),
            upstream,
            allowed_hosts,
        }
    }
}

/// Resolves the policy of an auditor of a chain. If the operator sets the audit mode, it applies to every auditor, and
/// neither pods nor namespaces set the rest: an auditor that allows what it cannot judge would not enforce.
pub(super) fn resolve_policy(
    auditor: &Auditor,
    source: ChainSource,
    configuration: &Configuration,
) -> EntryPolicy {
    if configuration.overrides.audit_mode.is_none() {
        return auditor.policy();
    }
    let policy = match source {
        ChainSource::Operator | ChainSource::BuiltIn => auditor.policy(),
        _ => configuration.catalogue().find(auditor.name()).map(Auditor::policy).unwrap_or_default(),
    };
    EntryPolicy { mode: None, ..policy }
}

/// Resolves the kind of container that auditors run as. The kubelet starts plain containers only after a model that is
/// a native sidecar, although its probes pass through the chain.
pub(super) fn resolve_sidecar_mode(
    pod: &PodView<'_>,
    annotations: &Annotations,
    inputs: &Inputs<'_>,
    catalogue: &Catalogue,
    model_is_native: bool,
    warnings: &mut Vec<Warning>,
) -> Setting<SidecarMode> {
    let found = Setting::resolve(
        inputs.configuration.overrides.sidecar_mode,
        annotations.sidecar_mode,
        catalogue.typed_defaults().sidecar_mode,
    );
    let runs_for_ever = pod.restart_policy() == "Always";
    match found {
        Some(chosen) if chosen.value != SidecarMode::Auto => {
            if chosen.value == SidecarMode::Containers && !runs_for_ever {
                warnings.push(Warning::NeverCompletes { source: chosen.source });
            }
            if chosen.value == SidecarMode::Containers && model_is_native {
                warnings.push(Warning::ModelStartsFirst { source: chosen.source });
            }
            chosen
        }
        _ if runs_for_ever && model_is_native => {
            Setting::new(SidecarMode::Native, SettingSource::NativeModel)
        }
        _ if runs_for_ever => Setting::new(SidecarMode::Containers, SettingSource::RestartPolicy),
        _ => Setting::new(SidecarMode::Native, SettingSource::RestartPolicy),
    }
}

fn resolve_intercept(
    found: Option<Setting<Intercept>>,
    level: PodSecurity,
    warnings: &mut Vec<Warning>,
) -> Setting<Intercept> {
    match found {
        Some(chosen) => {
            if chosen.value == Intercept::Redirect && level.refuses_net_admin() {
                warnings.push(Warning::RedirectRefused { level: level.as_str(), source: chosen.source });
            }
            chosen
        }
        None if level.refuses_net_admin() => {
            warnings.push(Warning::NotRedirected { level: level.as_str() });
            Setting::new(Intercept::Env, SettingSource::PodSecurity(level.as_str()))
        }
        None => Setting::new(Intercept::Redirect, SettingSource::BuiltIn),
    }
}

/// Resolves the stricter of the pod's and the namespace's setting.
fn resolve_other_ports(
    of_pod: Option<OtherPorts>,
    of_namespace: OtherPorts,
    intercept: Setting<Intercept>,
    warnings: &mut Vec<Warning>,
) -> Setting<OtherPorts> {
    let chosen = match (of_pod, of_namespace) {
        (_, OtherPorts::Closed) => Setting::new(of_namespace, SettingSource::Namespace),
        (of_pod, OtherPorts::Open) => {
            Setting::or_built_in(Setting::resolve(None, of_pod, None), OtherPorts::default())
        }
    };
    if of_pod == Some(OtherPorts::Open) && chosen.value == OtherPorts::Closed {
        let problem = format!("the namespace has \"{}\": list ports in {}", chosen.value, keys::OPEN_PORTS);
        let found = format!("\"{}\"", OtherPorts::Open);
        warnings.push(Warning::InvalidAnnotation { key: keys::OTHER_PORTS, found, problem });
    }
    if chosen.value == OtherPorts::Closed && intercept.value != Intercept::Redirect {
        warnings.push(Warning::PortsNotClosed { source: chosen.source, intercept: intercept.source });
    }
    chosen
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Setting<T> {
    pub(crate) value: T,
    pub(crate) source: SettingSource,
}

impl<T> Setting<T> {
    pub(super) const fn new(value: T, source: SettingSource) -> Self {
        Self { value, source }
    }

    pub(super) fn resolve(operator: Option<T>, annotation: Option<T>, catalogue: Option<T>) -> Option<Self> {
        let sources = [
            (operator, SettingSource::Operator),
            (annotation, SettingSource::Annotation),
            (catalogue, SettingSource::Catalogue),
        ];
        sources.into_iter().find_map(|(value, source)| Some(Self::new(value?, source)))
    }

    pub(super) fn or_built_in(found: Option<Self>, value: T) -> Self {
        found.unwrap_or_else(|| Self::new(value, SettingSource::BuiltIn))
    }
}
