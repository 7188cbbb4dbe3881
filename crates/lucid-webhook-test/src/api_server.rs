//! Client that calls webhooks as kube-apiserver does.

#![allow(clippy::panic, reason = "expectations of tests")]

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Body;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Status, StatusCause};
use lucid_webhook::WebhookKind;
use lucid_webhook::names::is_fully_qualified_name;
use lucid_webhook::registration::FailurePolicy;
use tower::{BoxError, Service, ServiceExt};

use crate::call::{Endpoint, Target};
use crate::checks::{self, Answer};
use crate::conversion::ConversionWebhook;
use crate::decode::decode_patched;
use crate::https::{Https, SetupError, Transport};
use crate::outcome::{Dropped, Outcome, RejectedBy, Rejection};
use crate::recorded::{self, Warnings};
use crate::{Review, patch};

/// A simulated kube-apiserver that calls a webhook server.
///
/// In process, it calls an HTTP service such as a [`Router`](lucid_webhook::Router). Over the network it uses HTTP/1.1 over
/// TLS, trusts the caBundle alone, verifies the subjectAltName of the certificate, keeps up to 25 idle connections per
/// webhook for 90 s, and does not retry a POST when a connection breaks.
///
/// ```no_run
/// # async fn test(ca: &[u8]) -> Result<(), lucid_webhook_test::SetupError> {
/// use lucid_webhook_test::{ApiServer, FailurePolicy, Review};
/// use serde_json::json;
///
/// let webhook = ApiServer::for_service("webhook", "system", ([127, 0, 0, 1], 8443).into(), ca)?
///     .mutating("pods.example.com", "/mutate")
///     .with_timeout_seconds(5)
///     .with_failure_policy(FailurePolicy::Ignore);
/// let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "shop"}});
/// let patched = webhook.assert_idempotent(&Review::create(&pod)).await.expect_admitted();
/// assert_eq!(patched["metadata"]["labels"]["seen"], "true");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct ApiServer {
    target: Target,
}

impl ApiServer {
    /// Calls `service` in process, with any type of body.
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
        Self { target: Target::InProcess(Transport::new(service)) }
    }

    /// Calls the server at `url`, such as `https://localhost:8443`, like a webhook with a `url` in its clientConfig.
    /// The path is that of the webhook. `ca_pem` is the caBundle.
    ///
    /// # Errors
    ///
    /// A [`SetupError`] if the URL or the caBundle is invalid.
    pub fn for_url(url: &str, ca_pem: &[u8]) -> Result<Self, SetupError> {
        Ok(Self { target: Target::Https(Https::url(url, ca_pem)?) })
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
        Ok(Self { target: Target::Https(Https::service(name, namespace, address, ca_pem)?) })
    }

    /// Sets the name expected in the certificate (`tls-server-name` of the API server's kubeconfig for webhooks). No
    /// effect in process.
    ///
    /// # Errors
    ///
    /// A [`SetupError`] if `name` is not a DNS name or IP address.
    pub fn with_server_name(self, name: &str) -> Result<Self, SetupError> {
        self.over_tls(|https| https.with_server_name(name))
    }

    /// Presents a client certificate, like an API server with a kubeconfig for webhooks in its AdmissionConfiguration.
    /// No effect in process.
    ///
    /// # Errors
    ///
    /// A [`SetupError`] if the chain or the key is not PEM, or they do not match.
    pub fn with_client_certificate(self, chain_pem: &[u8], key_pem: &[u8]) -> Result<Self, SetupError> {
        self.over_tls(|https| https.with_identity(chain_pem, key_pem))
    }

    fn over_tls(self, change: impl FnOnce(Https) -> Result<Https, SetupError>) -> Result<Self, SetupError> {
        Ok(match self.target {
            Target::Https(https) => Self { target: Target::Https(change(https)?) },
            Target::InProcess(_) => self,
        })
    }

    /// The webhook at `path`, registered in a MutatingWebhookConfiguration as `name`.
    ///
    /// # Panics
    ///
    /// If the name is not a domain of three segments or more, or the path does not begin with `/`: the API server
    /// rejects such a configuration.
    #[track_caller]
    pub fn mutating(&self, name: &str, path: &str) -> RegisteredWebhook {
        self.registered(WebhookKind::Mutating, name, path)
    }

    /// The webhook at `path`, registered in a ValidatingWebhookConfiguration as `name`.
    ///
    /// # Panics
    ///
    /// As [`Self::mutating`].
    #[track_caller]
    pub fn validating(&self, name: &str, path: &str) -> RegisteredWebhook {
        self.registered(WebhookKind::Validating, name, path)
    }

    /// The conversion webhook at `path`, registered in a CustomResourceDefinition.
    ///
    /// # Panics
    ///
    /// If the path does not begin with `/`.
    #[must_use]
    #[track_caller]
    pub fn converting(&self, path: &str) -> ConversionWebhook {
        ConversionWebhook::new(self.endpoint(path))
    }

    #[track_caller]
    fn registered(&self, kind: WebhookKind, name: &str, path: &str) -> RegisteredWebhook {
        assert!(
            is_fully_qualified_name(name),
            "the API server takes no webhook named {name:?}: accepted is a.b.c, in lower case"
        );
        RegisteredWebhook {
            endpoint: self.endpoint(path),
            kind,
            name: name.to_owned(),
            timeout: Duration::from_secs(10),
            failure_policy: FailurePolicy::Fail,
        }
    }

    #[track_caller]
    fn endpoint(&self, path: &str) -> Endpoint {
        assert!(path.starts_with('/'), "a path begins with /, found {path:?}");
        self.target.endpoint(path)
    }
}

