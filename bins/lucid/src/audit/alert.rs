//! Alerts about drift.

use std::path::PathBuf;
use std::time::Duration;

use lucid_audit::correlate::Drift;
use reqwest::header::CONTENT_TYPE;
use reqwest::{Method, Url};
use serde_json::json;

use super::remote::{Remote, builder};
use crate::error::Result;

const ATTEMPTS: u32 = 3;

/// Maximum number of drifts in one request, so that receivers can limit the body size.
const AT_ONCE: usize = 100;

/// Options of drift alerts.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct AlertArgs {
    /// Also POST each drift to this URL as {"drifts":[…]}: /audit/alerts of the process that writes the log, which
    /// shows it at /audit/ui, or any other receiver.
    #[arg(long, value_name = "URL")]
    alert_url: Option<Url>,

    /// File with the token that authenticates alerts, sent as `Authorization: Bearer TOKEN`. The file is read again at
    /// each alert.
    #[arg(long, value_name = "FILE", requires = "alert_url")]
    alert_token_file: Option<PathBuf>,

    /// PEM file of certificate authorities to trust for the https URL, instead of those of the system.
    #[arg(long, value_name = "FILE", requires = "alert_url")]
    alert_ca: Option<PathBuf>,
}

impl AlertArgs {
    pub(super) fn alerts(&self) -> Result<Option<Alerts>> {
        let Some(url) = self.alert_url.clone() else { return Ok(None) };
        let remote = Remote::new(builder(self.alert_ca.as_deref())?, self.alert_token_file.as_deref())?;
        Ok(Some(Alerts { remote: remote.with_token_only_for(&url)?, url }))
    }
}

#[derive(Debug)]
pub(super) struct Alerts {
    remote: Remote,
    url: Url,
}

impl Alerts {
    /// Posts `{"drifts": [...]}`. Returns `true` if the receiver accepted all of them.
    pub(super) async fn post(&self, drifts: &[Drift]) -> bool {
        let mut is_accepted = true;
        for chunk in drifts.chunks(AT_ONCE) {
            is_accepted &= self.post_chunk(chunk).await;
        }
        is_accepted
    }

    async fn post_chunk(&self, drifts: &[Drift]) -> bool {
        let body = json!({ "drifts": drifts }).to_string();
        for attempt in 1..=ATTEMPTS {
            let request =
                self.remote.request(Method::POST, self.url.clone()).header(CONTENT_TYPE, "application/json");
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
