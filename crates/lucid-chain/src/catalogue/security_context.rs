//! The `securityContext` of a catalogue entry: overrides that may only tighten the hardened default.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{
    scalars::{self, Found, is_null},
    schema::{Fields, Shape},
};

/// Maximum length of a profile name, in bytes: PATH_MAX - 1.
const PROFILE_BYTES: usize = 4095;

const TIGHTEN: &str = "a security context may only be tightened";

/// The `securityContext` of an auditor's container.
///
/// Always hardened: non-root, with a uid of its own, no privilege escalation, no capabilities, a read-only root file
/// system and a seccomp profile. It satisfies the Pod Security level `restricted`. The default has the runtime's
/// seccomp profile; a catalogue entry can only tighten it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct SecurityContext {
    /// Primary group, which is never root's; `None` leaves it to the image.
    pub(crate) run_as_group: Option<u32>,
    pub(crate) seccomp_profile: Profile,
    /// AppArmor profile; `None` leaves it to the pod and the runtime.
    pub(crate) app_armor_profile: Option<Profile>,
    pub(crate) se_linux_options: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", content = "localhostProfile")]
pub(crate) enum Profile {
    #[default]
    RuntimeDefault,
    /// A profile installed on the nodes. For seccomp, a path relative to the kubelet's seccomp directory; for
    /// AppArmor, the name of a loaded profile.
    Localhost(String),
}

impl SecurityContext {
    /// Returns the core/v1 security context of an auditor that runs as `uid`, or without a uid.
    pub(crate) fn manifest(&self, uid: Option<u32>) -> Value {
        let mut manifest = json!({
            "runAsNonRoot": true,
            "allowPrivilegeEscalation": false,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": true,
            "seccompProfile": self.seccomp_profile,
        });
        if let Some(uid) = uid {
            manifest["runAsUser"] = uid.into();
        }
        if let Some(group) = self.run_as_group {
            manifest["runAsGroup"] = group.into();
        }
        if let Some(profile) = &self.app_armor_profile {
            manifest["appArmorProfile"] = json!(profile);
        }
        if !self.se_linux_options.is_empty() {
            manifest["seLinuxOptions"] = json!(self.se_linux_options);
        }
        manifest
    }
}

pub(super) const FIELDS: Fields = Fields {
    keys: &[
        ("allowPrivilegeEscalation", Shape::Scalar(only_false)),
        ("appArmorProfile", Shape::Map(&APP_ARMOR)),
        ("capabilities", Shape::Map(&CAPABILITIES)),
        ("privileged", Shape::Scalar(only_false)),
        ("procMount", Shape::Scalar(|text| only("Default", text))),
        ("readOnlyRootFilesystem", Shape::Scalar(only_true)),
        ("runAsGroup", Shape::Scalar(group)),
        ("runAsNonRoot", Shape::Scalar(only_true)),
        ("seLinuxOptions", Shape::Map(&SE_LINUX)),
        ("seccompProfile", Shape::Map(&SECCOMP)),
    ],
    refused: &[
        (
            "runAsUser",
            "every auditor runs as a uid of its own, which Lucid chooses and by which the kernel tells them apart",
        ),
        ("windowsOptions", "auditors run on Linux"),
    ],
    finish: |_, _| Ok(()),
};

const CAPABILITIES: Fields = Fields {
    keys: &[
        (
            "add",
            Shape::List(&Shape::Scalar(|text| {
                Err(format!("expected no capability, found {}: {TIGHTEN}", Found(text)))
            })),
        ),
        ("drop", Shape::List(&Shape::Scalar(scalars::text))),
    ],
    refused: &[],
    finish: |capabilities, _| match capabilities.get("drop").and_then(Value::as_array) {
        Some(dropped) if !dropped.iter().any(|name| name == "ALL") => {
            let first = dropped.first().and_then(Value::as_str).unwrap_or_default();
            Err(format!("`drop`: expected ALL, found {}: {TIGHTEN}", Found(first)))
        }
        _ => Ok(()),
    },
};

