//! `defaults` of a catalogue: single settings of the pods that it is for.

use std::{num::NonZeroU16, str::FromStr};

use serde::de::MapAccess;

use super::fields::{self, Budget, Keys, ReadMap};
use crate::mode::{AuditMode, Direction, Intercept, ModeError, SidecarMode};

/// Single settings that an `auditors.yaml` makes for the pods it is for. The operator's
/// [`Overrides`](crate::Overrides) and a pod's annotations win over them, they win over what is built in.
///
/// Each is written as the annotation of the same name, without `lucid.computing/`: `audit-mode: observe`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Defaults {
    /// `audit-mode`: what auditors do with what they find.
    pub audit_mode: Option<AuditMode>,
    /// `direction`: which traffic the chain stands in.
    pub direction: Option<Direction>,
    /// `target-port`: the port models listen on.
    pub target_port: Option<NonZeroU16>,
    /// `sidecar-mode`: what kind of containers auditors are.
    pub sidecar_mode: Option<SidecarMode>,
    /// `intercept`: how traffic comes to the chain.
    pub intercept: Option<Intercept>,
    /// `outbound-port`: calls to this port of other hosts are audited when the direction covers outbound traffic.
    pub outbound_port: Option<NonZeroU16>,
}

impl Defaults {
    /// These with the settings of `other` in place of those that it makes too.
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

/// Reads `defaults`.
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

/// A setting with a closed set of values.
fn mode<T: FromStr<Err = ModeError>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: ModeError| error.to_string())
}
