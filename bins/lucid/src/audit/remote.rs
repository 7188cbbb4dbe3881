//! HTTP client for a running process.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use lucid_webhook::{TokenFile, TokenFileError};
use reqwest::header::AUTHORIZATION;
use reqwest::redirect::Policy;
use reqwest::{Client, Method, RequestBuilder, StatusCode, Url};
use snafu::{ResultExt, Snafu, ensure};

/// Timeout of one request.
const PATIENCE: Duration = Duration::from_secs(10);
/// Maximum length of a quoted error response, in characters.
const LONGEST: usize = 300;

/// Options of access to a running process.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct AccessArgs {
    /// File with the token that authenticates requests, sent as `Authorization: Bearer TOKEN`. The file is read again
    /// at each request.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,

    /// PEM file of certificate authorities to trust for an https URL, instead of those of the system.
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,

    /// Address to connect to instead of the URL's host, with the URL's port. Use with `kubectl port-forward`.
    #[arg(long, value_name = "IP")]
    address: Option<IpAddr>,
}

impl AccessArgs {
    pub(super) fn remote(&self, url: &Url) -> Result<Remote, RemoteError> {
        let mut builder = builder(self.ca.as_deref())?;
        if let Some((host, address)) = url.host_str().zip(self.address) {
            builder = builder.resolve(host, SocketAddr::new(address, 0));
        }
        let remote = Remote::new(builder, self.token_file.as_deref())?;
        match self.address {
            Some(address) if address.is_loopback() => Ok(remote),
            _ => remote.keeping_its_token_from_others(url),
        }
    }
}

/// A request could not be sent, or was rejected.
#[derive(Debug, Snafu)]
#[non_exhaustive]
pub(crate) enum RemoteError {
    /// The CA file could not be read.
    #[snafu(display("failed to read {}: {source}", path.display()))]
    Ca {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// The token file cannot be used.
    #[snafu(transparent)]
    Token {
        /// Error of the file.
        source: TokenFileError,
    },
    /// The token would be sent without encryption.
    #[snafu(display(
        "the token would be sent to {host} in the clear; accepted are https, and http to a loopback address"
    ))]
    TokenInClear {
        /// Host of the URL.
        host: String,
    },
    /// The HTTP client could not be created.
    #[snafu(display("failed to create an HTTP client: {source}"))]
    Client {
        /// Error of the client, for example invalid CA certificates.
        source: reqwest::Error,
    },
    /// The request failed.
    #[snafu(display("failed to request {url}: {source}"))]
    Ask {
        /// URL for messages.
        url: Url,
        /// Error of the connection or the response.
        source: reqwest::Error,
    },
    /// The status of the response is an error.
    #[snafu(display("{url} answered {status}: {text}"))]
    Refused {
        /// URL for messages.
        url: Url,
        /// Status of the response.
        status: StatusCode,
        /// Start of the response body, escaped.
        text: String,
    },
}

impl RemoteError {
    /// Creates the error for an unexpected response from `url`.
    pub(super) fn refused(url: &Url, status: StatusCode, text: &str) -> Self {
        let text: String = text.trim().chars().take(LONGEST).collect();
        RefusedSnafu { url: url.clone(), status, text: text.escape_debug().to_string() }.build()
    }
}

/// A client with its token.
#[derive(Debug)]
pub(super) struct Remote {
    client: Client,
    token: Option<TokenFile>,
}

impl Remote {
    pub(super) fn new(
        builder: reqwest::ClientBuilder,
        token_file: Option<&Path>,
    ) -> Result<Self, RemoteError> {
        let token = token_file.map(TokenFile::open).transpose()?;
        // A proxy could read the token.
        let builder = if token.is_some() { builder.no_proxy() } else { builder };
        Ok(Self { client: builder.build().context(ClientSnafu)?, token })
    }

    /// Returns `self`, or an error if the token would be sent to `url` without encryption.
    pub(super) fn keeping_its_token_from_others(self, url: &Url) -> Result<Self, RemoteError> {
        let host = url.host_str().unwrap_or_default();
        let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
        let is_loopback =
            host == "localhost" || address.is_ok_and(|address| address.to_canonical().is_loopback());
        let hidden = self.token.is_none() || url.scheme() == "https" || is_loopback;
        ensure!(hidden, TokenInClearSnafu { host });
        Ok(self)
    }

    /// Creates a request with the current token.
    pub(super) fn ask(&self, method: Method, url: Url) -> RequestBuilder {
        let request = self.client.request(method, url);
        match self.token.as_ref().map(TokenFile::header).transpose() {
            Ok(shown) => shown.into_iter().fold(request, |request, it| request.header(AUTHORIZATION, it)),
            Err(error) => {
                tracing::warn!("{}", lucid_shared::with_causes(&error));
                request
            }
        }
    }
}

/// Sends a request and returns status and body of the response. Errors name the remote as `url`.
pub(super) async fn answer(request: RequestBuilder, url: &Url) -> Result<(StatusCode, String), RemoteError> {
    let answered = async {
        let response = request.send().await?;
        Ok((response.status(), response.text().await?))
    };
    let answered: reqwest::Result<_> = answered.await;
    answered.map_err(reqwest::Error::without_url).context(AskSnafu { url: url.clone() })
}

/// Returns the builder of a client that trusts the authorities in `ca`, or else those of the system.
pub(super) fn builder(ca: Option<&Path>) -> Result<reqwest::ClientBuilder, RemoteError> {
    let mut builder = Client::builder().timeout(PATIENCE).redirect(Policy::none());
    if let Some(path) = ca {
        let pem = std::fs::read(path).context(CaSnafu { path })?;
        builder = builder.tls_certs_only(reqwest::Certificate::from_pem_bundle(&pem).context(ClientSnafu)?);
    }
    Ok(builder)
}
