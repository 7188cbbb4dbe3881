//! The judge `http`.

mod api;
mod breaker;
mod client;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use backon::{ExponentialBuilder, Retryable};
use lucid_auditor::{Judge, JudgeError, Passage, Verdict};
use reqwest::{StatusCode, Url};
use serde::Deserialize;
use serde_json::{Map, Value};
use snafu::{ResultExt, Snafu, ensure};
use tokio::time::timeout;

use self::api::{Fault, HttpApi, Rules};
use self::breaker::{Breaker, BreakerOptions};
use self::client::Headers;
use crate::OptionsError;
use crate::action::Action;

/// Maximum length of a response in bytes.
const RESPONSE_LIMIT: usize = 1024 * 1024;

/// Options of [`Http`]. Only `url` is required.
///
/// ```yaml
/// http:
///   url: https://detector.example:8000   # without a path, that of the protocol
///   api: fms                             # default: plain
///   parameters: {detector_params: {}}    # further members of each request
///   headers: {detector-id: toxicity}
///   headerFiles: {x-key: /run/key}       # read for each request; https or a loopback address only
///   tokenFile: /run/token                # a bearer token, like headerFiles
///   caFile: /etc/ca.pem                  # in place of the system's roots; read once
///   threshold: 0.5                       # lower scores are ignored; Presidio and FMS only
///   action: deny                         # default: deny for FMS, otherwise mask
///   timeout: 2s                          # with retries; less than the judge's, which the circuit breaker does not see
///   retries: 2                           # of failed connections and of 502, 503 and 504
/// ```
#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HttpOptions {
    url: String,
    #[serde(default)]
    api: HttpApi,
    #[serde(default)]
    parameters: Map<String, Value>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    /// They are read for each request, and require https or a loopback address.
    #[serde(default)]
    header_files: BTreeMap<String, PathBuf>,
    /// A bearer token, with the properties of `header_files`.
    token_file: Option<PathBuf>,
    /// It is read once.
    pub(crate) ca_file: Option<PathBuf>,
    threshold: Option<f64>,
    action: Option<Action>,
    /// It should be less than the judge's timeout: the circuit breaker does not see a request that the judge's timeout
    /// cancels.
    #[serde(
        default = "default_timeout",
        with = "jiff::fmt::serde::unsigned_duration::friendly::compact::required"
    )]
    timeout: Duration,
    #[serde(default = "default_retries")]
    retries: usize,
    #[serde(default)]
    breaker: BreakerOptions,
}

const fn default_timeout() -> Duration {
    Duration::from_secs(2)
}

const fn default_retries() -> usize {
    2
}

// Headers, parameters and the URL may contain credentials.
impl fmt::Debug for HttpOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpOptions").field("api", &self.api).finish_non_exhaustive()
    }
}

#[derive(Debug, Snafu)]
enum RequestError {
    #[snafu(display("requests to {origin} are paused after repeated failures (circuit breaker open)"))]
    Paused { origin: String },
    #[snafu(display("{origin} did not respond within {timeout:?}"))]
    Timeout { origin: String, timeout: Duration },
    #[snafu(display("{fault}"))]
    Credentials { fault: String },
    #[snafu(display("request to {origin} failed"))]
    Transport { origin: String, source: reqwest::Error },
    #[snafu(display("{origin} responded with status {status}, expected 2xx"))]
    Status { origin: String, status: StatusCode },
    #[snafu(display("the response of {origin} is longer than {RESPONSE_LIMIT} bytes"))]
    TooLong { origin: String },
    #[snafu(display("malformed response of {origin}, expected {expected}"))]
    Malformed { origin: String, expected: &'static str },
    #[snafu(display("{origin} responded with a span of {start} to {end} in a text of {length} characters"))]
    OutOfRange { origin: String, start: usize, end: usize, length: usize },
}

impl RequestError {
    /// Returns `true` if the service is unavailable, whatever the text.
    const fn is_outage(&self) -> bool {
        match self {
            Self::Timeout { .. } | Self::Transport { .. } => true,
            Self::Status { status, .. } => matches!(status.as_u16(), 502..=504),
            _ => false,
        }
    }

