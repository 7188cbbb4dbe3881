//! Whether the API server calls Lucid for what it should be called.

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{DynamicObject, ListParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client, ResourceExt};
use lucid_validator::{Calls, Scope, VALIDATE_NAME, VALIDATE_PATH};
use lucid_webhook::{AdmissionResponse, Router, Webhook};
use serde_json::Value;

use super::operator::Operator;
use super::report::{Check, Status, Unread};
use crate::config::RunArgs;
use crate::registration::{self, MUTATE_NAME, MUTATE_PATH};
use crate::run::PROGRAM;

const CHECK: &str = "registration";
/// What depends on how the operator is told to run.
const TOLD: [&str; 5] =
    ["clientConfig", "failurePolicy", "namespaceSelector", "objectSelector", "timeoutSeconds"];

/// One webhook of ours as the API server knows it.
#[derive(Clone, Debug)]
pub(super) struct Registered {
    pub(super) configuration: String,
    pub(super) name: &'static str,
    /// As in `webhooks` of its configuration, but a conversion's only has a `clientConfig`.
    pub(super) webhook: Value,
    pub(super) since: Option<Time>,
}

impl Registered {
    pub(super) fn ignores_failures(&self) -> bool {
        self.webhook["failurePolicy"] == "Ignore"
    }
}

/// Everything that is registered.
pub(super) struct Registrations {
    /// Of all configurations, with their names: ours and others.
    pub(super) configurations: Result<Vec<DynamicObject>, Unread>,
    pub(super) mutating: Option<Registered>,
    pub(super) validating: Option<Registered>,
    pub(super) conversion: Option<Registered>,
    pub(super) checks: Vec<Check>,
}

impl Registrations {
    pub(super) async fn read(client: &Client, operator: &Operator) -> Self {
        let (wanted_mutating, wanted_validating) = wanted(&operator.args);
        let mut checks = Vec::new();
        let mutating = list(client, "MutatingWebhookConfiguration", "mutatingwebhookconfigurations").await;
        let found_mutating = mutating.as_ref().map(|all| find(all, MUTATE_NAME));
        let found_mutating =
            judge(&mut checks, MUTATE_NAME, found_mutating, wanted_mutating, operator.is_known);
        let validating =
            list(client, "ValidatingWebhookConfiguration", "validatingwebhookconfigurations").await;
        let found_validating = validating.as_ref().map(|all| find(all, VALIDATE_NAME));
        let found_validating =
            judge(&mut checks, VALIDATE_NAME, found_validating, wanted_validating, operator.is_known);
        Self {
            configurations: mutating,
            mutating: found_mutating,
            validating: found_validating,
            conversion: conversion(client).await,
            checks,
        }
    }
}

async fn list(client: &Client, kind: &str, plural: &str) -> Result<Vec<DynamicObject>, Unread> {
    let kind = GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", kind);
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&kind));
    let found = api.list(&ListParams::default()).await;
    found.map(|found| found.items).map_err(|error| Unread::of(&error, format!("list {plural}")))
}

/// The webhook under its name, in the configuration of the operator if it is there, for OLM has names of its own.
fn find(all: &[DynamicObject], name: &'static str) -> Option<Registered> {
    let mut sorted: Vec<_> = all.iter().collect();
    sorted.sort_by_key(|it| it.name_any() != PROGRAM.name);
    sorted.into_iter().find_map(|configuration| {
        let webhooks = configuration.data["webhooks"].as_array()?;
        let webhook = webhooks.iter().find(|webhook| webhook["name"] == name)?.clone();
        let since = configuration.creation_timestamp();
        Some(Registered { configuration: configuration.name_any(), name, webhook, since })
    })
}

/// The webhook that converts Auditors, where they are defined so.
async fn conversion(client: &Client) -> Option<Registered> {
    let kind = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&kind));
    // Who may not read it does without: Lucid works without Auditors too.
    let found = api.get_opt("auditors.lucid.computing").await.ok()??;
    let webhook = found.data["spec"]["conversion"]["webhook"].clone();
    (!webhook.is_null()).then(|| Registered {
        configuration: found.name_any(),
        name: "auditors.lucid.computing",
        since: found.creation_timestamp(),
        webhook,
    })
}

