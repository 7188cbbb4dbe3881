//! Rate limiting of repairs while another client keeps overwriting a target.

use std::time::{Duration, Instant};

/// Maximum number of immediate repairs in a row.
const BURST: u32 = 12;

/// Repair interval during contention.
const RETRY: Duration = Duration::from_mins(1);

/// Rate limiter for repairs of one target.
///
/// Up to a dozen repairs are immediate. If another client, such as an operator with its own CA, keeps
/// overwriting the bundle, the target is repaired only once a minute: every write makes all API servers open
/// new connections. Each minute without overwrites restores one immediate repair. Replicas count
/// independently.
#[derive(Debug, Clone, Default)]
pub(crate) struct Contention {
    /// Time at which all repairs are forgotten; each repair extends it by [`RETRY`].
    forgotten_at: Option<Instant>,
    /// Set when the budget is exhausted, until all repairs are forgotten.
    contended: bool,
}

impl Contention {
    /// Returns the delay before the next repair, zero unless the budget is exhausted. Does not consume the
    /// budget.
    pub(crate) fn heal_after(&self, now: Instant) -> Duration {
        (self.remembered(now) + RETRY).saturating_sub(RETRY * BURST)
    }

    /// Records a repair. Returns `true` if contention starts with it;
    /// [report](super::TrustTarget::report_contention) it then.
    pub(crate) fn note_healed(&mut self, now: Instant) -> bool {
        let was_contended = self.is_contended(now);
        self.forgotten_at = Some(now + self.remembered(now) + RETRY);
        self.contended = was_contended || !self.heal_after(now).is_zero();
        self.contended && !was_contended
    }

    /// Returns `true` while another client keeps overwriting the target. Ends when the target was not
    /// overwritten until all repairs are forgotten, at most twelve minutes.
    pub(crate) fn is_contended(&self, now: Instant) -> bool {
        self.contended && !self.remembered(now).is_zero()
    }

    /// Time until all repairs are forgotten.
    fn remembered(&self, now: Instant) -> Duration {
        self.forgotten_at.map_or(Duration::ZERO, |at| at.saturating_duration_since(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Overwrites the target every `pause` for `lasting`. Returns the times of the repairs and the number of
    /// contentions.
    fn fight(
        contention: &mut Contention,
        begin: Instant,
        pause: Duration,
        lasting: Duration,
    ) -> (Vec<Duration>, usize) {
        let (mut healed, mut begun) = (Vec::new(), 0);
        let mut at = begin;
        while at < begin + lasting {
            at += contention.heal_after(at);
            begun += usize::from(contention.note_healed(at));
            healed.push(at - begin);
            at += pause;
        }
        (healed, begun)
    }

    #[test]
    fn repairs_are_immediate_until_contention_starts() {
        // Interval of the overwrites in tenths of a second, their duration in seconds, repairs and contentions.
        for (what, pause, lasting, healed, contentions) in [
            ("one accident", 20, 1, 1, 0),
            ("a burst of ten", 1, 1, 10, 0),
            ("one every minute", 600, 3600, 60, 0),
            ("one every 5 minutes, for a day", 3000, 86_400, 288, 0),
            // 12 immediate repairs, then one per minute.
            ("at once, always", 1, 3600, 12 + 60, 1),
            ("every 30 s", 300, 3600, 12 + 60, 1),
        ] {
            let (pause, lasting) = (pause * SECOND / 10, lasting * SECOND);
            let (times, begun) = fight(&mut Contention::default(), Instant::now(), pause, lasting);
            assert!(times.len().abs_diff(healed) <= 1, "{what}: healed {} times", times.len());
            assert_eq!(begun, contentions, "{what}");
        }
    }

    #[test]
    fn writes_during_contention_are_a_minute_apart() {
        let (times, _) = fight(&mut Contention::default(), Instant::now(), SECOND / 10, 3600 * SECOND);
        let pauses: Vec<_> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let (burst, retries) = pauses.split_at(BURST as usize - 1);
        assert!(burst.iter().all(|pause| *pause < SECOND), "{burst:?}");
        assert!(retries.iter().skip(1).all(|pause| *pause == RETRY), "{retries:?}");
    }

    #[test]
    fn heal_after_does_not_consume_the_budget() {
        let contention = Contention::default();
        let now = Instant::now();
        assert!((0..100).all(|_| contention.heal_after(now).is_zero()));
    }

    #[test]
    fn quiet_time_restores_the_budget() {
        let mut contention = Contention::default();
        let begin = Instant::now();
        let (times, _) = fight(&mut contention, begin, SECOND, 600 * SECOND);
        let last = begin + *times.last().unwrap();
        assert!(contention.is_contended(last));
        assert!(!contention.heal_after(last).is_zero());

        assert!(contention.is_contended(last + 300 * SECOND), "it may just be slow");
        assert_eq!(contention.heal_after(last + 60 * SECOND), Duration::ZERO);
        let rested = last + RETRY * BURST;
        assert!(!contention.is_contended(rested));
        let (times, begun) = fight(&mut contention, rested, SECOND / 10, SECOND);
        assert_eq!((times.len(), begun), (10, 0));
        let (_, begun) = fight(&mut contention, rested + 2 * SECOND, SECOND / 10, 60 * SECOND);
        assert_eq!(begun, 1);
    }
}
