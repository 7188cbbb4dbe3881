//! The `securityContext` of a catalogue entry: overrides that may only tighten the hardened default.

use serde::de::{Error as _, MapAccess};
use serde_json::{Value, json};

use super::fields::{self, Budget, Found, Keys, List, Map, ReadMap, is_null};

/// Maximum length of a profile name, in bytes: PATH_MAX - 1.
const PROFILE_BYTES: usize = 4095;

/// SELinux type that container runtimes assign to containers.
const CONTAINER_T: &str = "container_t";

const TIGHTEN: &str = "a security context may only be tightened";

/// The `securityContext` of an auditor's container.
///
/// Always hardened: non-root, with a uid of its own, no privilege escalation, no capabilities, a read-only root file
/// system and a seccomp profile. It satisfies the Pod Security level `restricted`. The default has the runtime's
/// seccomp profile; a catalogue entry can only tighten it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SecurityContext {
    run_as_group: Option<u32>,
    seccomp_profile: Profile,
    app_armor_profile: Option<Profile>,
    se_linux_type: Option<&'static str>,
}

/// A seccomp or AppArmor profile.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Profile {
    /// The default profile of the container runtime.
    #[default]
    RuntimeDefault,
    /// A profile installed on the nodes. For seccomp, a path relative to the kubelet's seccomp directory; for
    /// AppArmor, the name of a loaded profile.
    Localhost(String),
}

impl Profile {
    fn manifest(&self) -> Value {
        match self {
            Self::RuntimeDefault => json!({"type": "RuntimeDefault"}),
            Self::Localhost(profile) => json!({"type": "Localhost", "localhostProfile": profile}),
        }
    }
}

impl SecurityContext {
    /// Returns the primary group, which is never root's; `None` leaves it to the image.
    pub fn run_as_group(&self) -> Option<u32> {
        self.run_as_group
    }

    /// Returns the seccomp profile.
    pub fn seccomp_profile(&self) -> &Profile {
        &self.seccomp_profile
    }

    /// Returns the AppArmor profile; `None` leaves it to the pod and the runtime.
    pub fn app_armor_profile(&self) -> Option<&Profile> {
        self.app_armor_profile.as_ref()
    }

    /// Returns the SELinux type; `None` leaves it to the pod and the runtime.
    pub fn se_linux_type(&self) -> Option<&str> {
        self.se_linux_type
    }

    /// Returns the core/v1 security context of an auditor that runs as `uid`.
    pub fn manifest(&self, uid: u32) -> Value {
        let mut manifest = json!({
            "runAsNonRoot": true,
            "runAsUser": uid,
            "allowPrivilegeEscalation": false,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": true,
        });
        manifest["seccompProfile"] = self.seccomp_profile.manifest();
        if let Some(group) = self.run_as_group {
            manifest["runAsGroup"] = group.into();
        }
        if let Some(profile) = &self.app_armor_profile {
            manifest["appArmorProfile"] = profile.manifest();
        }
        if let Some(name) = self.se_linux_type {
            manifest["seLinuxOptions"] = json!({"type": name});
        }
        manifest
    }
}

const KEYS: &[&str] = &[
    "allowPrivilegeEscalation",
    "appArmorProfile",
    "capabilities",
    "privileged",
    "procMount",
    "readOnlyRootFilesystem",
    "runAsGroup",
    "runAsNonRoot",
    "seLinuxOptions",
    "seccompProfile",
];

const REFUSED: &[(&str, &str)] = &[
    (
        "runAsUser",
        "every auditor runs as a uid of its own, which Lucid chooses and by which the kernel tells them apart",
    ),
    ("windowsOptions", "auditors run on Linux"),
];

pub(super) struct ReadSecurityContext<'b> {
    pub(super) budget: &'b Budget,
}

impl ReadMap for ReadSecurityContext<'_> {
    type Value = SecurityContext;

    fn expected(&self) -> String {
        format!("a map with the keys {}", KEYS.join(", "))
    }

    fn read<'de, A: MapAccess<'de>>(self, mut map: A) -> Result<SecurityContext, A::Error> {
        let budget = self.budget;
        let mut keys = Keys::new(budget, KEYS).refusing(REFUSED);
        let mut context = SecurityContext::default();
        while let Some(key) = keys.next(&mut map)? {
            match key {
                "allowPrivilegeEscalation" | "privileged" => {
                    map.next_value_seed(budget.scalar(|text: &str| only(text, "false")))?;
                }
                "readOnlyRootFilesystem" | "runAsNonRoot" => {
                    map.next_value_seed(budget.scalar(|text: &str| only(text, "true")))?;
                }
                "procMount" => {
                    map.next_value_seed(budget.scalar(|text: &str| only(text, "Default")))?;
                }
                "runAsGroup" => {
                    context.run_as_group = Some(map.next_value_seed(budget.scalar(group))?);
                }
                "capabilities" => map.next_value_seed(Map(ReadCapabilities { budget }))?,
                "seLinuxOptions" => {
                    context.se_linux_type = map.next_value_seed(Map(ReadSeLinux { budget }))?;
                }
                "seccompProfile" => {
                    let read = ReadProfile { budget, accepted: SECCOMP_ACCEPTED, name: seccomp_path };
                    context.seccomp_profile = map.next_value_seed(Map(read))?;
                }
                _ => {
                    let read = ReadProfile { budget, accepted: APP_ARMOR_ACCEPTED, name: app_armor_name };
                    context.app_armor_profile = Some(map.next_value_seed(Map(read))?);
                }
            }
        }
        Ok(context)
    }
}