    fn is_retryable(&self) -> bool {
        match self {
            Self::Transport { source, .. } => source.is_connect(),
            // A file that is not replaced atomically is incomplete for a moment.
            Self::Credentials { .. } => true,
            _ => self.is_outage(),
        }
    }
}

/// Asks a remote service about each text.
///
/// Blank texts pass. [`JudgePolicy::cache`](lucid_auditor::JudgePolicy::cache) spares the service texts that it has judged.
///
/// The texts leave the pod: `https` keeps them confidential on their way. Redirects are not followed, the system's proxy
/// settings are ignored, and responses are limited to 1 MiB.
///
/// ```
/// use lucid_guardrails::{Http, HttpOptions};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let options: HttpOptions = serde_yaml::from_str("
///   url: http://presidio-analyzer.guardrails.svc:3000
///   api: presidio
///   parameters: {entities: [CREDIT_CARD, PERSON]}
/// ")?;
/// let judge = Http::new(options)?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Http(Service);

impl Http {
    /// Creates the judge and reads its files. No request is sent.
    ///
    /// # Errors
    ///
    /// Returns an error if an option or a file is not valid.
    pub fn new(options: HttpOptions) -> Result<Self, OptionsError> {
        let api = options.api;
        let url = client::url(&options)?;
        let headers = Headers::new(&options)?;
        let is_set = |name: &str| {
            options
                .headers
                .keys()
                .chain(options.header_files.keys())
                .any(|key| key.eq_ignore_ascii_case(name))
        };
        if api == HttpApi::Fms && !is_set("detector-id") {
            return Err(OptionsError::found("headers", "none", "detector-id with the name of a detector"));
        }
        if api == HttpApi::Nemo && !options.parameters.get("model").is_some_and(Value::is_string) {
            return Err(OptionsError::found("parameters", "none", "model with the name of a model"));
        }
        let is_valid = |threshold: &f64| api.has_scores() && (0.0..=1.0).contains(threshold);
        if let Some(threshold) = options.threshold.filter(|threshold| !is_valid(threshold)) {
            return Err(OptionsError::found("threshold", threshold, "0 to 1, for the APIs presidio and fms"));
        }
        let threshold = options.threshold.unwrap_or(0.5);
        let mut parameters = api.defaults(threshold);
        parameters.extend(options.parameters);
        Ok(Self(Service {
            origin: url.origin().ascii_serialization(),
            url,
            api,
            parameters,
            threshold,
            action: options.action.unwrap_or(match api {
                HttpApi::Fms => Action::Deny,
                _ => Action::Mask,
            }),
            rules: Rules::default(),
            client: client::client(options.ca_file.as_deref())?,
            headers,
            timeout: options.timeout,
            retries: options.retries,
            breaker: Breaker::new(options.breaker),
        }))
    }
}

impl Judge for Http {
    async fn judge(&self, passage: &Passage<'_>) -> Result<Verdict, JudgeError> {
        if passage.text.trim().is_empty() {
            return Ok(Verdict::Allow);
        }
        Ok(self.0.ask(passage).await?)
    }

    /// Services judge words in their context.
    fn overlap(&self) -> usize {
        1024
    }

    /// Long enough for names, addresses and numbers.
    fn undecided(&self, text: &str) -> usize {
        text.len().min(128)
    }

    fn stride(&self) -> usize {
        200
    }
}

#[derive(Debug)]
struct Service {
    origin: String,
    url: Url,
    api: HttpApi,
    parameters: Map<String, Value>,
    threshold: f64,
    action: Action,
    rules: Rules,
    client: reqwest::Client,
    headers: Headers,
    timeout: Duration,
    retries: usize,
    breaker: Breaker,
}

impl Service {
    /// Calls the service, unless the circuit breaker is open.
    async fn ask(&self, passage: &Passage<'_>) -> Result<Verdict, RequestError> {
        let origin = &self.origin;
        ensure!(self.breaker.admits(), PausedSnafu { origin });
        let backoff = ExponentialBuilder::default()
            .with_min_delay(Duration::from_millis(50))
            .with_jitter()
            .with_max_times(self.retries);
        let request = (|| self.request(passage)).retry(backoff).when(RequestError::is_retryable);
        let result = match timeout(self.timeout, request).await {
            Ok(result) => result,
            Err(_) => TimeoutSnafu { origin, timeout: self.timeout }.fail(),
        };
        self.breaker.report(result.as_ref().is_err_and(RequestError::is_outage));
        result
    }

    async fn request(&self, passage: &Passage<'_>) -> Result<Verdict, RequestError> {
        let origin = &self.origin;
        let mut body = self.parameters.clone();
        body.extend(self.api.text(passage));
        let headers = self.headers.read().await.map_err(|fault| CredentialsSnafu { fault }.build())?;
        let request = self.client.post(self.url.clone()).headers(headers).json(&body);
        let mut response =
            request.send().await.map_err(reqwest::Error::without_url).context(TransportSnafu { origin })?;
        let status = response.status();
        ensure!(status.is_success(), StatusSnafu { origin, status });

        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.context(TransportSnafu { origin })? {
            ensure!(body.len() + chunk.len() <= RESPONSE_LIMIT, TooLongSnafu { origin });
            body.extend_from_slice(&chunk);
        }
        match self.api.read(&body, &passage.text, self.threshold, &self.rules) {
            Ok(finding) => Ok(finding.into_verdict(self.action)),
            Err(Fault::Malformed) => MalformedSnafu { origin, expected: self.api.expected() }.fail(),
            Err(Fault::OutOfRange { start, end, length }) => {
                OutOfRangeSnafu { origin, start, end, length }.fail()
            }
        }
    }
}
