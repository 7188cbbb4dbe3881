//! The `defaults` of a catalogue.

use std::{collections::BTreeMap, num::NonZeroU16, str::FromStr};

use serde::Deserialize;
use serde_json::Value;

use super::{
    Resources, resources, scalars,
    schema::{Fields, Shape},
};
use crate::{
    egress::{AllowedHosts, Upstream},
    mode::{AuditMode, Direction, Intercept, SidecarMode},
    port_list::PortList,
};

/// Default settings of an `auditors.yaml`, for the pods of its cluster or namespace. The operator's
/// [`Overrides`](crate::Overrides) and pod annotations take precedence over them; they take precedence over derived
/// and built-in values.
///
/// Each key except `resources` is the name of the corresponding annotation without `lucid.computing/`:
/// `audit-mode: observe`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub(crate) struct Defaults {
    /// `audit-mode`: reaction of auditors to a finding.
    pub(crate) audit_mode: Option<AuditMode>,
    /// `direction`: direction of the audited traffic.
    pub(crate) direction: Option<Direction>,
    /// `target-port`: ports that models listen on.
    pub(crate) target_port: Option<PortList>,
    /// `sidecar-mode`: kind of container that auditors run as.
    pub(crate) sidecar_mode: Option<SidecarMode>,
    /// `intercept`: method that directs traffic to the chain.
    pub(crate) intercept: Option<Intercept>,
    /// `outbound-port`: remote port on which outbound calls are audited, if the direction covers outbound traffic. No
    /// annotation corresponds to it.
    pub(crate) outbound_port: Option<NonZeroU16>,
    /// `upstream`: destination of outbound calls to the first auditor.
    pub(crate) upstream: Option<Upstream>,
    /// `allowed-hosts`: hosts that outbound calls may reach.
    pub(crate) allowed_hosts: Option<AllowedHosts>,
    /// `resources`: resources of every injected container whose entry has none of its own.
    pub(crate) resources: Option<Resources>,
}

impl Defaults {
    /// Returns the settings as written in an `auditors.yaml`, without `resources`.
    pub(super) fn texts(&self) -> BTreeMap<&'static str, String> {
        fn text<T: ToString>(value: &Option<T>) -> Option<String> {
            value.as_ref().map(T::to_string)
        }
        let texts = [
            ("audit-mode", text(&self.audit_mode)),
            ("direction", text(&self.direction)),
            ("target-port", text(&self.target_port)),
            ("sidecar-mode", text(&self.sidecar_mode)),
            ("intercept", text(&self.intercept)),
            ("outbound-port", text(&self.outbound_port)),
            ("upstream", text(&self.upstream)),
            ("allowed-hosts", text(&self.allowed_hosts)),
        ];
        texts.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }

    /// Returns these defaults, overridden by the settings of `other`.
    #[must_use]
    pub(crate) fn overlay(self, other: Self) -> Self {
        Self {
            audit_mode: other.audit_mode.or(self.audit_mode),
            direction: other.direction.or(self.direction),
            target_port: other.target_port.or(self.target_port),
            sidecar_mode: other.sidecar_mode.or(self.sidecar_mode),
            intercept: other.intercept.or(self.intercept),
            outbound_port: other.outbound_port.or(self.outbound_port),
            upstream: other.upstream.or(self.upstream),
            allowed_hosts: other.allowed_hosts.or(self.allowed_hosts),
            resources: other.resources.or(self.resources),
        }
    }
}

pub(super) const FIELDS: Fields = Fields {
    keys: &[
        ("audit-mode", Shape::Scalar(parsed::<AuditMode>)),
        ("direction", Shape::Scalar(parsed::<Direction>)),
        ("target-port", Shape::Scalar(parsed::<PortList>)),
        ("sidecar-mode", Shape::Scalar(parsed::<SidecarMode>)),
        ("intercept", Shape::Scalar(parsed::<Intercept>)),
        ("outbound-port", Shape::Scalar(scalars::port)),
        ("upstream", Shape::Scalar(parsed::<Upstream>)),
        ("allowed-hosts", Shape::Scalar(parsed::<AllowedHosts>)),
        ("resources", Shape::Map(&resources::FIELDS)),
    ],
    refused: &[],
    finish: |_, _| Ok(()),
};

/// Checks a setting.
fn parsed<T: FromStr<Err: ToString>>(text: &str) -> Result<Value, String> {
    text.parse::<T>().map(|_| text.into()).map_err(|error| error.to_string())
}
