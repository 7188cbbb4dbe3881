//! Pauses between the reconciliations of an object.

use std::time::{Duration, Instant};

use crate::target::Contention;

const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// Short, because the winner's write is already visible.
const CONFLICT_PAUSE: Duration = Duration::from_millis(100);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// Nothing is left to do until a dependency changes.
    Settled,
    Written,
    Conflict,
    Failed,
}

/// Backs off after consecutive failures and during [contention](Contention).
#[derive(Debug, Default)]
pub(super) struct Pace {
    failures: u32,
    contention: Contention,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Pause {
    /// Minimum time before the next reconciliation.
    pub(super) length: Duration,
    /// `true` if the object has to be reconciled again even if nothing changes.
    pub(super) retry: bool,
    /// `true` if contention starts with this reconciliation.
    pub(super) contention_begins: bool,
}

impl Pace {
    /// Returns the pause after a reconciliation that ended at `now`.
    pub(super) fn after(&mut self, end: End, now: Instant) -> Pause {
        self.failures = if end == End::Failed { self.failures.saturating_add(1) } else { 0 };
        let contention_begins = end == End::Written && self.contention.note_healed(now);
        let length = match end {
            End::Settled => Duration::ZERO,
            End::Written => self.contention.heal_after(now),
            End::Conflict => CONFLICT_PAUSE,
            End::Failed => FIRST_PAUSE.saturating_mul(1 << (self.failures - 1).min(16)).min(LONGEST_PAUSE),
        };
        Pause { length, retry: matches!(end, End::Conflict | End::Failed), contention_begins }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn failures_back_off_up_to_a_minute() {
        let (mut pace, now) = (Pace::default(), Instant::now());
        let pause = |length, retry| Pause { length, retry, contention_begins: false };
        for seconds in [1, 2, 4, 8, 16, 32, 60, 60] {
            assert_eq!(pace.after(End::Failed, now), pause(seconds * SECOND, true));
        }
        assert_eq!(pace.after(End::Settled, now), pause(Duration::ZERO, false));
        assert_eq!(pace.after(End::Failed, now), pause(SECOND, true), "a success ends the row");
    }

    #[test]
    fn contention_limits_writes_and_is_reported_once() {
        let (mut pace, mut now) = (Pace::default(), Instant::now());
        let (mut pauses, mut reported) = (Vec::new(), 0);
        for _ in 0..20 {
            let pause = pace.after(End::Written, now);
            assert!(!pause.retry);
            reported += u32::from(pause.contention_begins);
            pauses.push(pause.length.as_secs());
            now += pause.length;
        }
        assert_eq!((pauses[0], pauses[18], reported), (0, 60, 1), "{pauses:?}");
    }

    #[test]
    fn conflicts_are_retried_soon() {
        let pause = Pace::default().after(End::Conflict, Instant::now());
        assert_eq!(pause, Pause { length: CONFLICT_PAUSE, retry: true, contention_begins: false });
    }
}
