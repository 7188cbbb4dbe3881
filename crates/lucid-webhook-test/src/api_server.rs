//! Client that calls webhooks as kube-apiserver does.

#![allow(clippy::panic, reason = "expectations of tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Body;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhook;
use lucid_webhook::registration::{Configurations, Endpoint, RegistrationError};
use lucid_webhook::{Router, WebhookKind};
use serde::Serialize;
use tower::{BoxError, Service, ServiceExt};

use crate::call::Target;
use crate::conversion::ConversionWebhook;
use crate::https::{Https, SetupError, Transport};
use crate::matching::Labels;
use crate::outcome::ReviewOutcome;
use crate::recorded::Warnings;
use crate::webhook::{RegisteredWebhook, generate_name};
use crate::{Review, new_uid};

/// A simulated kube-apiserver that calls the webhooks of a router.
///
/// It honors their registrations: mutating webhooks are called before validating ones and in their order, if a rule and
/// both selectors match, and again if `reinvocationPolicy: IfNeeded` requires it. [`ReviewOutcome::not_called`] states
/// why a webhook was not called. Objects are not converted for `matchPolicy: Equivalent`
/// ([`Mismatch::Equivalent`](crate::Mismatch::Equivalent)).
///
/// ```
/// use k8s_openapi::api::core::v1::Pod;
/// use lucid_webhook::registration::{Rule, parse_selector};
/// use lucid_webhook::{AdmissionResponse, Operation, Router, Webhook};
/// use lucid_webhook_test::{ApiServer, Mismatch};
/// use serde_json::json;
///
/// async fn deny() -> AdmissionResponse {
///     AdmissionResponse::deny(403, "Forbidden", "not here")
/// }
///
/// # async fn test() -> Result<(), Box<dyn std::error::Error>> {
/// let selector = parse_selector("team=shop")?;
/// let webhook = Webhook::validating("pods.example.com", deny).with_registration(|registration| {
///     registration.with_rule(Rule::of::<Pod>([Operation::Create])).with_namespace_selector(selector)
/// });
/// let api_server = ApiServer::registered(&Router::new().webhook("/validate", webhook))
///     .namespace("shop", [("team", "shop")])
///     .namespace("other", [("team", "other")]);
///
/// let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "shop"}});
/// let rejection = api_server.create(&pod).await.expect_rejected();
/// assert_eq!(rejection.message, r#"admission webhook "pods.example.com" denied the request: not here"#);
///
/// let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "other"}});
/// let outcome = api_server.create(&pod).await;
/// assert_eq!(outcome.expect_not_called("pods.example.com").why, Mismatch::NamespaceSelector);
/// # Ok(())
/// # }
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(test()).unwrap();
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// [`for_service`](Self::for_service) and [`for_url`](Self::for_url) call a server over the network: HTTP/1.1 over TLS,
/// trusting the caBundle alone, with verification of the subjectAltName of the certificate, and up to 25 idle
/// connections per webhook kept for 90 s. A POST is not retried when a connection breaks.
#[derive(Clone, Debug)]
pub struct ApiServer {
    target: Target,
    webhooks: Vec<RegisteredWebhook>,
    namespaces: BTreeMap<String, Labels>,
    /// The namespace of objects that state none.
    current_namespace: Option<String>,
}

impl ApiServer {
    /// Calls the webhooks of `router` in process.
    ///
    /// # Panics
    ///
    /// As [`Self::with_webhooks`].
    #[must_use]
    #[track_caller]
    pub fn registered(router: &Router) -> Self {
        Self::in_process(router.clone()).with_webhooks(router)
    }

