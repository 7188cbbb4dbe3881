//! ConfigMap `lucid-webhooks`: the administrator's permissions of each webhook. No I/O.

use std::collections::BTreeMap;

use lucid_webhook::guard::{Forbidden, Permissions, Selector};
use lucid_webhook::{AllowedPaths, FailureAction};
use serde::Deserialize;
use tokio::sync::watch;

use crate::cluster::document;
use crate::cluster::namespaces::Data;
use crate::names::{MUTATE_NAME, VALIDATE_NAME, WORKLOADS_NAME};

/// Name of the ConfigMap with the permissions of the webhooks, in the operator's namespace.
pub const CONFIG_MAP: &str = "lucid-webhooks";
const KEY: &str = "webhooks.yaml";

const NAMES: [&str; 3] = [MUTATE_NAME, VALIDATE_NAME, WORKLOADS_NAME];

/// Paths that `/mutate` may always change: the auditors do not start without their volumes and pull secrets.
const ALWAYS_ALLOWED: [&str; 2] = ["/spec/imagePullSecrets", "/spec/volumes"];

/// Maximum number of labels that the selector of `/validate` reads: the registration compares them in CEL, whose cost
/// the API server bounds.
const MOST_LABELS: usize = 32;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    webhooks: BTreeMap<String, Permissions>,
}

#[derive(Debug, Default)]
pub(crate) struct WebhookPermissions {
    pub(crate) mutate: watch::Sender<Permissions>,
    pub(crate) validate: watch::Sender<Permissions>,
    pub(crate) workloads: watch::Sender<Permissions>,
}

impl WebhookPermissions {
    pub(crate) fn set(&self, webhooks: &Webhooks) {
        for (name, sender) in
            [(MUTATE_NAME, &self.mutate), (VALIDATE_NAME, &self.validate), (WORKLOADS_NAME, &self.workloads)]
        {
            sender.send_replace(webhooks.0.get(name).cloned().unwrap_or_default());
        }
    }
}

/// Content of the ConfigMap: permissions by the name of the webhook.
#[derive(Debug, Default)]
pub(crate) struct Webhooks(BTreeMap<String, Permissions>);

impl Webhooks {
    pub(crate) fn read(data: &Data) -> Result<Self, String> {
        let yaml = document::value(data, KEY)?;
        let File { mut webhooks } = serde_yaml::from_str(yaml).map_err(|error| format!("{KEY}: {error}"))?;
        if let Some(paths) = webhooks.get_mut(MUTATE_NAME).and_then(|it| it.allowed_paths.as_mut()) {
            paths.extend(AllowedPaths::parse(ALWAYS_ALLOWED));
        }
        let labels = webhooks.get(VALIDATE_NAME).map_or(0, |it| it.selector.label_keys().count());
        if labels > MOST_LABELS {
            return Err(format!(
                "{KEY}: webhooks: {VALIDATE_NAME}: selector: expected at most {MOST_LABELS} labels, found {labels}"
            ));
        }
        match webhooks.keys().find(|name| !NAMES.contains(&name.as_str())) {
            Some(name) => {
                Err(format!("{KEY}: webhooks: expected one of {}; found {name:?}", NAMES.join(", ")))
            }
            None => Ok(Self(webhooks)),
        }
    }

    /// Returns the settings that leave pods without auditors, or unchecked.
    pub(crate) fn gaps(&self) -> Vec<String> {
        self.0.iter().flat_map(|(name, permissions)| gaps(name, permissions)).collect()
    }
}

