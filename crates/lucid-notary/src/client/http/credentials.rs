//! Client credentials: bearer tokens and certificates.

use reqwest::header::HeaderValue;
use reqwest::{Certificate, Client, ClientBuilder, Identity};
use snafu::{ResultExt, Snafu, ensure};
use tower::BoxError;

/// A bearer token is not valid. Messages do not quote it.
#[derive(Debug, Snafu)]
pub(super) enum TokenError {
    #[snafu(display("it is empty; accepted is a bearer token"))]
    EmptyToken,
    #[snafu(display(
        "the byte {at} is not valid in a bearer token; accepted are letters, digits and -._~+/ and = at the end"
    ))]
    Character { at: usize },
}

/// Returns the header `Authorization` for the token in a file. Surrounding white space is ignored.
pub(super) fn authorization(file: &[u8]) -> Result<HeaderValue, BoxError> {
    let token = file.trim_ascii();
    ensure!(!token.is_empty(), EmptyTokenSnafu);
    // `b64token` of RFC 6750, section 2.1.
    let is_b64token = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(byte);
    if let Some(at) = token.iter().position(|byte| !is_b64token(byte)) {
        return Err(CharacterSnafu { at }.build().into());
    }
    let mut value = HeaderValue::from_bytes(&[b"Bearer ", token].concat())?;
    value.set_sensitive(true);
    Ok(value)
}

#[derive(Debug, Snafu)]
pub(super) enum TlsError {
    #[snafu(display("failed to read the root certificates: {source}; accepted are certificates in PEM"))]
    ParseRoots { source: reqwest::Error },
    #[snafu(display("there is no root certificate; accepted are certificates in PEM"))]
    NoRoot,
    #[snafu(display(
        "failed to read the client's certificate and key: {}; accepted are a chain and an unencrypted key in PEM",
        super::error::root_cause(source)
    ))]
    ParseIdentity { source: reqwest::Error },
    #[snafu(display("failed to set up TLS: {}", super::error::root_cause(source)))]
    SetUp { source: reqwest::Error },
}

/// Trusts only the given root certificates.
pub(super) fn with_roots(client: ClientBuilder, pem: &[u8]) -> Result<ClientBuilder, BoxError> {
    let roots = Certificate::from_pem_bundle(pem).context(ParseRootsSnafu)?;
    ensure!(!roots.is_empty(), NoRootSnafu);
    Ok(client.tls_certs_only(roots))
}

/// Presents a client certificate.
pub(super) fn with_identity(
    client: ClientBuilder,
    certificate: &[u8],
    key: &[u8],
) -> Result<ClientBuilder, BoxError> {
    let identity = Identity::from_pem(&[key, b"\n", certificate].concat()).context(ParseIdentitySnafu)?;
    Ok(client.identity(identity))
}

pub(super) fn finish(client: ClientBuilder) -> Result<Client, BoxError> {
    Ok(client.build().context(SetUpSnafu)?)
}
