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

/// Default settings of an `auditors.yaml`, which take precedence over derived and built-in values only. Each key except
/// `resources` is the name of the corresponding annotation without `lucid.computing/`: `audit-mode: observe`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub(crate) struct Defaults {
    pub(crate) audit_mode: Option<AuditMode>,
    pub(crate) direction: Option<Direction>,
    pub(crate) target_port: Option<PortList>,
    pub(crate) sidecar_mode: Option<SidecarMode>,
    pub(crate) intercept: Option<Intercept>,
    /// Remote port on which outbound calls are audited. No annotation corresponds to it.
    pub(crate) outbound_port: Option<NonZeroU16>,
    /// `upstream`: destination of outbound calls to the first auditor.
    pub(crate) upstream: Option<Upstream>,
    pub(crate) allowed_hosts: Option<AllowedHosts>,
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

pub(super) fn parsed<T: FromStr<Err: ToString>>(text: &str) -> Result<Value, String> {
    text.parse::<T>().map(|_| text.into()).map_err(|error| error.to_string())
}