const SE_LINUX: Fields = Fields {
    keys: &[("type", Shape::Scalar(|text| only("container_t", text)))],
    refused: &[("level", SE_LINUX_REASON), ("role", SE_LINUX_REASON), ("user", SE_LINUX_REASON)],
    finish: |_, _| Ok(()),
};

const SE_LINUX_REASON: &str = "who chooses it can reach what belongs to other containers";

const SECCOMP: Fields = Fields {
    keys: &[("type", Shape::Scalar(profile_type)), ("localhostProfile", Shape::Scalar(seccomp_path))],
    refused: &[],
    finish: |profile, _| check_profile(profile, SECCOMP_EXPECTED),
};

const APP_ARMOR: Fields = Fields {
    keys: &[("type", Shape::Scalar(profile_type)), ("localhostProfile", Shape::Scalar(app_armor_name))],
    refused: &[],
    finish: |profile, _| check_profile(profile, APP_ARMOR_EXPECTED),
};

const SECCOMP_EXPECTED: &str = "a relative path of at most 4095 bytes without \"..\"";
const APP_ARMOR_EXPECTED: &str = "the name of a loaded profile, at most 4095 bytes";
const TYPES: &str = "RuntimeDefault or Localhost";

fn check_profile(profile: &Map<String, Value>, expected: &str) -> Result<(), String> {
    let is_local = profile.get("type").map(|name| name == "Localhost");
    match (is_local, profile.contains_key("localhostProfile")) {
        (None, _) => Err(format!("`type` is missing, expected {TYPES}")),
        (Some(true), false) => Err(format!("`localhostProfile` is missing, expected {expected}")),
        (Some(false), true) => {
            Err("`localhostProfile`: expected the type Localhost, found RuntimeDefault".to_owned())
        }
        _ => Ok(()),
    }
}

/// Accepts only the value of the hardened default.
fn only(expected: &str, text: &str) -> Result<Value, String> {
    match text == expected {
        true => Ok(text.into()),
        false => Err(format!("expected {expected}, found {}: {TIGHTEN}", Found(text))),
    }
}

fn only_true(text: &str) -> Result<Value, String> {
    scalars::boolean(text).ok().filter(|value| value == true).map_or_else(|| only("true", text), Ok)
}

fn only_false(text: &str) -> Result<Value, String> {
    scalars::boolean(text).ok().filter(|value| value == false).map_or_else(|| only("false", text), Ok)
}

fn group(text: &str) -> Result<Value, String> {
    scalars::number(text, 1..=i32::MAX.unsigned_abs())
        .map_err(|problem| if text == "0" { format!("{problem}: 0 is root's group") } else { problem })
}

fn profile_type(text: &str) -> Result<Value, String> {
    match text {
        "RuntimeDefault" | "Localhost" => Ok(text.into()),
        _ => Err(format!("expected {TYPES}, found {}: {TIGHTEN}", Found(text))),
    }
}

fn seccomp_path(text: &str) -> Result<Value, String> {
    let is_relative = !text.starts_with('/') && text.split('/').all(|part| part != "..");
    profile_name(text, is_relative, SECCOMP_EXPECTED)
}

/// Accepts absolute paths, because AppArmor profiles may be named after a program, but not `unconfined`, which
/// disables AppArmor.
fn app_armor_name(text: &str) -> Result<Value, String> {
    profile_name(text, !text.eq_ignore_ascii_case("unconfined"), APP_ARMOR_EXPECTED)
}

fn profile_name(text: &str, is_accepted: bool, expected: &str) -> Result<Value, String> {
    let is_name = !is_null(text)
        && text.len() <= PROFILE_BYTES
        && text.trim() == text
        && !text.chars().any(char::is_control);
    match is_name && is_accepted {
        true => Ok(text.into()),
        false => Err(format!("expected {expected}, found {}", Found(text))),
    }
}
