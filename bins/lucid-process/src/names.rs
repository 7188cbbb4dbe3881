//! How objects of Kubernetes are called.

/// A DNS label (RFC 1123), as the API server wants a namespace to be called, for clap's `value_parser`.
///
/// # Errors
///
/// When it is none; the message says what is accepted.
pub fn parse_namespace(text: &str) -> Result<String, &'static str> {
    const ACCEPTED: &str = "accepted are 1 to 63 of a-z, 0-9 and '-', with a letter or digit at both ends";
    if is_dns_label(text) { Ok(text.to_owned()) } else { Err(ACCEPTED) }
}

/// A DNS subdomain (RFC 1123), as the API server wants most objects to be called, for clap's `value_parser`.
///
/// # Errors
///
/// When it is none; the message says what is accepted.
pub fn parse_object_name(text: &str) -> Result<String, &'static str> {
    const ACCEPTED: &str = "accepted are up to 253 characters: labels of a-z, 0-9 and '-', joined by '.'";
    let is_name = text.len() <= 253 && text.split('.').all(is_dns_label);
    if is_name { Ok(text.to_owned()) } else { Err(ACCEPTED) }
}

fn is_dns_label(text: &str) -> bool {
    let is_alphanumeric = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let ends = text.bytes().next().zip(text.bytes().next_back());
    text.len() <= 63
        && ends.is_some_and(|(first, last)| is_alphanumeric(first) && is_alphanumeric(last))
        && text.bytes().all(|byte| is_alphanumeric(byte) || byte == b'-')
}
