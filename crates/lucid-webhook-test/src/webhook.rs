//! A registered webhook, and one call of it.

use std::time::Duration;

use k8s_openapi::api::admissionregistration::v1::MutatingWebhook;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Status, StatusCause};
use lucid_webhook::WebhookKind;
use serde_json::Value;

use crate::call::{Endpoint, Target};
use crate::checks::{self, WireResponse};
use crate::decode::decode_patched;
use crate::matching::Scope;
use crate::outcome::{Call, Dropped, RejectedBy, ReviewOutcome, ReviewRejection};
use crate::recorded::{self, Warnings};
use crate::{Review, patch};

#[derive(Clone, Debug)]
pub(super) struct RegisteredWebhook {
    pub(super) kind: WebhookKind,
    pub(super) name: String,
    pub(super) scope: Scope,
    pub(super) is_reinvoked: bool,
    endpoint: Endpoint,
    timeout: Duration,
    fails_open: bool,
    match_conditions: Vec<String>,
}

impl RegisteredWebhook {
    /// A webhook of a configuration. A validating one has the same fields except for its reinvocationPolicy.
    pub(super) fn new(kind: WebhookKind, webhook: MutatingWebhook, target: &Target) -> Self {
        let path = webhook.client_config.service.and_then(|service| service.path).unwrap_or_default();
        let seconds = webhook.timeout_seconds.and_then(|seconds| seconds.try_into().ok()).unwrap_or(10);
        let conditions = webhook.match_conditions.into_iter().flatten();
        Self {
            kind,
            name: webhook.name,
            scope: Scope {
                rules: webhook.rules.unwrap_or_default(),
                exact: webhook.match_policy.as_deref() == Some("Exact"),
                namespace_selector: webhook.namespace_selector.unwrap_or_default(),
                object_selector: webhook.object_selector.unwrap_or_default(),
            },
            is_reinvoked: webhook.reinvocation_policy.as_deref() == Some("IfNeeded"),
            endpoint: target.endpoint(&path),
            timeout: Duration::from_secs(seconds),
            fails_open: webhook.failure_policy.as_deref() == Some("Ignore"),
            match_conditions: conditions.map(|condition| condition.name).collect(),
        }
    }

    /// Calls the webhook with the object of `outcome`, and processes the response as the API server does.
    pub(super) async fn call(&self, review: &Review, outcome: &mut ReviewOutcome, warnings: &mut Warnings) {
        let uid = review.call_uid();
        let called = self.endpoint.call(self.timeout, review.envelope(&uid)).await;
        outcome.calls.push(Call {
            webhook: self.name.clone(),
            attempts: called.attempts,
            failed_open: None,
            assumed_conditions: self.match_conditions.clone(),
        });
        let response = called.response.map_err(|error| format!("failed to call webhook: {error}"));
        let mutating = self.kind == WebhookKind::Mutating;
        match response.and_then(|review| checks::verify(&review, &uid, mutating)) {
            Err(failure) => self.call_failed(failure, outcome),
            Ok(response) => {
                self.record(&response, outcome, warnings);
                if response.is_allowed() {
                    self.apply(&response, review, outcome);
                } else {
                    outcome.reject(self.denial(response.status));
                }
            }
        }
    }

    /// Records warnings and audit annotations, also of a denied request.
    fn record(&self, response: &WireResponse, outcome: &mut ReviewOutcome, warnings: &mut Warnings) {
        let annotations = response.audit_annotations.iter().flatten();
        let annotations = annotations.map(|(key, value)| (&**key, value.as_deref().unwrap_or_default()));
        let (annotations, dropped) = recorded::audit_annotations(&self.name, annotations);
        outcome.audit_annotations.extend(annotations);
        outcome.dropped.extend(dropped);
        response.warnings.iter().flatten().flatten().for_each(|warning| warnings.add(warning));
        let mut unused = |part: &str, why| outcome.dropped.push(Dropped { part: part.to_owned(), why });
        if !response.is_allowed() && !response.patch.is_empty() {
            unused("patch", "the request is denied");
        }
        let message = response.status.as_ref().and_then(|status| status.message.as_deref());
        if response.is_allowed() && message.is_some_and(|message| !message.is_empty()) {
            unused("status.message", "the request is allowed");
        }
    }

    fn apply(&self, response: &WireResponse, review: &Review, outcome: &mut ReviewOutcome) {
        if response.patch.is_empty() {
            return;
        }
        let operations = match patch::decode(&response.patch) {
            Ok(operations) if operations.is_empty() => return,
            Ok(operations) => operations,
            Err(error) => {
                let failure = format!("received undecodable patch in webhook response: {error}");
                return self.call_failed(failure, outcome);
            }
        };
        let Some(object) = review.sent_object() else {
            return outcome.reject(internal_error(
                RejectedBy::ApiServer,
                &format!(
                    "admission webhook {:?} attempted to modify the object, which is not supported for this operation",
                    self.name
                ),
            ));
        };
        let patch_type = response.patch_type.as_deref().unwrap_or_default();
        if patch_type != "JSONPatch" {
            return self.call_failed(format!("unsupported patch type {patch_type:?}"), outcome);
        }
        match patch::apply(object.clone(), &operations).and_then(|patched| decode_patched(patched, &object)) {
            Ok(patched) => outcome.result = Ok(patched),
            Err(error) => outcome.reject(internal_error(RejectedBy::ApiServer, &error)),
        }
    }

    fn call_failed(&self, failure: String, outcome: &mut ReviewOutcome) {
        let failure = format!("failed calling webhook {:?}: {failure}", self.name);
        match outcome.calls.last_mut() {
            Some(call) if self.fails_open => call.failed_open = Some(failure),
            _ => outcome.reject(internal_error(RejectedBy::FailurePolicy, &failure)),
        }
    }

    /// Follows `plugin/webhook/errors/statuserror.go`.
    fn denial(&self, status: Option<Status>) -> ReviewRejection {
        let status = status.unwrap_or_default();
        let denied = format!("admission webhook {:?} denied the request", self.name);
        let (message, reason) = (status.message.unwrap_or_default(), status.reason.unwrap_or_default());
        let message = match (message.as_str(), reason.as_str()) {
            ("", "") => format!("{denied} without explanation"),
            ("", reason) => format!("{denied}: {reason}"),
            (message, _) => format!("{denied}: {message}"),
        };
        ReviewRejection {
            by: RejectedBy::Webhook,
            code: status.code.unwrap_or_default().max(400),
            reason,
            message,
            causes: status.details.and_then(|details| details.causes).unwrap_or_default(),
        }
    }
}

fn internal_error(by: RejectedBy, error: &str) -> ReviewRejection {
    ReviewRejection {
        by,
        code: 500,
        reason: "InternalError".to_owned(),
        message: format!("Internal error occurred: {error}"),
        causes: vec![StatusCause { message: Some(error.to_owned()), ..StatusCause::default() }],
    }
}

/// The API server generates names between mutating and validating webhooks.
pub(super) fn generate_name(object: &mut Value, random: &str) {
    let text = |field: &str| object.pointer(field).and_then(Value::as_str).unwrap_or_default();
    let prefix = text("/metadata/generateName");
    if text("/metadata/name").is_empty() && !prefix.is_empty() {
        object["metadata"]["name"] = format!("{prefix}{random}").into();
    }
}