/// Accepts only the value of the hardened default. Booleans may use any of YAML's three spellings.
fn only(text: &str, accepted: &str) -> Result<(), String> {
    let boolean = matches!(accepted, "true" | "false")
        && matches!(text, "True" | "TRUE" | "False" | "FALSE")
        && text.eq_ignore_ascii_case(accepted);
    if text == accepted || boolean {
        Ok(())
    } else {
        Err(format!("found {}, accepted {accepted}: {TIGHTEN}", Found(text)))
    }
}

fn group(text: &str) -> Result<u32, String> {
    fields::number(text, 1..=i32::MAX.unsigned_abs())
        .map_err(|problem| if text == "0" { format!("{problem}: 0 is root's group") } else { problem })
}

struct ReadCapabilities<'b> {
    budget: &'b Budget,
}

impl ReadMap for ReadCapabilities<'_> {
    type Value = ();

    fn expected(&self) -> String {
        "a map with the keys add, drop".to_owned()
    }

    fn read<'de, A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let budget = self.budget;
        let mut keys = Keys::new(budget, &["add", "drop"]);
        while let Some(key) = keys.next(&mut map)? {
            if key == "add" {
                let item =
                    |text: &str| Err(format!("found {}, accepted no capability: {TIGHTEN}", Found(text)));
                map.next_value_seed(List { budget, item })?;
                continue;
            }
            let dropped = map.next_value_seed(List { budget, item: fields::text })?;
            if !dropped.iter().any(|name| name == "ALL") {
                let found =
                    dropped.first().map_or_else(|| "nothing".to_owned(), |name| Found(name).to_string());
                return Err(A::Error::custom(format!("`drop` is {found}, accepted ALL: {TIGHTEN}")));
            }
        }
        Ok(())
    }
}

struct ReadSeLinux<'b> {
    budget: &'b Budget,
}

const SE_LINUX_REASON: &str = "who chooses it can reach what belongs to other containers";

impl ReadMap for ReadSeLinux<'_> {
    type Value = Option<&'static str>;

    fn expected(&self) -> String {
        "a map with the key type".to_owned()
    }

    fn read<'de, A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut keys = Keys::new(self.budget, &["type"]).refusing(&[
            ("level", SE_LINUX_REASON),
            ("role", SE_LINUX_REASON),
            ("user", SE_LINUX_REASON),
        ]);
        let mut name = None;
        while keys.next(&mut map)?.is_some() {
            map.next_value_seed(self.budget.scalar(|text: &str| only(text, CONTAINER_T)))?;
            name = Some(CONTAINER_T);
        }
        Ok(name)
    }
}

struct ReadProfile<'b> {
    budget: &'b Budget,
    /// Description of an accepted `localhostProfile`, for error messages.
    accepted: &'static str,
    /// Returns `true` for an accepted `localhostProfile`.
    name: fn(&str) -> bool,
}

const SECCOMP_ACCEPTED: &str = "a relative path of at most 4095 bytes without \"..\"";
const APP_ARMOR_ACCEPTED: &str = "the name of a loaded profile, at most 4095 bytes";
const TYPES: &str = "RuntimeDefault or Localhost";

impl ReadMap for ReadProfile<'_> {
    type Value = Profile;

    fn expected(&self) -> String {
        "a map with the keys type, localhostProfile".to_owned()
    }

    fn read<'de, A: MapAccess<'de>>(self, mut map: A) -> Result<Profile, A::Error> {
        let mut keys = Keys::new(self.budget, &["type", "localhostProfile"]);
        let (mut local, mut name) = (None, None);
        while let Some(key) = keys.next(&mut map)? {
            if key == "type" {
                local = Some(map.next_value_seed(self.budget.scalar(is_local))?);
                continue;
            }
            name = Some(map.next_value_seed(self.budget.scalar(|text: &str| {
                if (self.name)(text) {
                    Ok(text.to_owned())
                } else {
                    Err(format!("found {}, accepted {}", Found(text), self.accepted))
                }
            }))?);
        }
        match (local, name) {
            (None, _) => Err(A::Error::custom(format!("`type` is missing, accepted {TYPES}"))),
            (Some(true), None) => {
                Err(A::Error::custom(format!("`localhostProfile` is missing, accepted {}", self.accepted)))
            }
            (Some(false), Some(_)) => Err(A::Error::custom(
                "found `localhostProfile` with the type RuntimeDefault, accepted only with the type Localhost",
            )),
            (Some(true), Some(name)) => Ok(Profile::Localhost(name)),
            (Some(false), None) => Ok(Profile::RuntimeDefault),
        }
    }
}

fn is_local(text: &str) -> Result<bool, String> {
    match text {
        "RuntimeDefault" => Ok(false),
        "Localhost" => Ok(true),
        _ => Err(format!("found {}, accepted {TYPES}: {TIGHTEN}", Found(text))),
    }
}

fn seccomp_path(text: &str) -> bool {
    is_profile_name(text) && !text.starts_with('/') && text.split('/').all(|part| part != "..")
}

/// Accepts absolute paths, because AppArmor profiles may be named after a program, but not `unconfined`, which
/// disables AppArmor.
fn app_armor_name(text: &str) -> bool {
    is_profile_name(text) && !text.eq_ignore_ascii_case("unconfined")
}

fn is_profile_name(text: &str) -> bool {
    !is_null(text)
        && text.len() <= PROFILE_BYTES
        && text.trim() == text
        && !text.chars().any(char::is_control)
}
