//! The `defaults` of a catalogue.

use std::{num::NonZeroU16, str::FromStr};

use serde::de::MapAccess;

use super::fields::{self, Budget, Keys, ReadMap};
use crate::mode::{AuditMode, Direction, Intercept, ModeError, SidecarMode};

/// Default settings of an `auditors.yaml`, for the pods of its cluster or namespace. The operator's
/// [`Overrides`](crate::Overrides) and pod annotations take precedence over them; they take precedence over derived
/// and built-in values.
///
/// Each key is the name of the corresponding annotation without `lucid.computing/`: `audit-mode: observe`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Defaults {
    /// `audit-mode`: reaction of auditors to a finding.
    pub audit_mode: Option<AuditMode>,
    /// `direction`: direction of the audited traffic.
    pub direction: Option<Direction>,
    /// `target-port`: port that models listen on.
    pub target_port: Option<NonZeroU16>,
    /// `sidecar-mode`: kind of container that auditors run as.
    pub sidecar_mode: Option<SidecarMode>,
    /// `intercept`: method that directs traffic to the chain.
    pub intercept: Option<Intercept>,
    /// `outbound-port`: remote port on which outbound calls are audited, if the direction covers outbound traffic. No
    /// annotation corresponds to it.
    pub outbound_port: Option<NonZeroU16>,
}

impl Defaults {
    /// Returns these defaults, overridden by the settings of `other`.
    #[must_use]
    pub fn overlay(self, other: Self) -> Self {
        Self {
            audit_mode: other.audit_mode.or(self.audit_mode),
            direction: other.direction.or(self.direction),
            target_port: other.target_port.or(self.target_port),
            sidecar_mode: other.sidecar_mode.or(self.sidecar_mode),
            intercept: other.intercept.or(self.intercept),
            outbound_port: other.outbound_port.or(self.outbound_port),
        }
    }
}

const KEYS: &[&str] =
    &["audit-mode", "direction", "target-port", "sidecar-mode", "intercept", "outbound-port"];

pub(super) struct ReadDefaults<'b> {
    pub(super) budget: &'b Budget,
}

impl ReadMap for ReadDefaults<'_> {
    type Value = Defaults;

    fn expected(&self) -> String {
        format!("a map with the keys {}", KEYS.join(", "))
    }

    fn read<'de, A: MapAccess<'de>>(self, mut map: A) -> Result<Defaults, A::Error> {
        let budget = self.budget;
        let mut keys = Keys::new(budget, KEYS);
        let mut defaults = Defaults::default();
        while let Some(key) = keys.next(&mut map)? {
            match key {
                "audit-mode" => defaults.audit_mode = Some(map.next_value_seed(budget.scalar(mode))?),
                "direction" => defaults.direction = Some(map.next_value_seed(budget.scalar(mode))?),
                "target-port" => {
                    defaults.target_port = Some(map.next_value_seed(budget.scalar(fields::port))?);
                }
                "sidecar-mode" => defaults.sidecar_mode = Some(map.next_value_seed(budget.scalar(mode))?),
                "intercept" => defaults.intercept = Some(map.next_value_seed(budget.scalar(mode))?),
                _ => defaults.outbound_port = Some(map.next_value_seed(budget.scalar(fields::port))?),
            }
        }
        Ok(defaults)
    }
}

/// Parses a setting with a fixed set of values.
fn mode<T: FromStr<Err = ModeError>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: ModeError| error.to_string())
}
