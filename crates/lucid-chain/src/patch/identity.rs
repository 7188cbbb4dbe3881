//! Environment variables and mounts that the workload identity of a cloud adds to every container of a pod.
//!
//! The webhooks reinstate them, unlike those of other injectors. They tell an auditor where a token is, not which
//! identity to use. Other variables could change the auditor's behavior, and other mounts its code.

use serde_json::Value;

use crate::{pod::PodView, volume::TOKEN_PATH};

/// Environment variables that the Amazon EKS Pod Identity Webhook and Azure AD Workload Identity add to every
/// container of a pod, with the expected form of their values. Auditors may have them in addition to their plan.
///
/// Variables that name an identity (`AWS_ROLE_ARN`, `AZURE_CLIENT_ID`, `AZURE_TENANT_ID`) are excluded: only the
/// catalogue chooses the identity of an auditor.
const VARIABLES: [(&str, IdentityForm); 8] = [
    ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", IdentityForm::TokenFile),
    ("AWS_CONTAINER_CREDENTIALS_FULL_URI", IdentityForm::OneOf(&CREDENTIALS)),
    ("AWS_DEFAULT_REGION", IdentityForm::Region),
    ("AWS_REGION", IdentityForm::Region),
    ("AWS_STS_REGIONAL_ENDPOINTS", IdentityForm::OneOf(&["legacy", "regional"])),
    ("AWS_WEB_IDENTITY_TOKEN_FILE", IdentityForm::TokenFile),
    ("AZURE_AUTHORITY_HOST", IdentityForm::OneOf(&AUTHORITIES)),
    ("AZURE_FEDERATED_TOKEN_FILE", IdentityForm::TokenFile),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum IdentityForm {
    OneOf(&'static [&'static str]),
    /// A file directly in one of [`PATHS`]; its name consists of ASCII letters, digits, `-` and `_`.
    TokenFile,
    /// Region such as `eu-west-1`: two to four words of 2 to 9 lower-case letters, then a number of one or two
    /// digits, joined by `-`.
    Region,
}

/// Returns the names of the variables that auditors may have in addition to their plan, each with a regular expression
/// of its accepted values.
pub fn identity_env() -> impl Iterator<Item = (&'static str, String)> {
    VARIABLES.iter().map(|(name, form)| (*name, format!("^({})$", form.pattern())))
}

impl IdentityForm {
    fn pattern(self) -> String {
        let escaped = |values: &[&str]| {
            let values = values.iter().map(|value| {
                let escape =
                    |it: char| if matches!(it, '.' | '[' | ']' | '-') { vec!['\\', it] } else { vec![it] };
                value.chars().flat_map(escape).collect::<String>()
            });
            values.collect::<Vec<_>>().join("|")
        };
        match self {
            Self::OneOf(values) => escaped(values),
            Self::TokenFile => format!("({})/[A-Za-z0-9_-]+", escaped(&PATHS)),
            Self::Region => "[a-z]{2,9}(-[a-z]{2,9}){1,3}-[0-9]{1,2}".to_owned(),
        }
    }

    fn admits(self, value: &str) -> bool {
        match self {
            Self::OneOf(values) => values.contains(&value),
            Self::TokenFile => value.rsplit_once('/').is_some_and(|(folder, name)| {
                let is_plain = |it: u8| it.is_ascii_alphanumeric() || matches!(it, b'-' | b'_');
                PATHS.contains(&folder) && !name.is_empty() && name.bytes().all(is_plain)
            }),
            Self::Region => value.rsplit_once('-').is_some_and(|(words, number)| {
                let is_word = |it: &str| {
                    (2..=9).contains(&it.len()) && it.bytes().all(|byte| byte.is_ascii_lowercase())
                };
                (2..=4).contains(&words.split('-').count())
                    && words.split('-').all(is_word)
                    && (1..=2).contains(&number.len())
                    && number.bytes().all(|it| it.is_ascii_digit())
            }),
        }
    }
}

/// Paths at which the webhooks of Amazon EKS and Azure mount tokens.
pub const PATHS: [&str; 3] = [
    "/var/run/secrets/azure/tokens",
    "/var/run/secrets/eks.amazonaws.com/serviceaccount",
    "/var/run/secrets/pods.eks.amazonaws.com/serviceaccount",
];

const TOKEN_VOLUME: &str = "kube-api-access-";

const CREDENTIALS: [&str; 2] =
    ["http://169.254.170.23/v1/credentials", "http://[fd00:ec2::23]/v1/credentials"];

const AUTHORITIES: [&str; 10] = [
    "https://login.chinacloudapi.cn",
    "https://login.chinacloudapi.cn/",
    "https://login.microsoftonline.com",
    "https://login.microsoftonline.com/",
    "https://login.microsoftonline.us",
    "https://login.microsoftonline.us/",
    "https://login.partner.microsoftonline.cn",
    "https://login.partner.microsoftonline.cn/",
    "https://login.microsoftonline.de",
    "https://login.microsoftonline.de/",
];

pub(super) fn is_variable(variable: &Value) -> bool {
    let Some(members) = variable.as_object().filter(|it| it.len() == 2) else { return false };
    let text = |key: &str| members.get(key).and_then(Value::as_str);
    let (Some(name), Some(value)) = (text("name"), text("value")) else { return false };
    VARIABLES.iter().any(|(known, form)| *known == name && form.admits(value))
}

/// Returns `true` if all planned mounts are present and all others are read-only mounts of tokens from projected
/// volumes of `pod`.
pub(super) fn are_tokens(planned: &Value, mounts: &Value, pod: &PodView<'_>) -> bool {
    let planned = planned.as_array().map(Vec::as_slice).unwrap_or_default();
    mounts.as_array().is_some_and(|mounts| {
        // The API server rejects duplicate mount paths. The bound limits the cost, because each mount scans all
        // volumes.
        mounts.len() <= planned.len() + PATHS.len() + 1
            && planned.iter().all(|mount| mounts.contains(mount))
            && mounts.iter().filter(|mount| !planned.contains(mount)).all(|mount| {
                let volume = mount["name"].as_str().unwrap_or_default();
                let path = mount["mountPath"].as_str().unwrap_or_default();
                (PATHS.contains(&path) || (path == TOKEN_PATH && volume.starts_with(TOKEN_VOLUME)))
                    && mount["readOnly"] == true
                    && mount.as_object().is_some_and(|mount| mount.len() == 3)
                    && pod.has_tokens(volume, path == TOKEN_PATH)
            })
    })
}
