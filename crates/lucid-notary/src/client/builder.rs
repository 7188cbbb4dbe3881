use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use reqwest::{Certificate, Client, Url, redirect};
use snafu::{ResultExt, Snafu, ensure};

use super::batch::MAX_IN_FLIGHT;
use super::http::{Endpoint, HttpVerifier};

/// How long a connection is kept for the next ask: for the next pods of a rollout, not for the next rollout.
const IDLE_LIMIT: Duration = Duration::from_secs(10);

/// The settings of an [`HttpVerifier`]; made by [`HttpVerifier::builder`].
#[derive(Clone)]
#[must_use]
pub struct HttpVerifierBuilder {
    base_url: String,
    timeout: Duration,
    root_certificates: Option<Vec<u8>>,
}

// The URL may hold credentials until `build` has refused them.
impl fmt::Debug for HttpVerifierBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpVerifierBuilder").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

/// Why an [`HttpVerifier`] cannot be built.
#[derive(Debug, Snafu)]
#[non_exhaustive]
pub enum BuildError {
    /// The base URL does not parse.
    #[snafu(display(
        "failed to read the base URL of the Verifier; accepted is http[s]://host[:port][/path]"
    ))]
    ParseUrl {
        /// What is wrong with it.
        source: <Url as std::str::FromStr>::Err,
    },
    /// The base URL's scheme is neither http nor https.
    #[snafu(display("the base URL of the Verifier has the scheme {scheme:?}; accepted are http and https"))]
    Scheme {
        /// The scheme found.
        scheme: String,
    },
    /// The base URL has a part that has no place in it.
    #[snafu(display("the base URL of the Verifier has {part}; accepted is http[s]://host[:port][/path]"))]
    UrlPart {
        /// The part found: a user or password, a query, or a fragment.
        part: &'static str,
    },
    /// The root certificates do not parse.
    #[snafu(display(
        "failed to read the root certificates for the Verifier; accepted are certificates in PEM"
    ))]
    ParseCertificates {
        /// What is wrong with them.
        source: reqwest::Error,
    },
    /// The root certificates hold none.
    #[snafu(display(
        "the root certificates for the Verifier hold no certificate; accepted are certificates in PEM"
    ))]
    NoCertificate,
    /// The HTTP client cannot be made.
    #[snafu(display("failed to set up the HTTP client for the Verifier"))]
    Client {
        /// What the HTTP client said.
        source: reqwest::Error,
    },
}

impl HttpVerifierBuilder {
    pub(super) fn new(base_url: &str) -> Self {
        Self { base_url: base_url.to_owned(), timeout: Duration::from_secs(2), root_certificates: None }
    }

    /// How long one ask may take, from looking up the host to the last byte of the answer. Default: 2 s.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Root certificates, in PEM, to trust besides those of the system.
    pub fn root_certificates(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.root_certificates = Some(pem.into());
        self
    }

    /// Makes the client. Nothing is sent.
    ///
    /// # Errors
    ///
    /// When the base URL or the root certificates are not acceptable, or an `https` URL is to be verified with the
    /// system's root certificates and the system has none.
    pub fn build(self) -> Result<HttpVerifier, BuildError> {
        let base = parse_base_url(&self.base_url)?;
        let roots = self.root_certificates.as_deref().map(parse_certificates).transpose()?;
        let client = Client::builder()
            .user_agent(concat!("lucid-notary/", env!("CARGO_PKG_VERSION")))
            .redirect(redirect::Policy::none())
            .referer(false)
            .no_proxy()
            .pool_max_idle_per_host(MAX_IN_FLIGHT)
            .pool_idle_timeout(IDLE_LIMIT)
            .timeout(self.timeout);
        // Loading the system's roots fails where there are none, which must not matter to plain HTTP.
        let client = match roots {
            Some(roots) => client.tls_certs_merge(roots),
            None if base.scheme() == "http" => client.tls_certs_only([]),
            None => client,
        };
        let client = client.build().context(ClientSnafu)?;

        let mut check = base.clone();
        check.set_path(&format!("{}/registry/check", base.path().trim_end_matches('/')));
        let origin = base.origin().ascii_serialization();
        Ok(HttpVerifier { client, endpoint: Arc::new(Endpoint { check, origin, timeout: self.timeout }) })
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

fn parse_certificates(pem: &[u8]) -> Result<Vec<Certificate>, BuildError> {
    let certificates = Certificate::from_pem_bundle(pem).context(ParseCertificatesSnafu)?;
    ensure!(!certificates.is_empty(), NoCertificateSnafu);
    Ok(certificates)
}
