//! HTTP client for a running process.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use lucid_webhook::TokenFile;
use reqwest::header::AUTHORIZATION;
use reqwest::redirect::Policy;
use reqwest::{Client, Method, RequestBuilder, StatusCode, Url};
use snafu::Snafu;

use crate::error::{Result, ResultExt};

const TIMEOUT: Duration = Duration::from_secs(10);
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
    pub(super) fn remote(&self, url: &Url) -> Result<Remote> {
        let mut builder = builder(self.ca.as_deref())?;
        if let Some((host, address)) = url.host_str().zip(self.address) {
            builder = builder.resolve(host, SocketAddr::new(address, 0));
        }
        let remote = Remote::new(builder, self.token_file.as_deref())?;
        match self.address {
            Some(address) if address.is_loopback() => Ok(remote),
            _ => remote.with_token_only_for(url),
        }
    }
}

#[derive(Debug, Snafu)]
#[snafu(display("{url} responded with {status}: {text}"))]
pub(super) struct RejectedError {
    url: Url,
    pub(super) status: StatusCode,
    /// Start of the response body, escaped.
    text: String,
}

impl RejectedError {
    pub(super) fn new(url: &Url, status: StatusCode, text: &str) -> Self {
        let text: String = text.trim().chars().take(LONGEST).collect();
        Self { url: url.clone(), status, text: text.escape_debug().to_string() }
    }
}

#[derive(Debug)]
pub(super) struct Remote {
    client: Client,
    token: Option<TokenFile>,
}

impl Remote {
    pub(super) fn new(builder: reqwest::ClientBuilder, token_file: Option<&Path>) -> Result<Self> {
        let token = token_file.map(TokenFile::open).transpose()?;
        // A proxy could read the token.
        let builder = if token.is_some() { builder.no_proxy() } else { builder };
        Ok(Self { client: builder.build().failed_to("create an HTTP client")?, token })
    }

    /// Returns `self`, or an error if the token would be sent to `url` without encryption.
    pub(super) fn with_token_only_for(self, url: &Url) -> Result<Self> {
        let host = url.host_str().unwrap_or_default();
        let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
        let is_loopback =
            host == "localhost" || address.is_ok_and(|address| address.to_canonical().is_loopback());
        if self.token.is_none() || url.scheme() == "https" || is_loopback {
            return Ok(self);
        }
        Err(format!(
            "the token would be sent to {host} in the clear, expected https, or http to a loopback address"
        )
        .into())
    }

    pub(super) fn request(&self, method: Method, url: Url) -> RequestBuilder {
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
pub(super) async fn send(request: RequestBuilder, url: &Url) -> Result<(StatusCode, String)> {
    let response = async {
        let response = request.send().await?;
        Ok((response.status(), response.text().await?))
    };
    let response: reqwest::Result<_> = response.await;
    response.map_err(reqwest::Error::without_url).failed_to(format_args!("request {url}"))
}

/// Returns the builder of a client that trusts the authorities in `ca`, or else those of the system.
pub(super) fn builder(ca: Option<&Path>) -> Result<reqwest::ClientBuilder> {
    let mut builder = Client::builder().timeout(TIMEOUT).redirect(Policy::none());
    if let Some(path) = ca {
        let pem = std::fs::read(path).failed_to(format_args!("read {}", path.display()))?;
        let authorities = lucid_certs::certificates_from_pem(&pem);
        let authorities = authorities.failed_to(format_args!("use {}", path.display()))?;
        let authorities: reqwest::Result<Vec<_>> =
            authorities.iter().map(|der| reqwest::Certificate::from_der(der)).collect();
        builder = builder.tls_certs_only(authorities.failed_to("create an HTTP client")?);
    }
    Ok(builder)
}
