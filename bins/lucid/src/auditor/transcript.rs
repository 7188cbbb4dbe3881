//! The bytes of a check.

use std::sync::{Arc, Mutex, PoisonError};

/// Number of bytes kept of each side.
const KEPT: usize = 1024;

/// Sender and receiver of bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Side {
    CallerSent,
    CallerReceived,
    ModelReceived,
    ModelSent,
}

/// The first bytes of each [`Side`].
#[derive(Clone, Debug, Default)]
pub(crate) struct Transcript(Arc<Mutex<[Bytes; 4]>>);

#[derive(Clone, Debug, Default)]
struct Bytes {
    first: Vec<u8>,
    total: usize,
}

impl Transcript {
    pub(crate) fn record(&self, side: Side, bytes: &[u8]) {
        let mut sides = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let recorded = &mut sides[side as usize];
        let kept = bytes.len().min(KEPT.saturating_sub(recorded.first.len()));
        recorded.first.extend_from_slice(&bytes[..kept]);
        recorded.total += bytes.len();
    }

    pub(crate) fn clear(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Default::default();
    }

    /// Returns the bytes of a side, escaped, with the number of bytes that are left out.
    pub(crate) fn shown(&self, side: Side) -> String {
        let sides = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Bytes { first, total } = &sides[side as usize];
        let shown = first.escape_ascii().to_string().replace("\\\"", "\"").replace("\\'", "'");
        match total - first.len() {
            0 => shown,
            left => format!("{shown}… ({left} more bytes)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_escaped_and_cut() {
        let transcript = Transcript::default();
        transcript.record(Side::ModelSent, b"\x1b[31m\r\n\"");
        assert_eq!(transcript.shown(Side::ModelSent), r#"\x1b[31m\r\n""#);
        assert_eq!(transcript.shown(Side::CallerSent), "");
        for _ in 0..2 {
            transcript.record(Side::CallerSent, &[b'x'; 1000]);
        }
        assert_eq!(transcript.shown(Side::CallerSent), "x".repeat(1024) + "… (976 more bytes)");
        transcript.clear();
        assert_eq!(transcript.shown(Side::CallerSent), "");
    }
}
