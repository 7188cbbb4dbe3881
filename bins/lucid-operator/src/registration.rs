//! How the API server is told of the webhooks: MutatingWebhookConfiguration and ValidatingWebhookConfiguration.

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MatchCondition, MutatingWebhook, MutatingWebhookConfiguration, RuleWithOperations, ServiceReference,
    ValidatingWebhook, ValidatingWebhookConfiguration, WebhookClientConfig,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement, ObjectMeta};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use lucid_certs::{PublishError, PublishTrust, TrustBundle};
use lucid_validator::Scope;
use url::Url;

/// Name of both configurations, and the owner of the fields in them.
pub(crate) const NAME: &str = "lucid-operator";
/// The Service in front of the webhooks.
pub(crate) const SERVICE: &str = "lucid-operator-webhook";
/// The port of that Service.
const SERVICE_PORT: i32 = 443;
/// Where pods are mutated.
pub(crate) const MUTATE_PATH: &str = "/mutate";
/// Where pods are validated.
pub(crate) const VALIDATE_PATH: &str = "/validate";
/// How the API server reaches the webhooks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Endpoint {
    /// Through the Service [`SERVICE`] in this namespace.
    Service {
        /// The operator's namespace.
        namespace: String,
    },
    /// At a URL, for an operator that runs outside the cluster.
    Url(Url),
}

impl Endpoint {
    fn client_config(&self, path: &str, ca_bundle: &str) -> WebhookClientConfig {
        let ca_bundle = Some(ByteString(ca_bundle.as_bytes().to_vec()));
        match self {
            Self::Service { namespace } => WebhookClientConfig {
                ca_bundle,
                service: Some(ServiceReference {
                    name: SERVICE.to_owned(),
                    namespace: namespace.clone(),
                    path: Some(path.to_owned()),
                    port: Some(SERVICE_PORT),
                }),
                url: None,
            },
            Self::Url(url) => {
                let base = url.as_str().trim_end_matches('/');
                WebhookClientConfig { ca_bundle, service: None, url: Some(format!("{base}{path}")) }
            }
        }
    }
}

/// What happens to a request when the webhook cannot be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
#[value(rename_all = "PascalCase")]
pub(crate) enum FailurePolicy {
    /// It is refused: no pod runs without audit.
    Fail,
    /// It passes: pods may then run without audit.
    Ignore,
}

impl FailurePolicy {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Fail => "Fail",
            Self::Ignore => "Ignore",
        }
    }
}

/// Everything that the two configurations say.
#[derive(Clone, Debug)]
pub(crate) struct Registration {
    /// How the webhooks are reached.
    pub(crate) endpoint: Endpoint,
    /// Which namespaces are looked at.
    pub(crate) scope: Scope,
    /// For the mutating webhook; the validating one is always `Fail`.
    pub(crate) failure_policy: FailurePolicy,
    /// How long the API server waits for an answer, 1 to 30.
    pub(crate) timeout_seconds: i32,
}

impl Registration {
    /// The configuration of the mutating webhook.
    #[must_use]
    pub(crate) fn mutating(&self, ca_bundle: &str) -> MutatingWebhookConfiguration {
        MutatingWebhookConfiguration {
            metadata: Self::metadata(),
            webhooks: Some(vec![MutatingWebhook {
                name: "mutate.lucid.computing".to_owned(),
                client_config: self.endpoint.client_config(MUTATE_PATH, ca_bundle),
                rules: Some(vec![rule(&["CREATE"], &["pods"])]),
                namespace_selector: Some(self.namespace_selector()),
                failure_policy: Some(self.failure_policy.as_str().to_owned()),
                // An injector that comes later may add containers or ports.
                reinvocation_policy: Some("IfNeeded".to_owned()),
                side_effects: "None".to_owned(),
                timeout_seconds: Some(self.timeout_seconds),
                admission_review_versions: vec!["v1".to_owned()],
                match_policy: Some("Equivalent".to_owned()),
                ..Default::default()
            }]),
        }
    }

