//! The container of one auditor.

use std::num::NonZeroU16;

use serde_json::{Map, Value, json};

use super::{FIRST_UID, PortReason};
use crate::{
    catalogue::{Auditor, Resources},
    mode::AuditMode,
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
    /// The container as core/v1 writes it.
    pub fn manifest(&self) -> Value {
        json!({
            "name": self.name,
            "image": self.image,
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
        })
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
            env: env(auditor, &name, port, next_port, audit_mode),
            name,
            auditor: auditor.name().to_owned(),
            image: auditor.image().to_owned(),
            port,
            port_reason,
            next_port,
            audit_mode,
            uid,
            resources: auditor.resources().clone(),
        })
        .collect()
}

fn env(
    auditor: &Auditor,
    name: &str,
    port: NonZeroU16,
    next_port: NonZeroU16,
    audit_mode: AuditMode,
) -> Vec<(String, String)> {
    let own = [
        ("LUCID_AUDITOR_ID", name.to_owned()),
        ("LUCID_CHAIN_NEXT", local_url(next_port)),
        ("AUDITOR_URL", local_url(next_port)),
        ("LUCID_AUDITOR_PORT", port.to_string()),
        ("PORT", port.to_string()),
        ("LUCID_AUDIT_MODE", audit_mode.to_string()),
    ];
    let own = own.into_iter().map(|(name, value)| (name.to_owned(), value));
    own.chain(auditor.env().clone()).collect()
}

pub(super) fn local_url(port: NonZeroU16) -> String {
    format!("http://localhost:{port}")
}

/// An environment variable as the API server stores it: without an empty value.
fn variable(name: &str, value: &str) -> Value {
    if value.is_empty() { json!({"name": name}) } else { json!({"name": name, "value": value}) }
}

fn resources(resources: &Resources) -> Value {
    let lists = [("requests", &resources.requests), ("limits", &resources.limits)];
    let lists = lists.into_iter().filter(|(_, quantities)| !quantities.is_empty());
    lists.map(|(key, quantities)| (key.to_owned(), json!(quantities))).collect::<Map<_, _>>().into()
}
