//! Objects that make the API server call Lucid, or deny pods itself.

use std::fmt;

use kube::api::{DeleteParams, DynamicObject, Preconditions};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client, ResourceExt};
use lucid_shared::serving::rbac::Permission;
use lucid_shared::serving::{NAME_LABEL, OPERATOR, Program, VALIDATOR};

use crate::error::{Result, ResultExt};
use crate::manifests::backstop::NAME as BACKSTOP;

const GROUP: &str = "admissionregistration.k8s.io";
const POLICY: &str = "ValidatingAdmissionPolicy";
const TAKE: [&str; 2] = ["get", "delete"];

pub(super) fn permissions() -> Vec<Permission> {
    let named =
        |verbs: &[&'static str], resource, name: &str| Permission::new(verbs, GROUP, resource).named(name);
    vec![
        named(&TAKE, "validatingadmissionpolicies", BACKSTOP),
        named(&TAKE, "validatingadmissionpolicybindings", BACKSTOP),
        named(&TAKE, "mutatingwebhookconfigurations", OPERATOR.name),
        named(&TAKE, "validatingwebhookconfigurations", OPERATOR.name),
        named(&TAKE, "validatingwebhookconfigurations", VALIDATOR.name),
    ]
}

pub(super) struct Registration {
    pub(super) program: Program,
    kind: &'static str,
    name: &'static str,
    api: Api<DynamicObject>,
}

pub(super) enum Found {
    Nothing,
    /// Not this installation's. `is_blocking` if it belongs to a Lucid in another namespace.
    Kept {
        why: String,
        is_blocking: bool,
    },
    Ours(Box<DynamicObject>),
}

/// Returns the backstop in order of deletion. The policy goes first: only it names the operator's namespace.
pub(super) fn backstop(client: &Client) -> [Registration; 2] {
    let named =
        |kind| Registration { program: OPERATOR, kind, name: BACKSTOP, api: api(client, GROUP, kind) };
    [named(POLICY), named("ValidatingAdmissionPolicyBinding")]
}

/// Returns the webhook configurations in order of deletion. Validation goes first: otherwise pods would be denied for a
/// missing chain.
pub(super) fn all(client: &Client) -> [Registration; 3] {
    let configuration = |program: Program, kind| {
        let api = api(client, GROUP, kind);
        Registration { program, kind, name: program.name, api }
    };
    [
        configuration(VALIDATOR, "ValidatingWebhookConfiguration"),
        configuration(OPERATOR, "ValidatingWebhookConfiguration"),
        configuration(OPERATOR, "MutatingWebhookConfiguration"),
    ]
}

pub(super) fn definitions(client: &Client) -> Api<DynamicObject> {
    api(client, "apiextensions.k8s.io", "CustomResourceDefinition")
}

fn api(client: &Client, group: &str, kind: &str) -> Api<DynamicObject> {
    Api::all_with(client.clone(), &ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind)))
}

impl Registration {
    pub(super) async fn get(&self, namespace: &str) -> Result<Found> {
        let found = self.api.get_opt(self.name).await.failed_to(format_args!("get {self}"))?;
        let Some(found) = found else { return Ok(Found::Nothing) };
        if found.labels().get(NAME_LABEL).is_none_or(|label| label != self.name) {
            let why = format!("it has no label {NAME_LABEL}={}, so it was not created by Lucid", self.name);
            return Ok(Found::Kept { why, is_blocking: false });
        }
        let other = if self.kind == POLICY {
            namespace_of_backstop(&found, namespace)
        } else {
            let webhooks = found.data["webhooks"].as_array().into_iter().flatten();
            let mut namespaces =
                webhooks.filter_map(|webhook| webhook["clientConfig"]["service"]["namespace"].as_str());
            namespaces.find(|it| *it != namespace)
        };
        Ok(match other {
            None => Found::Ours(Box::new(found)),
            Some(other) => {
                let program = self.program.name;
                let why = format!("it belongs to {program} in namespace {other}; use --namespace {other}");
                Found::Kept { why, is_blocking: true }
            }
        })
    }

    /// Returns `true` if the object is gone, and `false` if it changed since it was read.
    pub(super) async fn remove(&self, found: &DynamicObject) -> Result<bool> {
        let seen = Preconditions { uid: found.uid(), resource_version: found.resource_version() };
        let removed = self.api.delete(self.name, &DeleteParams::default().preconditions(seen)).await;
        match removed {
            Err(kube::Error::Api(status)) if status.is_conflict() => Ok(false),
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(true),
            removed => removed.failed_to(format_args!("delete {self}")).map(|_| true),
        }
    }
}

impl fmt::Display for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.name)
    }
}

/// Returns the namespace that the policy is for, unless it is `namespace`. The operator's namespace is the last excluded one.
fn namespace_of_backstop<'f>(found: &'f DynamicObject, namespace: &str) -> Option<&'f str> {
    let left_out =
        &found.data["spec"]["matchConstraints"]["namespaceSelector"]["matchExpressions"][0]["values"];
    let left_out = left_out.as_array()?;
    left_out.last().filter(|_| !left_out.iter().any(|it| it == namespace))?.as_str()
}

/// Returns the last writer and the webhook's target, or `None` without a target.
pub(super) fn last_writer(found: &DynamicObject) -> Option<String> {
    let last = found.managed_fields().iter().max_by_key(|entry| entry.time.as_ref().map(|time| time.0));
    let manager = last.and_then(|entry| entry.manager.as_deref()).unwrap_or("unknown");
    let client_config = &found.data["webhooks"][0]["clientConfig"];
    let url = client_config["url"].as_str().map(str::to_owned);
    let service = &client_config["service"];
    let service =
        || Some(format!("Service {}/{}", service["namespace"].as_str()?, service["name"].as_str()?));
    Some(format!("{manager}, for {}", url.or_else(service)?))
}
