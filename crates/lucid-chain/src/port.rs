//! TCP ports.

use std::{collections::BTreeSet, num::NonZeroU16};

/// Converts a constant to a port; zero becomes 1.
pub(crate) const fn known(number: u16) -> NonZeroU16 {
    match NonZeroU16::new(number) {
        Some(port) => port,
        None => NonZeroU16::MIN,
    }
}

/// Maximum number of ports in a list.
pub(crate) const MAX_LISTED: usize = 32;

/// Parses ports separated by commas, at least one and at most [`MAX_LISTED`].
pub(crate) fn parse_list(text: &str) -> Option<BTreeSet<NonZeroU16>> {
    let ports: BTreeSet<_> = text.split(',').map(|port| parse(port.trim())).collect::<Option<_>>()?;
    (ports.len() <= MAX_LISTED).then_some(ports)
}

/// Parses a port from 1 to 65535 in decimal digits, without a sign.
pub(crate) fn parse(text: &str) -> Option<NonZeroU16> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}
