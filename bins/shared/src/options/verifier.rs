use std::future::ready;
use std::path::PathBuf;
use std::time::Duration;

use crate::within;
use lucid_notary::Digest;
use lucid_notary::client::{
    Allowlist, Answer, BuildError, FileError, HttpVerifier, Metrics, TimeToLive, Verifier,
};
use snafu::{OptionExt, ResultExt, Snafu, ensure};
use tower::util::BoxCloneSyncService;
use tower::{BoxError, ServiceExt};

/// The options of the Verifier's client, to be flattened into a binary's own arguments.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Verifier")]
pub struct VerifierArgs {
    /// The Verifier: where `/registry/check?digest=` is asked, such as `http://lucid-verifier.lucid-system.svc:8080`.
    /// Without it no digest can be verified but those of the allowlist.
    #[arg(long, env = "LUCID_VERIFIER_URL", value_name = "URL")]
    pub verifier_url: Option<String>,

    /// Timeout of one request to the Verifier, in milliseconds. By default one retry after a timeout fits into the webhook's
    /// timeout.
    #[arg(long, env = "LUCID_VERIFIER_TIMEOUT_MS", value_name = "MILLISECONDS", default_value = "1500")]
    #[arg(value_parser = within(1_u64..=30_000))]
    pub verifier_timeout_ms: u64,

    /// How often the Verifier is asked again when that may help: after a timeout, a connection that broke, or the
    /// statuses 408, 429 and 5xx. The webhook's own deadline is kept in any case.
    #[arg(long, env = "LUCID_VERIFIER_RETRIES", value_name = "NUMBER", default_value = "2")]
    #[arg(value_parser = within(0_u32..=10))]
    pub verifier_retries: u32,

    /// How many digests the Verifier is asked about at the same time.
    #[arg(long, env = "LUCID_VERIFIER_CONCURRENCY", value_name = "NUMBER", default_value = "32")]
    #[arg(value_parser = within(1_u32..=1_000))]
    pub verifier_concurrency: u32,

    /// After how many failures in a row the Verifier is not asked for a while; 0 is never.
    #[arg(long, env = "LUCID_VERIFIER_BREAKER_FAILURES", value_name = "NUMBER", default_value = "5")]
    #[arg(value_parser = within(0_u32..=1_000))]
    pub verifier_breaker_failures: u32,

    /// How long that is, in seconds. Then one ask finds out whether it answers again.
    #[arg(long, env = "LUCID_VERIFIER_BREAKER_SECONDS", value_name = "SECONDS", default_value = "5")]
    #[arg(value_parser = within(1_u64..=3_600))]
    pub verifier_breaker_seconds: u64,

    /// How long a digest stays notarized before the Verifier is asked again, in seconds. So long a revocation may go
    /// unnoticed. 0 is not at all.
    #[arg(long, env = "LUCID_VERIFIER_NOTARIZED_SECONDS", value_name = "SECONDS", default_value = "60")]
    #[arg(value_parser = within(0_u64..=86_400))]
    pub verifier_notarized_seconds: u64,

    /// How long a digest stays not notarized, in seconds.
    #[arg(long, env = "LUCID_VERIFIER_NOT_NOTARIZED_SECONDS", value_name = "SECONDS", default_value = "5")]
    #[arg(value_parser = within(0_u64..=86_400))]
    pub verifier_not_notarized_seconds: u64,

    /// How long nobody asks about a digest again after an ask that failed, in seconds.
    #[arg(long, env = "LUCID_VERIFIER_UNKNOWN_SECONDS", value_name = "SECONDS", default_value = "2")]
    #[arg(value_parser = within(0_u64..=3_600))]
    pub verifier_unknown_seconds: u64,

    /// While the Verifier is out of order, take a digest that it knew as notarized at most so many seconds ago to be so
    /// still. The decision says so. 0 is never. Who can keep the Verifier from answering can hide a revocation for as long.
    #[arg(long, env = "LUCID_VERIFIER_LAST_KNOWN_GOOD_SECONDS", value_name = "SECONDS", default_value = "0")]
    #[arg(value_parser = within(0_u64..=604_800))]
    pub verifier_last_known_good_seconds: u64,

    /// A file with digests that need no Verifier: one on each line, as sha256:… or IMAGE@sha256:…. It is read again when
    /// it changes. By default none.
    #[arg(long, env = "LUCID_VERIFIER_ALLOWLIST_FILE", value_name = "FILE")]
    pub verifier_allowlist_file: Option<PathBuf>,

