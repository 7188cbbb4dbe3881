//! Checks the webhooks that the API server has registered.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, Time};
use kube::api::{DynamicObject, ListParams};
use kube::core::{ApiResource, GroupVersionKind, Selector};
use kube::{Api, Client, ResourceExt};
use lucid_admission::{ClusterConfiguration, MUTATE_NAME, VALIDATE_NAME, WORKLOADS_NAME};
use lucid_shared::options::{OperatorArgs, ServeArgs};
use lucid_shared::serving::{OPERATOR, Program, VALIDATOR};
use serde::Serialize;
use serde_json::Value;

use super::programs::Deployed;
use super::report::{Check, Status, Unread};

const CHECK: &str = "registration";
const CONFIGURABLE: [&str; 5] =
    ["clientConfig", "failurePolicy", "namespaceSelector", "objectSelector", "timeoutSeconds"];

const OFF: &str = "LUCID_VALIDATE";
const OFF_WORKLOADS: &str = "--validate-workloads, or LUCID_VALIDATE,";

#[derive(Clone, Debug)]
pub(super) struct RegisteredWebhook {
    pub(super) configuration: String,
    pub(super) name: &'static str,
    /// Name of the webhook, with its program unless that is the operator.
    pub(super) object: String,
    pub(super) webhook: Value,
    pub(super) since: Option<Time>,
}

impl RegisteredWebhook {
    /// Returns `true` if pods are admitted while the webhook is unavailable. The webhook for workloads never denies.
    pub(super) fn ignores_failures(&self) -> bool {
        self.name != WORKLOADS_NAME && self.webhook["failurePolicy"] == "Ignore"
    }

    pub(super) fn object_selector(&self) -> Selector {
        selector(&self.webhook["objectSelector"])
    }
}

/// Parses a selector of a webhook; a missing one selects everything.
pub(super) fn selector(of: &Value) -> Selector {
    let selector: LabelSelector = serde_json::from_value(of.clone()).unwrap_or_default();
    Selector::try_from(selector).unwrap_or_default()
}

pub(super) struct RegisteredWebhooks {
    /// All mutating configurations, including those of third parties.
    pub(super) configurations: Result<Vec<DynamicObject>, Unread>,
    /// Webhooks for pods and for workloads. The validating ones may be registered by the operator, a separate validator,
    /// or both.
    pub(super) webhooks: Vec<RegisteredWebhook>,
    pub(super) checks: Vec<Check>,
}

impl RegisteredWebhooks {
    pub(super) async fn read(
        client: &Client,
        operator: &Deployed<OperatorArgs>,
        validator: &Deployed<ServeArgs>,
        cluster: Option<&ClusterConfiguration>,
    ) -> Self {
        let mutating = list(client, "MutatingWebhookConfiguration", "mutatingwebhookconfigurations").await;
        let validating =
            list(client, "ValidatingWebhookConfiguration", "validatingwebhookconfigurations").await;
        let labels = cluster.map(ClusterConfiguration::validated_labels).unwrap_or_default();
        let programs = [
            (OPERATOR, of_operator(&operator.args, &labels), operator.is_known()),
            (VALIDATOR, of_validator(&validator.args, &labels), validator.is_known()),
        ];
        let (mut checks, mut webhooks) = (Vec::new(), Vec::new());
        for (name, configurations, programs) in [
            (MUTATE_NAME, &mutating, &programs[..1]),
            (VALIDATE_NAME, &validating, &programs[..]),
            (WORKLOADS_NAME, &validating, &programs[..]),
        ] {
            let configurations = match configurations {
                Ok(configurations) => configurations,
                Err(unread) => {
                    checks.push(Check::unread(CHECK, unread).of(name));
                    continue;
                }
            };
            let count = webhooks.len();
            for (program, wanted, is_known) in programs {
                if let Some(found) = find(configurations, name, *program) {
                    let mut wanted = wanted.iter().find(|it| it["name"] == name).cloned();
                    // They depend on permissions, which may be unreadable.
                    if let Some(wanted) = wanted.as_mut().filter(|_| cluster.is_none()) {
                        wanted["matchConditions"] = found.webhook["matchConditions"].clone();
                    }
                    checks.push(compare(&found, *program, wanted.as_ref(), *is_known));
                    webhooks.push(found);
                }
            }
            if webhooks.len() == count {
                let is_apart = name != MUTATE_NAME && operator.is_known() && !operator.args.validate;
                let (program, args, is_known) = if is_apart {
                    (VALIDATOR, &validator.args, validator.is_known())
                } else {
                    (OPERATOR, &operator.args.common, operator.is_known())
                };
                // A webhook that the settings disable is not missing.
                if name != WORKLOADS_NAME || args.validate_workloads || !is_known {
                    checks.push(missing(name, program));
                }
            }
        }
        Self { configurations: mutating, webhooks, checks }
    }

    pub(super) fn mutating(&self) -> Option<&RegisteredWebhook> {
        self.webhooks.iter().find(|it| it.name == MUTATE_NAME)
    }
}

