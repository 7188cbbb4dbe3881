//! How long everything takes

use std::time::Duration;

use snafu::{Snafu, ensure};

use crate::ca::{CA_LIFETIME, SERVING_LIFETIME};

const DAY: Duration = Duration::from_hours(24);

/// The durations of a rotation. They depend on each other: [`check`](Self::check) says how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Timing {
    /// How long a new authority is valid: 365 days
    pub ca_lifetime: Duration,
    /// How long before the end of the authority its successor is made: 30 days
    pub ca_renew_before: Duration,
    /// How long a serving certificate is valid, which is renewed after two thirds of it: 7 days
    pub leaf_lifetime: Duration,
    /// How long every target must be seen to trust an authority before anything is served under it: 60 s. API
    /// servers are fed by watches, and nothing acknowledges them.
    pub settle: Duration,
    /// How long an authority stays trusted after its successor signs: until the last certificate of it is
    /// expired, and half of that time again for clocks that are wrong; 10.5 days
    pub drain: Duration,
    /// How often everything is looked at when nothing happens: 1 minute
    pub check_interval: Duration,
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

/// Two durations that do not go together
#[derive(Debug, Snafu, Clone, PartialEq, Eq)]
#[snafu(display(
    "failed to accept the intervals: {longer} ({longer_is:?}) must be longer than {shorter} \
     ({shorter_is:?}), or {consequence}"
))]
pub struct TimingError {
    longer: &'static str,
    longer_is: Duration,
    shorter: &'static str,
    shorter_is: Duration,
    consequence: &'static str,
}

impl Timing {
    /// How long an authority stays trusted that is to be trusted no more: replicas that can be reached have
    /// followed by then
    #[must_use]
    pub fn urgent_drain(&self) -> Duration {
        2 * (self.settle + self.check_interval)
    }

    /// Whether the durations go together
    ///
    /// # Errors
    ///
    /// Names the first two that do not.
    pub fn check(&self) -> Result<(), TimingError> {
        let Self { ca_lifetime, ca_renew_before, leaf_lifetime, settle, drain, check_interval } = *self;
        let rules = [
            (
                ("ca_lifetime", ca_lifetime),
                ("ca_renew_before + leaf_lifetime", ca_renew_before + leaf_lifetime),
                "a new authority would be due for renewal at once",
            ),
            (
                ("ca_renew_before", ca_renew_before),
                ("settle + drain", settle + drain),
                "an authority would expire before its successor has taken over",
            ),
            (
                ("drain", drain),
                ("leaf_lifetime", leaf_lifetime),
                "a certificate in service could outlive the trust in it",
            ),
            (
                ("leaf_lifetime / 3", leaf_lifetime / 3),
                ("settle + check_interval", settle + check_interval),
                "a certificate could expire before its successor is served",
            ),
            (("check_interval", check_interval), ("zero", Duration::ZERO), "nothing else would be done"),
        ];
        for ((longer, longer_is), (shorter, shorter_is), consequence) in rules {
            ensure!(
                longer_is > shorter_is,
                TimingSnafu { longer, longer_is, shorter, shorter_is, consequence }
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_go_together_and_those_that_do_not_are_both_named() {
        let good = Timing::default();
        assert_eq!(good.check(), Ok(()));
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
            let message = bad.check().unwrap_err().to_string();
            assert!(names.iter().all(|name| message.contains(name)), "{message}");
        }
    }
}
