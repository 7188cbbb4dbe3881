//! Configuration of the HTTP client.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use lucid_audit::note::VerifierKey;
use reqwest::{Client, Url, redirect};
use snafu::{ResultExt, Snafu, ensure};
use tower::BoxError;

use super::credentials;
use super::http::{Endpoint, HttpVerifier, MAX_IN_FLIGHT};
use super::metrics::ClientMetrics;
use super::reloading_files::{FileError, ReloadingFiles};

/// Idle timeout of pooled connections: long enough for the next pods of a rollout.
const IDLE_LIMIT: Duration = Duration::from_secs(10);

/// Builder of an [`HttpVerifier`], created by [`HttpVerifier::builder`].
#[derive(Clone)]
#[must_use]
pub struct HttpVerifierBuilder {
    base_url: String,
    timeout: Duration,
    root_file: Option<PathBuf>,
    token_file: Option<PathBuf>,
    identity_files: Option<(PathBuf, PathBuf)>,
    log_keys: Vec<VerifierKey>,
    metrics: ClientMetrics,
}

impl HttpVerifier {
    /// Creates a builder for the base URL of the Verifier, `http[s]://host[:port][/path]`. `/registry/check` is
    /// appended to it.
    pub fn builder(base_url: &str) -> HttpVerifierBuilder {
        HttpVerifierBuilder::new(base_url)
    }
}

// The URL may contain credentials until `build` rejects them.
impl fmt::Debug for HttpVerifierBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpVerifierBuilder").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

/// An [`HttpVerifier`] cannot be built.
#[derive(Debug, Snafu)]
#[non_exhaustive]
pub enum BuildError {
    /// The base URL cannot be used.
    #[snafu(display("the base URL of the Verifier {fault}"))]
    BaseUrl {
        /// Fault and expected values. Does not quote the URL, which may contain a password.
        fault: String,
    },
    /// The bearer token would be sent unencrypted.
    #[snafu(display(
        "the base URL of the Verifier is plain http to {host}, where a bearer token could be read on its way; \
         expected https, or http to a loopback address"
    ))]
    PlaintextToken {
        /// Host of the base URL.
        host: String,
    },
    /// A file cannot be used.
    #[snafu(transparent)]
    File {
        /// Path and cause.
        source: FileError,
    },
    /// The HTTP client cannot be created.
    #[snafu(display("failed to set up the HTTP client for the Verifier: {source}"))]
    Client {
        /// Cause.
        source: BoxError,
    },
}

impl HttpVerifierBuilder {
    pub(super) fn new(base_url: &str) -> Self {
        Self {
            base_url: base_url.to_owned(),
            timeout: Duration::from_millis(1500),
            root_file: None,
            token_file: None,
            identity_files: None,
            log_keys: Vec::new(),
            metrics: ClientMetrics::default(),
        }
    }

    /// Sets the timeout of one request, from name resolution to the last byte of the response (default 1.5 s).
    pub fn with_timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Sets a file of trusted root certificates, in PEM, in place of the system's. The file is reloaded when it
    /// changes.
    pub fn with_root_certificates_file(self, path: impl Into<PathBuf>) -> Self {
        Self { root_file: Some(path.into()), ..self }
    }

    /// Sets a file with a bearer token (RFC 6750) to send with each request. The file is reloaded when it changes.
    ///
    /// The token is only sent to the origin of the base URL, which has to be https, `localhost` or a loopback
    /// address.
    pub fn with_bearer_token_file(self, path: impl Into<PathBuf>) -> Self {
        Self { token_file: Some(path.into()), ..self }
    }

    /// Sets the files of the client's certificate chain and private key, in PEM, for mutual TLS. The files are
    /// reloaded when they change.
    pub fn with_client_certificate_files(
        self,
        certificate: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
    ) -> Self {
        Self { identity_files: Some((certificate.into(), key.into())), ..self }
    }

    /// Sets the trusted keys of the Verifier's log. "Notarized" then counts only with a proof that it is in the log.
    /// Without keys, no proof is requested (default).
    pub fn with_log_keys(self, keys: impl IntoIterator<Item = VerifierKey>) -> Self {
        Self { log_keys: keys.into_iter().collect(), ..self }
    }

