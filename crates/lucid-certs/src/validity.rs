//! Validity periods of certificates.

use std::{
    fmt,
    time::{Duration, SystemTime},
};

/// Time by which certificates are backdated, for clients whose clocks are behind: 1 hour.
pub(crate) const BACKDATE: Duration = Duration::from_hours(1);

/// Validity period of a certificate (RFC 5280, section 4.1.2.5), inclusive at both ends, in whole seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Validity {
    /// Start of the period.
    pub not_before: SystemTime,
    /// End of the period.
    pub not_after: SystemTime,
}

impl Validity {
    pub(crate) fn contains(&self, now: SystemTime) -> bool {
        self.not_before <= now && !self.is_over(now)
    }

    #[must_use]
    pub(crate) fn is_over(&self, now: SystemTime) -> bool {
        now > self.not_after
    }

    pub(crate) fn duration(&self) -> Duration {
        self.not_after.duration_since(self.not_before).unwrap_or_default()
    }

    pub(crate) fn estimated_issue_time(&self) -> SystemTime {
        if self.duration() > BACKDATE { self.not_before + BACKDATE } else { self.not_before }
    }
}

impl fmt::Display for Validity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {}", Rfc3339(self.not_before), Rfc3339(self.not_after))
    }
}

/// Displays a time in RFC 3339 format.
pub(crate) struct Rfc3339(pub(crate) SystemTime);

impl fmt::Display for Rfc3339 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::try_from(self.0) {
            Ok(timestamp) => write!(f, "{timestamp:.0}"),
            Err(_) => f.write_str("a time out of range"),
        }
    }
}
