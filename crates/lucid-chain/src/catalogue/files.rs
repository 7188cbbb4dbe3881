//! The `files` of a catalogue entry.

use std::fmt;

use lucid_notary::ImageReference;
use lucid_text::json::to_string;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::{
    scalars::{self, Found, IMAGE_EXPECTED, OBJECT_EXPECTED},
    schema::{Fields, Shape},
};
use crate::keys;

/// Maximum number of `files` of an entry, which bounds the mounts of a container.
const MOST: usize = 16;

/// Trees that neither contain a mount of a catalogue nor lie in one: Lucid and clouds mount tokens below the first, and
/// the kernel's file systems are not for the catalogue to replace.
const RESERVED: [&str; 4] = ["/var/run/secrets", "/dev", "/proc", "/sys"];

const PATH_EXPECTED: &str =
    "an absolute path such as /etc/auditor, without '.', '..', ':', double and trailing '/'";

/// Files that an auditor's container mounts read-only.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(from = "WrittenFiles")]
pub(crate) struct Files {
    pub(crate) mount_path: String,
    pub(crate) source: FileSource,
    volume_name: String,
    volume: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WrittenFiles {
    mount_path: String,
    #[serde(flatten)]
    source: FileSource,
}

impl From<WrittenFiles> for Files {
    fn from(WrittenFiles { mount_path, source }: WrittenFiles) -> Self {
        // Fields are serialized in their order.
        let digest = Sha256::digest(serde_json::to_vec(&source).unwrap_or_default());
        let digest = format!("{digest:x}");
        let volume_name = format!("{}{}", keys::FILES_VOLUME, &digest[..32]);
        Self { volume: to_string(&source.volume(&volume_name)), mount_path, source, volume_name }
    }
}

/// Source of files, with the fields of core/v1 Volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum FileSource {
    ConfigMap {
        name: String,
    },
    Secret {
        #[serde(rename = "secretName")]
        secret_name: String,
    },
    /// Image volume (KEP-4639).
    #[serde(rename_all = "camelCase")]
    Image {
        reference: String,
        /// `Always`, `IfNotPresent` or `Never`; the API server's default if absent.
        #[serde(default)]
        pull_policy: Option<String>,
    },
}

impl Files {
    pub(crate) fn image(&self) -> Option<&str> {
        match &self.source {
            FileSource::Image { reference, .. } => Some(reference),
            _ => None,
        }
    }

    /// Depends only on the source: auditors with the same source share the volume, and an existing volume is either the
    /// same or forged.
    pub(crate) fn volume_name(&self) -> &str {
        &self.volume_name
    }

    /// Returns the JSON of the core/v1 volume, including API server defaults.
    pub(crate) fn volume_json(&self) -> &str {
        &self.volume
    }

    pub(crate) fn mount(&self) -> String {
        let (path, name) = (to_string(&self.mount_path), &self.volume_name);
        format!("{{\"mountPath\":{path},\"name\":\"{name}\",\"readOnly\":true}}")
    }
}

impl FileSource {
    fn volume(&self, name: &str) -> Value {
        // The API server's default, 0644.
        const MODE: u16 = 420;
        match self {
            Self::ConfigMap { name: object } => {
                json!({"name": name, "configMap": {"name": object, "defaultMode": MODE}})
            }
            Self::Secret { secret_name } => {
                json!({"name": name, "secret": {"secretName": secret_name, "defaultMode": MODE}})
            }
            Self::Image { reference, pull_policy } => {
                let default = || {
                    reference.parse::<ImageReference>().map_or("IfNotPresent", |image| image.pull_policy())
                };
                let policy = pull_policy.as_deref().unwrap_or_else(default);
                json!({"name": name, "image": {"reference": reference, "pullPolicy": policy}})
            }
        }
    }
}

impl fmt::Display for Files {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, name) = match &self.source {
            FileSource::ConfigMap { name } => ("ConfigMap", name),
            FileSource::Secret { secret_name } => ("Secret", secret_name),
            FileSource::Image { reference, .. } => ("image", reference),
        };
        write!(f, "{} from {kind} {name}", self.mount_path)
    }
}