/// A registered webhook that can be called.
#[derive(Clone, Debug)]
#[must_use]
pub struct RegisteredWebhook {
    endpoint: Endpoint,
    kind: WebhookKind,
    name: String,
    timeout: Duration,
    failure_policy: FailurePolicy,
}

impl RegisteredWebhook {
    /// Sets the timeout of a call (`timeoutSeconds`), 10 s by default.
    ///
    /// # Panics
    ///
    /// Unless `seconds` is 1 to 30, the range accepted by the API server.
    #[track_caller]
    pub fn with_timeout_seconds(mut self, seconds: u32) -> Self {
        assert!((1..=30).contains(&seconds), "timeoutSeconds is 1 to 30, found {seconds}");
        self.timeout = Duration::from_secs(seconds.into());
        self
    }

    /// Sets the handling of failed calls (`failurePolicy`), [`FailurePolicy::Fail`] by default.
    pub const fn with_failure_policy(mut self, policy: FailurePolicy) -> Self {
        self.failure_policy = policy;
        self
    }

    /// Calls the webhook, and processes the response as the API server does.
    pub async fn review(&self, review: &Review) -> Outcome {
        let uid = review.call_uid();
        let called = self.endpoint.call(self.timeout, review.envelope(&uid)).await;
        let mut outcome = Outcome {
            result: Ok(review.sent_object().unwrap_or_default()),
            failed_open: None,
            warnings: Vec::new(),
            audit_annotations: Default::default(),
            dropped: Vec::new(),
            attempts: called.attempts,
        };
        let mutating = self.kind == WebhookKind::Mutating;
        let answer = called.answer.map_err(|error| format!("failed to call webhook: {error}"));
        let answer = match answer.and_then(|answer| checks::verify(&answer, &uid, mutating)) {
            Ok(answer) => answer,
            Err(failure) => {
                self.call_failed(failure, &mut outcome);
                return outcome;
            }
        };
        self.record(&answer, &mut outcome);
        if answer.is_allowed() {
            self.apply(&answer, review, &mut outcome);
        } else {
            outcome.result = Err(self.denial(answer.status));
        }
        outcome
    }

    /// Calls a mutating webhook twice, the second time with the object patched by the first call, as the API server
    /// does with `reinvocationPolicy: IfNeeded`. Returns the outcome of the first call.
    ///
    /// # Panics
    ///
    /// If a call is not admitted, or the second one changes the object.
    pub async fn assert_idempotent(&self, review: &Review) -> Outcome {
        let first = self.review(review).await;
        let once = first.clone().expect_admitted();
        let again = review.clone().with_object(once.clone());
        let twice = self.review(&again).await.expect_admitted();
        if once != twice {
            let difference = json_patch::diff(&once, &twice);
            panic!("webhook {:?} changes the object again: {difference}", self.name);
        }
        first
    }