    /// A file with a bearer token for the Verifier, and nobody else. It is read again when it changes. By default none.
    #[arg(long, env = "LUCID_VERIFIER_TOKEN_FILE", value_name = "FILE")]
    pub verifier_token_file: Option<PathBuf>,

    /// Send the token over plain http to a host that is not this one, where it can be read on its way.
    #[arg(long, env = "LUCID_VERIFIER_TOKEN_OVER_HTTP", value_name = "BOOL", default_value = "false")]
    #[arg(action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub verifier_token_over_http: bool,

    /// Root certificates in PEM to trust for the Verifier, in place of those of the system. Read again when they change. By default
    /// those of the system.
    #[arg(long, env = "LUCID_VERIFIER_CA_FILE", value_name = "FILE")]
    pub verifier_ca_file: Option<PathBuf>,

    /// A certificate chain in PEM to show to the Verifier. Read again when it changes. By default none is shown.
    #[arg(long, env = "LUCID_VERIFIER_CLIENT_CERTIFICATE_FILE", value_name = "FILE")]
    pub verifier_client_certificate_file: Option<PathBuf>,

    /// The private key in PEM of that certificate. By default none, as there is no certificate.
    #[arg(long, env = "LUCID_VERIFIER_CLIENT_KEY_FILE", value_name = "FILE")]
    pub verifier_client_key_file: Option<PathBuf>,
}

/// The client of the Verifier cannot be created from the options.
#[derive(Debug, Snafu)]
#[non_exhaustive]
pub enum VerifierArgsError {
    /// The URL is unusable, or the client could not be created.
    #[snafu(display("failed to use LUCID_VERIFIER_URL: {source}"))]
    Url {
        /// Error of the client. It does not quote the URL, which may contain a password.
        source: BuildError,
    },
    /// The token would be sent without encryption.
    #[snafu(display("LUCID_VERIFIER_TOKEN_FILE: {source}: LUCID_VERIFIER_TOKEN_OVER_HTTP=true"))]
    TokenInClear {
        /// Error of the client.
        source: BuildError,
    },
    /// A file for the connection cannot be used.
    #[snafu(display("failed to use {option}: {source}"))]
    Files {
        /// Option of the file.
        option: &'static str,
        /// Error of the file.
        source: BuildError,
    },
    /// The allowlist cannot be used.
    #[snafu(display("failed to use LUCID_VERIFIER_ALLOWLIST_FILE: {source}"))]
    AllowlistFile {
        /// Error of the file.
        source: FileError,
    },
    /// A certificate is configured without its key, or a key without its certificate.
    #[snafu(display("found {found} without {missing}; accepted are both or neither"))]
    HalfAPair {
        /// Option that is set.
        found: &'static str,
        /// Option that is missing.
        missing: &'static str,
    },
    /// An option is set that has no effect without a URL.
    #[snafu(display("found {found} without LUCID_VERIFIER_URL, to which it belongs"))]
    WithoutUrl {
        /// Option that is set.
        found: &'static str,
    },
}

const CERTIFICATE: &str = "LUCID_VERIFIER_CLIENT_CERTIFICATE_FILE";
const KEY: &str = "LUCID_VERIFIER_CLIENT_KEY_FILE";

impl VerifierArgs {
    /// Returns the client of the Verifier, or `None` if neither a URL nor an allowlist is configured.
    ///
    /// # Errors
    ///
    /// Returns an error if the URL or a file is unusable.
    pub fn verifier(&self, metrics: &Metrics) -> Result<Option<Verifier>, VerifierArgsError> {
        let list = self.verifier_allowlist_file.as_ref();
        let list = list.map(|path| Allowlist::open(path, metrics.clone()));
        let list = list.transpose().context(AllowlistFileSnafu)?;
        let asked = match self.http(metrics)? {
            Some(http) => BoxCloneSyncService::new(http.map_err(BoxError::from)),
            None if list.is_some() => nobody(),
            None => return Ok(None),
        };
        Ok(Some(self.compose(asked, list, metrics)))
    }