    /// Calls `service` in process, with any type of body. [`Self::with_webhooks`] registers webhooks.
    #[must_use]
    pub fn in_process<S, B>(service: S) -> Self
    where
        S: Service<Request<Full<Bytes>>, Response = Response<B>> + Clone + Send + Sync + 'static,
        S::Future: Send + 'static,
        S::Error: Into<BoxError>,
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let service = service.map_err(Into::into).and_then(collect);
        Self::new(Target::InProcess(Transport::new(service)))
    }

    /// Calls the server at `url`, such as `https://localhost:8443`, like a webhook with a `url` in its clientConfig.
    /// The path is that of the webhook. `ca_pem` is the caBundle.
    ///
    /// # Errors
    ///
    /// A [`SetupError`] if the URL or the caBundle is invalid.
    pub fn for_url(url: &str, ca_pem: &[u8]) -> Result<Self, SetupError> {
        Ok(Self::new(Target::Https(Https::url(url, ca_pem)?)))
    }

    /// Calls the server at `address` as the Service `name` in `namespace` on port 443: its certificate needs the DNS
    /// name `<name>.<namespace>.svc`. `ca_pem` is the caBundle.
    ///
    /// # Errors
    ///
    /// A [`SetupError`] if a name or the caBundle is invalid.
    pub fn for_service(
        name: &str,
        namespace: &str,
        address: SocketAddr,
        ca_pem: &[u8],
    ) -> Result<Self, SetupError> {
        Ok(Self::new(Target::Https(Https::service(name, namespace, address, ca_pem)?)))
    }

    /// Sets the name expected in the certificate (`tls-server-name` of the API server's kubeconfig for webhooks). No
    /// effect in process, or on webhooks that are already registered.
    ///
    /// # Errors
    ///
    /// A [`SetupError`] if `name` is not a DNS name or IP address.
    pub fn with_server_name(self, name: &str) -> Result<Self, SetupError> {
        self.over_tls(|https| https.with_server_name(name))
    }

    /// Presents a client certificate, like an API server with a kubeconfig for webhooks in its AdmissionConfiguration.
    /// No effect in process, or on webhooks that are already registered.
    ///
    /// # Errors
    ///
    /// A [`SetupError`] if the chain or the key is not PEM, or they do not match.
    pub fn with_client_certificate(self, chain_pem: &[u8], key_pem: &[u8]) -> Result<Self, SetupError> {
        self.over_tls(|https| https.with_identity(chain_pem, key_pem))
    }

    fn over_tls(
        mut self,
        change: impl FnOnce(Https) -> Result<Https, SetupError>,
    ) -> Result<Self, SetupError> {
        if let Target::Https(https) = self.target {
            self.target = Target::Https(change(https)?);
        }
        Ok(self)
    }

    /// The cluster's own namespaces exist.
    fn new(target: Target) -> Self {
        let namespaces = ["default", "kube-node-lease", "kube-public", "kube-system"]
            .map(|name| (name.to_owned(), Labels::from([(NAMESPACE_NAME.to_owned(), name.to_owned())])));
        Self { target, webhooks: Vec::new(), namespaces: namespaces.into(), current_namespace: None }
    }

    /// Registers the webhooks of `router`, in its order.
    ///
    /// # Panics
    ///
    /// If the API server would reject the registration of a webhook.
    #[must_use]
    #[track_caller]
    pub fn with_webhooks(mut self, router: &Router) -> Self {
        match registered(router, &self.target) {
            Ok(webhooks) => self.webhooks.extend(webhooks),
            Err(error) => panic!("the API server rejects the registration: {error}"),
        }
        self
    }

    /// Adds a namespace with these labels, or replaces it. The API server adds `kubernetes.io/metadata.name`.
    ///
    /// Objects that state no namespace are in the one added last, as with `kubectl --namespace`; if none was added,
    /// they are cluster-scoped.
    #[must_use]
    pub fn namespace<K: Into<String>, V: Into<String>>(
        mut self,
        name: &str,
        labels: impl IntoIterator<Item = (K, V)>,
    ) -> Self {
        let labels = labels.into_iter().map(|(key, value)| (key.into(), value.into()));
        let name_label = (NAMESPACE_NAME.to_owned(), name.to_owned());
        self.namespaces.insert(name.to_owned(), labels.chain([name_label]).collect());
        self.current_namespace = Some(name.to_owned());
        self
    }

    /// Creates `object`, with the user and the defaults of [`Review::create`].
    ///
    /// # Panics
    ///
    /// If `object` does not serialize to a JSON object with `apiVersion` and `kind`.
    pub async fn create(&self, object: &impl Serialize) -> ReviewOutcome {
        self.review(&Review::create(object)).await
    }

    /// Updates `old` to `new`.
    ///
    /// # Panics
    ///
    /// As [`Self::create`].
    pub async fn update(&self, old: &impl Serialize, new: &impl Serialize) -> ReviewOutcome {
        self.review(&Review::update(old, new)).await
    }

    /// Deletes `old`.
    ///
    /// # Panics
    ///
    /// As [`Self::create`].
    pub async fn delete(&self, old: &impl Serialize) -> ReviewOutcome {
        self.review(&Review::delete(old)).await
    }

    /// Handles the request of a review, which may have another user, subresource or options.
    pub async fn review(&self, review: &Review) -> ReviewOutcome {
        let mut review = review.clone();
        if let Some(namespace) = &self.current_namespace {
            review = review.or_namespace(namespace);
        }
        let mut outcome = ReviewOutcome::of(review.sent_object().unwrap_or_default());
        let mut warnings = Warnings::default();
        // A change calls the webhooks again that were called before it, in a second round
        // (`plugin/webhook/mutating/reinvocationcontext.go`).
        let (mut earlier, mut again) = (BTreeSet::new(), BTreeSet::new());
        for is_again in [false, true] {
            for (index, webhook) in self.of_kind(WebhookKind::Mutating) {
                let before = review.sent_object();
                if outcome.result.is_err()
                    || (is_again && !again.contains(&index))
                    || !self.call_if_matching(webhook, &mut review, &mut outcome, &mut warnings).await
                {
                    continue;
                }
                if review.sent_object() != before {
                    again.append(&mut earlier);
                }
                if webhook.is_reinvoked {
                    earlier.insert(index);
                }
            }
        }
        if let Ok(object) = &mut outcome.result {
            generate_name(object, &new_uid()[31..]);
            review = review.with_object(object.clone());
            for (_, webhook) in self.of_kind(WebhookKind::Validating) {
                self.call_if_matching(webhook, &mut review, &mut outcome, &mut warnings).await;
            }
        }
        outcome.warnings = warnings.headers;
        outcome.dropped.extend(warnings.dropped);
        outcome
    }

    /// Handles a request twice, the second time with the object of the first outcome, and returns the first outcome.
    /// Mutating webhooks that may be called again should not change their own result.
    ///
    /// # Panics
    ///
    /// If a request is not admitted, or the second one changes the object.
    pub async fn assert_idempotent(&self, review: &Review) -> ReviewOutcome {
        let first = self.review(review).await;
        let once = first.clone().expect_admitted();
        let twice = self.review(&review.clone().with_object(once.clone())).await.expect_admitted();
        if once != twice {
            let difference = json_patch::diff(&once, &twice);
            panic!("the webhooks change the object again: {difference}");
        }
        first
    }

    /// The conversion webhook at `path`, registered in a CustomResourceDefinition.
    ///
    /// # Panics
    ///
    /// If the path does not begin with `/`.
    #[must_use]
    #[track_caller]
    pub fn converting(&self, path: &str) -> ConversionWebhook {
        assert!(path.starts_with('/'), "a path begins with /, found {path:?}");
        ConversionWebhook::new(self.target.endpoint(path))
    }

    fn of_kind(&self, kind: WebhookKind) -> impl Iterator<Item = (usize, &RegisteredWebhook)> {
        self.webhooks.iter().enumerate().filter(move |(_, webhook)| webhook.kind == kind)
    }

    /// Returns `true` if the webhook was called. The object of the review becomes that of the outcome.
    async fn call_if_matching(
        &self,
        webhook: &RegisteredWebhook,
        review: &mut Review,
        outcome: &mut ReviewOutcome,
        warnings: &mut Warnings,
    ) -> bool {
        let mismatch = review.matched_by(&webhook.scope, &self.namespaces);
        match mismatch {
            Ok(None) => {}
            Ok(Some(mismatch)) => {
                outcome.skip(&webhook.name, mismatch);
                return false;
            }
            Err(rejection) => {
                outcome.reject(rejection);
                return false;
            }
        }
        webhook.call(review, outcome, warnings).await;
        if let Ok(object) = &outcome.result {
            *review = review.clone().with_object(object.clone());
        }
        true
    }
}

