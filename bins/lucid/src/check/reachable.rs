//! Checks that the API server reaches the webhook, by creating a pod as a server-side dry run.

use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use kube::core::SelectorExt;
use kube::{Api, Client};
use lucid_admission::{ClusterConfiguration, MUTATE_NAME, NamespaceView, VALIDATE_NAME};
use lucid_chain::keys;
use lucid_keeper::State;
use serde_json::{Value, json};

use super::namespaces::Namespace;
use super::pods::evaluate;
use super::registration::RegisteredWebhook;
use super::report::{Check, Status, Unread};

const CHECK: &str = "reachable";
/// Maximum number of namespaces to try while the pod is rejected for other reasons.
const TRIED: usize = 3;

pub(super) async fn check(
    client: &Client,
    cluster: Option<&ClusterConfiguration>,
    registered: Option<&RegisteredWebhook>,
    namespaces: &[Namespace],
) -> Check {
    let Some(registered) = registered else {
        return Check::unknown(CHECK, "the webhook is not registered, or its registration cannot be read");
    };
    let pod = pod(&registered.webhook["objectSelector"]);
    let labels = pod.metadata.labels.clone().unwrap_or_default();
    if !registered.object_selector().matches(&labels) {
        return Check::unknown(CHECK, "failed to construct a pod that the objectSelector matches");
    }
    let mut last = Check::unknown(CHECK, "no namespace is enabled, in which to create a pod");
    for namespace in namespaces.iter().filter(|it| it.is_audited()).take(TRIED) {
        last = attempt(client, cluster, registered, namespace, &pod).await;
        if last.status != Status::Unknown {
            break;
        }
    }
    last
}

async fn attempt(
    client: &Client,
    cluster: Option<&ClusterConfiguration>,
    registered: &RegisteredWebhook,
    namespace: &Namespace,
    pod: &Pod,
) -> Check {
    let name = &namespace.name;
    let pods: Api<Pod> = Api::namespaced(client.clone(), name);
    let params = PostParams { dry_run: true, ..PostParams::default() };
    match pods.create(&params, pod).await {
        Ok(created) => {
            let (chain, reason) = match cluster {
                Some(cluster) => match cluster.namespace(name).await {
                    Ok(view) => state(&created, name, &view, registered).unzip(),
                    Err(error) => (Some(State::Unknown), Some(error.to_string())),
                },
                None => (Some(State::Unknown), Some("the expected chain is unknown".to_owned())),
            };
            accepted(name, chain, &reason.unwrap_or_default(), registered, &created)
        }
        Err(kube::Error::Api(status)) => refused(name, &status),
        Err(error) => Check::unknown(
            CHECK,
            format!("failed to create a pod (dry run): {}", lucid_shared::with_causes(&error)),
        ),
    }
}

fn state(
    created: &Pod,
    namespace: &str,
    view: &NamespaceView,
    registered: &RegisteredWebhook,
) -> Option<(State, String)> {
    let json = serde_json::to_string(created);
    match json.and_then(|json| serde_json::from_str(&json)) {
        Ok(pod) => evaluate(&pod, namespace, view, Some(registered), None),
        Err(error) => Some((State::Unknown, error.to_string())),
    }
}

fn accepted(
    namespace: &str,
    chain: Option<State>,
    reason: &str,
    registered: &RegisteredWebhook,
    created: &Pod,
) -> Check {
    let spec = created.spec.as_ref();
    let containers =
        spec.map_or(0, |spec| spec.containers.len() + spec.init_containers.as_ref().map_or(0, Vec::len));
    let ignored = if registered.ignores_failures() { "; failurePolicy is Ignore" } else { "" };
    let (status, found, action) = match chain {
        Some(State::Audited) => (Status::Ok, "gets the expected chain (dry run)".to_owned(), ""),
        Some(State::Missing) => (
            Status::Failed,
            format!("gets no chain (dry run): the webhook is not called{ignored}"),
            "see the checks endpoints and certificate, and the log of lucid-operator",
        ),
        Some(State::AssumedPort | State::Stale | State::Altered) => (
            Status::Failed,
            format!("gets an unexpected chain (dry run): {reason}"),
            "compare the operator's options with those assumed here; see the check operator",
        ),
        _ if containers > 1 => {
            (Status::Ok, "gets auditors (dry run); the expected ones are unknown".to_owned(), "")
        }
        Some(_) => (Status::Unknown, format!("has a chain that could not be evaluated: {reason}"), ""),
        None => (
            Status::Failed,
            "loses the label that requests a chain (dry run)".to_owned(),
            "see the check overlap for other webhooks that change pods",
        ),
    };
    let check = Check::new(CHECK, status, format!("a pod in {namespace} {found}"));
    if action.is_empty() { check } else { check.action(action) }
}