    fn http(&self, metrics: &Metrics) -> Result<Option<HttpVerifier>, VerifierArgsError> {
        let files = [
            ("LUCID_VERIFIER_TOKEN_FILE", &self.verifier_token_file),
            ("LUCID_VERIFIER_CA_FILE", &self.verifier_ca_file),
            (CERTIFICATE, &self.verifier_client_certificate_file),
            (KEY, &self.verifier_client_key_file),
        ];
        let Some(url) = &self.verifier_url else {
            let found = files.iter().find(|(_, file)| file.is_some());
            return found.map_or(Ok(None), |(found, _)| WithoutUrlSnafu { found: *found }.fail());
        };
        let mut http = HttpVerifier::builder(url)
            .timeout(Duration::from_millis(self.verifier_timeout_ms))
            .bearer_token_over_plain_http(self.verifier_token_over_http)
            .metrics(metrics.clone());
        if let Some(path) = &self.verifier_token_file {
            http = http.bearer_token_file(path);
        }
        if let Some(path) = &self.verifier_ca_file {
            http = http.root_certificates_file(path);
        }
        if let Some(certificate) = &self.verifier_client_certificate_file {
            let key = self.verifier_client_key_file.as_ref();
            let key = key.context(HalfAPairSnafu { found: CERTIFICATE, missing: KEY })?;
            http = http.client_certificate_files(certificate, key);
        }
        let is_half =
            self.verifier_client_certificate_file.is_none() && self.verifier_client_key_file.is_some();
        ensure!(!is_half, HalfAPairSnafu { found: KEY, missing: CERTIFICATE });
        http.build().map(Some).map_err(|source| match source {
            BuildError::File { .. } => {
                let text = source.to_string();
                let named = files.iter().filter_map(|(option, file)| Some((*option, file.as_ref()?)));
                let named = named.map(|(option, file)| (option, file.display().to_string()));
                let named = named.filter(|(_, file)| text.contains(file));
                // The longest match: one path may be a prefix of another.
                let option = named.max_by_key(|(_, file)| file.len()).map_or("a file", |(option, _)| option);
                VerifierArgsError::Files { option, source }
            }
            BuildError::TokenInClear { .. } => VerifierArgsError::TokenInClear { source },
            source => VerifierArgsError::Url { source },
        })
    }

    fn compose(&self, asked: Asked, list: Option<Allowlist>, metrics: &Metrics) -> Verifier {
        let mut time_to_live = TimeToLive::default();
        time_to_live.notarized = Duration::from_secs(self.verifier_notarized_seconds);
        time_to_live.not_notarized = Duration::from_secs(self.verifier_not_notarized_seconds);
        time_to_live.unknown = Duration::from_secs(self.verifier_unknown_seconds);
        let attempts = self.verifier_retries + 1;
        let mut builder = Verifier::builder(asked)
            .time_to_live(time_to_live)
            // Time for all attempts and the pauses between them. The webhook has its own deadline.
            .deadline(Duration::from_millis(self.verifier_timeout_ms) * attempts + PAUSES * attempts)
            .retries(self.verifier_retries as usize)
            .concurrency(self.verifier_concurrency as usize)
            .metrics(metrics.clone());
        builder = match self.verifier_breaker_failures {
            0 => builder.without_breaker(),
            failures => builder.breaker(failures, Duration::from_secs(self.verifier_breaker_seconds)),
        };
        if self.verifier_last_known_good_seconds > 0 {
            builder = builder.last_known_good(Duration::from_secs(self.verifier_last_known_good_seconds));
        }
        match list {
            Some(list) => builder.allowlist(list).build(),
            None => builder.build(),
        }
    }
}

/// Maximum pause before an attempt.
const PAUSES: Duration = Duration::from_secs(1);

/// Service that answers requests for digests.
type Asked = BoxCloneSyncService<Digest, Answer, BoxError>;

/// Service in the absence of a Verifier: digests that are not on the allowlist are unknown.
fn nobody() -> Asked {
    let error = "it is not on the allowlist, and no Verifier is configured (LUCID_VERIFIER_URL)";
    BoxCloneSyncService::new(tower::service_fn(move |_: Digest| ready(Err(BoxError::from(error)))))
}

#[cfg(test)]
mod tests {
    use crate::serving::ServingArgs;
    use clap::Parser;
    use tokio::time::Instant;

    use super::*;
    use lucid_admission::verifier_deadline;

    #[derive(Parser)]
    struct Args {
        #[command(flatten)]
        serving: ServingArgs,
        #[command(flatten)]
        verifier: VerifierArgs,
    }

    #[test]
    fn one_retry_after_a_timeout_fits_into_the_timeout_of_the_webhook() {
        /// Maximum pause before the first retry.
        const PAUSE: Duration = Duration::from_millis(100);
        let Args { serving, verifier } = Args::parse_from(["lucid"]);
        let query = format!("timeout={}s", serving.webhook_timeout_seconds);
        let now = Instant::now();
        let left = verifier_deadline(lucid_webhook::layers::deadline(now, Some(&query))) - now;
        let attempt = Duration::from_millis(verifier.verifier_timeout_ms);
        assert!(attempt * 2 + PAUSE <= left, "{attempt:?} in {left:?}");
    }
}
