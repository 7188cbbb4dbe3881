//! What makes the API server call Lucid, or refuse pods by itself.

use std::fmt;

use kube::api::{DeleteParams, DynamicObject, Preconditions};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client, ResourceExt};
use lucid_serving::rights::Right;
use lucid_serving::{NAME_LABEL, Program};
use serde_json::Value;
use snafu::ResultExt;

use super::{ApiSnafu, UninstallError};
use crate::manifests::backstop::NAME as BACKSTOP;
use crate::run::PROGRAM;

/// The CustomResourceDefinition of `Auditor`.
pub(super) const DEFINITION: &str = "auditors.lucid.computing";

const GROUP: &str = "admissionregistration.k8s.io";
const POLICY: &str = "ValidatingAdmissionPolicy";
const TAKE: [&str; 2] = ["get", "delete"];

/// What is needed to take the registrations back.
pub(super) fn rights() -> Vec<Right> {
    let named = |verbs: &[&'static str], resource, name: &str| Right::new(verbs, GROUP, resource).named(name);
    vec![
        named(&TAKE, "validatingadmissionpolicies", BACKSTOP),
        named(&TAKE, "validatingadmissionpolicybindings", BACKSTOP),
        named(&TAKE, "mutatingwebhookconfigurations", PROGRAM.name),
        named(&TAKE, "validatingwebhookconfigurations", PROGRAM.name),
        named(&TAKE, "validatingwebhookconfigurations", lucid_validator::PROGRAM.name),
    ]
}

/// One of the objects.
pub(super) struct Registration {
    /// Who is called by it.
    pub(super) program: Program,
    kind: &'static str,
    name: &'static str,
    api: Api<DynamicObject>,
}

/// What is there under its name.
pub(super) enum Found {
    Nothing,
    /// Not Lucid's.
    Foreign {
        why: String,
    },
    /// That of a Lucid in another namespace.
    OfAnother {
        namespace: String,
    },
    Ours(Box<DynamicObject>),
}

/// The backstop, in the order in which it goes: a binding says nothing of the namespace whose operator it is for.
pub(super) fn backstop(client: &Client) -> [Registration; 2] {
    let named = |kind| Registration { program: PROGRAM, kind, name: BACKSTOP, api: api(client, GROUP, kind) };
    [named(POLICY), named("ValidatingAdmissionPolicyBinding")]
}

/// What leads to the programs, in the order in which it goes: a pod is better validated without a chain than refused for
/// lacking one.
pub(super) fn all(client: &Client) -> [Registration; 3] {
    let configuration = |program: Program, kind| {
        let api = api(client, GROUP, kind);
        Registration { program, kind, name: program.name, api }
    };
    [
        configuration(lucid_validator::PROGRAM, "ValidatingWebhookConfiguration"),
        configuration(PROGRAM, "ValidatingWebhookConfiguration"),
        configuration(PROGRAM, "MutatingWebhookConfiguration"),
    ]
}

pub(super) fn definitions(client: &Client) -> Api<DynamicObject> {
    api(client, "apiextensions.k8s.io", "CustomResourceDefinition")
}

fn api(client: &Client, group: &str, kind: &str) -> Api<DynamicObject> {
    Api::all_with(client.clone(), &ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind)))
}

impl Registration {
    pub(super) async fn look(&self, namespace: &str) -> Result<Found, UninstallError> {
        let found = self.api.get_opt(self.name).await.context(ApiSnafu { action: format!("get {self}") })?;
        let Some(found) = found else { return Ok(Found::Nothing) };
        if found.labels().get(NAME_LABEL).is_none_or(|label| label != self.name) {
            let why = format!("it has no label {NAME_LABEL}={}, so somebody else made it", self.name);
            return Ok(Found::Foreign { why });
        }
        if self.kind == POLICY {
            return Ok(of_another_backstop(&found, namespace).unwrap_or(Found::Ours(Box::new(found))));
        }
        let webhooks = found.data["webhooks"].as_array().cloned().unwrap_or_default();
        let of_another = webhooks.iter().find_map(|webhook| judge(&webhook["clientConfig"], namespace));
        Ok(of_another.unwrap_or(Found::Ours(Box::new(found))))
    }

    /// Whether it is gone; not when somebody has changed it since it was looked at.
    pub(super) async fn remove(&self, found: &DynamicObject) -> Result<bool, UninstallError> {
        let seen = Preconditions { uid: found.uid(), resource_version: found.resource_version() };
        let removed = self.api.delete(self.name, &DeleteParams::default().preconditions(seen)).await;
        match removed {
            Err(kube::Error::Api(status)) if status.is_conflict() => Ok(false),
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(true),
            removed => removed.context(ApiSnafu { action: format!("delete {self}") }).map(|_| true),
        }
    }
}

impl fmt::Display for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.name)
    }
}

/// What a `clientConfig` says of somebody else; `None` where it may be ours.
fn judge(client_config: &Value, namespace: &str) -> Option<Found> {
    let service = client_config["service"]["namespace"].as_str()?;
    (service != namespace).then(|| Found::OfAnother { namespace: service.to_owned() })
}

/// The operator's own namespace is the last one of those that the policy leaves out.
fn of_another_backstop(found: &DynamicObject, namespace: &str) -> Option<Found> {
    let left_out =
        &found.data["spec"]["matchConstraints"]["namespaceSelector"]["matchExpressions"][0]["values"];
    let left_out = left_out.as_array()?;
    let namespace = left_out.last().filter(|_| !left_out.iter().any(|it| it == namespace))?.as_str()?;
    Some(Found::OfAnother { namespace: namespace.to_owned() })
}

/// Who wrote it last and where it leads; `None` where it leads nowhere yet.
pub(super) fn whose(found: &DynamicObject) -> Option<String> {
    let last = found.managed_fields().iter().max_by_key(|entry| entry.time.as_ref().map(|time| time.0));
    let manager = last.and_then(|entry| entry.manager.as_deref()).unwrap_or("unknown");
    let client_config = &found.data["webhooks"][0]["clientConfig"];
    let url = client_config["url"].as_str().map(str::to_owned);
    let service = &client_config["service"];
    let service =
        || Some(format!("Service {}/{}", service["namespace"].as_str()?, service["name"].as_str()?));
    Some(format!("{manager}, for {}", url.or_else(service)?))
}
