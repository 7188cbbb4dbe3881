//! What a cloud's workload identity adds to every container of a pod: where the token is, and whose role it is for.
//!
//! Its webhook insists on that, as other injectors do not; an auditor is the same with or without. Other variables could
//! change what it does, and other mounts what it runs.

use serde_json::Value;

use crate::pod::PodView;

/// Environment variables by which a cloud's webhook gives every container of a pod its identity: those of the Amazon EKS
/// Pod Identity Webhook and of Azure AD Workload Identity. An auditor may have them besides what is planned.
pub const VARIABLES: [&str; 11] = [
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_DEFAULT_REGION",
    "AWS_REGION",
    "AWS_ROLE_ARN",
    "AWS_STS_REGIONAL_ENDPOINTS",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AZURE_AUTHORITY_HOST",
    "AZURE_CLIENT_ID",
    "AZURE_FEDERATED_TOKEN_FILE",
    "AZURE_TENANT_ID",
];

/// Where they mount tokens.
const PATHS: [&str; 3] = [
    "/var/run/secrets/azure/tokens",
    "/var/run/secrets/eks.amazonaws.com/serviceaccount",
    "/var/run/secrets/pods.eks.amazonaws.com/serviceaccount",
];

/// Where the ServiceAccount admission plugin mounts the token into every container.
const TOKEN_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// How the names of the volumes begin that the plugin mounts there.
const TOKEN_VOLUME: &str = "kube-api-access-";

/// Where the agent of Amazon EKS Pod Identity gives credentials
const CREDENTIALS: [&str; 2] =
    ["http://169.254.170.23/v1/credentials", "http://[fd00:ec2::23]/v1/credentials"];

/// Where Microsoft Entra signs in, by cloud
const AUTHORITIES: [&str; 5] = [
    "https://login.chinacloudapi.cn",
    "https://login.microsoftonline.com",
    "https://login.microsoftonline.us",
    "https://login.partner.microsoftonline.cn",
    "https://login.microsoftonline.de",
];

/// Whether a variable of a container says whose identity it has. It does not lead to a service or a file of somebody else's,
/// such as the author of the pod.
pub(super) fn is_variable(variable: &Value) -> bool {
    let Some(name) = variable["name"].as_str().filter(|name| VARIABLES.contains(name)) else { return false };
    let has_more = variable
        .as_object()
        .is_none_or(|variable| variable.keys().any(|key| key != "name" && key != "value"));
    let value = variable["value"].as_str().unwrap_or_default();
    !has_more
        && match name {
            "AWS_CONTAINER_CREDENTIALS_FULL_URI" => CREDENTIALS.contains(&value),
            "AZURE_AUTHORITY_HOST" => AUTHORITIES.contains(&value.strip_suffix('/').unwrap_or(value)),
            _ if name.ends_with("_FILE") => is_token(value),
            _ => true,
        }
}

/// Whether a file stands right in one of the folders of tokens.
fn is_token(path: &str) -> bool {
    path.rsplit_once('/')
        .is_some_and(|(folder, name)| PATHS.contains(&folder) && !matches!(name, "" | "." | ".."))
}

/// Whether all `mounts` are of tokens, read-only and from projected volumes of `pod`.
pub(super) fn are_tokens(mounts: &Value, pod: &PodView<'_>) -> bool {
    mounts.as_array().is_some_and(|mounts| {
        // Of two mounts at one path the API server refuses the second, and for each all volumes are looked through.
        mounts.len() <= PATHS.len() + 1
            && mounts.iter().all(|mount| {
                let volume = mount["name"].as_str().unwrap_or_default();
                let path = mount["mountPath"].as_str().unwrap_or_default();
                (PATHS.contains(&path) || (path == TOKEN_PATH && volume.starts_with(TOKEN_VOLUME)))
                    && mount["readOnly"] == true
                    && mount.as_object().is_some_and(|mount| mount.len() == 3)
                    && pod.has_projected_volume(volume)
            })
    })
}
