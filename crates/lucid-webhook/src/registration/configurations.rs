//! Builds the webhook configurations.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhook, MutatingWebhookConfiguration, ServiceReference, ValidatingWebhook,
    ValidatingWebhookConfiguration, WebhookClientConfig,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use lucid_text::names::is_dns_subdomain;
use snafu::ensure;

use super::endpoint::{Address, Endpoint};
use super::{RegistrationError, Rule, WebhookRegistration, normal, validate};
use crate::kind::WebhookKind;

/// Builds the objects that register webhooks with the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Configurations {
    name: String,
    endpoint: Endpoint,
    ca_bundle: Option<Vec<u8>>,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    own_namespace: Option<String>,
}

impl Configurations {
    /// Creates a builder of configurations called `name`, for webhooks served at `endpoint`.
    pub fn new(name: impl Into<String>, endpoint: Endpoint) -> Self {
        Self {
            name: name.into(),
            endpoint,
            ca_bundle: None,
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            own_namespace: None,
        }
    }

    #[cfg(feature = "operator")]
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    #[cfg(feature = "operator")]
    pub(crate) fn with_endpoint(self, endpoint: Endpoint) -> Self {
        Self { endpoint, ..self }
    }

    #[cfg(feature = "operator")]
    pub(crate) fn serving_names(&self) -> Result<lucid_certs::ServingNames, lucid_certs::Error> {
        self.endpoint.serving_names()
    }

    /// Excludes the namespace of the webhook server from webhooks of built-in resources, unless their selector names
    /// it.
    #[cfg(feature = "operator")]
    pub(crate) fn without_namespace(mut self, namespace: impl Into<String>) -> Self {
        self.own_namespace = Some(namespace.into());
        self
    }

    /// Sets the CA certificates, in PEM, that the API server verifies the webhook server with.
    ///
    /// By default the field is omitted, so that cert-manager or another injector can own it.
    pub fn with_ca_bundle(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.ca_bundle = Some(pem.into());
        self
    }