    /// Sets the metrics that count requests.
    pub fn with_metrics(self, metrics: ClientMetrics) -> Self {
        Self { metrics, ..self }
    }

    /// Builds the client without sending a request.
    ///
    /// # Errors
    ///
    /// Returns [`BuildError`] if the base URL or a file is not valid, an option requires https, or an `https` URL
    /// relies on the system's root certificates and the system has none.
    pub fn build(self) -> Result<HttpVerifier, BuildError> {
        let base = parse_base_url(&self.base_url)?;
        let is_plain = base.scheme() == "http";
        for (what, is_set) in [
            ("root certificates", self.root_file.is_some()),
            ("a client certificate", self.identity_files.is_some()),
        ] {
            let fault = || format!("is plain http, which cannot use {what}; expected https");
            ensure!(!is_plain || !is_set, BaseUrlSnafu { fault: fault() });
        }
        let is_exposed = is_plain && !is_loopback(&base);
        let host = base.host_str().unwrap_or_default();
        ensure!(self.token_file.is_none() || !is_exposed, PlaintextTokenSnafu { host });

        let token = self.token_file.as_ref().map(|path| {
            ReloadingFiles::open(vec![path.clone()], |files| {
                credentials::authorization(files.first().map_or(&[], Vec::as_slice))
            })
        });
        let token = token.transpose()?.map(|token| token.on_change(self.metrics.on_change("token")));
        let client = self.client(is_plain)?;
        let mut check = base.clone();
        check.set_path(&format!("{}/registry/check", base.path().trim_end_matches('/')));
        let origin = base.origin().ascii_serialization();
        let endpoint =
            Endpoint { check, origin, timeout: self.timeout, client, token, log_keys: self.log_keys };
        Ok(HttpVerifier { endpoint: Arc::new(endpoint), metrics: self.metrics })
    }

    fn client(&self, is_plain: bool) -> Result<ReloadingFiles<Client>, BuildError> {
        let identity_files = self.identity_files.iter().flat_map(|(certificate, key)| [certificate, key]);
        let files: Vec<_> = self.root_file.iter().chain(identity_files).cloned().collect();
        let (timeout, root_files) = (self.timeout, self.root_file.iter().len());
        let make = move |files: &[Vec<u8>]| {
            let mut client = Client::builder()
                .user_agent(concat!("lucid-notary/", env!("CARGO_PKG_VERSION")))
                .redirect(redirect::Policy::none())
                .referer(false)
                .no_proxy()
                .pool_max_idle_per_host(MAX_IN_FLIGHT)
                .pool_idle_timeout(IDLE_LIMIT)
                .timeout(timeout);
            let (roots, identity) = files.split_at(root_files);
            if let [roots] = roots {
                client = credentials::with_roots(client, roots)?;
            } else if is_plain {
                // Loading the system's root certificates fails if there are none. Plain http does not need them.
                client = client.tls_certs_only([]);
            }
            if let [certificate, key] = identity {
                client = credentials::with_identity(client, certificate, key)?;
            }
            credentials::finish(client)
        };
        if files.is_empty() {
            // Reports errors without naming a file.
            make(&[]).context(ClientSnafu)?;
        }
        Ok(ReloadingFiles::open(files, make)?.on_change(self.metrics.on_change("tls")))
    }
}

fn parse_base_url(text: &str) -> Result<Url, BuildError> {
    const EXPECTED: &str = "expected http[s]://host[:port][/path]";
    let invalid = |fault: String| BaseUrlSnafu { fault }.build();
    let url = Url::parse(text).map_err(|error| invalid(format!("is not valid: {error}; {EXPECTED}")))?;
    let scheme = url.scheme();
    if !matches!(scheme, "http" | "https") {
        return Err(invalid(format!("has the scheme {scheme:?}; expected http or https")));
    }
    for (part, is_present) in [
        ("a user or password", !url.username().is_empty() || url.password().is_some()),
        ("a query", url.query().is_some()),
        ("a fragment", url.fragment().is_some()),
    ] {
        if is_present {
            return Err(invalid(format!("has {part}; {EXPECTED}")));
        }
    }
    Ok(url)
}

/// Returns `true` if requests to the URL stay on this machine, independent of name resolution.
pub(super) fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.to_canonical().is_loopback())
}
