//! What the client shows of itself: a bearer token, a certificate.

use reqwest::header::HeaderValue;
use reqwest::{Certificate, Client, ClientBuilder, Identity};
use snafu::{ResultExt, Snafu, ensure};
use tower::BoxError;

/// Why a token is none. It is not quoted.
#[derive(Debug, Snafu)]
pub(super) enum TokenError {
    #[snafu(display("it is empty; accepted is a bearer token"))]
    EmptyToken,
    #[snafu(display(
        "the byte {at} is no character of a bearer token; accepted are letters, digits and -._~+/ and = at the end"
    ))]
    Character { at: usize },
}

/// The header `Authorization` with the token of a file, which may end in a line break.
pub(super) fn authorization(file: &[u8]) -> Result<HeaderValue, BoxError> {
    let token = file.trim_ascii();
    ensure!(!token.is_empty(), EmptyTokenSnafu);
    // RFC 6750, b64token
    let is_of_token = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(byte);
    if let Some(at) = token.iter().position(|byte| !is_of_token(byte)) {
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

/// A client that trusts nobody but these roots.
pub(super) fn with_roots(client: ClientBuilder, pem: &[u8]) -> Result<ClientBuilder, BoxError> {
    let roots = Certificate::from_pem_bundle(pem).context(ParseRootsSnafu)?;
    ensure!(!roots.is_empty(), NoRootSnafu);
    Ok(client.tls_certs_only(roots))
}

/// A client that shows a certificate.
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
