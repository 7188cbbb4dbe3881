//! Durations of a rotation.

use std::{fmt, time::Duration};

use crate::{
    ca::{CA_LIFETIME, SERVING_LIFETIME},
    error::Error,
};

const DAY: Duration = Duration::from_hours(24);

/// Durations of a rotation. They constrain each other; see [`check`](Self::check).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    pub(crate) ca_lifetime: Duration,
    /// Time before the expiry of the CA at which its successor is created.
    pub(crate) ca_renew_before: Duration,
    pub(crate) leaf_lifetime: Duration,
    /// Time for which every target must be observed to trust a CA before a certificate issued by it is served.
    pub(crate) settle: Duration,
    /// Time for which a CA stays trusted after its successor has started to sign.
    pub(crate) drain: Duration,
    /// Reconcile interval while nothing changes.
    pub(crate) check_interval: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            ca_lifetime: CA_LIFETIME,
            ca_renew_before: 30 * DAY,
            leaf_lifetime: SERVING_LIFETIME,
            settle: Duration::from_mins(1),
            drain: SERVING_LIFETIME + SERVING_LIFETIME / 2,
            check_interval: Duration::from_mins(1),
        }
    }
}

/// Displays a duration like Go and Kubernetes: `1h30m`.
struct Hours(Duration);

impl fmt::Display for Hours {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        let parts = [(seconds / 3_600, "h"), (seconds / 60 % 60, "m"), (seconds % 60, "s")];
        if seconds == 0 {
            return write!(f, "0s");
        }
        parts.iter().filter(|(count, _)| *count > 0).try_for_each(|(count, unit)| write!(f, "{count}{unit}"))
    }
}

impl Timing {
    /// Sets the validity period of serving certificates (default 7 days), which are renewed after two thirds of it. Extends
    /// that of the CA to at least four times as long and its renewal to two of them before its expiry, and sets the drain to
    /// one and a half.
    #[must_use]
    pub fn with_leaf_lifetime(self, leaf_lifetime: Duration) -> Self {
        Self {
            ca_lifetime: self.ca_lifetime.max(leaf_lifetime.saturating_mul(4)),
            ca_renew_before: self.ca_renew_before.max(leaf_lifetime.saturating_mul(2)),
            leaf_lifetime,
            drain: leaf_lifetime.saturating_add(leaf_lifetime / 2),
            ..self
        }
    }

    /// Sets the validity period of a new CA (default 365 days), and how long before its end its successor is created (30
    /// days).
    #[must_use]
    pub fn with_ca(self, lifetime: Duration, renew_before: Duration) -> Self {
        Self { ca_lifetime: lifetime, ca_renew_before: renew_before, ..self }
    }

    /// Sets the time for which every target must be observed to trust a CA before a certificate issued by it is served
    /// (default 60 s). API servers observe targets by watches, without acknowledgment.
    #[must_use]
    pub fn with_settle(self, settle: Duration) -> Self {
        Self { settle, ..self }
    }

    /// Sets the time for which a CA stays trusted after its successor has started to sign (default 10.5 days): until its last
    /// certificate has expired, plus half of that as a margin for wrong clocks.
    #[must_use]
    pub fn with_drain(self, drain: Duration) -> Self {
        Self { drain, ..self }
    }

    /// Sets the reconcile interval while nothing changes (default 1 min).
    #[must_use]
    pub fn with_check_interval(self, check_interval: Duration) -> Self {
        Self { check_interval, ..self }
    }

    /// Returns the time for which a compromised CA stays trusted: by then, all connected replicas have
    /// switched to its successor.
    #[cfg(any(test, feature = "kube"))]
    pub(crate) fn urgent_drain(&self) -> Duration {
        self.settle.saturating_add(self.check_interval).saturating_mul(2)
    }

