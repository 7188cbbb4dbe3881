//! Pod annotations as typed settings.

use std::{num::NonZeroU16, str::FromStr};

use crate::{
    catalogue::{Auditor, Catalogue},
    chain, keys,
    mode::{AuditMode, Direction},
    pod::PodView,
    port,
    text::Excerpt,
    warning::Warning,
};

/// The settings a pod's annotations hold. An annotation with an invalid value counts as absent
/// and leaves a [`Warning`]; white space around a value does not matter.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Annotations<'c> {
    /// [`keys::AUDITOR_CHAIN`], resolved.
    pub auditor_chain: Option<Vec<&'c Auditor>>,
    /// [`keys::AUDITORS`], resolved.
    pub auditors: Option<Vec<&'c Auditor>>,
    /// [`keys::AUDIT_MODE`].
    pub audit_mode: Option<AuditMode>,
    /// [`keys::SKIP_AUDIT`].
    pub skip_audit: bool,
    /// [`keys::TARGET_PORT`].
    pub target_port: Option<NonZeroU16>,
    /// [`keys::DIRECTION`].
    pub direction: Option<Direction>,
}

impl<'c> Annotations<'c> {
    /// Reads the annotations of `pod`, with auditors as `catalogue` knows them, and adds to
    /// `warnings` what cannot be taken as written.
    pub fn read(pod: &PodView<'_>, catalogue: &'c Catalogue, warnings: &mut Vec<Warning>) -> Self {
        let mut reader = Reader { pod, warnings };
        let auditors = |list: &str| chain::parse(catalogue, list).map_err(|error| error.to_string());
        let settings = Self {
            auditor_chain: reader.read(keys::AUDITOR_CHAIN, auditors),
            auditors: reader.read(keys::AUDITORS, auditors),
            audit_mode: reader.read(keys::AUDIT_MODE, |text| {
                AuditMode::from_str(text).map_err(|_| accepted(AuditMode::ACCEPTED))
            }),
            skip_audit: reader.read(keys::SKIP_AUDIT, read_bool).unwrap_or_default(),
            target_port: reader.read(keys::TARGET_PORT, |text| {
                port::parse(text).ok_or_else(|| accepted("a port from 1 to 65535"))
            }),
            direction: reader.read(keys::DIRECTION, |text| {
                Direction::from_str(text).map_err(|_| accepted(Direction::ACCEPTED))
            }),
        };
        reader.note_unsupported(keys::SIDECAR_MODE, &["auto", "containers"], &["native"]);
        reader.note_unsupported(keys::INTERCEPT, &["env"], &["redirect"]);
        settings
    }
}

struct Reader<'r, 'a> {
    pod: &'r PodView<'a>,
    warnings: &'r mut Vec<Warning>,
}

impl Reader<'_, '_> {
    /// The value of an annotation as `parse` understands it.
    fn read<T>(&mut self, key: &'static str, parse: impl FnOnce(&str) -> Result<T, String>) -> Option<T> {
        let value = self.pod.annotation(key)?;
        match parse(value.trim()) {
            Ok(setting) => Some(setting),
            Err(problem) => {
                let found = Excerpt(value).to_string();
                self.warnings.push(Warning::InvalidAnnotation { key, found, problem });
                None
            }
        }
    }

    /// Checks an annotation of which only some values are acted on.
    fn note_unsupported(
        &mut self,
        key: &'static str,
        supported: &[&'static str],
        unsupported: &[&'static str],
    ) {
        let known = [supported, unsupported].concat();
        let value = self.read(key, |text| {
            known.iter().copied().find(|value| *value == text).ok_or_else(|| accepted(&quoted(&known)))
        });
        if let Some(value) = value.filter(|value| unsupported.contains(value)) {
            let accepted = quoted(supported);
            self.warnings.push(Warning::UnsupportedAnnotation { key, value, accepted });
        }
    }
}

fn accepted(values: &str) -> String {
    format!("accepted {values}")
}

fn quoted(values: &[&str]) -> String {
    values.iter().map(|value| format!("\"{value}\"")).collect::<Vec<_>>().join(" or ")
}

fn read_bool(text: &str) -> Result<bool, String> {
    bool::from_str(text).map_err(|_| accepted(r#""true" or "false""#))
}
