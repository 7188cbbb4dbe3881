//! Options of the sources of verdicts.

use std::fs;
use std::future::ready;
use std::path::PathBuf;
use std::time::Duration;

use lucid_audit::note::VerifierKey;
use lucid_notary::Digest;
use lucid_notary::client::{
    Allowlist, Answer, BuildError, ClientMetrics, HttpVerifier, Notary, Signatures, Verifier,
};
use tower::util::BoxCloneSyncService;
use tower::{BoxError, ServiceExt};

use crate::Error;

/// Timeout of one request. A retry after a timeout fits into the timeout of the webhook.
const TIMEOUT: Duration = Duration::from_millis(1500);

/// Options of requests to the Verifier, to be flattened into a program's arguments.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Verifier")]
pub struct VerifierArgs {
    /// Base URL of the Verifier, such as `http://lucid-verifier.lucid-system.svc:8080`. By default none.
    #[arg(long, env = "LUCID_VERIFIER_URL", value_name = "URL")]
    pub verifier_url: Option<String>,

    /// File with a bearer token for the Verifier, which requires https or a loopback address. Reloaded when it changes.
    /// By default none.
    #[arg(long, value_name = "FILE")]
    pub verifier_token_file: Option<PathBuf>,

    /// File of root certificates in PEM to trust for the Verifier. Reloaded when it changes. By default those of the
    /// system.
    #[arg(long, value_name = "FILE")]
    pub verifier_ca_file: Option<PathBuf>,

    /// Directory with the client certificate chain (tls.crt) and its private key (tls.key) in PEM. Reloaded when they
    /// change. By default none.
    #[arg(long, value_name = "DIRECTORY")]
    pub verifier_client_directory: Option<PathBuf>,

    /// Trusted vkeys of the Verifier's log, or files with one, comma-separated. Digests then need a proof that they are
    /// notarized. By default none.
    #[arg(long, value_name = "VKEYS", value_delimiter = ',', requires = "verifier_url", value_parser = parse_key)]
    pub verifier_log_key: Vec<VerifierKey>,
}

/// Options of the sources of verdicts, to be flattened into a program's arguments.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Verifier")]
pub struct NotaryArgs {
    /// Options of requests to the Verifier.
    #[command(flatten)]
    pub verifier: VerifierArgs,

    /// File of digests that are notarized without a request: one sha256:… or IMAGE@sha256:… per line. Reloaded when it
    /// changes. By default none.
    #[arg(long, env = "LUCID_VERIFIER_ALLOWLIST_FILE", value_name = "FILE")]
    pub verifier_allowlist_file: Option<PathBuf>,

    /// Directory of Sigstore bundles on digests of auditors (sha256-HEX.json), of the policies that accept them, by image
    /// and instead of or in addition to the Verifier (signatures.yaml), of the trusted root (trusted_root.json), and of
    /// credentials of private registries (config.json). Reloaded when a file changes. By default none.
    #[arg(long, env = "LUCID_SIGNATURES_DIRECTORY", value_name = "DIRECTORY")]
    pub signatures_directory: Option<PathBuf>,
}

const URL: &str = "LUCID_VERIFIER_URL";
const TOKEN: &str = "--verifier-token-file";
const CA: &str = "--verifier-ca-file";
const CLIENT: &str = "--verifier-client-directory";

impl NotaryArgs {
    /// Returns the sources of verdicts, or `None` if neither a Verifier, an allowlist nor signatures are configured.
    ///
    /// # Errors
    ///
    /// Returns an error that names the option if a file cannot be used.
    pub fn notary(&self, metrics: &ClientMetrics) -> Result<Option<Notary>, Error> {
        let signatures = self.signatures_directory.as_ref();
        let signatures = signatures.map(|path| Signatures::open(path, metrics.clone()));
        let signatures = signatures.transpose().map_err(Error::with_context("LUCID_SIGNATURES_DIRECTORY"))?;
        let list = self.verifier_allowlist_file.as_ref();
        let list = list.map(|path| Allowlist::open(path, metrics.clone()));
        let list = list.transpose().map_err(Error::with_context("LUCID_VERIFIER_ALLOWLIST_FILE"))?;
        let service = match self.verifier.http(metrics)? {
            Some(http) => BoxCloneSyncService::new(http.map_err(BoxError::from)),
            None if list.is_some() || signatures.is_some() => unconfigured(),
            None => return Ok(None),
        };
        let mut builder = Verifier::builder(service).with_metrics(metrics.clone());
        if let Some(list) = list {
            builder = builder.with_allowlist(list);
        }
        let notary = Notary::from(builder.build());
        Ok(Some(match signatures {
            Some(signatures) => notary.with_signatures(signatures),
            None => notary,
        }))
    }
}

