use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use reqwest::{Client, ClientBuilder, Url, redirect};
use snafu::{ResultExt, Snafu, ensure};
use tower::BoxError;

use super::credentials;
use super::service::{Endpoint, HttpVerifier};
use crate::client::batch::MAX_IN_FLIGHT;
use crate::client::file::{FileError, Reread};
use crate::client::metrics::Metrics;

/// Idle timeout of pooled connections: long enough for the next pods of a rollout.
const IDLE_LIMIT: Duration = Duration::from_secs(10);

/// Builder of an [`HttpVerifier`], created by [`HttpVerifier::builder`].
#[derive(Clone)]
#[must_use]
pub struct HttpVerifierBuilder {
    base_url: String,
    timeout: Duration,
    roots: Option<Roots>,
    token_file: Option<PathBuf>,
    token_over_plain_http: bool,
    identity_files: Option<(PathBuf, PathBuf)>,
    metrics: Metrics,
}

#[derive(Clone)]
enum Roots {
    Pem(Vec<u8>),
    File(PathBuf),
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
    /// The base URL is not a valid URL.
    #[snafu(display(
        "failed to read the base URL of the Verifier: {source}; accepted is http[s]://host[:port][/path]"
    ))]
    ParseUrl {
        /// Parse error.
        source: <Url as std::str::FromStr>::Err,
    },
    /// The scheme of the base URL is neither http nor https.
    #[snafu(display("the base URL of the Verifier has the scheme {scheme:?}; accepted are http and https"))]
    Scheme {
        /// Scheme found.
        scheme: String,
    },
    /// The base URL has a part that is not accepted.
    #[snafu(display("the base URL of the Verifier has {part}; accepted is http[s]://host[:port][/path]"))]
    UrlPart {
        /// Part found: a user or password, a query, or a fragment.
        part: &'static str,
    },
    /// TLS options were set for an http URL.
    #[snafu(display("the base URL of the Verifier is plain http, which has no {what}; accepted is https"))]
    NeedsTls {
        /// Option: root certificates or a client certificate.
        what: &'static str,
    },
    /// The bearer token would be sent unencrypted.
    #[snafu(display(
        "the base URL of the Verifier is plain http to {host}, where a bearer token could be read on its way; \
         accepted are https, http to a loopback address, and plain http that is asked for explicitly"
    ))]
    TokenInClear {
        /// Host of the base URL.
        host: String,
    },
    /// The root certificates are not valid.
    #[snafu(display("failed to use the root certificates for the Verifier: {source}"))]
    Roots {
        /// Cause.
        source: BoxError,
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
            timeout: Duration::from_secs(2),
            roots: None,
            token_file: None,
            token_over_plain_http: false,
            identity_files: None,
            metrics: Metrics::default(),
        }
    }

    /// Sets the timeout of one request, from name resolution to the last byte of the response (default 2 s).
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets the trusted root certificates, in PEM, in place of the system's.
    pub fn root_certificates(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.roots = Some(Roots::Pem(pem.into()));
        self
    }

    /// Sets a file of trusted root certificates, in PEM, in place of the system's. The file is reloaded when it
    /// changes.
    pub fn root_certificates_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.roots = Some(Roots::File(path.into()));
        self
    }

    /// Sets a file with a bearer token (RFC 6750) to send with each request. The file is reloaded when it changes.
    ///
    /// The token is only sent to the origin of the base URL.
    pub fn bearer_token_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.token_file = Some(path.into());
        self
    }

    /// Sets whether the token may be sent over plain http to any host. By default, only https, `localhost` and
    /// loopback addresses are accepted.
    pub fn bearer_token_over_plain_http(mut self, is_accepted: bool) -> Self {
        self.token_over_plain_http = is_accepted;
        self
    }

    /// Sets the files of the client's certificate chain and private key, in PEM, for mutual TLS. The files are
    /// reloaded when they change.
    pub fn client_certificate_files(
        mut self,
        certificate: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
    ) -> Self {
        self.identity_files = Some((certificate.into(), key.into()));
        self
    }

    /// Sets the metrics that count requests.
    pub fn metrics(mut self, metrics: Metrics) -> Self {
        self.metrics = metrics;
        self
    }

    /// Builds the client without sending a request.
    ///
    /// # Errors
    ///
    /// Returns [`BuildError`] if the base URL, the root certificates or a file is not valid, an option requires
    /// https, or an `https` URL relies on the system's root certificates and the system has none.
    pub fn build(self) -> Result<HttpVerifier, BuildError> {
        let base = parse_base_url(&self.base_url)?;
        let is_plain = base.scheme() == "http";
        ensure!(!is_plain || self.roots.is_none(), NeedsTlsSnafu { what: "root certificates" });
        ensure!(!is_plain || self.identity_files.is_none(), NeedsTlsSnafu { what: "client certificate" });
        let is_hidden = !is_plain || is_loopback(&base) || self.token_over_plain_http;
        let host = base.host_str().unwrap_or_default();
        ensure!(self.token_file.is_none() || is_hidden, TokenInClearSnafu { host });

        let token = self.token_file.as_ref().map(|path| {
            Reread::open(vec![path.clone()], |files| {
                credentials::authorization(files.first().map_or(&[], Vec::as_slice))
            })
        });
        let token = token.transpose()?.map(|token| token.on_change(self.metrics.on_change("token")));
        let client = self.client(is_plain)?;
        let mut check = base.clone();
        check.set_path(&format!("{}/registry/check", base.path().trim_end_matches('/')));
        let origin = base.origin().ascii_serialization();
        let endpoint = Endpoint { check, origin, timeout: self.timeout, client, token };
        Ok(HttpVerifier { endpoint: Arc::new(endpoint), metrics: self.metrics })
    }

    fn client(&self, is_plain: bool) -> Result<Reread<Client>, BuildError> {
        let timeout = self.timeout;
        let base = move || {
            Client::builder()
                .user_agent(concat!("lucid-notary/", env!("CARGO_PKG_VERSION")))
                .redirect(redirect::Policy::none())
                .referer(false)
                .no_proxy()
                .pool_max_idle_per_host(MAX_IN_FLIGHT)
                .pool_idle_timeout(IDLE_LIMIT)
                .timeout(timeout)
        };
        let mut files = Vec::new();
        let mut pem = None;
        match &self.roots {
            Some(Roots::Pem(roots)) => {
                // Validated here, because a later error would name the files.
                drop(credentials::with_roots(base(), roots).context(RootsSnafu)?);
                pem = Some(roots.clone());
            }
            Some(Roots::File(path)) => files.push(path.clone()),
            None => {}
        }
        let has_root_file = matches!(self.roots, Some(Roots::File(_)));
        if let Some((certificate, key)) = &self.identity_files {
            files.extend([certificate.clone(), key.clone()]);
        }
        let make = move |files: &[Vec<u8>]| {
            let (root_file, identity) = files.split_at(usize::from(has_root_file));
            let roots = root_file.first().or(pem.as_ref());
            let client: ClientBuilder = match roots {
                Some(roots) => credentials::with_roots(base(), roots)?,
                // Loading the system's root certificates fails if there are none. Plain http does not need them.
                None if is_plain => base().tls_certs_only([]),
                None => base(),
            };
            let client = match identity {
                [certificate, key] => credentials::with_identity(client, certificate, key)?,
                _ => client,
            };
            credentials::finish(client)
        };
        if files.is_empty() {
            make(&[]).context(ClientSnafu)?;
        }
        Ok(Reread::open(files, make)?.on_change(self.metrics.on_change("tls")))
    }
}

fn parse_base_url(text: &str) -> Result<Url, BuildError> {
    let url = Url::parse(text).context(ParseUrlSnafu)?;
    ensure!(matches!(url.scheme(), "http" | "https"), SchemeSnafu { scheme: url.scheme() });
    let has_credentials = !url.username().is_empty() || url.password().is_some();
    ensure!(!has_credentials, UrlPartSnafu { part: "a user or password" });
    ensure!(url.query().is_none(), UrlPartSnafu { part: "a query" });
    ensure!(url.fragment().is_none(), UrlPartSnafu { part: "a fragment" });
    Ok(url)
}

/// Returns `true` if requests to the URL stay on this machine, independent of name resolution.
fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.to_canonical().is_loopback())
}
