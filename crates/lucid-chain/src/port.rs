//! TCP ports, and URLs of ports in the pod.

use std::num::NonZeroU16;

/// Converts a constant to a port; zero becomes 1.
pub(crate) const fn known(number: u16) -> NonZeroU16 {
    match NonZeroU16::new(number) {
        Some(port) => port,
        None => NonZeroU16::MIN,
    }
}

/// Parses a port from 1 to 65535 in decimal digits, without a sign.
pub(crate) fn parse(text: &str) -> Option<NonZeroU16> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

/// Converts a declared number to a port; the API server rejects invalid ones.
pub(crate) fn usable<N: TryInto<u16>>(number: Option<N>) -> Option<NonZeroU16> {
    number?.try_into().ok().and_then(NonZeroU16::new)
}

pub(crate) fn local_url(port: NonZeroU16) -> String {
    format!("http://localhost:{port}")
}

pub(crate) fn local_port(url: &str) -> Option<NonZeroU16> {
    parse(url.strip_prefix("http://localhost:")?)
}

/// Returns `true` if `value` is one of these URLs, or one of them with a path.
pub(crate) fn begins_with_any<'a>(value: &str, urls: impl IntoIterator<Item = &'a String>) -> bool {
    let mut rests = urls.into_iter().filter_map(|url| value.strip_prefix(url.as_str()));
    rests.any(|rest| rest.is_empty() || rest.starts_with('/'))
}
