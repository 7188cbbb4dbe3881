//! Auditor containers.

use std::num::NonZeroU16;

use lucid_text::json::to_string;
use serde_json::Value;

use super::{
    model_port::ModelPort,
    ports::{Listeners, PortReason},
};
use crate::{
    catalogue::{Auditor, EnvValue, OWN_ENV, Probe, Probes, Resources},
    chain::MAX_CHAIN,
    egress::Egress,
    entry_policy::{EntryPolicy, Timeout},
    keys,
    mode::{AuditMode, OnFailure},
    pod::ContainerView,
    port,
    privileges::Privileges,
    template::Filled,
    uid_range::UidRange,
};

/// User ID of the first auditor; each further auditor has the next one. Distinct user IDs let the kernel tell the
/// auditors apart. A namespace with a [`UidRange`] has its own.
pub(super) const FIRST_UID: u32 = 20001;

/// An injected auditor.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PlannedContainer {
    /// Name of the container, unique in the pod.
    pub name: String,
    /// Catalogue entry, with the resources of the catalogue's defaults if it has none of its own.
    pub auditor: Auditor,
    /// Port that the auditor listens on.
    pub port: NonZeroU16,
    pub(super) port_reason: PortReason,
    /// Port on localhost that the auditor forwards to: the next auditor or the model.
    pub next_port: NonZeroU16,
    /// Further ports that the auditor listens on, each with the port that it forwards to: one for each further port of
    /// the model.
    pub(crate) further_routes: Vec<(NonZeroU16, NonZeroU16)>,
    pub(super) audit_mode: AuditMode,
    pub(super) failure: Option<OnFailure>,
    pub(super) timeout: Option<Timeout>,
    /// `true` for a native sidecar: an init container with `restartPolicy: Always` (KEP-753).
    pub(super) native: bool,
    /// User ID of the container; `None` if OpenShift sets it.
    pub uid: Option<u32>,
    pub(super) egress: Option<Egress>,
    own_env: Vec<(&'static str, EnvValue)>,
    uid_range: Option<UidRange>,
}

impl PlannedContainer {
    /// Returns the reason for the port, such as `port 8093 because 8090 is taken by container web`.
    pub fn port_reason(&self) -> String {
        format!("port {} because {}", self.port, self.port_reason)
    }

    /// Returns `true` for `lucid-egress`, which ends a chain whose outbound traffic leaves the pod.
    pub fn is_egress(&self) -> bool {
        self.egress.is_some()
    }

    /// Iterates over the ports that the auditor listens on, each with the port that it forwards to.
    pub(crate) fn routes(&self) -> impl Iterator<Item = (NonZeroU16, NonZeroU16)> {
        std::iter::once((self.port, self.next_port)).chain(self.further_routes.iter().copied())
    }

    /// Iterates over name and image reference of the image volumes that the container mounts.
    pub fn image_volumes(&self) -> impl Iterator<Item = (&str, &str)> {
        self.auditor.files().iter().filter_map(|files| Some((files.volume_name(), files.image()?)))
    }

    /// Returns the core/v1 container, including API server defaults, so that any other field found in a stored pod is
    /// a modification.
    pub fn manifest(&self) -> Value {
        self.filled().value()
    }

