//! Registers webhooks for every request.

use lucid_webhook::registration::{Rule, WebhookRegistration};
use lucid_webhook::{AdmissionResponse, Operation, Router, Webhook, WebhookKind};
use lucid_webhook_test::ApiServer;

pub(crate) trait Register {
    /// `at` is the webhook's name and path.
    fn register(
        &self,
        kind: WebhookKind,
        at: [&'static str; 2],
        change: impl FnOnce(WebhookRegistration) -> WebhookRegistration,
    ) -> ApiServer;

    fn mutating(&self, name: &'static str, path: &'static str) -> ApiServer {
        self.register(WebhookKind::Mutating, [name, path], |registration| registration)
    }

    fn validating(&self, name: &'static str, path: &'static str) -> ApiServer {
        self.register(WebhookKind::Validating, [name, path], |registration| registration)
    }
}

impl Register for ApiServer {
    fn register(
        &self,
        kind: WebhookKind,
        [name, path]: [&'static str; 2],
        change: impl FnOnce(WebhookRegistration) -> WebhookRegistration,
    ) -> ApiServer {
        let webhook = match kind {
            WebhookKind::Validating => Webhook::validating(name, async || AdmissionResponse::allow()),
            _ => Webhook::mutating(name, async || AdmissionResponse::allow()),
        };
        let all = [Operation::Create, Operation::Update, Operation::Delete, Operation::Connect];
        let webhook = webhook.with_registration(|registration| {
            change(registration.with_rule(Rule::new("*", ["*"], ["*/*"], all)))
        });
        let api_server = self.clone().namespace("shop", [("team", "shop")]);
        api_server.with_webhooks(&Router::new().webhook(path, webhook))
    }
}
