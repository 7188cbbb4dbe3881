//! Telling somebody of a drift.

use std::time::Duration;

use lucid_audit::correlate::Drift;
use reqwest::redirect::Policy;
use serde_json::json;
use snafu::ResultExt;

use super::{AlertSnafu, AuditError};

/// How long an alert may take, and how often it is tried.
const PATIENCE: Duration = Duration::from_secs(10);
const ATTEMPTS: u32 = 3;

/// Where drifts are posted to.
#[derive(Debug)]
pub(super) struct Alerts {
    client: reqwest::Client,
    url: reqwest::Url,
}

impl Alerts {
    pub(super) fn new(url: reqwest::Url) -> Result<Self, AuditError> {
        let builder = reqwest::Client::builder().timeout(PATIENCE).redirect(Policy::none());
        Ok(Self { client: builder.build().context(AlertSnafu)?, url })
    }

    /// Posts `{"drifts": [...]}`; returns whether it was taken.
    pub(super) async fn post(&self, drifts: &[Drift]) -> bool {
        let body = json!({ "drifts": drifts }).to_string();
        for attempt in 1..=ATTEMPTS {
            let request = self.client.post(self.url.clone()).header("content-type", "application/json");
            match request.body(body.clone()).send().await.and_then(reqwest::Response::error_for_status) {
                Ok(_) => return true,
                // The URL is not logged: its path may be a secret.
                Err(error) => {
                    tracing::warn!(error = %error.without_url(), attempt, "failed to post an alert");
                }
            }
            tokio::time::sleep(Duration::from_millis(500) * attempt).await;
        }
        false
    }
}