pub(super) const FIELDS: Fields = Fields {
    keys: &[
        ("mountPath", Shape::Scalar(mount_path)),
        ("configMap", Shape::NotNull(&Shape::Map(&CONFIG_MAP))),
        ("secret", Shape::NotNull(&Shape::Map(&SECRET))),
        ("image", Shape::NotNull(&Shape::Map(&IMAGE))),
    ],
    refused: &[
        ("hostPath", "an auditor mounts nothing of the node"),
        ("subPath", "a source is mounted as a whole"),
        ("readOnly", "files are always read-only"),
    ],
    finish: |files, _| {
        if !files.contains_key("mountPath") {
            return Err(format!("`mountPath` is missing, expected {PATH_EXPECTED}"));
        }
        match files.len() {
            2 => Ok(()),
            found => Err(format!("expected one of configMap, secret, image; found {} sources", found - 1)),
        }
    },
};

const CONFIG_MAP: Fields = Fields {
    keys: &[("name", Shape::Scalar(scalars::object_name))],
    refused: WHOLE,
    finish: |source, _| required(source, "name", OBJECT_EXPECTED),
};

const SECRET: Fields = Fields {
    keys: &[("secretName", Shape::Scalar(scalars::object_name))],
    refused: WHOLE,
    finish: |source, _| required(source, "secretName", OBJECT_EXPECTED),
};

const IMAGE: Fields = Fields {
    keys: &[("reference", Shape::Scalar(scalars::image)), ("pullPolicy", Shape::Scalar(pull_policy))],
    refused: &[],
    finish: |source, _| required(source, "reference", IMAGE_EXPECTED),
};

const WHOLE: &[(&str, &str)] = &[
    ("items", "an object is mounted as a whole"),
    ("optional", "an auditor without its files must not run"),
    ("defaultMode", "files are readable and not writable"),
];

fn required(source: &Map<String, Value>, key: &str, expected: &str) -> Result<(), String> {
    match source.contains_key(key) {
        true => Ok(()),
        false => Err(format!("`{key}` is missing, expected {expected}")),
    }
}

fn pull_policy(text: &str) -> Result<Value, String> {
    match text {
        "Always" | "IfNotPresent" | "Never" => Ok(text.into()),
        _ => Err(format!("expected Always, IfNotPresent or Never, found {}", Found(text))),
    }
}

fn mount_path(text: &str) -> Result<Value, String> {
    let mut parts = text.split('/');
    let is_part = |part: &str| {
        !matches!(part, "" | "." | "..") && part.bytes().all(|byte| byte.is_ascii_graphic() && byte != b':')
    };
    if parts.next() != Some("") || !parts.all(is_part) {
        return Err(format!("expected {PATH_EXPECTED}; found {}", Found(text)));
    }
    match RESERVED.iter().find(|reserved| overlap(text, reserved)) {
        Some(reserved) => {
            Err(format!("expected a path that does not overlap {reserved}, found {}", Found(text)))
        }
        None => Ok(text.into()),
    }
}

fn overlap(one: &str, other: &str) -> bool {
    let is_below = |path: &str, above: &str| {
        path.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    is_below(one, other) || is_below(other, one)
}

/// Checks the list of an entry: a mount in another one would need a directory in read-only files.
pub(super) fn check(entry: &Map<String, Value>) -> Result<(), String> {
    let files = entry.get("files").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    if files.len() > MOST {
        return Err(format!("`files`: expected at most {MOST} items, found {}", files.len()));
    }
    let paths: Vec<_> = files.iter().filter_map(|files| files["mountPath"].as_str()).collect();
    for (place, path) in paths.iter().enumerate() {
        if let Some(other) = paths[..place].iter().find(|other| overlap(path, other)) {
            return Err(format!(
                "`files`: expected mount paths that do not overlap, found {path} and {other}"
            ));
        }
    }
    Ok(())
}