    /// The configuration of the validating webhook.
    #[must_use]
    pub(crate) fn validating(&self, ca_bundle: &str) -> ValidatingWebhookConfiguration {
        ValidatingWebhookConfiguration {
            metadata: Self::metadata(),
            webhooks: Some(vec![ValidatingWebhook {
                name: "validate.lucid.computing".to_owned(),
                client_config: self.endpoint.client_config(VALIDATE_PATH, ca_bundle),
                rules: Some(vec![
                    rule(&["CREATE", "UPDATE"], &["pods"]),
                    rule(&["UPDATE"], &["pods/ephemeralcontainers"]),
                ]),
                // What is checked stands in the spec. Labels and finalizers must be changeable while the webhook is
                // down, or pods could not even be deleted.
                match_conditions: Some(vec![MatchCondition {
                    name: "spec-changed".to_owned(),
                    expression: "request.operation != 'UPDATE' || object.spec != oldObject.spec".to_owned(),
                }]),
                namespace_selector: Some(self.namespace_selector()),
                failure_policy: Some(FailurePolicy::Fail.as_str().to_owned()),
                side_effects: "None".to_owned(),
                timeout_seconds: Some(self.timeout_seconds),
                admission_review_versions: vec!["v1".to_owned()],
                match_policy: Some("Equivalent".to_owned()),
                ..Default::default()
            }]),
        }
    }

    fn metadata() -> ObjectMeta {
        let label = ("app.kubernetes.io/name".to_owned(), NAME.to_owned());
        ObjectMeta { name: Some(NAME.to_owned()), labels: Some([label].into()), ..Default::default() }
    }

    fn namespace_selector(&self) -> LabelSelector {
        LabelSelector {
            match_labels: Some([(lucid_chain::keys::ENABLED_LABEL.to_owned(), "true".to_owned())].into()),
            match_expressions: Some(vec![LabelSelectorRequirement {
                key: "kubernetes.io/metadata.name".to_owned(),
                operator: "NotIn".to_owned(),
                values: Some(self.scope.excluded().map(str::to_owned).collect()),
            }]),
        }
    }
}

fn rule(operations: &[&str], resources: &[&str]) -> RuleWithOperations {
    let owned = |names: &[&str]| Some(names.iter().map(|&name| name.to_owned()).collect());
    RuleWithOperations {
        api_groups: owned(&[""]),
        api_versions: owned(&["v1"]),
        operations: owned(operations),
        resources: owned(resources),
        scope: Some("Namespaced".to_owned()),
    }
}

/// Writes both configurations to the API server, each as a whole.
#[derive(Clone)]
pub(crate) struct Publisher {
    client: Client,
    registration: Registration,
}

impl Publisher {
    /// A publisher of `registration`.
    #[must_use]
    pub(crate) const fn new(client: Client, registration: Registration) -> Self {
        Self { client, registration }
    }
}

impl PublishTrust for Publisher {
    async fn publish(&self, bundle: &TrustBundle) -> Result<(), PublishError> {
        let ca_bundle = bundle.to_pem();
        // Lucid owns these two objects; whatever else was written into its fields is drift.
        let params = PatchParams::apply(NAME).force();
        let mutating: Api<MutatingWebhookConfiguration> = Api::all(self.client.clone());
        let validating: Api<ValidatingWebhookConfiguration> = Api::all(self.client.clone());
        mutating.patch(NAME, &params, &Patch::Apply(self.registration.mutating(&ca_bundle))).await?;
        validating.patch(NAME, &params, &Patch::Apply(self.registration.validating(&ca_bundle))).await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registration(endpoint: Endpoint) -> Registration {
        Registration {
            endpoint,
            scope: Scope::new("lucid-system"),
            failure_policy: FailurePolicy::Ignore,
            timeout_seconds: 10,
        }
    }

    #[test]
    fn a_url_loses_its_last_slash_before_the_path_is_added() {
        for url in ["https://127.0.0.1:8443", "https://127.0.0.1:8443/"] {
            let endpoint = Endpoint::Url(url.parse().unwrap());
            let config = endpoint.client_config(MUTATE_PATH, "");
            assert_eq!(config.url.as_deref(), Some("https://127.0.0.1:8443/mutate"));
        }
    }

    #[test]
    fn the_validating_webhook_never_fails_open() {
        let registration = registration(Endpoint::Service { namespace: "lucid-system".to_owned() });
        let policy = |policy: Option<String>| policy.unwrap();
        let mutating = registration.mutating("").webhooks.unwrap().remove(0);
        let validating = registration.validating("").webhooks.unwrap().remove(0);
        assert_eq!(policy(mutating.failure_policy), "Ignore");
        assert_eq!(policy(validating.failure_policy), "Fail");
    }

    #[test]
    fn system_namespaces_and_our_own_are_excluded() {
        let selector =
            registration(Endpoint::Service { namespace: "lucid-system".to_owned() }).namespace_selector();
        let values = selector.match_expressions.unwrap().remove(0).values.unwrap();
        assert_eq!(values, ["kube-system", "kube-public", "kube-node-lease", "lucid-system"]);
    }
}
