//! TCP ports.

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