impl VerifierArgs {
    /// Returns the client, or `None` without a URL.
    ///
    /// # Errors
    ///
    /// Returns an error that names the option if it cannot be used.
    pub fn http(&self, metrics: &ClientMetrics) -> Result<Option<HttpVerifier>, Error> {
        let files = [
            (TOKEN, &self.verifier_token_file),
            (CA, &self.verifier_ca_file),
            (CLIENT, &self.verifier_client_directory),
        ];
        let files = files.iter().filter_map(|(option, file)| Some((*option, file.as_ref()?)));
        let Some(url) = &self.verifier_url else {
            return match files.map(|(found, _)| found).next() {
                None => Ok(None),
                Some(found) => {
                    Err(Error::new(format!("{found} is set without {URL}, expected both or neither")))
                }
            };
        };
        let mut http = HttpVerifier::builder(url).with_timeout(TIMEOUT).with_metrics(metrics.clone());
        http = http.with_log_keys(self.verifier_log_key.clone());
        if let Some(path) = &self.verifier_token_file {
            http = http.with_bearer_token_file(path);
        }
        if let Some(path) = &self.verifier_ca_file {
            http = http.with_root_certificates_file(path);
        }
        if let Some(directory) = &self.verifier_client_directory {
            http = http.with_client_certificate_files(directory.join("tls.crt"), directory.join("tls.key"));
        }
        http.build().map(Some).map_err(|source| {
            // The error does not quote the URL, which may contain a password.
            let option = match &source {
                BuildError::File { source } => {
                    let text = source.to_string();
                    let named = files.map(|(option, file)| (option, file.display().to_string()));
                    let named = named.filter(|(_, file)| text.contains(file));
                    // The longest match: one path may be a prefix of another.
                    named.max_by_key(|(_, file)| file.len()).map_or(URL, |(option, _)| option)
                }
                BuildError::PlaintextToken { .. } => TOKEN,
                _ => URL,
            };
            Error::with_context(format_args!("failed to use {option}"))(source)
        })
    }
}

/// Parses a verifier key, either given as text or read from the file of that name.
///
/// # Errors
///
/// Returns an error if neither the text nor the file is a verifier key.
pub fn parse_key(text: &str) -> Result<VerifierKey, String> {
    match (text.parse(), fs::read_to_string(text)) {
        (Ok(key), _) => Ok(key),
        (Err(_), Ok(file)) => file.trim().parse().map_err(|error| format!("{text}: {error}")),
        (Err(error), Err(_)) => Err(format!("{text}: {error}; nor is it a file with one")),
    }
}

/// Service in the absence of a Verifier: digests that are not on the allowlist are unknown.
fn unconfigured() -> BoxCloneSyncService<Digest, Answer, BoxError> {
    let error = "it is not on the allowlist, and no Verifier is configured (LUCID_VERIFIER_URL)";
    BoxCloneSyncService::new(tower::service_fn(move |_: Digest| ready(Err(BoxError::from(error)))))
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use lucid_admission::verifier_deadline;
    use lucid_webhook::{AdmissionRequest, AdmissionResponse, Router, Webhook};
    use tokio::sync::mpsc;
    use tokio::time::Instant;

    use super::*;
    use crate::serving::ServingArgs;

    #[derive(Parser)]
    struct Args {
        #[command(flatten)]
        serving: ServingArgs,
    }

    #[tokio::test]
    async fn one_retry_fits_into_the_webhook_timeout() {
        /// Maximum pause before the first retry.
        const PAUSE: Duration = Duration::from_millis(100);
        const REVIEW: &str = r#"{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
            "uid": "1", "operation": "CREATE", "kind": {"version": "v1", "kind": "Pod"},
            "resource": {"version": "v1", "resource": "pods"}}}"#;
        let (sender, mut deadlines) = mpsc::unbounded_channel();
        let handler = move |request: AdmissionRequest| {
            sender.send(request.deadline).unwrap();
            ready(AdmissionResponse::allow())
        };
        let router = Router::new().webhook("/", Webhook::validating("a.example.com", handler));
        let Args { serving } = Args::parse_from(["lucid"]);
        let request = http::Request::post(format!("/?timeout={}s", serving.webhook_timeout_seconds))
            .header("content-type", "application/json");
        let now = Instant::now();
        router.oneshot(request.body(REVIEW.to_owned()).unwrap()).await.unwrap();
        let left = verifier_deadline(deadlines.recv().await.unwrap()) - now;
        assert!(TIMEOUT * 2 + PAUSE <= left, "{TIMEOUT:?} in {left:?}");
    }
}
