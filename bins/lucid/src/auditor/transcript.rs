//! The bytes of a check.

use std::sync::{Arc, Mutex, PoisonError};

/// Number of bytes kept of each side.
const KEPT: usize = 1024;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Side {
    CallerSent,
    CallerReceived,
    ModelReceived,
    ModelSent,
}

/// The first bytes of each [`Side`], and their number.
type Sides = [(Vec<u8>, usize); 4];

#[derive(Clone, Debug, Default)]
pub(crate) struct Transcript(Arc<Mutex<Sides>>);

impl Transcript {
    pub(crate) fn record(&self, side: Side, bytes: &[u8]) {
        let mut sides = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (first, total) = &mut sides[side as usize];
        first.extend(bytes.iter().take(KEPT.saturating_sub(first.len())));
        *total += bytes.len();
    }

    pub(crate) fn clear(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Default::default();
    }

    /// Returns the bytes of each side, escaped, with the number of bytes that are left out.
    pub(crate) fn shown(&self) -> [String; 4] {
        let sides = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sides.each_ref().map(|(first, total)| {
            let shown = first.escape_ascii().to_string().replace("\\\"", "\"").replace("\\'", "'");
            match total - first.len() {
                0 => shown,
                left => format!("{shown}… ({left} more bytes)"),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_escaped_and_cut() {
        let transcript = Transcript::default();
        transcript.record(Side::ModelSent, b"\x1b[31m\r\n\"");
        transcript.record(Side::CallerSent, &[b'x'; 1000]);
        transcript.record(Side::CallerSent, &[b'x'; 1000]);
        let sent = "x".repeat(1024) + "… (976 more bytes)";
        assert_eq!(transcript.shown(), [&*sent, "", "", r#"\x1b[31m\r\n""#]);
    }
}