    /// Checks that the durations are consistent. `option` maps names of durations, such as `leaf_lifetime`, to the options of
    /// a program, for the error.
    ///
    /// # Errors
    ///
    /// Returns an error that names the first two inconsistent durations.
    pub fn check(&self, option: impl Fn(&str) -> Option<&'static str>) -> Result<(), Error> {
        let Self { ca_lifetime, ca_renew_before, leaf_lifetime, settle, drain, check_interval } = *self;
        let rules = [
            (
                ("ca_lifetime", ca_lifetime),
                ("ca_renew_before + leaf_lifetime", ca_renew_before.saturating_add(leaf_lifetime)),
                "a new authority would be due for renewal at once",
            ),
            (
                ("ca_renew_before", ca_renew_before),
                ("settle + drain", settle.saturating_add(drain)),
                "an authority would expire before its successor signs",
            ),
            (
                ("drain", drain),
                ("leaf_lifetime", leaf_lifetime),
                "a certificate in service could outlive the trust in it",
            ),
            (
                ("leaf_lifetime / 3", leaf_lifetime / 3),
                ("settle + check_interval", settle.saturating_add(check_interval)),
                "a certificate could expire before its successor is served",
            ),
            (
                ("check_interval", check_interval),
                ("zero", Duration::ZERO),
                "the state would be checked continuously",
            ),
        ];
        let side = |formula: &str, length| {
            let terms: Vec<_> = formula.split(' ').map(|term| option(term).unwrap_or(term)).collect();
            format!("{} ({})", terms.join(" "), Hours(length))
        };
        for ((longer, longer_is), (shorter, shorter_is), consequence) in rules {
            if longer_is <= shorter_is {
                let (longer, shorter) = (side(longer, longer_is), side(shorter, shorter_is));
                return Err(Error::new(format!(
                    "failed to accept the durations: {longer} must be longer than {shorter}, or {consequence}"
                )));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_consistent_and_errors_name_both_durations() {
        let good = Timing::default();
        good.check(|_| None).unwrap();
        for (bad, names) in [
            (
                Timing { ca_lifetime: 37 * DAY, ..good },
                ["ca_lifetime (", "ca_renew_before + leaf_lifetime ("],
            ),
            (Timing { ca_renew_before: 10 * DAY, ..good }, ["ca_renew_before (", "settle + drain ("]),
            (Timing { drain: 7 * DAY, ..good }, ["drain (", "leaf_lifetime ("]),
            (Timing { settle: 3 * DAY, ..good }, ["leaf_lifetime / 3 (", "settle + check_interval ("]),
            (Timing { check_interval: Duration::ZERO, ..good }, ["check_interval (", "zero ("]),
        ] {
            let message = bad.check(|_| None).unwrap_err().to_string();
            assert!(names.iter().all(|name| message.contains(name)), "{message}");
        }
    }

    #[test]
    fn unlimited_durations_do_not_overflow() {
        let endless = Timing {
            ca_lifetime: Duration::MAX,
            ca_renew_before: Duration::MAX,
            leaf_lifetime: Duration::MAX,
            settle: Duration::MAX,
            drain: Duration::MAX,
            check_interval: Duration::MAX,
        };
        assert_eq!(endless.urgent_drain(), Duration::MAX);
        endless.check(|_| None).unwrap_err();
        let good = Timing::default();
        Timing { ca_lifetime: Duration::MAX, ..good }.check(|_| None).unwrap();
        for bad in [
            Timing { ca_renew_before: Duration::MAX, ..good },
            Timing { leaf_lifetime: Duration::MAX, ..good },
            Timing { settle: Duration::MAX, ..good },
            Timing { drain: Duration::MAX, ..good },
            Timing { check_interval: Duration::MAX, ..good },
        ] {
            bad.check(|_| None).unwrap_err();
        }
    }

    #[test]
    fn errors_can_use_the_names_of_options() {
        let bad = Timing { settle: 3 * DAY + Duration::from_secs(90), ..Timing::default() };
        let message = bad.check(|field| match field {
            "leaf_lifetime" => Some("--lifetime"),
            "settle" => Some("--settle"),
            "check_interval" => Some("1m"),
            _ => None,
        });
        let message = message.unwrap_err().to_string();
        let expected = "failed to accept the durations: --lifetime / 3 (56h) must be longer than --settle + 1m (72h2m30s), or ";
        assert!(message.starts_with(expected), "{message}");
    }
}