const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";

/// The webhooks of a router as the API server stores them: the mutating ones, then the validating ones.
fn registered(router: &Router, target: &Target) -> Result<Vec<RegisteredWebhook>, RegistrationError> {
    let configurations = Configurations::new("test", Endpoint::service("system", "webhook"));
    let mutating = configurations.mutating(router.registrations())?;
    let mutating = mutating.and_then(|configuration| configuration.webhooks).into_iter().flatten();
    let mutating = mutating.map(|webhook| RegisteredWebhook::new(WebhookKind::Mutating, webhook, target));
    let validating = configurations.validating(router.registrations())?;
    let validating = validating.and_then(|configuration| configuration.webhooks).into_iter().flatten();
    let validating = validating.map(|webhook| {
        let webhook = MutatingWebhook {
            admission_review_versions: webhook.admission_review_versions,
            client_config: webhook.client_config,
            failure_policy: webhook.failure_policy,
            match_conditions: webhook.match_conditions,
            match_policy: webhook.match_policy,
            name: webhook.name,
            namespace_selector: webhook.namespace_selector,
            object_selector: webhook.object_selector,
            reinvocation_policy: None,
            rules: webhook.rules,
            side_effects: webhook.side_effects,
            timeout_seconds: webhook.timeout_seconds,
        };
        RegisteredWebhook::new(WebhookKind::Validating, webhook, target)
    });
    Ok(mutating.chain(validating).collect())
}

async fn collect<B>(response: Response<B>) -> Result<Response<Bytes>, BoxError>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let (head, body) = response.into_parts();
    let body = body.collect().await.map_err(Into::into)?.to_bytes();
    Ok(Response::from_parts(head, body))
}
