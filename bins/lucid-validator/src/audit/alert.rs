//! Telling somebody of a drift.

use std::path::PathBuf;
use std::time::Duration;

use lucid_audit::correlate::Drift;
use lucid_process::TokenFile;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE};
use reqwest::redirect::Policy;
use serde_json::json;
use snafu::ResultExt;

use super::{AlertSnafu, AlertTokenSnafu, AuditError, FileSnafu};

/// How long an alert may take, and how often it is tried.
const PATIENCE: Duration = Duration::from_secs(10);
const ATTEMPTS: u32 = 3;

/// How many drifts are posted at once, so that a receiver can have a limit.
const AT_ONCE: usize = 100;

/// Where drifts are posted to.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct AlertArgs {
    /// Also posts each drift to this URL, as {"drifts":[…]}: /audit/alerts of the process that writes the log, whose page then
    /// shows it, or any other receiver.
    #[arg(long, value_name = "URL")]
    alert_url: Option<reqwest::Url>,

    /// Shows the token in this file to it, as `Authorization: Bearer TOKEN`. It is read again at each alert.
    #[arg(long, value_name = "FILE", requires = "alert_url")]
    alert_token_file: Option<PathBuf>,

    /// Trusts the authorities in this PEM file to certify its https URL, instead of those of the system.
    #[arg(long, value_name = "FILE", requires = "alert_url")]
    alert_ca: Option<PathBuf>,
}

impl AlertArgs {
    /// Who posts, if somebody does.
    pub(super) fn alerts(&self) -> Result<Option<Alerts>, AuditError> {
        let Some(url) = self.alert_url.clone() else { return Ok(None) };
        let mut builder = reqwest::Client::builder().timeout(PATIENCE).redirect(Policy::none());
        if let Some(path) = &self.alert_ca {
            let pem = std::fs::read(path).context(FileSnafu { what: "read", path })?;
            builder =
                builder.tls_certs_only(reqwest::Certificate::from_pem_bundle(&pem).context(AlertSnafu)?);
        }
        let token =
            self.alert_token_file.as_ref().map(TokenFile::open).transpose().context(AlertTokenSnafu)?;
        Ok(Some(Alerts { client: builder.build().context(AlertSnafu)?, url, token }))
    }
}

/// Posts drifts.
#[derive(Debug)]
pub(super) struct Alerts {
    client: reqwest::Client,
    url: reqwest::Url,
    token: Option<TokenFile>,
}

impl Alerts {
    /// Posts `{"drifts": [...]}`; returns whether all of them were taken.
    pub(super) async fn post(&self, drifts: &[Drift]) -> bool {
        let mut taken = true;
        for some in drifts.chunks(AT_ONCE) {
            taken &= self.post_some(some).await;
        }
        taken
    }

    async fn post_some(&self, drifts: &[Drift]) -> bool {
        let body = json!({ "drifts": drifts }).to_string();
        for attempt in 1..=ATTEMPTS {
            let mut request = self.client.post(self.url.clone()).header(CONTENT_TYPE, "application/json");
            match self.token.as_ref().map(TokenFile::header).transpose() {
                Ok(shown) => {
                    request =
                        shown.into_iter().fold(request, |request, it| request.header(AUTHORIZATION, it));
                }
                Err(error) => tracing::warn!("{}", lucid_process::with_causes(&error)),
            }
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