/// What the operator registers when it is told so.
fn wanted(args: &RunArgs) -> (Option<Value>, Option<Value>) {
    let calls = Calls {
        scope: Scope::new(&args.serving.namespace),
        selectors: args.registration.selectors.clone(),
        validation: args.registration.validation.validation_failure_policy,
        timeout_seconds: args.serving.webhook_timeout_seconds,
    };
    let nobody = async || AdmissionResponse::allow();
    let mutating = Webhook::mutating(MUTATE_NAME, nobody)
        .with_registration(|it| registration::mutating(&calls, args.registration.failure_policy, it));
    let validating = Webhook::validating(VALIDATE_NAME, nobody).with_registration(|it| calls.validating(it));
    let router = Router::new().webhook(MUTATE_PATH, mutating).webhook(VALIDATE_PATH, validating);
    let configurations = args.serving.configurations(PROGRAM);
    let mutating = configurations.mutating(router.registrations()).ok().flatten();
    let validating = configurations.validating(router.registrations()).ok().flatten();
    let first = |configuration: Option<Value>| {
        configuration.map(|it| it["webhooks"][0].clone()).filter(|webhook| !webhook.is_null())
    };
    let mutating = mutating.and_then(|it: MutatingWebhookConfiguration| serde_json::to_value(it).ok());
    let validating = validating.and_then(|it: ValidatingWebhookConfiguration| serde_json::to_value(it).ok());
    (first(mutating), first(validating))
}

fn judge(
    checks: &mut Vec<Check>,
    name: &'static str,
    found: Result<Option<Registered>, &Unread>,
    wanted: Option<Value>,
    is_known: bool,
) -> Option<Registered> {
    let found = match found {
        Ok(found) => found,
        Err(unread) => {
            checks.push(Check::unread(CHECK, unread).of(name));
            return None;
        }
    };
    let Some(registered) = found else {
        let loss = if name == MUTATE_NAME { "no pod gets a chain" } else { "no pod is validated" };
        checks.push(
            Check::new(CHECK, Status::Failed, format!("it is not registered: {loss}"))
                .of(name)
                .action("start lucid-operator, which registers it, and read its log"),
        );
        return None;
    };
    let differences =
        wanted.map(|wanted| differences(&registered.webhook, &wanted, is_known)).unwrap_or_default();
    let configuration = &registered.configuration;
    let check = if !differences.is_empty() {
        Check::new(CHECK, Status::Failed, format!("{configuration} is not as it was registered: {}", differences.join("; ")))
            .action("an operator that runs puts it back within a second: see whether one runs, and who else writes it")
    } else if registered.ignores_failures() {
        let (loss, action) = if name == MUTATE_NAME {
            ("run without audit", "LUCID_FAILURE_POLICY=Fail")
        } else {
            ("run unjudged", "LUCID_VALIDATION_FAILURE_POLICY=Fail")
        };
        let found = format!(
            "failurePolicy of {configuration} is Ignore: pods {loss} while the webhook cannot be asked"
        );
        Check::new(CHECK, Status::Warning, found).action(action)
    } else {
        Check::new(CHECK, Status::Ok, format!("{configuration} is as it should be"))
    };
    checks.push(check.of(name));
    Some(registered)
}

/// Each with what was found and what is wanted.
fn differences(found: &Value, wanted: &Value, is_known: bool) -> Vec<String> {
    let keys = found.as_object().into_iter().chain(wanted.as_object()).flat_map(|it| it.keys());
    let keys: std::collections::BTreeSet<&String> = keys.collect();
    keys.into_iter()
        .filter(|key| is_known || !TOLD.contains(&key.as_str()))
        .filter_map(|key| {
            let (mut found, mut wanted) = (found[key].clone(), wanted[key].clone());
            for it in [&mut found, &mut wanted] {
                if let Some(it) = it.as_object_mut() {
                    // The bundle is another check's; the port is filled in by the API server.
                    it.remove("caBundle");
                }
                if it.as_object().is_some_and(serde_json::Map::is_empty)
                    || it.as_array().is_some_and(Vec::is_empty)
                {
                    *it = Value::Null;
                }
            }
            (found != wanted).then(|| format!("{key} is {found}, should be {wanted}"))
        })
        .collect()
}
