//! Client credentials: bearer tokens and certificates.

use lucid_certs::certificates_from_pem;
use reqwest::header::HeaderValue;
use reqwest::{Certificate, Client, ClientBuilder, Identity};
use tower::BoxError;

use super::error::root_cause;

/// Returns the header `Authorization` for the token in a file. Surrounding white space is ignored. Errors do not quote
/// the token.
pub(super) fn authorization(file: &[u8]) -> Result<HeaderValue, BoxError> {
    let token = file.trim_ascii();
    if token.is_empty() {
        return Err("the file is empty; expected a bearer token".into());
    }
    // `b64token` of RFC 6750, section 2.1.
    let is_b64token = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(byte);
    if let Some(at) = token.iter().position(|byte| !is_b64token(byte)) {
        let expected = "letters, digits and -._~+/ and = at the end";
        return Err(format!("byte {at} is not valid in a bearer token; expected {expected}").into());
    }
    let mut value = HeaderValue::from_bytes(&[b"Bearer ", token].concat())?;
    value.set_sensitive(true);
    Ok(value)
}

pub(super) fn with_roots(client: ClientBuilder, pem: &[u8]) -> Result<ClientBuilder, BoxError> {
    let roots = certificates_from_pem(pem)
        .map_err(|error| format!("failed to read the root certificates: {error}"))?;
    let roots = roots.iter().map(|root| Certificate::from_der(root)).collect::<Result<Vec<_>, _>>()?;
    Ok(client.tls_certs_only(roots))
}

pub(super) fn with_identity(
    client: ClientBuilder,
    certificate: &[u8],
    key: &[u8],
) -> Result<ClientBuilder, BoxError> {
    // reqwest skips certificates that it cannot read.
    certificates_from_pem(certificate)
        .map_err(|error| format!("failed to read the client's certificate: {error}"))?;
    let identity = Identity::from_pem(&[key, b"\n", certificate].concat()).map_err(|error| {
        let cause = root_cause(&error);
        format!(
            "failed to read the client's certificate and key: {cause}; expected a chain and an unencrypted key in PEM"
        )
    })?;
    Ok(client.identity(identity))
}

pub(super) fn finish(client: ClientBuilder) -> Result<Client, BoxError> {
    Ok(client.build().map_err(|error| format!("failed to set up TLS: {}", root_cause(&error)))?)
}
