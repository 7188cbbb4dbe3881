//! The container of one auditor.

use std::num::NonZeroU16;

use lucid_notary::ImageReference;
use serde_json::{Map, Value, json};

use super::{FIRST_UID, PortReason};
use crate::{
    catalogue::{Auditor, RESERVED_ENV, Resources},
    chain::MAX_CHAIN,
    mode::AuditMode,
    pod::ContainerView,
    port,
};

/// One auditor as it is injected into the pod.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PlannedContainer {
    /// Name of the container, unique in the pod.
    pub name: String,
    /// Name of the auditor in the catalogue.
    pub auditor: String,
    /// Image reference.
    pub image: String,
    /// `imagePullPolicy`, as the API server derives it from the image.
    pub image_pull_policy: &'static str,
    /// Where the auditor listens.
    pub port: NonZeroU16,
    /// Why it listens there.
    pub port_reason: PortReason,
    /// Where it forwards to on localhost: the next auditor or the model.
    pub next_port: NonZeroU16,
    /// What it does with what it finds.
    pub audit_mode: AuditMode,
    /// The uid it runs as.
    pub uid: u32,
    /// Environment variables, in order.
    pub env: Vec<(String, String)>,
    /// What it asks for and may use.
    pub resources: Resources,
}

impl PlannedContainer {
    /// The container as core/v1 writes it, with what the API server would fill in: so whatever else is found in the
    /// pod was put there by somebody.
    pub fn manifest(&self) -> Value {
        json!({
            "name": self.name,
            "image": self.image,
            "imagePullPolicy": self.image_pull_policy,
            "ports": [{"containerPort": self.port}],
            "env": self.env.iter().map(|(name, value)| variable(name, value)).collect::<Vec<_>>(),
            "resources": resources(&self.resources),
            "securityContext": {
                "runAsNonRoot": true,
                "runAsUser": self.uid,
                "allowPrivilegeEscalation": false,
                "capabilities": {"drop": ["ALL"]},
                "readOnlyRootFilesystem": true,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "terminationMessagePath": "/dev/termination-log",
            "terminationMessagePolicy": "File",
        })
    }
}

impl PlannedContainer {
    /// This auditor as it would be for the ports, the mode and the place in the chain that `found` tells: if that is
    /// what was found, an earlier planning for other circumstances made it.
    pub(crate) fn as_planned_before(&self, found: &ContainerView<'_>) -> Option<Self> {
        let port = port::parse(found.env("LUCID_AUDITOR_PORT")?)?;
        let next_port = local_port(found.env("LUCID_CHAIN_NEXT")?)?;
        let audit_mode = found.env("LUCID_AUDIT_MODE")?.parse().ok()?;
        let manifest: Value = serde_json::from_str(found.json()).ok()?;
        let uid = u32::try_from(manifest["securityContext"]["runAsUser"].as_u64()?).ok()?;
        let place = usize::try_from(uid.checked_sub(FIRST_UID)?).ok()?;
        let own = own_env(&self.name, port, next_port, audit_mode);
        let env = own.chain(self.env.iter().skip(RESERVED_ENV.len()).cloned()).collect();
        (place < MAX_CHAIN).then(|| Self { port, next_port, audit_mode, uid, env, ..self.clone() })
    }
}

/// The containers of a chain whose names and ports are known.
pub(super) fn chain(
    auditors: &[&Auditor],
    names: Vec<String>,
    ports: Vec<(NonZeroU16, PortReason)>,
    model_port: NonZeroU16,
    audit_mode: AuditMode,
) -> Vec<PlannedContainer> {
    let next_ports: Vec<_> = ports.iter().skip(1).map(|(port, _)| *port).chain([model_port]).collect();
    let places = auditors.iter().zip(names).zip(ports).zip(next_ports).zip(FIRST_UID..);
    places
        .map(|((((auditor, name), (port, port_reason)), next_port), uid)| PlannedContainer {
            env: own_env(&name, port, next_port, audit_mode).chain(auditor.env().clone()).collect(),
            name,
            auditor: auditor.name().to_owned(),
            image: auditor.image().to_owned(),
            image_pull_policy: image_pull_policy(auditor.image_reference()),
            port,
            port_reason,
            next_port,
            audit_mode,
            uid,
            resources: auditor.resources().clone(),
        })
        .collect()
}

/// The variables that Lucid sets itself, which come first.
fn own_env(
    name: &str,
    port: NonZeroU16,
    next_port: NonZeroU16,
    audit_mode: AuditMode,
) -> impl Iterator<Item = (String, String)> {
    let values = [
        name.to_owned(),
        local_url(next_port),
        local_url(next_port),
        port.to_string(),
        port.to_string(),
        audit_mode.to_string(),
    ];
    RESERVED_ENV.into_iter().map(str::to_owned).zip(values)
}

/// What the API server fills in: images that may mean another one tomorrow are pulled each time.
fn image_pull_policy(image: &ImageReference) -> &'static str {
    match (image.tag(), image.digest()) {
        (Some("latest"), _) | (None, None) => "Always",
        _ => "IfNotPresent",
    }
}

/// The port of a [`local_url`].
pub(crate) fn local_port(url: &str) -> Option<NonZeroU16> {
    port::parse(url.strip_prefix("http://localhost:")?)
}

pub(crate) fn local_url(port: NonZeroU16) -> String {
    format!("http://localhost:{port}")
}

/// An environment variable as the API server stores it: without an empty value.
fn variable(name: &str, value: &str) -> Value {
    if value.is_empty() { json!({"name": name}) } else { json!({"name": name, "value": value}) }
}

fn resources(resources: &Resources) -> Value {
    let lists = [("requests", json!(resources.effective_requests())), ("limits", json!(resources.limits))];
    let written = lists.into_iter().filter(|(_, list)| list.as_object().is_some_and(|list| !list.is_empty()));
    written.map(|(key, list)| (key.to_owned(), list)).collect::<Map<_, _>>().into()
}