async fn list(client: &Client, kind: &str, plural: &str) -> Result<Vec<DynamicObject>, Unread> {
    let kind = GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", kind);
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&kind));
    let found = api.list(&ListParams::default()).await;
    found.map(|found| found.items).map_err(|error| Unread::of(&error, format!("list {plural}")))
}

/// Finds the webhook `name` of `program`. The configuration named after the program takes precedence; for the operator
/// any other name is accepted too, because OLM generates names.
fn find(all: &[DynamicObject], name: &'static str, program: Program) -> Option<RegisteredWebhook> {
    let apart = VALIDATOR.name;
    let is_its = |it: &&DynamicObject| (it.name_any() == apart) == (program.name == apart);
    let mut sorted: Vec<_> = all.iter().filter(is_its).collect();
    sorted.sort_by_key(|it| it.name_any() != program.name);
    sorted.into_iter().find_map(|configuration| {
        let webhooks = configuration.data["webhooks"].as_array()?;
        let webhook = webhooks.iter().find(|webhook| webhook["name"] == name)?.clone();
        let since = configuration.creation_timestamp();
        let object = if program.name == apart { format!("{name} of {apart}") } else { name.to_owned() };
        Some(RegisteredWebhook { configuration: configuration.name_any(), name, object, webhook, since })
    })
}

/// Webhooks that the operator registers with these options. `labels` are those that the administrator's permissions read.
fn of_operator(args: &OperatorArgs, labels: &[String]) -> Vec<Value> {
    let registrations = args.registrations().with_validated_labels(labels);
    let configurations = registrations.configurations(&args.common.serving.configurations(OPERATOR));
    let Ok((mutating, validating)) = configurations else { return Vec::new() };
    let mut wanted = webhooks(&mutating);
    if args.validate {
        wanted.extend(webhooks(&validating));
    }
    wanted
}

fn of_validator(args: &ServeArgs, labels: &[String]) -> Vec<Value> {
    let registrations = args.registrations().with_validated_labels(labels);
    let configurations = registrations.configurations(&args.serving.configurations(VALIDATOR));
    configurations.map(|(_, validating)| webhooks(&validating)).unwrap_or_default()
}

fn webhooks(configuration: &impl Serialize) -> Vec<Value> {
    let configuration = serde_json::to_value(configuration).unwrap_or_default();
    configuration["webhooks"].as_array().cloned().unwrap_or_default()
}

fn missing(name: &'static str, program: Program) -> Check {
    let (status, loss) = match name {
        MUTATE_NAME => (Status::Failed, "no pod gets a chain"),
        VALIDATE_NAME => (Status::Failed, "no pod is validated"),
        _ => (Status::Warning, "users are not warned when a workload's pods would be denied"),
    };
    Check::new(CHECK, status, format!("the webhook is not registered: {loss}"))
        .of(name)
        .action(format!("start {}, which registers it, and see its log", program.name))
}

fn compare(
    registered: &RegisteredWebhook,
    program: Program,
    wanted: Option<&Value>,
    is_known: bool,
) -> Check {
    let differences = wanted.map(|wanted| differences(registered, wanted, is_known)).unwrap_or_default();
    let (configuration, name) = (&registered.configuration, program.name);
    let check = if wanted.is_none() && is_known {
        let off = if registered.name == WORKLOADS_NAME { OFF_WORKLOADS } else { OFF };
        let found = format!("{configuration} still contains it, although {off} is false");
        Check::warning(CHECK, found).action(format!("start {name}, which removes it"))
    } else if !differences.is_empty() {
        let differences = differences.join("; ");
        Check::failed(CHECK, format!("{configuration} differs from the expected registration: {differences}"))
            .action(format!(
                "start {name}, which restores it, and see metadata.managedFields for other writers"
            ))
    } else if registered.ignores_failures() {
        let (loss, action) = if registered.name == MUTATE_NAME {
            ("run without audit", "LUCID_FAILURE_POLICY=Fail")
        } else {
            ("run without validation", "LUCID_VALIDATION_FAILURE_POLICY=Fail")
        };
        let found = format!(
            "failurePolicy of {configuration} is Ignore: pods {loss} while the webhook is unavailable"
        );
        Check::warning(CHECK, found).action(action)
    } else {
        Check::ok(CHECK, format!("{configuration} is as configured"))
    };
    check.of(&registered.object)
}

/// Returns each differing field with the value found and the expected one.
fn differences(registered: &RegisteredWebhook, wanted: &Value, is_known: bool) -> Vec<String> {
    let found = &registered.webhook;
    // The failure policy of the webhook for workloads is not configurable.
    let is_configurable = |key: &str| {
        CONFIGURABLE.contains(&key) && !(registered.name == WORKLOADS_NAME && key == "failurePolicy")
    };
    let keys = found.as_object().into_iter().chain(wanted.as_object()).flat_map(|it| it.keys());
    let keys: std::collections::BTreeSet<&String> = keys.collect();
    keys.into_iter()
        .filter(|key| is_known || !is_configurable(key))
        .filter_map(|key| {
            let (mut found, mut wanted) = (found[key].clone(), wanted[key].clone());
            for it in [&mut found, &mut wanted] {
                if let Some(it) = it.as_object_mut() {
                    // The check `certificate` covers the bundle.
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
