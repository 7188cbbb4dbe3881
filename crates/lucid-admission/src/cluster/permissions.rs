//! ConfigMap `lucid-webhooks`: the administrator's permissions of each webhook. No I/O.

use std::collections::BTreeMap;

use lucid_webhook::FailureAction;
use lucid_webhook::guard::{Permissions, Selector};
use serde::Deserialize;
use tokio::sync::watch;

use crate::cluster::namespaces::Data;
use crate::names::{MUTATE_NAME, VALIDATE_NAME, WORKLOADS_NAME};

/// Name of the ConfigMap with the permissions of the webhooks, in the operator's namespace.
pub const CONFIG_MAP: &str = "lucid-webhooks";
/// Key of the ConfigMap.
const KEY: &str = "webhooks.yaml";

const NAMES: [&str; 3] = [MUTATE_NAME, VALIDATE_NAME, WORKLOADS_NAME];

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    webhooks: BTreeMap<String, Permissions>,
}

/// The permissions in use: the last valid ones.
#[derive(Debug)]
pub(crate) struct WebhookPermissions {
    senders: [watch::Sender<Permissions>; NAMES.len()],
}

impl WebhookPermissions {
    pub(crate) fn new() -> Self {
        Self { senders: NAMES.map(|_| watch::Sender::default()) }
    }

    /// Returns a receiver of the permissions of the webhook `name`.
    pub(crate) fn subscribe(&self, name: &str) -> watch::Receiver<Permissions> {
        let place = NAMES.iter().position(|known| *known == name).unwrap_or_default();
        self.senders[place].subscribe()
    }

    /// Applies the content of the ConfigMap in `namespace`; `None` if it does not exist. Returns combinations of settings
    /// that leave pods without auditors.
    ///
    /// # Errors
    ///
    /// Returns the problem of invalid content, which changes nothing.
    pub(crate) fn set(&self, namespace: &str, data: Option<&Data>) -> Result<Vec<String>, String> {
        let mut webhooks = data.map(|data| read(namespace, data)).transpose()?.unwrap_or_default();
        let gaps = webhooks.iter().flat_map(|(name, permissions)| gaps(name, permissions)).collect();
        for (name, sender) in NAMES.iter().zip(&self.senders) {
            sender.send_replace(webhooks.remove(*name).unwrap_or_default());
        }
        Ok(gaps)
    }
}

fn read(namespace: &str, data: &Data) -> Result<BTreeMap<String, Permissions>, String> {
    let place = format!("ConfigMap {namespace}/{CONFIG_MAP}");
    let yaml = data.get(KEY).ok_or_else(|| {
        let found: Vec<&str> = data.keys().map(String::as_str).collect();
        format!("{place}: found keys {found:?}, accepted is {KEY}")
    })?;
    let File { webhooks } = serde_yaml::from_str(yaml).map_err(|error| format!("{place}, {KEY}: {error}"))?;
    match webhooks.keys().find(|name| !NAMES.contains(&name.as_str())) {
        Some(name) => {
            Err(format!("{place}, {KEY}: webhooks: found {name:?}, accepted are {}", NAMES.join(", ")))
        }
        None => Ok(webhooks),
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
    let (skipped, failed) = match name {
        MUTATE_NAME => {
            ("pods that it does not select get no auditors", "pods get no auditors while it fails")
        }
        _ => ("pods that it does not select are not checked", "pods are not checked while it fails"),
    };
    let found = [
        ("selector", permissions.selector != Selector::default(), skipped),
        ("strictMode", permissions.strict_mode, skipped),
        ("failureAction", is_lenient(&permissions.failure_action), failed),
        ("recoveryPolicy", is_lenient(&permissions.recovery_policy), failed),
    ];
    let found = found.into_iter().filter(|(_, is_set, _)| *is_set);
    found.map(|(key, _, effect)| format!("{CONFIG_MAP}: {name}: {key}: {effect}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(yaml: &str) -> Data {
        [(KEY.to_owned(), yaml.to_owned())].into()
    }

    #[test]
    fn the_last_valid_content_stays() {
        let permissions = WebhookPermissions::new();
        let mutate = permissions.subscribe(MUTATE_NAME);
        let strict = "webhooks: {mutate.lucid.computing: {strictMode: true}}";
        let gaps = permissions.set("lucid-system", Some(&data(strict))).unwrap();
        let gap = "lucid-webhooks: mutate.lucid.computing: strictMode: pods that it does not select get no auditors";
        assert_eq!(gaps, [gap]);
        for (yaml, says) in [
            ("webhooks: {mutate.lucid.computing: {strict: true}}", "unknown field `strict`"),
            ("webhooks: {mutate: {}}", "found \"mutate\", accepted are mutate.lucid.computing, "),
            ("webhooks: {mutate.lucid.computing: {failureAction: panic}}", "unknown variant `panic`"),
            ("webhooks: {mutate.lucid.computing: {serviceAccountName: a}}", "accepted is namespace/name"),
            ("{}", "missing field `webhooks`"),
        ] {
            let problem = permissions.set("lucid-system", Some(&data(yaml))).unwrap_err();
            assert!(
                problem.starts_with("ConfigMap lucid-system/lucid-webhooks, webhooks.yaml: "),
                "{problem}"
            );
            assert!(problem.contains(says), "{problem}");
            assert!(mutate.borrow().strict_mode);
        }
        assert_eq!(permissions.set("lucid-system", None), Ok(Vec::new()));
        assert!(!mutate.borrow().strict_mode);
    }

    #[test]
    fn the_example_of_the_documents_is_read() {
        let permissions = WebhookPermissions::new();
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
        assert_eq!(permissions.set("lucid-system", Some(&data(yaml))).unwrap().len(), 4);
        let mutate = permissions.subscribe(MUTATE_NAME).borrow().clone();
        assert!(
            mutate.strict_mode && mutate.allowed_paths.is_some() && mutate.service_account_name.is_some()
        );
        assert!(!permissions.subscribe(VALIDATE_NAME).borrow().strict_mode);
    }
}