fn refused(namespace: &str, status: &kube::core::Status) -> Check {
    let message = &status.message;
    let failed = |name: &str| message.contains(&format!("failed calling webhook \"{name}\""));
    let denied = |name: &str| message.contains(&format!("admission webhook \"{name}\" denied the request"));
    if failed(MUTATE_NAME) || failed(VALIDATE_NAME) {
        return Check::failed(CHECK, format!("the API server failed to call the webhook: {message}"))
            .action(advice(message));
    }
    if denied(MUTATE_NAME) {
        return Check::failed(CHECK, format!("the webhook denies an ordinary pod: {message}"))
            .action("see the check configuration, and the log of lucid-operator");
    }
    if denied(VALIDATE_NAME) {
        return Check::warning(CHECK, format!("validation denies an ordinary pod: {message}"))
            .action("pods with these auditors cannot be created: notarize their images, by digest");
    }
    if let Some(unread) = unpermitted(namespace, status) {
        return Check::unread(CHECK, &unread);
    }
    Check::unknown(CHECK, format!("a pod in {namespace} is rejected by another component: {message}"))
}

/// Returns the missing permission, if that is the reason of the API server's refusal.
pub(super) fn unpermitted(namespace: &str, status: &kube::core::Status) -> Option<Unread> {
    let is_unpermitted = status.is_forbidden() && status.message.contains("cannot create resource");
    is_unpermitted.then(|| Unread::forbidden(format!("create pods in namespace {namespace}")))
}

fn advice(message: &str) -> &'static str {
    if message.contains("x509") || message.contains("tls:") {
        "the caBundle does not verify the certificate: see the check certificate"
    } else if message.contains("no endpoints available") || message.contains("not found") {
        "the Service has no endpoints: see the checks endpoints and operator"
    } else if message.contains("connection refused") {
        "no server listens at the endpoint: see the checks endpoints and operator"
    } else if message.contains("deadline exceeded") || message.contains("timeout") {
        "calls are dropped: check for a NetworkPolicy or firewall between control plane and nodes, on the pods' port 8443"
    } else {
        "see the checks endpoints and certificate, and the log of lucid-operator"
    }
}

fn pod(object_selector: &Value) -> Pod {
    let mut pod = restricted_pod();
    pod["metadata"]["labels"][keys::SECURED_LABEL] = keys::TRUE.into();
    for (key, value) in object_selector["matchLabels"].as_object().into_iter().flatten() {
        pod["metadata"]["labels"][key] = value.clone();
    }
    serde_json::from_value(pod).unwrap_or_default()
}

/// Returns a pod that meets restrictive admission policies.
pub(super) fn restricted_pod() -> Value {
    json!({
        "metadata": {"generateName": "lucid-operator-check-"},
        "spec": {
            "automountServiceAccountToken": false,
            "securityContext": {"runAsNonRoot": true, "runAsUser": 65_534, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{
                "name": "model",
                "image": "registry.k8s.io/pause:3.10",
                "ports": [{"containerPort": 5000}],
                "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"cpu": "10m", "memory": "16Mi"}},
                "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
            }],
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_of_the_api_server_names_the_webhook() {
        for (message, code, status, action) in [
            (
                "Internal error occurred: failed calling webhook \"mutate.lucid.computing\": failed to call webhook: Post \"https://x\": tls: failed to verify certificate: x509: certificate signed by unknown authority",
                500,
                Status::Failed,
                "certificate",
            ),
            (
                "Internal error occurred: failed calling webhook \"mutate.lucid.computing\": failed to call webhook: no endpoints available for service \"lucid-operator-webhook\"",
                500,
                Status::Failed,
                "has no endpoints",
            ),
            (
                "Internal error occurred: failed calling webhook \"validate.lucid.computing\": dial tcp: connect: connection refused",
                500,
                Status::Failed,
                "no server listens",
            ),
            (
                "Internal error occurred: failed calling webhook \"mutate.lucid.computing\": context deadline exceeded",
                500,
                Status::Failed,
                "NetworkPolicy",
            ),
            (
                "admission webhook \"validate.lucid.computing\" denied the request: not notarized",
                403,
                Status::Warning,
                "notarize",
            ),
            (
                "admission webhook \"mutate.lucid.computing\" denied the request: the configuration is not known yet",
                503,
                Status::Failed,
                "configuration",
            ),
            (
                "pods is forbidden: User \"x\" cannot create resource \"pods\" in API group \"\"",
                403,
                Status::Unknown,
                "create pods",
            ),
            ("admission webhook \"policy.example.com\" denied the request: no", 403, Status::Unknown, ""),
            ("pods \"x\" is forbidden: exceeded quota: q", 403, Status::Unknown, ""),
        ] {
            let mut refusal = kube::core::Status::failure(message, "");
            refusal.code = code;
            if code == 403 {
                refusal.reason = "Forbidden".to_owned();
            }
            let check = refused("shop", &refusal);
            assert_eq!(check.status, status, "{message}");
            assert!(check.action.unwrap_or_default().contains(action), "{message}");
        }
    }
}