    pub(crate) fn filled(&self) -> Filled<'_> {
        let Probes { readiness, liveness, startup } = self.probes();
        let probe = |key, probe: Option<Probe>| match probe {
            Some(probe) => format!("\"{key}\":{},", probe.json(self.port)),
            None => String::new(),
        };
        let (own, further): (Vec<_>, Vec<_>) =
            self.own_env.iter().enumerate().partition(|(it, _)| *it < OWN_ENV);
        let mut values: Vec<_> = own.into_iter().map(|(_, (_, value))| to_string(value)).collect();
        // The names of further ports keep monitors from looking for metrics beside each.
        let ports = self.further_routes.iter();
        let ports = ports.map(|(port, _)| format!(",{{\"containerPort\":{port},\"name\":\"route-{port}\"}}"));
        values.extend([
            further.into_iter().map(|(_, (name, value))| format!(",{}", value.variable(name))).collect(),
            probe("livenessProbe", liveness),
            to_string(&self.name),
            self.port.to_string(),
            ports.collect(),
            probe("readinessProbe", readiness),
            to_string(&self.auditor.resources().manifest()),
            if self.native { "\"restartPolicy\":\"Always\",".to_owned() } else { String::new() },
            self.uid.map(|uid| format!("\"runAsUser\":{uid},")).unwrap_or_default(),
            probe("startupProbe", startup),
        ]);
        self.auditor.template().fill(values.join("\0"))
    }

    /// Returns the probes of the catalogue entry. A native sidecar also gets a startup probe, which delays the
    /// containers that start after it.
    ///
    /// In [`AuditMode::Observe`] nothing waits for the auditor: it has no readiness and no startup probe. Its
    /// liveness probe starts after the time that the startup probe would have allowed.
    pub(crate) fn probes(&self) -> Probes {
        let mut probes = self.auditor.probes().clone();
        if self.native {
            probes.startup.get_or_insert_with(Probe::default_startup);
        }
        if self.audit_mode == AuditMode::Observe {
            probes.readiness = None;
            if let (Some(startup), Some(liveness)) = (probes.startup.take(), &mut probes.liveness) {
                let delay = liveness.initial_delay_seconds.max(startup.longest_seconds());
                liveness.initial_delay_seconds = delay;
            }
        }
        probes
    }

    /// Sets the environment variables of Lucid, which precede those of the catalogue.
    fn with_own_env(self, probe_paths: &str) -> Self {
        let (own, next) = (self.port.to_string(), port::local_url(self.next_port));
        let mut variables = vec![
            (keys::AUDITOR_ID_ENV, self.name.clone()),
            (keys::CHAIN_NEXT_ENV, next.clone()),
            (keys::AUDITOR_URL_ENV, next),
            (keys::AUDITOR_PORT_ENV, own.clone()),
            (keys::PORT_ENV, own),
            (keys::AUDIT_MODE_ENV, self.audit_mode.to_string()),
        ];
        variables.extend(self.failure.map(|failure| (keys::AUDIT_FAILURE_ENV, failure.to_string())));
        let milliseconds = self.timeout.map(|timeout| timeout.milliseconds().to_string());
        variables.extend(milliseconds.map(|milliseconds| (keys::AUDIT_TIMEOUT_ENV, milliseconds)));
        if !self.further_routes.is_empty() {
            let routes: Vec<_> = self.routes().map(|(port, next)| format!("{port}={next}")).collect();
            variables.push((keys::ROUTES_ENV, routes.join(",")));
        }
        if !probe_paths.is_empty() {
            variables.push((keys::PROBE_PATHS_ENV, probe_paths.to_owned()));
        }
        variables.extend(self.egress.as_ref().map(|egress| (keys::EGRESS_ENV, egress.to_json())));
        let own_env = variables.into_iter().map(|(name, value)| (name, EnvValue::Value(value))).collect();
        Self { own_env, ..self }
    }

    /// Returns this auditor with the ports, the mode and the position in the chain of `found`. If its manifest
    /// matches `found`, an earlier plan from other inputs created `found`.
    pub(crate) fn adapted_to(&self, found: &ContainerView<'_>) -> Option<Self> {
        let port = port::parse(&found.env(keys::AUDITOR_PORT_ENV)?)?;
        let next_port = port::local_port(&found.env(keys::CHAIN_NEXT_ENV)?)?;
        let further_routes = further_routes(&found.env(keys::ROUTES_ENV).unwrap_or_default())?;
        let audit_mode = found.env(keys::AUDIT_MODE_ENV)?.parse().ok()?;
        let failure =
            found.env(keys::AUDIT_FAILURE_ENV).map(|it| it.parse().map_err(drop)).transpose().ok()?;
        let timeout = found.env(keys::AUDIT_TIMEOUT_ENV);
        let timeout = timeout.map(|it| Timeout::from_milliseconds(&it).ok_or(())).transpose().ok()?;
        let probe_paths = found.env(keys::PROBE_PATHS_ENV).unwrap_or_default();
        let uid = found.privileges().and_then(Privileges::run_as_user);
        let uid = uid.map(u32::try_from).transpose().ok()?;
        let egress = match self.egress {
            Some(_) => Some(Egress::from_json(&found.env(keys::EGRESS_ENV)?).ok()?),
            None => None,
        };
        uid.is_none_or(|uid| self.may_have(uid)).then(|| {
            let adapted = Self {
                port,
                next_port,
                further_routes,
                audit_mode,
                failure,
                timeout,
                uid,
                egress,
                ..self.clone()
            };
            adapted.with_own_env(&probe_paths)
        })
    }

    fn may_have(&self, uid: u32) -> bool {
        let place = uid.checked_sub(FIRST_UID).and_then(|place| usize::try_from(place).ok());
        place.is_some_and(|place| place <= MAX_CHAIN) || self.uid_range.is_some_and(|range| range.admits(uid))
    }
}

pub(super) struct SharedSettings<'p> {
    pub(super) audit_mode: AuditMode,
    pub(super) native: bool,
    pub(super) probe_paths: &'p str,
    pub(super) egress: Option<Egress>,
    pub(super) resources: Option<&'p Resources>,
    pub(super) uid_range: Option<UidRange>,
}

pub(super) fn chain(
    auditors: &[&Auditor],
    names: Vec<String>,
    policies: Vec<EntryPolicy>,
    ports: Vec<Listeners>,
    uids: Vec<Option<u32>>,
    model: &ModelPort,
    shared: &SharedSettings<'_>,
) -> Vec<PlannedContainer> {
    let &SharedSettings { audit_mode, native, probe_paths, ref egress, resources, uid_range } = shared;
    let last = auditors.len() - 1;
    let end = (model.port, model.further.clone());
    let next = ports.iter().skip(1).map(|it| (it.port, it.further.clone())).chain([end]);
    let next: Vec<_> = next.collect();
    let places = auditors.iter().zip(names).zip(policies).zip(ports).zip(next).zip(uids);
    places
        .enumerate()
        .map(|(place, (((((auditor, name), policy), listeners), (next_port, further_next)), uid))| {
            let planned = PlannedContainer {
                name,
                auditor: auditor.with_default_resources(resources),
                port: listeners.port,
                port_reason: listeners.reason,
                next_port,
                further_routes: listeners.further.into_iter().zip(further_next).collect(),
                audit_mode: policy.mode.unwrap_or(audit_mode),
                failure: policy.failure,
                timeout: policy.timeout,
                native,
                uid,
                egress: egress.clone().filter(|_| place == last),
                own_env: Vec::new(),
                uid_range,
            };
            planned.with_own_env(probe_paths)
        })
        .collect()
}

/// Parses the further routes in a [`ROUTES_ENV`](keys::ROUTES_ENV), which is empty if there is one route.
fn further_routes(text: &str) -> Option<Vec<(NonZeroU16, NonZeroU16)>> {
    let routes = text.split(',').skip(1).map(|route| {
        let (port, next) = route.split_once('=')?;
        Some((port::parse(port)?, port::parse(next)?))
    });
    routes.collect()
}