/// Returns the settings of a webhook that leave pods without auditors, or unchecked.
fn gaps(name: &str, permissions: &Permissions) -> Vec<String> {
    if name == WORKLOADS_NAME {
        return Vec::new();
    }
    let is_lenient = |action: &Option<FailureAction>| {
        action.as_ref().is_some_and(|action| !matches!(action, FailureAction::Abort))
    };
    let effect = match name {
        MUTATE_NAME => "get no auditors",
        _ => "are not checked",
    };
    let is_bound = permissions.service_account_name.is_some() && permissions.forbidden != Forbidden::Deny;
    let found = [
        ("selector", permissions.selector != Selector::default(), "pods that it does not select"),
        ("strictMode", permissions.strict_mode, "pods that do not consent"),
        ("serviceAccountName", is_bound, "pods that the account may not access"),
        ("failureAction", is_lenient(&permissions.failure_action), "while the webhook fails, pods"),
        ("recoveryPolicy", is_lenient(&permissions.recovery_policy), "after a panic, pods"),
    ];
    let found = found.into_iter().filter(|(_, is_set, _)| *is_set);
    found.map(|(key, _, pods)| format!("{CONFIG_MAP}: {name}: {key}: {pods} {effect}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(yaml: &str) -> Data {
        [(KEY.to_owned(), yaml.to_owned())].into()
    }

    #[test]
    fn gaps_and_errors_name_webhook_and_key() {
        for (yaml, gap) in [
            (
                "mutate.lucid.computing: {strictmode: true}",
                "strictMode: pods that do not consent get no auditors",
            ),
            (
                "validate.lucid.computing: {failureAction: skip}",
                "failureAction: while the webhook fails, pods are not checked",
            ),
            (
                "mutate.lucid.computing: {serviceAccountName: a/b}",
                "serviceAccountName: pods that the account may not access get no auditors",
            ),
            ("mutate.lucid.computing: {serviceAccountName: a/b, forbidden: deny, failureAction: abort}", ""),
            ("workloads.lucid.computing: {strictMode: true}", ""),
        ] {
            let gaps = Webhooks::read(&data(&format!("webhooks: {{{yaml}}}"))).unwrap().gaps();
            let (name, _) = yaml.split_once(": ").unwrap();
            let expected = (!gap.is_empty()).then(|| format!("lucid-webhooks: {name}: {gap}"));
            assert_eq!(gaps, Vec::from_iter(expected));
        }
        let labels: Vec<_> = (0..33).map(|number| format!("l{number}: x")).collect();
        let many = labels.join(", ");
        let many =
            format!("webhooks: {{validate.lucid.computing: {{selector: {{matchLabels: {{{many}}}}}}}}}");
        for (yaml, says) in [
            ("webhooks: {mutate.lucid.computing: {strict: true}}", "unknown field `strict`"),
            ("webhooks: {mutate: {}}", "expected one of mutate.lucid.computing, "),
            ("webhooks: {mutate.lucid.computing: {failureAction: panic}}", "unknown variant `panic`"),
            ("webhooks: {mutate.lucid.computing: {serviceAccountName: a}}", "expected namespace/name"),
            ("{}", "missing field `webhooks`"),
            (&many, "selector: expected at most 32 labels, found 33"),
        ] {
            let problem = Webhooks::read(&data(yaml)).unwrap_err();
            assert!(problem.starts_with("webhooks.yaml: ") && problem.contains(says), "{problem}");
        }
    }

    #[test]
    fn all_settings_are_read() {
        let yaml = "\
webhooks:
  mutate.lucid.computing:
    failureAction: warn
    recoveryPolicy: skip
    selector:
      matchLabels: {app: my-app}
      namespace: my-namespace
      resourceKind: Pod
      resourceName: my-pod
    strictMode: true
    serviceAccountName: lucid-system/mutater
    allowedPaths: [/spec/containers, /spec/initContainers, /metadata/annotations/lucid.computing~1status]
";
        let webhooks = Webhooks::read(&data(yaml)).unwrap();
        assert_eq!(webhooks.gaps().len(), 5);
        let permissions = WebhookPermissions::default();
        permissions.set(&webhooks);
        let mutate = permissions.mutate.borrow();
        assert!(mutate.strict_mode && mutate.service_account_name.is_some());
        let paths = mutate.allowed_paths.as_ref().unwrap().to_string();
        assert!(paths.ends_with("~1status, /spec/imagePullSecrets, /spec/volumes"), "{paths}");
        assert!(!permissions.validate.borrow().strict_mode);
    }
}