    /// Adds a label to the objects.
    pub fn with_label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.insert(key.into(), value.into());
        self
    }

    /// Adds an annotation to the objects, such as `cert-manager.io/inject-ca-from`.
    pub fn with_annotation(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.annotations.insert(key.into(), value.into());
        self
    }

    /// Builds the configuration of the mutating webhooks among `webhooks`, in this order, which is the order of calls.
    /// Returns `None` if there are none.
    ///
    /// # Errors
    ///
    /// A [`RegistrationError`] if the API server would reject the configuration, or never call one of the webhooks.
    pub fn mutating<'r>(
        &self,
        webhooks: impl IntoIterator<Item = &'r WebhookRegistration>,
    ) -> Result<Option<MutatingWebhookConfiguration>, RegistrationError> {
        let webhooks = self.webhooks(WebhookKind::Mutating, webhooks)?;
        Ok((!webhooks.is_empty())
            .then(|| MutatingWebhookConfiguration { metadata: self.metadata(), webhooks: Some(webhooks) }))
    }

    /// Builds the configuration of the validating webhooks among `webhooks`. Returns `None` if there are none.
    ///
    /// # Errors
    ///
    /// A [`RegistrationError`] if the API server would reject the configuration, or never call one of the webhooks.
    pub fn validating<'r>(
        &self,
        webhooks: impl IntoIterator<Item = &'r WebhookRegistration>,
    ) -> Result<Option<ValidatingWebhookConfiguration>, RegistrationError> {
        let webhooks = self.webhooks(WebhookKind::Validating, webhooks)?.into_iter();
        let webhooks: Vec<_> = webhooks
            .map(|webhook| ValidatingWebhook {
                admission_review_versions: webhook.admission_review_versions,
                client_config: webhook.client_config,
                failure_policy: webhook.failure_policy,
                match_conditions: webhook.match_conditions,
                match_policy: webhook.match_policy,
                name: webhook.name,
                namespace_selector: webhook.namespace_selector,
                object_selector: webhook.object_selector,
                rules: webhook.rules,
                side_effects: webhook.side_effects,
                timeout_seconds: webhook.timeout_seconds,
            })
            .collect();
        Ok((!webhooks.is_empty())
            .then(|| ValidatingWebhookConfiguration { metadata: self.metadata(), webhooks: Some(webhooks) }))
    }

    /// Validates the webhooks of one kind, and builds their entries. Those of validating ones lack a
    /// reinvocationPolicy.
    fn webhooks<'r>(
        &self,
        kind: WebhookKind,
        webhooks: impl IntoIterator<Item = &'r WebhookRegistration>,
    ) -> Result<Vec<MutatingWebhook>, RegistrationError> {
        ensure!(
            is_dns_subdomain(&self.name),
            validate::configuration(&self.name, "expected a DNS name in lower case")
        );
        self.endpoint.validate()?;
        validate::metadata(&self.name, &self.labels, &self.annotations)?;
        let is_empty = |pem: &Vec<u8>| pem.iter().all(u8::is_ascii_whitespace);
        ensure!(
            !self.ca_bundle.as_ref().is_some_and(is_empty),
            validate::configuration(&self.name, "the CA bundle is empty")
        );
        let webhooks: Vec<_> = webhooks.into_iter().filter(|webhook| webhook.kind == kind).collect();
        validate::webhooks(&webhooks)?;
        Ok(webhooks.into_iter().map(|webhook| self.webhook(webhook)).collect())
    }

    fn webhook(&self, webhook: &WebhookRegistration) -> MutatingWebhook {
        MutatingWebhook {
            admission_review_versions: vec!["v1".to_owned()],
            client_config: self.client_config(&webhook.path),
            failure_policy: Some(webhook.failure_policy.as_str().to_owned()),
            match_conditions: webhook.match_conditions(),
            match_policy: Some(if webhook.is_exact { "Exact" } else { "Equivalent" }.to_owned()),
            name: webhook.name.clone(),
            namespace_selector: Some(webhook.effective_namespace_selector(self.own_namespace.as_deref())),
            object_selector: Some(normal(&webhook.object_selector)),
            reinvocation_policy: Some(if webhook.is_reinvoked { "IfNeeded" } else { "Never" }.to_owned()),
            rules: Some(webhook.rules.iter().map(Rule::to_api).collect()),
            side_effects: if webhook.has_side_effects { "NoneOnDryRun" } else { "None" }.to_owned(),
            timeout_seconds: Some(webhook.timeout_seconds),
        }
    }

    fn metadata(&self) -> ObjectMeta {
        let some = |map: &BTreeMap<_, _>| Some(map.clone()).filter(|map| !map.is_empty());
        ObjectMeta {
            name: Some(self.name.clone()),
            labels: some(&self.labels),
            annotations: some(&self.annotations),
            ..ObjectMeta::default()
        }
    }

    pub(crate) fn client_config(&self, path: &str) -> WebhookClientConfig {
        let ca_bundle = self.ca_bundle.clone().map(ByteString);
        match &self.endpoint.0 {
            Address::Service { namespace, name, port } => WebhookClientConfig {
                ca_bundle,
                service: Some(ServiceReference {
                    name: name.clone(),
                    namespace: namespace.clone(),
                    path: Some(path.to_owned()),
                    port: Some((*port).into()),
                }),
                url: None,
            },
            Address::Url(base) => {
                let url = Some(format!("{}{path}", base.trim_end_matches('/')));
                WebhookClientConfig { ca_bundle, service: None, url }
            }
        }
    }
}

#[cfg(all(test, feature = "operator"))]
mod tests {
    use k8s_openapi::api::core::v1::Pod;

    use super::*;
    use crate::Operation;
    use crate::registration::parse_selector;

    #[test]
    fn webhooks_of_builtin_resources_exclude_their_own_namespace() {
        let pods = || Rule::of::<Pod>([Operation::Create]);
        let custom = Rule::new("example.com", ["v1"], ["things"], [Operation::Create]);
        let label =
            |rule| WebhookRegistration::new(WebhookKind::Mutating, "a.example.com", "/").with_rule(rule);
        let named = parse_selector("kubernetes.io/metadata.name in (own,shop)").unwrap();
        for (registration, excluded) in [
            (label(pods()), &["kube-system", "own"][..]),
            (label(Rule::new("*", ["*"], ["*"], [Operation::Create])), &["kube-system", "own"]),
            (label(pods()).with_kube_system(), &["own"]),
            (label(custom.clone()), &["kube-system"]),
            (label(custom).with_rule(pods()), &["kube-system", "own"]),
            (label(pods()).with_namespace_selector(named), &[]),
        ] {
            let configurations =
                Configurations::new("a", Endpoint::service("own", "a")).without_namespace("own");
            let built = configurations.mutating([&registration]).unwrap().unwrap();
            let selector = built.webhooks.unwrap().remove(0).namespace_selector.unwrap();
            let expressions = selector.match_expressions.unwrap_or_default().into_iter();
            let found = expressions.filter(|it| it.operator == "NotIn").flat_map(|it| it.values.unwrap());
            assert_eq!(found.collect::<Vec<_>>(), excluded, "{registration:?}");
        }
    }
}
