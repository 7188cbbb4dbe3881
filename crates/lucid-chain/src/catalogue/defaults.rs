//! The `defaults` of a catalogue.

use std::{num::NonZeroU16, str::FromStr};

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
#[non_exhaustive]
pub struct Defaults {
    /// `audit-mode`: reaction of auditors to a finding.
    pub audit_mode: Option<AuditMode>,
    /// `direction`: direction of the audited traffic.
    pub direction: Option<Direction>,
    /// `target-port`: ports that models listen on.
    pub target_port: Option<PortList>,
    /// `sidecar-mode`: kind of container that auditors run as.
    pub sidecar_mode: Option<SidecarMode>,
    /// `intercept`: method that directs traffic to the chain.
    pub intercept: Option<Intercept>,
    /// `outbound-port`: remote port on which outbound calls are audited, if the direction covers outbound traffic. No
    /// annotation corresponds to it.
    pub outbound_port: Option<NonZeroU16>,
    /// `upstream`: destination of outbound calls to the first auditor.
    pub upstream: Option<Upstream>,
    /// `allowed-hosts`: hosts that outbound calls may reach.
    pub allowed_hosts: Option<AllowedHosts>,
    /// `resources`: resources of every injected container whose entry has none of its own.
    pub(crate) resources: Option<Resources>,
}

impl Defaults {
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