    /// Records warnings and audit annotations, also of a denied request.
    fn record(&self, answer: &Answer, outcome: &mut Outcome) {
        let annotations = answer.audit_annotations.iter().flatten();
        let annotations = annotations.map(|(key, value)| (&**key, value.as_deref().unwrap_or_default()));
        let (annotations, mut dropped) = recorded::audit_annotations(&self.name, annotations);
        outcome.audit_annotations = annotations;
        let mut warnings = Warnings::default();
        answer.warnings.iter().flatten().flatten().for_each(|warning| warnings.add(warning));
        outcome.warnings = warnings.headers;
        dropped.extend(warnings.dropped);
        let mut unused = |part: &str, why| dropped.push(Dropped { part: part.to_owned(), why });
        if !answer.is_allowed() && !answer.patch.is_empty() {
            unused("patch", "the request is denied");
        }
        let message = answer.status.as_ref().and_then(|status| status.message.as_deref());
        if answer.is_allowed() && message.is_some_and(|message| !message.is_empty()) {
            unused("status.message", "the request is allowed");
        }
        outcome.dropped = dropped;
    }

    fn apply(&self, answer: &Answer, review: &Review, outcome: &mut Outcome) {
        if answer.patch.is_empty() {
            return;
        }
        let operations = match patch::decode(&answer.patch) {
            Ok(operations) if operations.is_empty() => return,
            Ok(operations) => operations,
            Err(error) => {
                let failure = format!("received undecodable patch in webhook response: {error}");
                return self.call_failed(failure, outcome);
            }
        };
        let Some(object) = review.sent_object() else {
            outcome.result = Err(internal_error(
                RejectedBy::ApiServer,
                &format!(
                    "admission webhook {:?} attempted to modify the object, which is not supported for this operation",
                    self.name
                ),
            ));
            return;
        };
        let patch_type = answer.patch_type.as_deref().unwrap_or_default();
        if patch_type != "JSONPatch" {
            return self.call_failed(format!("unsupported patch type {patch_type:?}"), outcome);
        }
        let decoded =
            patch::apply(object.clone(), &operations).and_then(|patched| decode_patched(patched, &object));
        outcome.result = decoded.map_err(|error| internal_error(RejectedBy::ApiServer, &error));
    }

    fn call_failed(&self, failure: String, outcome: &mut Outcome) {
        let failure = format!("failed calling webhook {:?}: {failure}", self.name);
        if self.failure_policy == FailurePolicy::Ignore {
            outcome.failed_open = Some(failure);
        } else {
            outcome.result = Err(internal_error(RejectedBy::FailurePolicy, &failure));
        }
    }

    /// Follows `plugin/webhook/errors/statuserror.go`.
    fn denial(&self, status: Option<Status>) -> Rejection {
        let status = status.unwrap_or_default();
        let denied = format!("admission webhook {:?} denied the request", self.name);
        let (message, reason) = (status.message.unwrap_or_default(), status.reason.unwrap_or_default());
        let message = match (message.as_str(), reason.as_str()) {
            ("", "") => format!("{denied} without explanation"),
            ("", reason) => format!("{denied}: {reason}"),
            (message, _) => format!("{denied}: {message}"),
        };
        Rejection {
            by: RejectedBy::Webhook,
            code: status.code.unwrap_or_default().max(400),
            reason,
            message,
            causes: status.details.and_then(|details| details.causes).unwrap_or_default(),
        }
    }
}

fn internal_error(by: RejectedBy, error: &str) -> Rejection {
    Rejection {
        by,
        code: 500,
        reason: "InternalError".to_owned(),
        message: format!("Internal error occurred: {error}"),
        causes: vec![StatusCause { message: Some(error.to_owned()), ..StatusCause::default() }],
    }
}

/// Collects the body of a response.
async fn collect<B>(response: Response<B>) -> Result<Response<Bytes>, BoxError>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let (head, body) = response.into_parts();
    let body = body.collect().await.map_err(Into::into)?.to_bytes();
    Ok(Response::from_parts(head, body))
}
