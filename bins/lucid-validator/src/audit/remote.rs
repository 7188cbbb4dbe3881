//! Asking a running process.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use lucid_process::{TokenFile, TokenFileError};
use reqwest::header::AUTHORIZATION;
use reqwest::redirect::Policy;
use reqwest::{Client, Method, RequestBuilder, StatusCode, Url};
use snafu::{ResultExt, Snafu, ensure};

/// How long one question may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// How much of a refusal is told, in characters.
const LONGEST: usize = 300;

/// How a process is asked for what only those may see who have its token.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct AccessArgs {
    /// Shows the token in this file, as `Authorization: Bearer TOKEN`. It is read again at each question.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,

    /// Trusts the authorities in this PEM file to certify an https URL, instead of those of the system.
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,

    /// Connects to this address, and the port of the URL, whatever its host is: for `kubectl port-forward`.
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

/// Why nobody can be asked, or does not answer.
#[derive(Debug, Snafu)]
#[non_exhaustive]
pub enum RemoteError {
    /// The authorities cannot be read.
    #[snafu(display("failed to read {}: {source}", path.display()))]
    Ca {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// There is no token.
    #[snafu(transparent)]
    Token {
        /// What is wrong.
        source: TokenFileError,
    },
    /// Others would see the token.
    #[snafu(display(
        "the token would be sent to {host} in the clear; accepted are https, and http to a loopback address"
    ))]
    TokenInClear {
        /// Where it would go.
        host: String,
    },
    /// There is no client.
    #[snafu(display("failed to make an HTTP client: {source}"))]
    Client {
        /// What is wrong, such as authorities that are none.
        source: reqwest::Error,
    },
    /// There is no answer.
    #[snafu(display("failed to ask {url}: {source}"))]
    Ask {
        /// Who.
        url: Url,
        /// What went wrong.
        source: reqwest::Error,
    },
    /// The answer is a refusal.
    #[snafu(display("{url} answered {status}: {text}"))]
    Refused {
        /// Who.
        url: Url,
        /// How.
        status: StatusCode,
        /// What it said.
        text: String,
    },
}

impl RemoteError {
    /// That who is known as `url` has answered with another status than what was asked for.
    pub(super) fn refused(url: &Url, status: StatusCode, text: &str) -> Self {
        let text: String = text.trim().chars().take(LONGEST).collect();
        RefusedSnafu { url: url.clone(), status, text: text.escape_debug().to_string() }.build()
    }
}

/// A process that is asked.
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
        // A proxy sees what goes through it.
        let builder = if token.is_some() { builder.no_proxy() } else { builder };
        Ok(Self { client: builder.build().context(ClientSnafu)?, token })
    }

    /// The same, when a token that is shown to `url` is seen by nobody else.
    pub(super) fn keeping_its_token_from_others(self, url: &Url) -> Result<Self, RemoteError> {
        let host = url.host_str().unwrap_or_default();
        let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
        let is_loopback =
            host == "localhost" || address.is_ok_and(|address| address.to_canonical().is_loopback());
        let hidden = self.token.is_none() || url.scheme() == "https" || is_loopback;
        ensure!(hidden, TokenInClearSnafu { host });
        Ok(self)
    }

    /// A question that shows the token, as it is now.
    pub(super) fn ask(&self, method: Method, url: Url) -> RequestBuilder {
        let request = self.client.request(method, url);
        match self.token.as_ref().map(TokenFile::header).transpose() {
            Ok(shown) => shown.into_iter().fold(request, |request, it| request.header(AUTHORIZATION, it)),
            Err(error) => {
                tracing::warn!("{}", lucid_process::with_causes(&error));
                request
            }
        }
    }
}

/// Sends a question to who is told as `url`; the status and the text of the answer.
pub(super) async fn answer(request: RequestBuilder, url: &Url) -> Result<(StatusCode, String), RemoteError> {
    let answered = async {
        let response = request.send().await?;
        Ok((response.status(), response.text().await?))
    };
    let answered: reqwest::Result<_> = answered.await;
    answered.map_err(reqwest::Error::without_url).context(AskSnafu { url: url.clone() })
}

/// A client that trusts the authorities in `ca`, or else those of the system.
pub(super) fn builder(ca: Option<&Path>) -> Result<reqwest::ClientBuilder, RemoteError> {
    let mut builder = Client::builder().timeout(PATIENCE).redirect(Policy::none());
    if let Some(path) = ca {
        let pem = std::fs::read(path).context(CaSnafu { path })?;
        builder = builder.tls_certs_only(reqwest::Certificate::from_pem_bundle(&pem).context(ClientSnafu)?);
    }
    Ok(builder)
}
